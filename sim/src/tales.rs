//! Changes of the member list of which chance alone hardly ever tells, because several things must come
//! together.

use std::time::Duration;

use leasehold_judge::Chance;

use crate::clock::{SECOND, Time};
use crate::faults::Fault;
use crate::lists::{List, Lists, Plan, SHORT};
use crate::scenario::MAX_TTL;

/// What comes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tale {
    /// From long leases to short ones, and on to another list before those are over.
    InARow,
    /// Most of the new list joins, has no disk, and restarts at any time, also half-way. What keeps its
    /// record is reached by everybody: who reaches only those that forgot cannot know that they have to
    /// wait.
    Emptied,
    /// A change is given up half-way; leases become longer, and then it is made after all.
    GivenUp,
    /// A server leaves whose clock is far ahead. When nobody uses the old list any more, all of the new
    /// one forget.
    Ahead,
}

impl Lists {
    /// For a world of so many nodes as it says then.
    pub(crate) fn tale(chance: &mut Chance, nodes: &mut usize) -> Self {
        use Tale::{Ahead, Emptied, GivenUp, InARow};
        let tale = [InARow, Emptied, GivenUp, Ahead][chance.index(4)];
        let count = [3, 3, 5][chance.index(3)];
        *nodes = count;
        let (short, long) = (SHORT, Duration::from_secs(10));
        let list = |nodes, max_ttl| List { nodes, max_ttl };
        let first = |max_ttl| list((0..count).collect(), max_ttl);
        let fresh = |from: usize| (from..from + count).collect::<Vec<_>>();
        // All new, or all but one.
        let joining = |chance: &mut Chance| {
            let mut nodes = fresh(count);
            if chance.percent(50) {
                nodes[0] = chance.index(count);
            }
            nodes
        };
        // By then the first list has waited, and has been used.
        let early = if tale == InARow { 14 * SECOND } else { 6 * SECOND };
        let at = early + chance.within(0..4 * SECOND);
        let soon = at + chance.within(0..SECOND);
        let plan = |from, to, at| Plan { from, to, at };
        let (all, plans) = match tale {
            InARow => {
                let second = joining(chance);
                let mut third = second.clone();
                match chance.index(4) {
                    0 => third = fresh(2 * count),
                    1 => third = fresh(0),
                    2 => third.push(2 * count),
                    _ => third[chance.index(count)] = 2 * count,
                }
                let all = vec![first(long), list(second, short), list(third, short)];
                (all, vec![plan(0, 1, at), plan(1, 2, soon)])
            }
            Emptied => {
                let mut nodes = fresh(count);
                // The first of the old list that is barred.
                nodes[0] = 0;
                let max_ttl = [short, MAX_TTL][chance.index(2)];
                let all = vec![first(MAX_TTL), list(nodes, max_ttl)];
                (all, vec![plan(0, 1, at)])
            }
            GivenUp => {
                let all = vec![first(short), first(long), list(joining(chance), short)];
                let again = soon + chance.within(13 * SECOND..20 * SECOND);
                (all, vec![plan(0, 2, at), plan(0, 1, soon), plan(1, 2, again)])
            }
            Ahead => {
                let mut left = first(MAX_TTL);
                left.nodes.swap_remove(chance.index(count));
                if chance.percent(70) {
                    left.nodes.push(count);
                }
                (vec![first(MAX_TTL), left], vec![plan(0, 1, at)])
            }
        };
        let (forgetful, have_waited, stops) = (0, false, 0);
        Self { all, plans, forgetful, have_waited, stops, tale: Some(tale) }
    }
}

impl Tale {
    /// How often a change is begun at most.
    pub(crate) fn tries(self, plan: usize, most: usize) -> usize {
        if self == Self::GivenUp && plan == 0 { 1 } else { most }
    }

    /// Percent of the records after which the operator of such a change stops.
    pub(crate) fn stops(self, plan: usize) -> u64 {
        match self {
            Self::Emptied => 25,
            Self::GivenUp if plan == 0 => 25,
            _ => 1,
        }
    }

    /// How long an operator takes at most to begin again.
    pub(crate) fn pause(self) -> Time {
        if self == Self::Emptied { 25 * SECOND } else { 4 * SECOND }
    }

    /// Whether a fault would keep somebody from a server of the first list, of which there are so many.
    pub(crate) fn is_spoilt_by(self, fault: &Fault, count: usize) -> bool {
        self == Self::Emptied
            && match fault {
                Fault::Partition { .. } | Fault::Pause { .. } => true,
                Fault::Kill { node, .. }
                | Fault::Hang { node, .. }
                | Fault::Slow { node, .. }
                | Fault::Cut { node, .. }
                | Fault::HalfOpen { node, .. } => *node < count,
                _ => false,
            }
    }
}
