//! Worlds in which operators change the member list at any time: one node more, twice in a row too, a
//! node replaced, a node fewer, all replaced, another longest lease; also two operators at once who want
//! different lists.
//!
//! A node of the old list that is barred, and forgets that, votes for the old list again after its
//! quarantine; if a quorum of the old list does, and those who use it do not reach the others, two
//! lists decide. Whoever empties servers that left a list must see to it that nobody uses that list. So
//! fewer nodes than a quorum of any list ever forget anything here. And where the longest lease becomes
//! shorter no node does: one that forgets how long the list before had to be waited for, waits as its
//! own list says.

use std::time::Duration;

use leasehold_judge::Chance;

use crate::clock::{SECOND, Time};
use crate::scenario::MAX_TTL;
use crate::server::Persistence;
use crate::tales::Tale;

/// A member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The numbers of its members' addresses.
    pub nodes: Vec<usize>,
    /// Its longest lease.
    pub max_ttl: Duration,
}

/// What an operator means to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The number of the list as it was.
    pub from: usize,
    /// The number of the list as it shall be.
    pub to: usize,
    /// When it is first tried.
    pub at: Time,
}

/// How the member list is changed.
#[derive(Debug, Clone)]
pub struct Lists {
    /// All lists that anybody knows; the first is the one at the beginning.
    pub all: Vec<List>,
    /// What is done.
    pub plans: Vec<Plan>,
    /// So many nodes, the first ones, may forget.
    pub forgetful: usize,
    /// Whether nodes that are added have waited before: somebody started a client of the new list
    /// early, which met nobody else.
    pub have_waited: bool,
    /// Percent of the steps after which an operator stops half-way.
    pub stops: u64,
    /// What comes together, if it is more than chance brings.
    pub tale: Option<Tale>,
}

/// The longest lease of a list that has a short one.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

impl Lists {
    /// For a world of so many nodes; there may be fewer.
    pub(crate) fn draw(chance: &mut Chance, nodes: &mut usize) -> Self {
        let kind = chance.index(10);
        let grows_twice = kind < 2;
        if grows_twice && chance.percent(60) {
            *nodes = 1;
        }
        let count = *nodes;
        let first = List { nodes: (0..count).collect(), max_ttl: MAX_TTL };
        let mut all = vec![first.clone()];
        let at = chance.within(2 * SECOND..25 * SECOND);
        let mut plans = vec![Plan { from: 0, to: 1, at }];
        match kind {
            0 | 1 => {
                all.push(first.with(count));
                all.push(first.with(count).with(count + 1));
                let at = at
                    + [chance.within(SECOND / 10..SECOND), chance.within(SECOND..8 * SECOND)]
                        [chance.index(2)];
                plans.push(Plan { from: 1, to: 2, at });
            }
            // Two at once, who may want the same.
            2 | 3 => {
                all.push(first.changed(chance, 0));
                all.push(first.changed(chance, 1));
                let at = at
                    + [0, chance.within(0..SECOND), chance.within(0..4 * SECOND)][chance.index(3)];
                // All lists of one look alike, so nobody can tell two such changes apart.
                if all[1..].iter().any(|list| list.nodes.len() > 1) {
                    plans.push(Plan { from: 0, to: 2, at });
                } else {
                    all.truncate(2);
                }
            }
            _ => all.push(first.changed(chance, 0)),
        }
        if all.iter().any(|list| list.max_ttl < MAX_TTL) {
            // Far longer before than after, so that a lease of before outlives what comes after.
            all[0].max_ttl = 2 * MAX_TTL;
        }
        let quorum = |list: &List| list.nodes.len() / 2 + 1;
        let smallest = all.iter().map(quorum).min().unwrap_or(1);
        let mut lists = Self {
            all,
            plans,
            forgetful: if chance.percent(60) { smallest - 1 } else { 0 },
            have_waited: chance.percent(60),
            stops: [0, 3, 10][chance.index(3)],
            tale: None,
        };
        if lists.shortens_max_ttl() {
            lists.forgetful = 0;
        }
        lists
    }

    /// Whether a list has a shorter longest lease than another.
    pub(crate) fn shortens_max_ttl(&self) -> bool {
        self.all.iter().any(|list| list.max_ttl < MAX_TTL)
    }

    /// The lists that processes are told early, by which process: so that nodes which are added one
    /// after the other have watchers from the beginning. None of them can decide: the first of these
    /// nodes is the first list's, and the second has nobody else.
    pub(crate) fn told_early(&self) -> Vec<(usize, usize)> {
        let grows_twice = self.plans.get(1).is_some_and(|plan| plan.from == 1);
        if grows_twice && self.have_waited { vec![(1, 1), (2, 2)] } else { Vec::new() }
    }

    /// Whether a list has a quorum without the nodes of the first one. Whoever uses it early has a
    /// cluster of their own.
    pub(crate) fn is_apart(&self, list: usize) -> bool {
        let nodes = &self.all[list].nodes;
        let fresh = nodes.iter().filter(|node| !self.all[0].nodes.contains(node));
        fresh.count() > nodes.len() / 2
    }

    /// How many addresses there are.
    pub(crate) fn addresses(&self) -> usize {
        self.all.iter().flat_map(|list| &list.nodes).max().map_or(0, |last| last + 1)
    }

    /// Whether the server of this address must not be emptied.
    pub(crate) fn keeps_memory(&self, node: usize) -> bool {
        let joins = !self.all[0].nodes.contains(&node);
        node >= self.forgetful && !(joins && self.tale == Some(Tale::Emptied))
    }

    /// Those that must not forget keep everything.
    pub(crate) fn persistence(&self, drawn: &[Persistence]) -> Vec<Persistence> {
        let of = |node: usize| match drawn.get(node) {
            Some(drawn) if node < self.forgetful => *drawn,
            _ if !self.keeps_memory(node) => Persistence::Nothing,
            _ => Persistence::Always,
        };
        (0..self.addresses()).map(of).collect()
    }
}

impl List {
    fn with(&self, node: usize) -> Self {
        let mut list = self.clone();
        list.nodes.push(node);
        list
    }

    /// This list with some change; `apart` keeps the addresses of two operators apart.
    fn changed(&self, chance: &mut Chance, apart: usize) -> Self {
        let count = self.nodes.len();
        let fresh = count + apart;
        let mut list = self.clone();
        match chance.index(10) {
            0 => return self.with(fresh),
            1 | 2 => list.nodes[chance.index(count)] = fresh,
            3 if count > 1 => _ = list.nodes.remove(chance.index(count)),
            // Down to one node.
            4 if count > 1 => list.nodes = vec![chance.index(count)],
            3..=7 => {
                list.nodes = (count..2 * count).map(|node| node + apart).collect();
                // Nodes that are all new remember no lease of before: only the wait stands between.
                if chance.percent(60) {
                    list.max_ttl = SHORT;
                }
            }
            _ => list.max_ttl = [SHORT, 2 * MAX_TTL][chance.index(2)],
        }
        list
    }
}
