//! What happened in a run: when, how often, and to whom.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// Which kill it belongs to.
    pub(super) round: usize,
    pub(super) phase: Phase,
}

/// Where a round stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Both servers are well.
    #[default]
    Before,
    /// One of them is being killed: nobody can tell who gives an answer now.
    Killing,
    /// It is dead: the other gives every answer to what is asked from now on.
    Dead,
    /// It was started again.
    Back,
}

impl Moment {
    /// Servers take turns.
    pub(super) fn victim(self) -> usize {
        self.round % 2
    }

    /// Whether a lease that was heard of at `granted` outlived the server `home` that granted it, if it
    /// is still good for a request that is sent at this moment.
    pub(super) fn outlives(self, granted: Moment, home: usize) -> bool {
        let last = Moment { phase: Phase::Before, ..self };
        self.phase == Phase::Dead && home == self.victim() && granted <= last
    }
}

/// How one client gets on.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// When the latest turn began that it completed.
    turn: Option<Moment>,
    /// When it completed it.
    at: Instant,
}

/// The counts of a run.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) now: Moment,
    clients: Vec<Progress>,
    /// How long acquires took in cycles that were completed then, in nanoseconds.
    pub(super) waits: BTreeMap<Moment, Vec<u64>>,
    /// The longest that a client was without a completed turn, by when that ended.
    pub(super) pauses: BTreeMap<Phase, Duration>,
    /// What was asked and got no answer of use, and why.
    pub(super) failed: BTreeMap<(&'static str, String), u64>,
    /// Acquires that were told that another holds the lock.
    pub(super) refused: u64,
    /// Leases that were granted, and whose holder never heard of it.
    pub(super) unheard: u64,
    /// Leases that ran out before they were heard of, renewed or released.
    pub(super) ran_out: u64,
    /// Releases that were found to be done when they were repeated.
    pub(super) released_before: u64,
    /// Leases of a killed server that another renewed, and that another released.
    pub(super) renewed_elsewhere: u64,
    pub(super) released_elsewhere: u64,
    /// What must not be.
    pub(super) wrong: Vec<String>,
}

impl Tally {
    /// Of so many clients.
    pub(super) fn new(clients: usize, now: Instant) -> Tally {
        Tally {
            now: Moment::default(),
            clients: vec![Progress { turn: None, at: now }; clients],
            waits: BTreeMap::new(),
            pauses: BTreeMap::new(),
            failed: BTreeMap::new(),
            refused: 0,
            unheard: 0,
            ran_out: 0,
            released_before: 0,
            renewed_elsewhere: 0,
            released_elsewhere: 0,
            wrong: Vec::new(),
        }
    }

    /// A client renewed what it keeps.
    pub(super) fn renewed(&mut self, client: usize, began: Moment) {
        let turn = &mut self.clients[client].turn;
        *turn = (*turn).max(Some(began));
    }

    /// A client completed a turn with a lock of the server `home`, and takes the next at once. To get on
    /// without a server means to get on with its locks.
    pub(super) fn turn(&mut self, client: usize, began: Moment, home: usize, now: Instant) {
        if began.phase != Phase::Dead || home == began.victim() {
            self.renewed(client, began);
        }
        let last = std::mem::replace(&mut self.clients[client].at, now);
        let longest = self.pauses.entry(self.now.phase).or_default();
        *longest = now.saturating_duration_since(last).max(*longest);
    }

    /// Clients that completed no turn that began at `moment` or later.
    pub(super) fn stuck(&self, moment: Moment) -> Vec<usize> {
        let is_stuck = |client: &usize| self.clients[*client].turn < Some(moment);
        (0..self.clients.len()).filter(is_stuck).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(round: usize, phase: Phase) -> Moment {
        Moment { round, phase }
    }

    #[test]
    fn a_lease_outlives_its_server_if_it_was_granted_before_and_used_after_the_kill() {
        let dead = at(1, Phase::Dead);
        assert_eq!(dead.victim(), 1);
        assert!(dead.outlives(at(1, Phase::Before), 1));
        assert!(dead.outlives(at(0, Phase::Dead), 1));
        assert!(!dead.outlives(at(1, Phase::Before), 0), "its server lives");
        assert!(!dead.outlives(at(1, Phase::Killing), 1), "the other may have granted it");
        assert!(!dead.outlives(at(1, Phase::Dead), 1), "the other granted it");
        assert!(!at(1, Phase::Back).outlives(at(1, Phase::Before), 1), "it may answer again");
    }

    #[test]
    fn a_client_is_stuck_until_it_completes_what_it_began_since() {
        let start = Instant::now();
        let mut tally = Tally::new(2, start);
        let (before, dead) = (at(0, Phase::Before), at(0, Phase::Dead));
        assert_eq!(tally.stuck(before), [0, 1]);
        tally.turn(0, before, 0, start);
        tally.turn(1, before, 1, start + Duration::from_secs(1));
        assert_eq!(tally.stuck(before), [0_usize; 0]);
        tally.now = dead;
        tally.turn(1, before, 0, start + Duration::from_secs(2));
        tally.turn(1, dead, 1, start + Duration::from_secs(5));
        assert_eq!(tally.stuck(dead), [0, 1], "the killed server's locks are still to come");
        tally.turn(1, dead, 0, start + Duration::from_secs(6));
        assert_eq!(tally.stuck(dead), [0]);
        tally.renewed(0, dead);
        assert_eq!(tally.stuck(dead), [0_usize; 0]);
        let second = Duration::from_secs;
        assert_eq!(tally.pauses, [(Phase::Before, second(1)), (Phase::Dead, second(3))].into());
    }
}
