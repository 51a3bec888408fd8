//! Ask all nodes for the lock with one proposal; ask again with a higher one if only the fence
//! stood in the way; otherwise give up, and everything is given back.

use std::time::Duration;

use super::{Ballot, Vote};
use crate::{
    Answer, Drift, Fence, Holder, Lease, LockName, Moment, NodeError, Owner, Quorum, Reply, Ttl,
};

/// One more than two further rounds would only happen if others kept going ahead of us; then it is
/// better to step back and wait.
const ROUNDS_MAX: u32 = 3;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireSpec {
    /// Which lock.
    pub lock: LockName,
    /// Who asks; never used before.
    pub holder: Holder,
    /// How long the nodes shall keep it.
    pub ttl: Ttl,
    /// How far clocks may drift within that time.
    pub drift: Drift,
    /// A lease with less time left than this is of no use to the caller.
    pub min_validity: Duration,
}

/// One attempt to acquire: up to three rounds with the same holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireRound {
    spec: AcquireSpec,
    quorum: Quorum,
    number: u32,
    proposal: Fence,
    seen: Fence,
    ballot: Ballot,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireStep {
    /// Wait for answers, or for the time limit.
    Wait,
    /// Put the question to all nodes again, with the proposal as it is now.
    AskAgain,
    /// A quorum granted it, but not all of their votes count yet: look again then.
    Settle(Moment),
    /// The lock is held.
    Acquired(Lease),
    /// Release to all nodes, also to those that never answered.
    GiveUp(Refusal),
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A quorum answered, and the lock is (or was just being) held by another.
    Held {
        /// Who, if a node said so.
        owner: Option<Owner>,
        /// The earliest moment at which an owner might expire; `None` if none ever does.
        expires_in: Option<Duration>,
    },
    /// Too few nodes answered: nobody can tell.
    NoQuorum,
    /// A quorum granted it, but too late to be of use.
    TooLate {
        /// What was left.
        validity: Duration,
    },
}

impl Refusal {
    /// Whether too few nodes could answer because their records had just changed: a look at them,
    /// and another try, may mend that.
    pub fn is_worth_a_look(&self, ballot: &Ballot) -> bool {
        *self == Self::NoQuorum
            && ballot.replies().any(|reply| matches!(reply, Reply::Stranger { .. }))
    }
}

impl AcquireRound {
    /// The first round, about to be sent at `now`.
    pub fn new(spec: AcquireSpec, quorum: Quorum, proposal: Fence, now: Moment) -> Self {
        let ballot = Ballot::new(quorum.nodes(), now);
        Self { spec, quorum, number: 1, proposal, seen: Fence::ZERO, ballot }
    }

    /// What is asked for.
    pub fn spec(&self) -> &AcquireSpec {
        &self.spec
    }

    /// The number of the latest round; answers are handed in with the number of theirs.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The proposal of the latest round.
    pub fn proposal(&self) -> Fence {
        self.proposal
    }

    /// The highest fence that any node showed.
    pub fn seen(&self) -> Fence {
        self.seen
    }

    /// The votes of the latest round.
    pub fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    /// Whether node number `node` was certainly never sent a question of this acquire.
    pub fn was_never_asked(&self, node: usize) -> bool {
        let vote = self.ballot.votes().get(node).and_then(Option::as_ref);
        // What an earlier round met with is not known any more.
        self.number == 1
            && vote.is_some_and(|vote| matches!(vote.answer, Err(NodeError::Overloaded { .. })))
    }

    /// A node answered round `number`. Answers of different rounds are never added up: one of an
    /// earlier round only tells a fence.
    pub fn answer(&mut self, now: Moment, number: u32, node: usize, answer: Answer) {
        let answer = self.only_of_one(answer);
        if let Ok(
            Reply::Busy { fence, .. } | Reply::Behind { fence } | Reply::Superseded { fence },
        ) = &answer
        {
            self.seen = self.seen.max(*fence);
        }
        if number == self.number {
            self.ballot.cast(now, node, answer);
        }
    }

