//! What passes between processes and servers.

use leasehold_core::{Answer, Moment, Reply, Request};

use super::{Connection, Event, Message, World};
use crate::client::{Client, Question};
use crate::clock::{MILLIS, SECOND, Time};
use crate::history::{Given, Happening};
use crate::network::Way;
use crate::scenario::Assumption;
use crate::server::Server;

impl World {
    pub(super) fn delay(&mut self, server: usize) -> Time {
        let base = self.scenario.latency;
        let jitter = self.chance.within(0..base / 2 + 1);
        // Now and then a packet is lost and sent again.
        let resent =
            if self.chance.within(0..500) == 0 { self.chance.within(0..300 * MILLIS) } else { 0 };
        base / 2 + jitter + resent + self.servers[server].slow_by
    }

    pub(super) fn send(&mut self, client: usize, node: usize, ask: u64, question: Question) {
        let on = self.connection(client, node);
        let server = self.links.server(client, node);
        let delay = self.delay(server);
        let Some(at) = self.links.pass(client, node, Way::There, self.now, delay) else {
            // Nobody is at the other end, and nobody says so.
            return;
        };
        let stops = self.servers[server].stops;
        let message = Message { on, server, stops, ask, question, is_late: false };
        self.at(at, Event::Arrive(message));
    }

    /// The latest connection of a process to a member.
    pub(super) fn connection(&self, client: usize, node: usize) -> Connection {
        let (life, generation) = (self.clients[client].life, self.links.generation(client, node));
        Connection { client, life, node, generation }
    }

    pub(super) fn arrive(&mut self, mut message: Message) {
        let on = message.on;
        let server = &self.servers[message.server];
        if server.is_down || server.stops != message.stops {
            // Its connection died with the server.
            if self.is_current(on.client, on.life) {
                let delay = self.delay(message.server);
                self.after(delay, Event::Disconnect { on });
            }
            return;
        }
        if server.hangs_until > self.now {
            let until = server.hangs_until;
            self.at(until, Event::Arrive(message));
            return;
        }
        let is_connected = self.stands(on);
        if !is_connected && !message.is_late {
            // The connection is gone; what was on its way is lost, or comes when it comes.
            message.is_late = true;
            if self.chance.percent(40) {
                return;
            }
            if self.chance.percent(50) {
                let late = self.chance.within(0..8 * SECOND);
                self.after(late, Event::Arrive(message));
                return;
            }
        }
        let (ask, server) = (message.ask, message.server);
        let (answer, given) = self.apply(message);
        if is_connected {
            let delay = self.delay(server);
            if let Some(at) = self.links.pass(on.client, on.node, Way::Back, self.now, delay) {
                self.at(at, Event::Answer { on, ask, answer, given });
            }
        }
    }

    /// Lets a server carry out a request.
    fn apply(&mut self, message: Message) -> (Answer, Option<Given>) {
        let Message { on, server: number, question, .. } = message;
        let Question { request, identity, run, compares } = question;
        let now = self.now;
        let run = run.filter(|_| !self.scenario.breaks(Assumption::Restarts));
        let server = &mut self.servers[number];
        let record = match *request {
            Request::ReplaceRecord { .. } => Some(server.table.record().map(str::to_owned)),
            _ => None,
        };
        let before = owner(server, now, &request);
        let (identity, run) = (identity.as_deref(), run.as_deref());
        let mut answer = server.apply(now, on.generation, identity, run, &request);
        let after = owner(server, now, &request);
        let given = Given { server: number, at: now, forgot: server.forgot };
        if let Ok(Reply::Facts(facts)) = &mut answer {
            facts.others = self.meet(on, compares);
        }
        if let Ok(reply) = &answer
            && (self.tells || request.lock().is_some())
        {
            let reply = reply.clone();
            self.tell(Happening::Applied { node: number, request, reply, before, after });
        }
        if let Some(before) = record {
            self.tell_admission(number, Some((on.client, on.life)), before.as_deref());
            if self.scenario.odd_client() == Some(on.client) {
                self.repair_later(number);
            }
        }
        (answer, Some(given))
    }

    /// Whom so many further connections of the same process to the same address meet. Also servers
    /// that cannot be reached now: that these go unnoticed is beyond what is promised.
    fn meet(&mut self, on: Connection, connections: usize) -> Vec<String> {
        if self.scenario.breaks(Assumption::Turns) {
            return Vec::new();
        }
        let met = |_| self.addresses.meet(on.client, on.node);
        let met: Vec<usize> = (0..connections).map(met).collect();
        met.into_iter().map(|server| self.servers[server].run_id()).collect()
    }

    pub(super) fn connect(&mut self, client: usize, life: u64, node: usize) {
        if !self.is_current(client, life) || self.links.is_connected(client, node) {
            return;
        }
        let server = self.addresses.meet(client, node);
        let is_reachable = !self.servers[server].is_down
            && self.servers[server].hangs_until <= self.now
            && !self.links.is_cut_off(client, node, self.now)
            && self.paused_until[client] <= self.now;
        if !is_reachable {
            let pause = self.chance.within(20 * MILLIS..250 * MILLIS);
            return self.after(pause, Event::Connect { client, life, node });
        }
        let generation = self.links.connect(client, node, server, self.now);
        if let Some(member) = self.member_of(client, node) {
            self.with(client, |this, now, acts| this.connected(now, member, generation, acts));
        }
    }

    pub(super) fn cut(&mut self, client: usize, node: usize) {
        let Some(member) = self.member_of(client, node) else { return };
        if !self.links.disconnect(client, node) {
            return;
        }
        let life = self.clients[client].life;
        self.with(client, |this, now, acts| this.disconnected(now, member, acts));
        let pause = self.chance.within(MILLIS..50 * MILLIS);
        self.after(pause, Event::Connect { client, life, node });
    }

    pub(super) fn start_client(&mut self, client: usize) {
        self.with(client, Client::start);
        let life = self.clients[client].life;
        for node in self.known[client].clone() {
            let pause = self.chance.within(0..5 * MILLIS);
            self.after(pause, Event::Connect { client, life, node });
        }
    }
}

fn owner(server: &Server, now: Time, request: &Request) -> Option<leasehold_core::Holder> {
    let moment = Moment::from_nanos(server.clock.at(now));
    server.table.owner(moment, request.lock()?).cloned()
}
