//! What passes between processes and servers.

use std::sync::Arc;

use leasehold_core::{Moment, Request};

use super::{Event, Message, World};
use crate::client::Client;
use crate::clock::{MILLIS, SECOND, Time};
use crate::history::Happening;
use crate::network::Way;
use crate::server::Server;

impl World {
    fn delay(&mut self, node: usize) -> Time {
        let base = self.scenario.latency;
        let jitter = self.chance.within(0..base / 2 + 1);
        // Now and then a packet is lost and sent again.
        let resent =
            if self.chance.within(0..500) == 0 { self.chance.within(0..300 * MILLIS) } else { 0 };
        base / 2 + jitter + resent + self.servers[node].slow_by
    }

    pub(super) fn send(
        &mut self,
        client: usize,
        node: usize,
        ask: u64,
        request: Arc<Request>,
        identity: Option<Arc<str>>,
    ) {
        let delay = self.delay(node);
        let Some(at) = self.links.pass(client, node, Way::There, self.now, delay) else {
            // Nobody is at the other end, and nobody says so.
            return;
        };
        let generation = self.links.generation(client, node);
        let life = self.clients[client].life;
        let boots = self.servers[node].boots;
        let message = Message {
            client,
            life,
            node,
            generation,
            boots,
            ask,
            request,
            identity,
            is_late: false,
        };
        self.at(at, Event::Arrive(message));
    }

    pub(super) fn arrive(&mut self, mut message: Message) {
        let Message { client, life, node, generation, boots, .. } = message;
        let server = &self.servers[node];
        if server.is_down || server.boots != boots {
            // Its connection died with the server.
            if self.is_current(client, life) {
                let delay = self.delay(node);
                self.after(delay, Event::Disconnect { client, life, node, generation });
            }
            return;
        }
        if server.hangs_until > self.now {
            let until = server.hangs_until;
            self.at(until, Event::Arrive(message));
            return;
        }
        let is_connected = self.is_current(client, life) && self.links.is(client, node, generation);
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
        let now = self.now;
        let server = &mut self.servers[node];
        let before = owner(server, now, &message.request);
        let identity = message.identity.as_deref();
        let reply = server.apply(now, generation, identity, &message.request);
        let after = owner(server, now, &message.request);
        if self.tells || message.request.lock().is_some() {
            let (request, reply) = (message.request, reply.clone());
            self.tell(Happening::Applied { node, request, reply, before, after });
        }
        if is_connected {
            let delay = self.delay(node);
            if let Some(at) = self.links.pass(client, node, Way::Back, now, delay) {
                let (ask, answer) = (message.ask, Ok(reply));
                self.at(at, Event::Answer { client, life, node, generation, ask, answer });
            }
        }
    }

    pub(super) fn connect(&mut self, client: usize, life: u64, node: usize) {
        if !self.is_current(client, life) || self.links.is_connected(client, node) {
            return;
        }
        let is_reachable = !self.servers[node].is_down
            && self.servers[node].hangs_until <= self.now
            && !self.links.is_cut_off(client, node, self.now)
            && self.paused_until[client] <= self.now;
        if !is_reachable {
            let pause = self.chance.within(20 * MILLIS..250 * MILLIS);
            return self.after(pause, Event::Connect { client, life, node });
        }
        let generation = self.links.connect(client, node, self.now);
        self.with(client, |this, now, acts| this.connected(now, node, generation, acts));
    }

    pub(super) fn cut(&mut self, client: usize, node: usize) {
        if node >= self.members_of(client) || !self.links.disconnect(client, node) {
            return;
        }
        let life = self.clients[client].life;
        self.with(client, |this, now, acts| this.disconnected(now, node, acts));
        let pause = self.chance.within(MILLIS..50 * MILLIS);
        self.after(pause, Event::Connect { client, life, node });
    }

    pub(super) fn start_client(&mut self, client: usize) {
        self.with(client, Client::start);
        let life = self.clients[client].life;
        for node in 0..self.members_of(client) {
            let pause = self.chance.within(0..5 * MILLIS);
            self.after(pause, Event::Connect { client, life, node });
        }
    }
}

fn owner(server: &Server, now: Time, request: &Request) -> Option<leasehold_core::Holder> {
    let moment = Moment::from_nanos(server.clock.at(now));
    server.table.owner(moment, request.lock()?).cloned()
}
