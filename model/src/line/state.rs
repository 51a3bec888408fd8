//! One moment of a lock with its line: what the nodes hold, what is on its way, and where each
//! process stands.

use leasehold_core::wait::{Line, Move};

use super::Setup;

/// A set of processes or of nodes.
pub(super) type Bits = u8;

/// One process, which wants the lock again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) phase: Phase,
    /// It knows that others wait.
    pub(super) contended: bool,
    /// The production code: its place in line and its watches.
    pub(super) line: Line,
    /// Nodes at which it has still to set up its watch.
    pub(super) to_watch: Bits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Wants nothing.
    Idle,
    /// Does what its `Line` says.
    Waits,
    /// Has asked: nodes that have not answered, nodes that granted, and owners it heard of.
    Asks {
        open: Bits,
        granted: Bits,
        met: Bits,
    },
    Holds,
    Dead,
}

impl Process {
    pub(super) fn idle(setup: &Setup) -> Self {
        Self { phase: Phase::Idle, contended: false, line: setup.line(), to_watch: 0 }
    }

    /// Whether it wants the lock and does not have it.
    pub(super) fn is_waiting(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Holds | Phase::Dead)
    }

    /// Whether its `Line` tells it to ask.
    pub(super) fn is_about_to_ask(&self) -> bool {
        self.phase == Phase::Waits && self.line.next() == Move::Ask
    }
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) processes: Vec<Process>,
    /// Who owns each node.
    pub(super) owners: Vec<Option<u8>>,
    /// Per node: processes whose release is on its way there.
    pub(super) releases: Vec<Bits>,
    /// Per node: processes that are told when the owner goes.
    pub(super) watchers: Vec<Bits>,
    /// Per node: processes to which that word is on its way.
    pub(super) freed: Vec<Bits>,
    /// In their order, on the node that keeps it.
    pub(super) line: Vec<u8>,
    /// Those who wait, in the order in which they first entered the line.
    pub(super) came: Vec<u8>,
    /// One was served from the line before another who had come earlier.
    pub(super) overtook: bool,
    /// Processes that are about to leave the line.
    pub(super) leaving: Bits,
    /// Processes to which the word is on its way that they are first.
    pub(super) turns: Bits,
    /// Processes to which a nudge is on its way.
    pub(super) nudges: Bits,
    /// How many more hints may be lost.
    pub(super) losses: u8,
    /// How many more processes may die.
    pub(super) deaths: u8,
}

impl State {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            processes: vec![Process::idle(setup); setup.processes],
            owners: vec![None; setup.nodes],
            releases: vec![0; setup.nodes],
            watchers: vec![0; setup.nodes],
            freed: vec![0; setup.nodes],
            line: Vec::new(),
            came: Vec::new(),
            overtook: false,
            leaving: 0,
            turns: 0,
            nudges: 0,
            losses: setup.losses,
            deaths: setup.deaths,
        }
    }

    /// Whether a message is on its way, or somebody is about to send one.
    pub(super) fn is_busy(&self) -> bool {
        let on_the_way = |process: &Process| {
            process.to_watch != 0
                || matches!(process.phase, Phase::Asks { .. })
                || process.phase == Phase::Waits && process.line.next() != Move::Rely
        };
        let bits = self.releases.iter().chain(&self.freed).fold(0, |all, bits| all | bits);
        bits | self.leaving | self.turns | self.nudges != 0 || self.processes.iter().any(on_the_way)
    }
}
