//! Give the lease back to all nodes, and tell what became of it.
//!
//! Nodes that forgot a lease and nodes that it was taken from both answer that they have no owner, so
//! then the nodes are looked at once: a fence above ours tells that others had the lock, or that it was
//! taken away by force. A node that had the lease until the release had it all the time, whatever it
//! shows afterwards.

use super::Ballot;
use crate::{Answer, Fence, Holder, Moment, Owner, Quorum, Reply};

/// One release. It is never repeated: what it does not reach expires.
#[derive(Debug, Clone)]
pub struct ReleaseRound {
    quorum: Quorum,
    holder: Holder,
    /// The highest number that the nodes can have from the holder.
    token: Fence,
    belief: Belief,
    ballot: Ballot,
    /// The fence that each node showed afterwards, once they were looked at; `None` of a silent one.
    shown: Option<Vec<Option<Fence>>>,
}

/// What the holder knew of its lease when it gave it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// It was good, by the holder's own clock.
    Valid,
    /// It was over.
    Over,
    /// Only the nodes can tell: it is a claim.
    Unknown,
}

/// What to do next, or what became of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseStep {
    /// Wait for answers, or for the time limit.
    Wait,
    /// Have all nodes show the lock, and go on with [`ReleaseRound::looked`].
    Look,
    /// It was held, and a quorum no longer knows it.
    Released,
    /// It had run out before.
    AlreadyExpired,
    /// It had run out before, or was taken away by force, and another holds the lock now.
    TakenOver {
        /// Who.
        by: Owner,
    },
    /// It was not held any more: others had the lock since, or it was taken away by force.
    Superseded {
        /// The highest fence that the nodes showed.
        fence: Fence,
    },
    /// Too few nodes answered to tell: it may be there until its Ttl is over.
    Unknown,
}

impl ReleaseRound {
    /// A round about to be sent at `now`; `token` is the highest number that the nodes can have from
    /// the holder.
    pub fn new(holder: Holder, token: Fence, quorum: Quorum, belief: Belief, now: Moment) -> Self {
        let ballot = Ballot::new(quorum.nodes(), now);
        Self { quorum, holder, token, belief, ballot, shown: None }
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

    /// What the nodes showed of the lock after [`ReleaseStep::Look`], in their order.
    pub fn looked<'a>(&mut self, answers: impl Iterator<Item = &'a Answer>) {
        let shown = |answer: &Answer| match answer {
            Ok(Reply::Seen(sighting)) => Some(sighting.fence.unwrap_or_default()),
            _ => None,
        };
        self.shown = Some(answers.map(shown).collect());
    }

    /// Decides.
    pub fn step(&self) -> ReleaseStep {
        let released = self.ballot.count(|reply| matches!(reply, Reply::Released));
        let without = self.ballot.count(|reply| matches!(reply, Reply::NotHeld { .. }));
        let gone = released + without;
        let needed = self.quorum.needed();
        let was_valid = self.belief == Belief::Valid;
        // Each of them had it until now, so nobody else can have had a quorum.
        if released >= needed {
            return ReleaseStep::Released;
        }
        let (others, by) = self.successor();
        if let Some(by) = by.filter(|_| others >= needed) {
            return ReleaseStep::TakenOver { by: by.clone() };
        }
        // A look is spared where the nodes that have not answered can still be enough.
        if self.ballot.waiting() > 0 && released + self.ballot.waiting() >= needed {
            return ReleaseStep::Wait;
        }
        // Nodes that have not answered may be the other's: what we believed is no proof against that.
        let can_be_anothers = others + self.quorum.nodes() - gone >= needed;
        if was_valid && gone >= needed && !can_be_anothers {
            return self.by_the_fences(ReleaseStep::Released);
        }
        if self.ballot.waiting() > 0 {
            return ReleaseStep::Wait;
        }
        // Nodes that are silent may have had it, and with those that gave it back be a quorum.
        let can_have_been_held = self.quorum.nodes() - without >= needed;
        if gone < needed || can_have_been_held || was_valid {
            return ReleaseStep::Unknown;
        }
        match self.belief {
            // Who came after the end of a lease took nothing away.
            Belief::Over => ReleaseStep::AlreadyExpired,
            _ => self.by_the_fences(ReleaseStep::AlreadyExpired),
        }
    }

