//! What is done to the world, and what is left when nothing more is.

use leasehold_core::Moment;

use super::servers::Start;
use super::{Event, World};
use crate::client::Client;
use crate::clock::SECOND;
use crate::faults::Fault;
use crate::history::Happening;
use crate::server::Server;

impl World {
    pub(super) fn next_fault(&mut self) {
        if self.is_calm {
            return;
        }
        let fault = Fault::draw(&mut self.chance, &self.scenario);
        self.tell(Happening::Fault(fault.to_string()));
        self.inflict(fault);
        let pause = match self.scenario.plot {
            Some(plot) => plot.lasts() + self.chance.within(0..SECOND),
            None => self.chance.within(0..2 * self.scenario.fault_every),
        };
        self.after(pause, Event::NextFault);
    }

    pub(super) fn inflict(&mut self, fault: Fault) {
        let now = self.now;
        let tale = self.scenario.lists.as_ref().and_then(|lists| lists.tale);
        if tale.is_some_and(|tale| tale.is_spoilt_by(&fault, self.scenario.nodes)) {
            return;
        }
        match fault {
            Fault::Kill { node, down_for, loses } => {
                self.kill(self.addresses.home(node), down_for, Start::Own { loses });
            }
            Fault::Restore { node, down_for, of } => {
                let start = of.map_or(Start::Backup, Start::Copy);
                self.kill(self.addresses.home(node), down_for, start);
            }
            Fault::Flush { node } if self.keeps_memory(node) => {}
            Fault::Flush { node } => self.home(node).flush(now),
            Fault::Hang { node, time } => self.home(node).hangs_until = now + time,
            Fault::Slow { node, by } => self.home(node).slow_by = by,
            Fault::Cut { client, node } => self.cut_if_alive(client, node),
            Fault::Partition { clients, nodes, way, time } => {
                self.links.partition(clients, nodes, way, now + time);
            }
            Fault::HalfOpen { client, node, time } => {
                self.links.half_open(client, node);
                let on = self.connection(client, node);
                self.after(time, Event::Disconnect { on });
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
                    self.end_client(client);
                    self.after(time, Event::StartClient { client });
                }
            }
            Fault::Blackout { down_for } => {
                for node in 0..self.scenario.addresses() {
                    if self.scenario.nodes > 1 {
                        self.kill(self.addresses.home(node), down_for, Start::Own { loses: 5 });
                    }
                }
            }
            Fault::Step { .. }
            | Fault::StepAll { .. }
            | Fault::PutRight { .. }
            | Fault::Slew { .. }
            | Fault::Discipline { .. }
            | Fault::BadClock { .. }
            | Fault::Freeze { .. } => self.change_clocks(fault),
            Fault::Init => self.set_up(),
            Fault::Plot { plot, node, client } => self.plot(plot, node, client),
            Fault::Evict { node, lock } => {
                let home = self.addresses.home(node);
                self.servers[home].evict(now, &self.locks[lock]);
            }
            Fault::Copy { .. }
            | Fault::Failover { .. }
            | Fault::Move { .. }
            | Fault::RestartUnseen { .. }
            | Fault::Mislead { .. }
            | Fault::Turns { .. } => self.change_servers(fault),
        }
    }

    /// A process dies.
    pub(super) fn end_client(&mut self, client: usize) {
        self.is_dead[client] = true;
        self.paused_until[client] = 0;
        for node in 0..self.scenario.addresses() {
            self.links.disconnect(client, node);
        }
        self.tell(Happening::Crashed { client });
    }

    /// The server that is a member.
    fn home(&mut self, node: usize) -> &mut Server {
        let home = self.addresses.home(node);
        &mut self.servers[home]
    }

    pub(super) fn cut_if_alive(&mut self, client: usize, node: usize) {
        if !self.is_dead[client] {
            self.cut(client, node);
        }
    }

    pub(super) fn calm_down(&mut self) {
        self.is_calm = true;
        self.links.heal();
        for client in 0..self.scenario.clients {
            for node in 0..self.scenario.addresses() {
                if self.links.is_half_open(client, node) {
                    self.cut_if_alive(client, node);
                }
            }
        }
        self.end_odd_client();
        self.put_servers_right();
        self.put_clocks_right();
        self.finish_changes();
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
        for client in 0..if self.tells { self.clients.len() } else { 0 } {
            for objection in self.clients[client].objections(self.now) {
                self.tell(Happening::Fault(format!("process {client} still wants: {objection}")));
            }
        }
        let odd = self.scenario.odd_client();
        let mut are_served = self.clients.iter().filter(|client| Some(client.number) != odd);
        let all_gone = are_served.all(Client::is_retired);
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
