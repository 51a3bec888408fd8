//! Give the lease back to all nodes, and tell what became of it.

use super::Ballot;
use crate::{Answer, Holder, Moment, Owner, Quorum, Reply};

/// One release. It is never repeated: what it does not reach expires.
#[derive(Debug, Clone)]
pub struct ReleaseRound {
    quorum: Quorum,
    holder: Holder,
    was_valid: bool,
    ballot: Ballot,
}

/// What to do next, or what became of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseStep {
    /// Wait for answers, or for the time limit.
    Wait,
    /// It was held, and a quorum no longer knows it.
    Released,
    /// It had run out before.
    AlreadyExpired,
    /// It had run out before, and another holds the lock now.
    TakenOver {
        /// Who.
        by: Owner,
    },
    /// Too few nodes answered to tell: it may be there until its Ttl is over.
    Unknown,
}

impl ReleaseRound {
    /// A round about to be sent at `now`; `was_valid` tells whether the lease still was.
    pub fn new(holder: Holder, quorum: Quorum, was_valid: bool, now: Moment) -> Self {
        Self { quorum, holder, was_valid, ballot: Ballot::new(quorum.nodes(), now) }
    }

    /// The votes so far.
    pub fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    /// A node answered.
    pub fn answer(&mut self, now: Moment, node: usize, answer: Answer) {
        self.ballot.cast(now, node, answer);
    }

    /// The time limit of the nodes is over.
    pub fn time_up(&mut self, now: Moment) {
        self.ballot.close(now);
    }

    /// Decides.
    pub fn step(&self) -> ReleaseStep {
        let released = self.ballot.count(|reply| matches!(reply, Reply::Released));
        let without = self.ballot.count(|reply| matches!(reply, Reply::NotHeld { .. }));
        let gone = released + without;
        let needed = self.quorum.needed();
        if released >= needed || (self.was_valid && gone >= needed) {
            return ReleaseStep::Released;
        }
        if self.ballot.waiting() > 0 {
            return ReleaseStep::Wait;
        }
        // Nodes that are silent may have had it, and with those that gave it back be a quorum.
        let can_have_been_held = self.quorum.nodes() - without >= needed;
        if gone < needed || can_have_been_held {
            return ReleaseStep::Unknown;
        }
        match self.successor() {
            Some(by) => ReleaseStep::TakenOver { by },
            None => ReleaseStep::AlreadyExpired,
        }
    }

    /// Somebody else who owns a quorum. Fewer nodes may just be another's attempt.
    fn successor(&self) -> Option<Owner> {
        let owners = || {
            self.ballot.replies().filter_map(|reply| match reply {
                Reply::NotHeld { owner: Some(owner) } if !owner.is(&self.holder) => Some(owner),
                _ => None,
            })
        };
        owners()
            .find(|owner| owners().filter(|other| other == owner).count() >= self.quorum.needed())
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::NodeError;

    fn outcome(was_valid: bool, answers: &[Answer]) -> ReleaseStep {
        let quorum = Quorum::majority_of(NonZeroUsize::new(5).unwrap());
        let holder = Holder::new("me", 1).unwrap();
        let mut round = ReleaseRound::new(holder, quorum, was_valid, Moment::default());
        for (node, answer) in answers.iter().enumerate() {
            round.answer(Moment::default(), node, answer.clone());
        }
        round.step()
    }

    fn other() -> Owner {
        Owner::Holder(Holder::new("other", 2).unwrap())
    }

    #[test]
    fn the_outcomes_by_enumeration() {
        let yes = || Ok(Reply::Released);
        let no = || Ok(Reply::NotHeld { owner: None });
        let theirs = || Ok(Reply::NotHeld { owner: Some(other()) });
        let dead = || Err(NodeError::Unreachable { reason: "refused".into() });
        let cases = [
            (true, vec![yes(), yes()], ReleaseStep::Wait),
            (true, vec![yes(), yes(), yes()], ReleaseStep::Released),
            (true, vec![yes(), no(), yes()], ReleaseStep::Released),
            (true, vec![yes(), yes(), theirs()], ReleaseStep::Released),
            (true, vec![yes(), yes(), dead(), dead(), dead()], ReleaseStep::Unknown),
            (false, vec![yes(), yes(), yes()], ReleaseStep::Released),
            (false, vec![no(), no(), no(), no()], ReleaseStep::Wait),
            (false, vec![no(), no(), no(), no(), no()], ReleaseStep::AlreadyExpired),
            (false, vec![yes(), yes(), no(), theirs(), theirs()], ReleaseStep::AlreadyExpired),
            (
                false,
                vec![theirs(), theirs(), no(), dead(), theirs()],
                ReleaseStep::TakenOver { by: other() },
            ),
            (false, vec![dead(), dead(), dead(), no(), no()], ReleaseStep::Unknown),
            // On two the acquire arrives behind the release, and the third of its quorum is silent.
            (false, vec![yes(), yes(), dead(), no(), no()], ReleaseStep::Unknown),
            (false, vec![yes(), dead(), dead(), no(), theirs()], ReleaseStep::Unknown),
            (false, vec![yes(), dead(), no(), no(), theirs()], ReleaseStep::AlreadyExpired),
        ];
        for (was_valid, answers, expected) in cases {
            assert_eq!(outcome(was_valid, &answers), expected, "{was_valid} {answers:?}");
        }
    }
}