    /// A fence of a node's own making is one only if nobody else makes any.
    fn only_of_one(&self, answer: Answer) -> Answer {
        match answer {
            Ok(Reply::GrantedWith { fence }) if self.quorum.nodes() > 1 => {
                let nodes = self.quorum.nodes();
                let reason = format!("a fence of its own, {fence}, as one of {nodes} nodes");
                Err(NodeError::Garbled { reason })
            }
            answer => answer,
        }
    }

    /// When a quorum of the votes counts. A node whose clock went ahead ended leases early: they are
    /// over so much later than it says, and its vote counts from then on.
    fn settled_at(&self, settles_for: impl Fn(usize) -> Duration) -> Moment {
        let counts_from = |(node, vote): (usize, &Option<Vote>)| {
            let vote = vote.as_ref().filter(|vote| vote.answer.as_ref().is_ok_and(is_grant))?;
            let by = Some(settles_for(node)).filter(|by| !by.is_zero())?;
            let drift = self.spec.drift.allowance(by);
            Some(self.ballot.asked_at().plus(vote.after).plus(by).plus(drift))
        };
        let votes = self.ballot.votes().iter().enumerate();
        let mut later: Vec<Moment> = votes.filter_map(counts_from).collect();
        later.sort_unstable();
        let at_once = self.ballot.count(is_grant) - later.len();
        match self.quorum.needed().checked_sub(at_once + 1) {
            Some(last) => later.get(last).copied().unwrap_or_default(),
            None => Moment::default(),
        }
    }

    /// The time limit of the nodes is over.
    pub fn time_up(&mut self, now: Moment) {
        self.ballot.close(now);
    }

    /// Whether [`Self::step`] would say something else than to wait.
    pub fn is_decided(&self) -> bool {
        !matches!(self.verdict(), Verdict::Open)
    }

    /// Whether a quorum granted the latest round.
    pub fn is_won(&self) -> bool {
        matches!(self.verdict(), Verdict::Granted)
    }

    /// Decides. After `AskAgain` the next round has begun and counts from `now`.
    ///
    /// `settles_for` is how much later than it was given the vote of a node counts, by what is known of
    /// its clock *now* ([`Admission::settles_for`]): a jump that was noticed since the question was
    /// sent may have come before the vote.
    ///
    /// [`Admission::settles_for`]: crate::Admission::settles_for
    pub fn step(&mut self, now: Moment, settles_for: impl Fn(usize) -> Duration) -> AcquireStep {
        match self.verdict() {
            Verdict::Open => AcquireStep::Wait,
            Verdict::Granted => self.granted(now, settles_for),
            Verdict::Again => {
                self.number += 1;
                self.proposal = self.proposal.max(self.seen).next();
                self.ballot.restart(now);
                AcquireStep::AskAgain
            }
            Verdict::Refused => AcquireStep::GiveUp(self.refusal()),
        }
    }

    fn verdict(&self) -> Verdict {
        let granted = self.ballot.count(is_grant);
        let behind = self.ballot.count(|reply| matches!(reply, Reply::Behind { .. }));
        let waiting = self.ballot.waiting();
        let needed = self.quorum.needed();
        if granted >= needed {
            Verdict::Granted
        } else if granted + waiting >= needed {
            Verdict::Open
        } else if granted + behind >= needed && self.number < ROUNDS_MAX {
            Verdict::Again
        } else if granted + behind + waiting >= needed && self.number < ROUNDS_MAX {
            Verdict::Open
        } else if waiting > 0 && !self.is_answered_by_quorum() {
            // Whether the lock is held or nobody can tell is worth the rest of the time limit.
            Verdict::Open
        } else {
            Verdict::Refused
        }
    }

