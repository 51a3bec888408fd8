//! Which server a new connection meets: that of the member's address, or whomever a stale name
//! leads a process to, or one of several that take turns.

use std::collections::HashMap;

/// Where the members' addresses lead.
#[derive(Debug)]
pub struct Addresses {
    homes: Vec<usize>,
    /// Servers that share a member's address with its home, and how many connections it saw.
    guests: HashMap<usize, (usize, usize)>,
    /// Processes that are led astray: by process and member, to a server.
    stale: HashMap<(usize, usize), usize>,
}

impl Addresses {
    /// Each member has the server of its own number.
    pub fn new(members: usize) -> Self {
        Self { homes: (0..members).collect(), guests: HashMap::new(), stale: HashMap::new() }
    }

    /// The server that is this member.
    pub fn home(&self, member: usize) -> usize {
        self.homes[member]
    }

    /// The member that this server is.
    pub fn member(&self, server: usize) -> Option<usize> {
        self.homes.iter().position(|home| *home == server)
    }

    /// Whether any address leads to this server, for anybody.
    pub fn lead_to(&self, server: usize) -> bool {
        self.homes.contains(&server)
            || self.guests.values().any(|(guest, _)| *guest == server)
            || self.stale.values().any(|to| *to == server)
    }

    /// Whom a new connection of `client` to `member` meets.
    pub fn meet(&mut self, client: usize, member: usize) -> usize {
        if let Some(server) = self.stale.get(&(client, member)) {
            return *server;
        }
        match self.guests.get_mut(&member) {
            Some((guest, count)) => {
                *count += 1;
                // The guest first: a client that comes back meets a new server.
                if count.is_multiple_of(2) { self.homes[member] } else { *guest }
            }
            None => self.homes[member],
        }
    }

    /// The member is another server from now on.
    pub fn lead(&mut self, member: usize, server: usize) {
        self.homes[member] = server;
    }

    /// Whether several servers take turns at the member's address.
    pub fn is_shared(&self, member: usize) -> bool {
        self.guests.contains_key(&member)
    }

    /// A second server answers every other connection to the member.
    pub fn invite(&mut self, member: usize, guest: usize) {
        self.guests.insert(member, (guest, 0));
    }

    /// The second one is gone. Returns it.
    pub fn dismiss(&mut self, member: usize) -> Option<usize> {
        self.guests.remove(&member).map(|(guest, _)| guest)
    }

    /// For one process the name of a member leads to `server`.
    pub fn mislead(&mut self, client: usize, member: usize, server: usize) {
        self.stale.insert((client, member), server);
    }

    /// It leads to the member again. Whether it did not.
    pub fn correct(&mut self, client: usize, member: usize) -> bool {
        self.stale.remove(&(client, member)).is_some()
    }

    /// The processes that are led astray, and for which member.
    pub fn misled(&self) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = self.stale.keys().copied().collect();
        all.sort_unstable();
        all
    }
}
