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
    /// It had run out before, or was taken away by force, and another holds the lock now.
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
        // Each of them had it until now, so nobody else can have had a quorum.
        if released >= needed {
            return ReleaseStep::Released;
        }
        let (others, by) = self.successor();
        if let Some(by) = by.filter(|_| others >= needed) {
            return ReleaseStep::TakenOver { by: by.clone() };
        }
        // Nodes that have not answered may be the other's: what we believed is no proof against that.
        let can_be_anothers = others + self.quorum.nodes() - gone >= needed;
        if self.was_valid && gone >= needed && !can_be_anothers {
            return ReleaseStep::Released;
        }
        if self.ballot.waiting() > 0 {
            return ReleaseStep::Wait;
        }
        // Nodes that are silent may have had it, and with those that gave it back be a quorum.
        let can_have_been_held = self.quorum.nodes() - without >= needed;
        if gone < needed || can_have_been_held || self.was_valid {
            return ReleaseStep::Unknown;
        }
        ReleaseStep::AlreadyExpired
    }

    /// Who else owns most nodes, and how many. Fewer than a quorum may just be another's attempt.
    fn successor(&self) -> (usize, Option<&Owner>) {
        let owners = || {
            self.ballot.replies().filter_map(|reply| match reply {
                Reply::NotHeld { owner: Some(owner) } if !owner.is(&self.holder) => Some(owner),
                _ => None,
            })
        };
        let nodes = |owner: &Owner| owners().filter(|other| *other == owner).count();
        let most = owners().max_by_key(|owner| nodes(owner));
        (most.map_or(0, nodes), most)
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
        let thirds = || {
            let holder = Holder::new("third", 3).unwrap();
            Ok(Reply::NotHeld { owner: Some(Owner::Holder(holder)) })
        };
        let dead = || Err(NodeError::Unreachable { reason: "refused".into() });
        let cases = [
            (true, vec![yes(), yes()], ReleaseStep::Wait),
            (true, vec![yes(), yes(), yes()], ReleaseStep::Released),
            (true, vec![yes(), no(), yes()], ReleaseStep::Released),
            // The two that are still asked and the third may be theirs: a quorum.
            (true, vec![yes(), yes(), theirs()], ReleaseStep::Wait),
            (true, vec![yes(), no(), theirs(), no()], ReleaseStep::Released),
            (true, vec![yes(), yes(), theirs(), theirs(), yes()], ReleaseStep::Released),
            (true, vec![yes(), yes(), theirs(), theirs(), dead()], ReleaseStep::Unknown),
            (true, vec![yes(), no(), theirs(), dead(), dead()], ReleaseStep::Unknown),
            // It was taken away by force, and another acquired.
            (true, vec![theirs(), theirs(), theirs()], ReleaseStep::TakenOver { by: other() }),
            (
                true,
                vec![yes(), theirs(), theirs(), no(), theirs()],
                ReleaseStep::TakenOver { by: other() },
            ),
            // One node each of several attempts is nobody's lock.
            (true, vec![yes(), no(), theirs(), thirds(), no()], ReleaseStep::Released),
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

    #[test]
    fn released_is_never_said_where_another_can_own_a_quorum() {
        let kinds: [fn() -> Answer; 4] = [
            || Ok(Reply::Released),
            || Ok(Reply::NotHeld { owner: None }),
            || Ok(Reply::NotHeld { owner: Some(other()) }),
            || Err(NodeError::Unreachable { reason: "refused".into() }),
        ];
        for number in 0..2 * 4_usize.pow(5) {
            let was_valid = number % 2 == 0;
            let kinds_of: Vec<usize> =
                (0..5).map(|node| number / 2 / 4_usize.pow(node) % 4).collect();
            let answers: Vec<Answer> = kinds_of.iter().map(|kind| kinds[*kind]()).collect();
            let at_most_theirs = kinds_of.iter().filter(|kind| **kind >= 2).count();
            // Decided as early as it can be, and never taken back.
            let steps = (0..=5).map(|asked| outcome(was_valid, &answers[..asked]));
            let mut decided = steps.filter(|step| *step != ReleaseStep::Wait);
            let step = decided.next().expect("who heard of all nodes decides");
            assert!(decided.all(|later| later == step), "{was_valid} {answers:?}");
            let is_refuted = step == ReleaseStep::Released && at_most_theirs >= 3;
            assert!(!is_refuted, "{was_valid} {answers:?}");
        }
    }
}