    fn granted(&self, now: Moment, settles_for: impl Fn(usize) -> Duration) -> AcquireStep {
        let deadline = Lease::deadline(self.ballot.asked_at(), self.spec.ttl, self.spec.drift);
        let settled_at = self.settled_at(settles_for).max(now);
        let validity = deadline.since(settled_at);
        if validity.is_zero() || validity < self.spec.min_validity {
            return AcquireStep::GiveUp(Refusal::TooLate { validity });
        }
        if settled_at > now {
            return AcquireStep::Settle(settled_at);
        }
        let fence = self.fence_of_a_service().unwrap_or(self.proposal);
        AcquireStep::Acquired(Lease {
            lock: self.spec.lock.clone(),
            holder: self.spec.holder.clone(),
            fence,
            token: fence,
            ttl: self.spec.ttl,
            deadline,
            uncertain: false,
        })
    }

    /// The fence, where the only node made it itself.
    fn fence_of_a_service(&self) -> Option<Fence> {
        self.ballot.replies().find_map(|reply| match reply {
            Reply::GrantedWith { fence } => Some(*fence),
            _ => None,
        })
    }

    fn refusal(&self) -> Refusal {
        if !self.is_answered_by_quorum() {
            return Refusal::NoQuorum;
        }
        let mut owners = self.ballot.replies().filter_map(|reply| match reply {
            Reply::Busy { owner, expires_in, .. } => Some((owner, *expires_in)),
            _ => None,
        });
        let first = owners.next();
        let expires_in = owners
            .chain(first)
            .map(|(_, expires_in)| expires_in)
            .min_by_key(|expires_in| expires_in.unwrap_or(Duration::MAX))
            .flatten();
        Refusal::Held { owner: first.map(|(owner, _)| owner.clone()), expires_in }
    }

    fn is_answered_by_quorum(&self) -> bool {
        let answered = self.ballot.count(|reply| {
            is_grant(reply) || matches!(reply, Reply::Busy { .. } | Reply::Behind { .. })
        });
        answered >= self.quorum.needed()
    }
}

fn is_grant(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted | Reply::GrantedWith { .. })
}

enum Verdict {
    Open,
    Granted,
    Again,
    Refused,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::NodeError;

    const SENT: Moment = Moment::from_millis(1000);

    fn round(nodes: usize) -> AcquireRound {
        let spec = AcquireSpec {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            ttl: Ttl::new(Duration::from_millis(1000)).unwrap(),
            drift: Drift::DEFAULT,
            min_validity: Duration::ZERO,
        };
        let quorum = Quorum::majority_of(NonZeroUsize::new(nodes).unwrap());
        AcquireRound::new(spec, quorum, Fence::new(100).unwrap(), SENT)
    }

    fn behind(fence: u64) -> Answer {
        Ok(Reply::Behind { fence: Fence::new(fence).unwrap() })
    }

    fn busy(ms: u64) -> Answer {
        let owner = Owner::Holder(Holder::new("other", 2).unwrap());
        Ok(Reply::busy(owner, Some(Duration::from_millis(ms)), Fence::new(50).unwrap()))
    }

    fn dead() -> Answer {
        Err(NodeError::Unreachable { reason: "connection refused".into() })
    }

    fn at_once(_: usize) -> Duration {
        Duration::ZERO
    }

    fn feed(round: &mut AcquireRound, answers: impl IntoIterator<Item = Answer>) -> AcquireStep {
        feed_settling(round, answers, at_once)
    }

    fn feed_settling(
        round: &mut AcquireRound,
        answers: impl IntoIterator<Item = Answer>,
        settles_for: impl Fn(usize) -> Duration,
    ) -> AcquireStep {
        let number = round.number();
        for (node, answer) in answers.into_iter().enumerate() {
            round.answer(SENT, number, node, answer);
        }
        round.step(SENT.plus(Duration::from_millis(8)), settles_for)
    }

    #[test]
    fn the_third_of_five_grants_decides_and_the_deadline_counts_from_sending() {
        let mut round = round(5);
        assert_eq!(feed(&mut round, [Ok(Reply::Granted), dead()]), AcquireStep::Wait);
        let answers = [Ok(Reply::Granted), dead(), Ok(Reply::Granted), Ok(Reply::Granted)];
        let AcquireStep::Acquired(lease) = feed(&mut round, answers) else { panic!() };
        assert_eq!(lease.fence.get(), 100);
        assert_eq!(lease.deadline, SENT.plus(Duration::from_millis(1000 - 12)));
    }