    /// What the answers amount to, unless the fences tell that the lock was not ours any more.
    fn by_the_fences(&self, so_far: ReleaseStep) -> ReleaseStep {
        let Some(shown) = &self.shown else { return ReleaseStep::Look };
        let had_it = |node: usize| {
            let vote = self.ballot.votes().get(node).and_then(Option::as_ref);
            vote.is_some_and(|vote| vote.answer == Ok(Reply::Released))
        };
        let rest = || shown.iter().enumerate().filter(|(node, _)| !had_it(*node));
        let silent = rest().filter(|(_, fence)| fence.is_none()).count();
        let above = rest().filter_map(|(_, fence)| fence.filter(|fence| *fence > self.token));
        let (count, highest) = (above.clone().count(), above.max());
        let needed = self.quorum.needed();
        match highest {
            Some(fence) if count >= needed => ReleaseStep::Superseded { fence },
            _ if so_far == ReleaseStep::Released && count + silent >= needed => {
                ReleaseStep::Unknown
            }
            _ => so_far,
        }
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
    use crate::{LockName, NodeError, Sighting};

    const OURS: u64 = 10;

    fn round(was_valid: bool, answers: &[Answer]) -> ReleaseRound {
        let quorum = Quorum::majority_of(NonZeroUsize::new(5).unwrap());
        let (holder, token) = (Holder::new("me", 1).unwrap(), Fence::new(OURS).unwrap());
        let belief = if was_valid { Belief::Valid } else { Belief::Unknown };
        let mut round = ReleaseRound::new(holder, token, quorum, belief, Moment::default());
        for (node, answer) in answers.iter().enumerate() {
            round.answer(Moment::default(), node, answer.clone());
        }
        round
    }

    /// A look shows what nodes show that remember us, or nothing.
    fn outcome(was_valid: bool, answers: &[Answer]) -> ReleaseStep {
        with_fences(was_valid, answers, &[Some(OURS), Some(0), Some(OURS), Some(0), Some(OURS)])
    }

    /// The fences that the nodes show; `None` of a silent one.
    fn with_fences(was_valid: bool, answers: &[Answer], fences: &[Option<u64>]) -> ReleaseStep {
        let mut round = round(was_valid, answers);
        if round.step() == ReleaseStep::Look {
            let lock = LockName::new("l").unwrap();
            let shown = |fence: &Option<u64>| match fence {
                Some(fence) => Ok(Reply::Seen(Sighting {
                    lock: lock.clone(),
                    owner: None,
                    expires_in: None,
                    fence: Fence::new(*fence),
                    since: None,
                })),
                None => Err(NodeError::Unreachable { reason: "refused".into() }),
            };
            let shown: Vec<Answer> = fences.iter().map(shown).collect();
            round.looked(shown.iter());
        }
        round.step()
    }

    #[test]
    fn a_lease_that_was_taken_away_and_is_free_again_is_not_released_but_superseded() {
        let yes = || Ok(Reply::Released);
        let no = || Ok(Reply::NotHeld { owner: None });
        let dead = || Err(NodeError::Unreachable { reason: "refused".into() });
        let fence = |number| Fence::new(number).unwrap();
        let superseded = |number| ReleaseStep::Superseded { fence: fence(number) };
        for was_valid in [true, false] {
            let none = [no(), no(), no(), no(), no()];
            let taken = with_fences(was_valid, &none, &[11, 12, 12, OURS, 0].map(Some));
            assert_eq!(taken, superseded(12), "{was_valid}");
            // Of a quorum all restarted, and forgot.
            let calm = match was_valid {
                true => ReleaseStep::Released,
                false => ReleaseStep::AlreadyExpired,
            };
            assert_eq!(with_fences(was_valid, &none, &[0, 0, 0, 11, 11].map(Some)), calm);
        }
        // A node that had it until now shows who came after the release.
        let mixed = [yes(), yes(), no(), no(), no()];
        let after = with_fences(true, &mixed, &[12, 12, 12, 12, OURS].map(Some));
        assert_eq!(after, ReleaseStep::Released);
        let before = with_fences(true, &mixed, &[OURS, OURS, 11, 11, 11].map(Some));
        assert_eq!(before, superseded(11));
        // Silent nodes may be above, also those that never answered the release.
        let silent = [yes(), no(), no(), no(), dead()];
        let fences = [Some(OURS), Some(11), None, Some(0), None];
        assert_eq!(with_fences(true, &silent, &fences), ReleaseStep::Unknown);
        let fences = [Some(OURS), Some(11), Some(0), Some(0), None];
        assert_eq!(with_fences(true, &silent, &fences), ReleaseStep::Released);
    }

    #[test]
    fn who_came_after_a_lease_that_was_over_took_nothing_away() {
        let (holder, token) = (Holder::new("me", 1).unwrap(), Fence::new(OURS).unwrap());
        let quorum = Quorum::majority_of(NonZeroUsize::new(1).unwrap());
        let mut round = ReleaseRound::new(holder, token, quorum, Belief::Over, Moment::default());
        round.answer(Moment::default(), 0, Ok(Reply::NotHeld { owner: None }));
        assert_eq!(round.step(), ReleaseStep::AlreadyExpired, "without a look");
    }

    #[test]
    fn the_nodes_are_looked_at_only_where_too_few_of_them_had_the_lease() {
        let yes = || Ok(Reply::Released);
        let no = || Ok(Reply::NotHeld { owner: None });
        let step = |answers: &[Answer]| round(true, answers).step();
        assert_eq!(step(&[yes(), no(), no(), yes(), yes()]), ReleaseStep::Released);
        assert_eq!(
            step(&[yes(), no(), no(), yes()]),
            ReleaseStep::Wait,
            "the last one may have it"
        );
        assert_eq!(step(&[yes(), no(), no(), no()]), ReleaseStep::Look);
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
            // It may have been taken from the other three; the next answer can tell without a look.
            (true, vec![yes(), no(), yes()], ReleaseStep::Wait),
            (true, vec![yes(), no(), yes(), yes()], ReleaseStep::Released),
            (true, vec![yes(), no(), yes(), no(), no()], ReleaseStep::Released),
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
