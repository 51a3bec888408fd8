//! What is done to the world, and what is left when nothing more is.

use leasehold_core::Moment;

use super::{Event, World};
use crate::client::Client;
use crate::clock::SECOND;
use crate::faults::Fault;
use crate::history::Happening;

impl World {
    pub(super) fn next_fault(&mut self) {
        if self.is_calm {
            return;
        }
        let fault = Fault::draw(&mut self.chance, &self.scenario);
        self.tell(Happening::Fault(fault.to_string()));
        self.inflict(fault);
        let pause = self.chance.within(0..2 * self.scenario.fault_every);
        self.after(pause, Event::NextFault);
    }

    fn inflict(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::Kill { node, down_for, loses } => {
                if !self.servers[node].is_down {
                    self.servers[node].is_down = true;
                    for client in 0..self.scenario.clients {
                        self.cut_if_alive(client, node);
                    }
                    self.after(down_for, Event::StartServer { node, loses });
                }
            }
            Fault::Flush { node } => self.servers[node].flush(),
            Fault::Hang { node, time } => self.servers[node].hangs_until = now + time,
            Fault::Slow { node, by } => self.servers[node].slow_by = by,
            Fault::Cut { client, node } => self.cut_if_alive(client, node),
            Fault::Partition { clients, nodes, way, time } => {
                self.links.partition(clients, nodes, way, now + time);
            }
            Fault::HalfOpen { client, node, time } => {
                self.links.half_open(client, node);
                let (life, generation) =
                    (self.clients[client].life, self.links.generation(client, node));
                self.after(time, Event::Disconnect { client, life, node, generation });
            }
            Fault::Pause { client, time } => {
                if !self.is_dead[client] {
                    let until = self.paused_until[client].max(now + time);
                    self.paused_until[client] = until;
                    self.tell(Happening::Paused { client, until });
                }
            }
            Fault::Crash { client, time } => {
                if !self.is_dead[client] {
                    self.is_dead[client] = true;
                    self.paused_until[client] = 0;
                    for node in 0..self.scenario.nodes {
                        self.links.disconnect(client, node);
                    }
                    self.tell(Happening::Crashed { client });
                    self.after(time, Event::StartClient { client });
                }
            }
            Fault::Jump { node, by } => self.servers[node].clock.jump(now, by),
            Fault::Evict { node, lock } => self.servers[node].evict(now, &self.locks[lock]),
        }
    }

    fn cut_if_alive(&mut self, client: usize, node: usize) {
        if !self.is_dead[client] {
            self.cut(client, node);
        }
    }

    pub(super) fn start_server(&mut self, node: usize, loses: usize) {
        self.servers[node].start(loses);
        let boots = self.servers[node].boots;
        self.tell(Happening::Fault(format!("node {node} is up again ({boots} starts)")));
    }

    pub(super) fn calm_down(&mut self) {
        self.is_calm = true;
        self.links.heal();
        for client in 0..self.scenario.clients {
            for node in 0..self.scenario.nodes {
                if self.links.is_half_open(client, node) {
                    self.cut_if_alive(client, node);
                }
            }
        }
        for server in &mut self.servers {
            (server.slow_by, server.hangs_until) = (0, server.hangs_until.min(self.now + SECOND));
        }
        for client in &mut self.clients {
            client.is_last_round = true;
        }
        self.tell(Happening::FaultsOver);
    }

    pub(super) fn rest(&mut self) {
        let mut owners = Vec::new();
        // Whoever still waits or holds is another promise's business.
        let all_gone = self.clients.iter().all(Client::is_retired);
        for (node, server) in self.servers.iter().enumerate().filter(|_| all_gone) {
            let moment = Moment::from_nanos(server.clock.at(self.now));
            for lock in &self.locks {
                if let Some(owner) = server.table.owner(moment, lock) {
                    owners.push((node, owner.clone()));
                }
            }
        }
        self.tell(Happening::Rest { owners });
    }
}