    #[test]
    fn without_a_quorum_nobody_acquires() {
        for alive in 0..3 {
            let mut round = round(5);
            let answers = (0..5).map(|i| if i < alive { Ok(Reply::Granted) } else { dead() });
            let step = feed(&mut round, answers);
            assert_eq!(step, AcquireStep::GiveUp(Refusal::NoQuorum), "{alive} alive");
        }
    }

    #[test]
    fn a_refusal_by_silence_waits_for_the_limit_to_name_every_node() {
        let mut round = round(5);
        assert_eq!(feed(&mut round, [dead(), dead(), dead()]), AcquireStep::Wait);
        round.time_up(SENT.plus(Duration::from_millis(50)));
        assert_eq!(feed(&mut round, []), AcquireStep::GiveUp(Refusal::NoQuorum));
        assert!(round.ballot().votes().iter().all(Option::is_some));
    }

    #[test]
    fn busy_nodes_decide_at_once_and_tell_the_earliest_expiry() {
        let mut round = round(5);
        let step = feed(&mut round, [busy(300), busy(200), busy(400)]);
        let AcquireStep::GiveUp(Refusal::Held { owner: Some(owner), expires_in }) = step else {
            panic!("{step:?}")
        };
        assert_eq!(owner.to_string(), "other");
        assert_eq!(expires_in, Some(Duration::from_millis(200)));
    }

    #[test]
    fn a_fence_in_the_way_is_met_with_a_higher_proposal_and_only_new_answers_count() {
        let mut round = round(3);
        let step = feed(&mut round, [Ok(Reply::Granted), behind(500), behind(700)]);
        assert_eq!(step, AcquireStep::AskAgain);
        assert_eq!((round.number(), round.proposal().get()), (2, 701));
        // Late grants of the first round must not be added to those of the second.
        round.answer(SENT, 1, 1, Ok(Reply::Granted));
        round.answer(SENT, 1, 2, Ok(Reply::Granted));
        assert_eq!(round.step(SENT, at_once), AcquireStep::Wait);
        // Nor the one that came in time, by the first node.
        round.answer(SENT, 2, 1, Ok(Reply::Granted));
        assert_eq!(round.step(SENT, at_once), AcquireStep::Wait);
        round.answer(SENT, 2, 2, Ok(Reply::Granted));
        let AcquireStep::Acquired(lease) = round.step(SENT, at_once) else { panic!() };
        assert_eq!(lease.fence.get(), 701);
    }

    #[test]
    fn after_two_more_rounds_it_gives_up() {
        let mut round = round(3);
        for fence in [500, 900] {
            let step = feed(&mut round, [behind(fence), behind(fence), behind(fence)]);
            assert_eq!(step, AcquireStep::AskAgain);
        }
        let step = feed(&mut round, [behind(999), behind(999), behind(999)]);
        assert!(matches!(step, AcquireStep::GiveUp(Refusal::Held { owner: None, .. })), "{step:?}");
    }

    #[test]
    fn the_validity_of_a_second_round_counts_from_the_second_sending() {
        let mut round = round(1);
        round.answer(SENT, 1, 0, behind(500));
        let later = SENT.plus(Duration::from_millis(40));
        assert_eq!(round.step(later, at_once), AcquireStep::AskAgain);
        round.answer(later, 2, 0, Ok(Reply::Granted));
        let AcquireStep::Acquired(lease) = round.step(later, at_once) else { panic!() };
        assert_eq!(lease.deadline, later.plus(Duration::from_millis(988)));
    }

    #[test]
    fn a_lock_won_too_late_is_not_won() {
        for (after, wins) in [(987, true), (988, false), (5000, false)] {
            let mut round = round(1);
            let now = SENT.plus(Duration::from_millis(after));
            round.answer(now, 1, 0, Ok(Reply::Granted));
            let step = round.step(now, at_once);
            assert_eq!(matches!(step, AcquireStep::Acquired(_)), wins, "{after}: {step:?}");
        }
        let mut picky = round(1);
        picky.spec.min_validity = Duration::from_millis(990);
        picky.answer(SENT, 1, 0, Ok(Reply::Granted));
        let too_late = Refusal::TooLate { validity: Duration::from_millis(988) };
        assert_eq!(picky.step(SENT, at_once), AcquireStep::GiveUp(too_late));
    }

