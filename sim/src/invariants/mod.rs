//! What must be so. An invariant sees everything that happens in true time, and knows nothing of how
//! the core works. What holders are promised is judged by [`leasehold_judge`]; here is what excuses
//! it, and one file for each promise that needs votes, servers or clocks to be judged.

mod claims;
mod counted_once;
mod exclusion;
mod fences;
mod gives_back;
mod judged;
mod noticed;
mod own_release;
mod quorum_grants;
mod readings;
mod released;
mod remembers;
mod served;

use crate::clock::Time;
use crate::history::Invariant;

/// What the promises are about.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How many nodes the member list has; the shortest, if there are several.
    pub nodes: usize,
    /// How many of them are a quorum.
    pub quorum: usize,
    /// So many other nodes remember each number that a node may have forgotten.
    pub others: usize,
    /// How many processes there are.
    pub clients: usize,
    /// How many of their holders have to be served.
    pub holders: usize,
    /// How long a server that forgot must not be counted.
    pub memory: Time,
    /// How far the clocks of nodes may be apart.
    pub max_skew: Time,
}

/// All of them.
pub fn all(terms: Terms) -> Vec<Box<dyn Invariant>> {
    let Terms { quorum, clients, holders, memory, max_skew, .. } = terms;
    let seen_here: [Box<dyn Invariant>; 8] = [
        Box::new(own_release::OwnRelease),
        Box::new(quorum_grants::QuorumGrants::new(quorum)),
        Box::new(remembers::Remembers::new(quorum, memory, max_skew)),
        Box::new(counted_once::CountedOnce),
        Box::new(claims::Claims::default()),
        Box::new(released::Released::new(quorum)),
        Box::new(served::Served::new(clients, holders)),
        Box::new(gives_back::GivesBack::default()),
    ];
    judged::all(terms).chain(seen_here).collect()
}
