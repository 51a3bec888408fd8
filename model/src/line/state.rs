//! One moment of a lock with its line: what the nodes hold, what is on its way, and where each
//! process stands.

/// A set of processes or of nodes.
pub(super) type Bits = u8;

/// One process, which wants the lock again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) phase: Phase,
    /// It knows that others wait.
    pub(super) memo: bool,
    /// It was told that it is first in line.
    pub(super) is_first: bool,
    /// Nodes at which it has still to set up its watch.
    pub(super) to_watch: Bits,
    /// Nodes that told it that the lock is free.
    pub(super) free: Bits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Wants nothing.
    Idle,
    /// On its way into the line, before it ever asked or after a refusal.
    Entering {
        was_refused: bool,
    },
    /// In line.
    Waits {
        was_refused: bool,
    },
    /// Has asked: nodes that have not answered, nodes that granted, and owners it heard of.
    Asks {
        open: Bits,
        granted: Bits,
        met: Bits,
        in_line: bool,
    },
    Holds,
    Dead,
}

impl Process {
    pub(super) const IDLE: Self =
        Self { phase: Phase::Idle, memo: false, is_first: false, to_watch: 0, free: 0 };

    /// Whether it wants the lock and does not have it.
    pub(super) fn is_waiting(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Holds | Phase::Dead)
    }
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    pub(super) fn new(processes: usize, nodes: usize, losses: u8, deaths: u8) -> Self {
        Self {
            processes: vec![Process::IDLE; processes],
            owners: vec![None; nodes],
            releases: vec![0; nodes],
            watchers: vec![0; nodes],
            freed: vec![0; nodes],
            line: Vec::new(),
            came: Vec::new(),
            overtook: false,
            leaving: 0,
            turns: 0,
            nudges: 0,
            losses,
            deaths,
        }
    }

    /// Whether a message is on its way, or somebody is about to send one.
    pub(super) fn is_busy(&self) -> bool {
        let quorum = self.owners.len() / 2 + 1;
        let on_the_way = |process: &Process| {
            process.to_watch != 0
                || process.free.count_ones() as usize >= quorum
                || matches!(process.phase, Phase::Entering { .. } | Phase::Asks { .. })
        };
        let bits = self.releases.iter().chain(&self.freed).fold(0, |all, bits| all | bits);
        bits | self.leaving | self.turns | self.nudges != 0 || self.processes.iter().any(on_the_way)
    }
}