    #[test]
    fn the_vote_of_a_node_whose_clock_went_ahead_counts_that_much_later() {
        // 1 % of it and 2 ms more, for clocks of different speed.
        let (ahead, counts_at) =
            (Duration::from_millis(100), SENT.plus(Duration::from_millis(103)));
        let mut round = round(3);
        let settles = |node: usize| if node == 0 { ahead } else { Duration::ZERO };
        let grants = |count| (0..count).map(|_| Ok(Reply::Granted));
        assert_eq!(feed_settling(&mut round, grants(1), settles), AcquireStep::Wait);
        let step = feed_settling(&mut round, grants(2), settles);
        assert_eq!(step, AcquireStep::Settle(counts_at));
        assert!(round.is_won() && round.is_decided());
        let just_before = Moment::from_nanos(counts_at.as_nanos() - 1);
        assert_eq!(round.step(just_before, settles), AcquireStep::Settle(counts_at));
        let mut settled = round.clone();
        let AcquireStep::Acquired(lease) = settled.step(counts_at, settles) else { panic!() };
        assert_eq!(lease.deadline, SENT.plus(Duration::from_millis(988)), "and ends no later");
        // The third node need not wait for anything.
        round.answer(SENT.plus(Duration::from_millis(20)), 1, 2, Ok(Reply::Granted));
        assert!(matches!(round.step(just_before, settles), AcquireStep::Acquired(_)));
    }

    #[test]
    fn a_grant_is_settled_by_the_last_vote_that_a_quorum_needs() {
        let grants = || (0..5).map(|_| Ok(Reply::Granted));
        for (settling, settled_after) in [
            (&[(0, 100)][..], 0),
            (&[(0, 100), (1, 200)], 0),
            (&[(0, 100), (1, 200), (2, 300)], 103),
            (&[(0, 300), (1, 200), (2, 100), (3, 400)], 204),
            (&[(0, 500), (1, 200), (2, 100), (3, 400), (4, 300)], 305),
        ] {
            let mut round = round(5);
            let by = |node| settling.iter().find(|(settling, _)| *settling == node);
            let settles = |node| Duration::from_millis(by(node).map_or(0, |(_, ms)| *ms));
            let step = feed_settling(&mut round, grants(), settles);
            if settled_after == 0 {
                assert!(matches!(step, AcquireStep::Acquired(_)), "{settling:?}: {step:?}");
            } else {
                let at = SENT.plus(Duration::from_millis(settled_after));
                assert_eq!(step, AcquireStep::Settle(at), "{settling:?}");
            }
        }
    }

    #[test]
    fn a_grant_that_would_settle_after_its_deadline_is_too_late_at_once() {
        for (ahead, is_late) in [(970, false), (990, true), (u64::MAX, true)] {
            let mut round = round(1);
            let settles = |_| Duration::from_millis(ahead);
            let step = feed_settling(&mut round, [Ok(Reply::Granted)], settles);
            let too_late = AcquireStep::GiveUp(Refusal::TooLate { validity: Duration::ZERO });
            assert_eq!(step == too_late, is_late, "{ahead}: {step:?}");
        }
    }

    #[test]
    fn a_jump_that_is_noticed_after_the_question_delays_the_vote_as_well() {
        let mut round = round(3);
        round.answer(SENT, 1, 0, Ok(Reply::Granted));
        assert_eq!(round.step(SENT, at_once), AcquireStep::Wait);
        // It is noticed before the vote that makes a quorum.
        let settles = |node| Duration::from_millis(if node == 0 { 100 } else { 0 });
        let later = SENT.plus(Duration::from_millis(30));
        round.answer(later, 1, 1, Ok(Reply::Granted));
        let counts_at = SENT.plus(Duration::from_millis(103));
        assert_eq!(round.step(later, settles), AcquireStep::Settle(counts_at));
        // What is noticed while it waits adds up, and what is forgotten does not matter any more.
        let more = |node| settles(node) * 2;
        assert!(matches!(round.step(counts_at, more), AcquireStep::Settle(_)));
        assert!(matches!(round.step(counts_at, at_once), AcquireStep::Acquired(_)));
    }

