//! A state: nodes, changers, leases.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use leasehold_core::Record;

use super::Promise;
use super::changer::Changer;

/// A set of nodes, a bit for each.
pub(super) type Bits = u8;

pub(super) fn bit(node: usize) -> Bits {
    1 << node
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) changers: Vec<Arc<Changer>>,
    pub(super) leases: Vec<Lease>,
    /// How many servers may still restart.
    pub(super) restarts: u8,
    /// The highest fence that somebody completed with.
    pub(super) completed: u64,
    /// Whether somebody completed with a fence that was not above that.
    pub(super) went_back: bool,
}

/// A server, and what is written on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Node {
    pub(super) record: Option<Arc<Written>>,
    /// Counts its starts.
    pub(super) run: u8,
    /// The highest fence that it gave.
    pub(super) highest: u64,
}

/// A record as it stands on a node, and as it is read.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: Arc<str>,
    pub(super) record: Record,
}

impl Written {
    pub(super) fn new(record: Record) -> Arc<Self> {
        Arc::new(Self { text: record.to_string().into(), record })
    }
}

impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Written {}

impl Hash for Written {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// A client, and its lease if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Lease {
    pub(super) phase: Phase,
    /// Where it owns the lock.
    pub(super) owns: Bits,
    /// Who voted in this round.
    pub(super) votes: Bits,
    /// Who served its list when this round began, and was not written to since: a client takes all
    /// its passes for a round before it asks anybody.
    pub(super) passes: Bits,
    /// The nodes that wait, and began to after the round that it holds by.
    pub(super) outwaits: Bits,
    /// The nodes that wait, and began to after this round.
    pub(super) outwaits_round: Bits,
    pub(super) fence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Asks,
    Holds,
    /// It wanted the lock once.
    Over,
}

impl Lease {
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.phase, Phase::Asks | Phase::Holds)
    }
}

impl State {
    /// Which promise is broken here.
    pub(super) fn broken(&self) -> Option<Promise> {
        let holds = self.leases.iter().filter(|lease| lease.phase == Phase::Holds).count();
        match (holds > 1, self.went_back) {
            (true, _) => Some(Promise::M),
            (false, true) => Some(Promise::F),
            (false, false) => None,
        }
    }

    pub(super) fn owner(&self, node: usize) -> Option<usize> {
        self.leases.iter().position(|lease| lease.owns & bit(node) != 0)
    }
}
