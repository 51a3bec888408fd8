//! One question, many votes. Here is the counting: how many nodes must agree, and whether they still
//! can. Each round puts one question to all nodes and says what their answers amount to; it is told
//! what each node answered and what time it is, and never sends anything. An answer that comes after
//! the decision changes nothing, unless an extension failed for want of it.

mod acquire;
mod ballot;
mod extend;
mod force;
mod proposals;
mod release;

use std::num::NonZeroUsize;

pub use acquire::{AcquireRound, AcquireSpec, AcquireStep, Refusal};
pub use ballot::{Ballot, Vote};
pub use extend::{ExtendRound, ExtendStep, LeaseClaim};
pub use force::{ForceRound, ForceStep};
pub(crate) use proposals::proposed_at;
pub use proposals::{Outlook, Proposals};
pub use release::{Belief, ReleaseRound, ReleaseStep};

/// More than half of the nodes, so that any two quorums share a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: usize,
}

/// What the answers so far amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tally {
    /// It can still go either way.
    Pending,
    /// Enough nodes said yes.
    Won,
    /// Too many nodes said no for a yes to be possible.
    Lost,
}

impl Quorum {
    /// The quorum of `nodes` nodes: `nodes / 2 + 1`.
    pub fn majority_of(nodes: NonZeroUsize) -> Self {
        Self { nodes: nodes.get() }
    }

    /// How many nodes there are.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// How many must agree.
    pub fn needed(self) -> usize {
        self.nodes / 2 + 1
    }

    /// How many may be down while the rest can still decide.
    pub fn spare(self) -> usize {
        self.nodes - self.needed()
    }

    /// Judges `yes` and `no` votes; the rest has not answered.
    ///
    /// # Panics
    /// If more votes are counted than there are nodes: a node was counted twice.
    pub fn tally(self, yes: usize, no: usize) -> Tally {
        assert!(yes + no <= self.nodes, "a node was counted twice");
        if yes >= self.needed() {
            Tally::Won
        } else if self.nodes - no >= self.needed() {
            Tally::Pending
        } else {
            Tally::Lost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: usize) -> Quorum {
        Quorum::majority_of(NonZeroUsize::new(nodes).unwrap())
    }

    #[test]
    fn the_quorum_of_each_size_by_enumeration() {
        let needed: Vec<_> = (1..=9).map(|n| of(n).needed()).collect();
        assert_eq!(needed, [1, 2, 2, 3, 3, 4, 4, 5, 5]);
        let spare: Vec<_> = (1..=9).map(|n| of(n).spare()).collect();
        assert_eq!(spare, [0, 0, 1, 1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn any_two_quorums_share_a_node() {
        for n in 1..=20 {
            assert!(2 * of(n).needed() > n, "{n}");
        }
    }

    #[test]
    fn a_vote_is_lost_only_when_a_yes_is_impossible() {
        let five = of(5);
        assert_eq!(five.tally(2, 2), Tally::Pending);
        assert_eq!(five.tally(3, 0), Tally::Won);
        assert_eq!(five.tally(2, 3), Tally::Lost);
        let four = of(4);
        assert_eq!(four.tally(2, 2), Tally::Lost, "half of an even number is not a majority");
        assert_eq!(of(1).tally(0, 0), Tally::Pending);
    }
}