    #[test]
    fn a_node_is_counted_once() {
        let mut round = round(3);
        round.answer(SENT, 1, 0, Ok(Reply::Granted));
        round.answer(SENT, 1, 0, Ok(Reply::Granted));
        assert_eq!(round.step(SENT, at_once), AcquireStep::Wait);
    }

    #[test]
    fn only_a_node_that_refused_the_first_round_unsent_was_never_asked() {
        let unsent = || Err(NodeError::Overloaded { reason: "busy".into() });
        let timed_out = Err(NodeError::TimedOut { after: Duration::from_millis(50) });
        let mut first = round(3);
        let behind = Ok(Reply::Behind { fence: Fence::new(99).unwrap() });
        for (node, answer) in [unsent(), timed_out, behind.clone()].into_iter().enumerate() {
            first.answer(Moment::default(), 1, node, answer);
        }
        let never: Vec<_> = (0..4).map(|node| first.was_never_asked(node)).collect();
        assert_eq!(never, [true, false, false, false]);
        let mut second = round(3);
        let answers = [Ok(Reply::Granted), behind.clone(), behind];
        assert_eq!(feed(&mut second, answers), AcquireStep::AskAgain);
        second.answer(Moment::default(), 2, 0, unsent());
        assert!(!second.was_never_asked(0), "the first round was granted");
    }

    fn with_its_own(fence: u64) -> Answer {
        Ok(Reply::GrantedWith { fence: Fence::new(fence).unwrap() })
    }

    #[test]
    fn a_service_that_is_the_whole_quorum_makes_the_fence_and_the_deadline_counts_from_sending() {
        // Also one below the proposal: the service's numbers are compared with each other only.
        for fence in [7, 100, 5_000] {
            let step = feed(&mut round(1), [with_its_own(fence)]);
            let AcquireStep::Acquired(lease) = step else { panic!("{step:?}") };
            assert_eq!((lease.fence.get(), lease.token.get()), (fence, fence));
            assert_eq!(lease.deadline, SENT.plus(Duration::from_millis(988)));
        }
        let mut late = round(1);
        let now = SENT.plus(Duration::from_millis(988));
        late.answer(now, 1, 0, with_its_own(7));
        let too_late = Refusal::TooLate { validity: Duration::ZERO };
        assert_eq!(late.step(now, at_once), AcquireStep::GiveUp(too_late));
    }

    #[test]
    fn a_fence_of_its_own_making_is_garbled_from_one_of_several_nodes() {
        for nodes in [2, 3, 5] {
            let mut round = round(nodes);
            let answers = (0..nodes).map(|node| with_its_own(100 + node as u64));
            assert_eq!(feed(&mut round, answers), AcquireStep::GiveUp(Refusal::NoQuorum));
            let mut votes = round.ballot().votes().iter().flatten();
            assert!(votes.all(|vote| matches!(vote.answer, Err(NodeError::Garbled { .. }))));
        }
        // Nor does it help a quorum of others.
        let answers = [Ok(Reply::Granted), with_its_own(100), dead()];
        assert_eq!(feed(&mut round(3), answers), AcquireStep::GiveUp(Refusal::NoQuorum));
    }

    #[test]
    fn answers_to_other_questions_never_grant() {
        let clock = crate::WallMicros(1);
        for odd in [
            Reply::Extended { clock },
            Reply::Healed { clock },
            Reply::Released,
            Reply::NotHeld { owner: None },
            Reply::Stranger { record: None },
        ] {
            let mut round = round(3);
            let step = feed(&mut round, [Ok(odd.clone()), Ok(odd.clone()), Ok(odd)]);
            assert_eq!(step, AcquireStep::GiveUp(Refusal::NoQuorum));
        }
    }
}
