//! Connections: in order while they stand, broken now and then, and silent where the network is
//! parted. What was under way on a broken one is for the world to decide. A connection leads to the
//! server that it met when it was made, wherever the member's address leads by now.

use crate::clock::Time;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From a process to a node.
    There,
    /// From a node to a process.
    Back,
}

#[derive(Debug, Clone, Copy, Default)]
struct Link {
    server: usize,
    generation: u64,
    is_connected: bool,
    is_half_open: bool,
    last_there: Time,
    last_back: Time,
}

#[derive(Debug, Clone)]
struct Partition {
    clients: u64,
    nodes: u64,
    way: Option<Way>,
    until: Time,
}

/// All connections.
#[derive(Debug)]
pub struct Links {
    nodes: usize,
    links: Vec<Link>,
    partitions: Vec<Partition>,
}

impl Links {
    /// Nobody is connected yet.
    pub fn new(clients: usize, nodes: usize) -> Self {
        Self { nodes, links: vec![Link::default(); clients * nodes], partitions: Vec::new() }
    }

    fn link(&mut self, client: usize, node: usize) -> &mut Link {
        &mut self.links[client * self.nodes + node]
    }

    fn look(&self, client: usize, node: usize) -> &Link {
        &self.links[client * self.nodes + node]
    }

    /// Counts the connections.
    pub fn generation(&self, client: usize, node: usize) -> u64 {
        self.look(client, node).generation
    }

    /// Whether there is one.
    pub fn is_connected(&self, client: usize, node: usize) -> bool {
        self.look(client, node).is_connected
    }

    /// Whether this one still stands.
    pub fn is(&self, client: usize, node: usize, generation: u64) -> bool {
        let link = self.look(client, node);
        link.is_connected && link.generation == generation
    }

    /// The server that the latest one met.
    pub fn server(&self, client: usize, node: usize) -> usize {
        self.look(client, node).server
    }

    /// Who is connected to `server`: the process, and the member that it takes it for.
    pub fn of_server(&self, server: usize) -> Vec<(usize, usize)> {
        let of = |(place, link): (usize, &Link)| {
            let is_of = link.is_connected && link.server == server;
            is_of.then_some((place / self.nodes, place % self.nodes))
        };
        self.links.iter().enumerate().filter_map(of).collect()
    }

    /// A new connection to `server`.
    pub fn connect(&mut self, client: usize, node: usize, server: usize, now: Time) -> u64 {
        let link = self.link(client, node);
        let generation = link.generation + 1;
        *link = Link {
            server,
            generation,
            is_connected: true,
            is_half_open: false,
            last_there: now,
            last_back: now,
        };
        generation
    }

    /// Breaks it; says whether there was one.
    pub fn disconnect(&mut self, client: usize, node: usize) -> bool {
        std::mem::take(&mut self.link(client, node).is_connected)
    }

    /// The other end is gone and nobody says so.
    pub fn half_open(&mut self, client: usize, node: usize) {
        self.link(client, node).is_half_open = true;
    }

    /// Nothing passes between these any more, in one direction or both.
    pub fn partition(&mut self, clients: u64, nodes: u64, way: Option<Way>, until: Time) {
        self.partitions.push(Partition { clients, nodes, way, until });
    }

    /// Everything passes.
    pub fn heal(&mut self) {
        self.partitions.clear();
    }

    /// Whether the other end is gone.
    pub fn is_half_open(&self, client: usize, node: usize) -> bool {
        self.look(client, node).is_half_open
    }

    fn blocked_until(&self, client: usize, node: usize, way: Way, now: Time) -> Time {
        let concerns = |partition: &&Partition| {
            partition.until > now
                && partition.clients >> client & 1 == 1
                && partition.nodes >> node & 1 == 1
                && partition.way.is_none_or(|blocked| blocked == way)
        };
        self.partitions
            .iter()
            .filter(concerns)
            .map(|partition| partition.until)
            .max()
            .unwrap_or(now)
    }

    /// Whether a connection cannot be made now.
    pub fn is_cut_off(&self, client: usize, node: usize, now: Time) -> bool {
        self.blocked_until(client, node, Way::There, now) > now
            || self.blocked_until(client, node, Way::Back, now) > now
    }

    /// When something that is sent now arrives: not before what was sent before it, and where the
    /// network is parted, when it no longer is. `None` if it never does.
    pub fn pass(
        &mut self,
        client: usize,
        node: usize,
        way: Way,
        now: Time,
        delay: Time,
    ) -> Option<Time> {
        let free = self.blocked_until(client, node, way, now);
        let link = self.link(client, node);
        if link.is_half_open {
            return None;
        }
        let last = match way {
            Way::There => &mut link.last_there,
            Way::Back => &mut link.last_back,
        };
        *last = (free + delay).max(*last + 1);
        Some(*last)
    }
}
