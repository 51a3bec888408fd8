//! Ask all nodes to keep the lease, and to take it back where it was lost.

use super::{Ballot, Vote};
use crate::{
    Answer, Drift, Fence, Holder, Lease, LockName, Moment, NodeError, Quorum, Reply, Request,
    Tally, Ttl,
};

/// One attempt to extend. A failed one changes nothing: the old deadline stands.
#[derive(Debug, Clone)]
pub struct ExtendRound {
    quorum: Quorum,
    token: Fence,
    next: Fence,
    deadline: Moment,
    unbroken: bool,
    ballot: Ballot,
}

/// What is handed in of a lease that nobody keeps. All of it may be made up.
#[derive(Debug, Clone)]
pub struct LeaseClaim {
    /// Of what.
    pub lock: LockName,
    /// By whom.
    pub holder: Holder,
    /// The fence that was handed out.
    pub fence: Fence,
    /// The highest number that the nodes may have for it.
    pub highest: Fence,
    /// For how long from now.
    pub ttl: Ttl,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtendStep {
    /// Wait for answers, or for the time limit.
    Wait,
    /// A quorum keeps it.
    Extended {
        /// The new deadline.
        deadline: Moment,
    },
    /// No quorum did.
    Failed,
}

impl ExtendRound {
    /// A round about to be sent at `now`, which must be before the lease's deadline: a lease that
    /// ran out is lost, whatever the nodes would say.
    pub fn new(lease: &Lease, quorum: Quorum, drift: Drift, now: Moment) -> Self {
        Self {
            quorum,
            token: lease.token,
            next: lease.token,
            deadline: Lease::deadline(now, lease.ttl, drift),
            unbroken: false,
            ballot: Ballot::new(quorum.nodes(), now),
        }
    }

    /// The round of a claim about to be sent at `now`, and the lease that it would be. The nodes may have
    /// any number from the fence to the highest: whether all that was sent before the lease was
    /// detached arrived, nobody knows. So each node that knew it all the time is raised to the highest.
    pub fn claim(claim: LeaseClaim, quorum: Quorum, drift: Drift, now: Moment) -> (Self, Lease) {
        let LeaseClaim { lock, holder, fence, highest, ttl } = claim;
        let deadline = now.plus(ttl.get());
        let lease = Lease { lock, holder, fence, token: fence, ttl, deadline, uncertain: false };
        let round = Self::new(&lease, quorum, drift, now).refresh(highest).unbroken();
        (round, lease)
    }

    /// Raises the lease's token to `next`, on a quorum of nodes on which nobody came after it. Nodes
    /// that forgot, and so are above the old token, can be healed with the new one.
    #[must_use]
    pub fn refresh(self, next: Fence) -> Self {
        Self { next, ..self }
    }

    /// Asks only nodes that knew the lease all the time: for whoever hands in what it knows of a
    /// lease. It may not know the deadline, and so not whether there is still something to heal; and
    /// the lease may be made up.
    #[must_use]
    pub fn unbroken(self) -> Self {
        Self { unbroken: true, ..self }
    }

    /// The question.
    pub fn request(&self, lease: &Lease) -> Request {
        Request::Extend {
            lock: lease.lock.clone(),
            holder: lease.holder.clone(),
            token: self.token,
            next: self.next,
            unbroken: self.unbroken,
            ttl: lease.ttl,
        }
    }

    /// The lease's token, once a quorum has said yes.
    pub fn next(&self) -> Fence {
        self.next
    }

    /// The highest fence that stood in the way on a node, also of answers after the decision.
    pub fn superseded(&self) -> Option<Fence> {
        let fences = self.ballot.replies().filter_map(|reply| match reply {
            Reply::Superseded { fence } => Some(*fence),
            _ => None,
        });
        fences.max()
    }

    /// The votes so far.
    pub fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    /// A node answered. After the time limit as well: what a quorum keeps, it keeps from when it was
    /// asked, however late it says so.
    pub fn answer(&mut self, now: Moment, node: usize, answer: Answer) {
        self.ballot.cast_late(now, node, answer);
    }

    /// The time limit of the nodes is over.
    pub fn time_up(&mut self, now: Moment) {
        self.ballot.close(now);
    }

    /// Nodes that have no owner, and may be given the lease back: once a quorum has confirmed what was handed
    /// in, and only with its lowest fence, because the highest may be made up.
    pub fn to_heal(&self, lease: &Lease) -> Option<(Request, Vec<usize>)> {
        let is_free = |vote: &Option<Vote>| {
            let reply = vote.as_ref().and_then(|vote| vote.answer.as_ref().ok());
            matches!(reply, Some(Reply::NotHeld { owner: None }))
        };
        let votes = self.ballot.votes().iter().enumerate();
        let free: Vec<_> = votes.filter(|(_, vote)| is_free(vote)).map(|(node, _)| node).collect();
        let is_confirmed = matches!(self.step(), ExtendStep::Extended { .. });
        if !self.unbroken || !is_confirmed || free.is_empty() {
            return None;
        }
        let (lock, holder, token) = (lease.lock.clone(), lease.holder.clone(), self.token);
        let ttl = lease.ttl;
        Some((Request::Extend { lock, holder, token, next: token, unbroken: false, ttl }, free))
    }

    /// Whether so many nodes know that they do not have it any more that no quorum can. A stranger
    /// does not look at its locks.
    pub fn is_lost(&self) -> bool {
        let knows_not = |vote: &&Vote| match &vote.answer {
            Ok(reply) => !matches!(reply, Reply::Extended { .. } | Reply::Stranger { .. }),
            Err(error) => matches!(error, NodeError::Gone { .. }),
        };
        let without = self.ballot.votes().iter().flatten().filter(knows_not).count();
        self.quorum.nodes() - without < self.quorum.needed()
    }

    /// Decides.
    pub fn step(&self) -> ExtendStep {
        let kept = |reply: &Reply| match reply {
            Reply::Extended { .. } => true,
            Reply::Healed { .. } => !self.unbroken,
            _ => false,
        };
        let yes = self.ballot.count(kept);
        let no = self.quorum.nodes() - self.ballot.waiting() - yes;
        match self.quorum.tally(yes, no) {
            Tally::Pending => ExtendStep::Wait,
            Tally::Won => ExtendStep::Extended { deadline: self.deadline },
            Tally::Lost => ExtendStep::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use super::*;
    use crate::{Holder, LockName, Owner, Ttl, WallMicros};

    fn lease() -> Lease {
        Lease {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            fence: Fence::new(7).unwrap(),
            token: Fence::new(7).unwrap(),
            ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
            deadline: Moment::from_millis(500),
            uncertain: false,
        }
    }

    fn round(nodes: usize) -> ExtendRound {
        let quorum = Quorum::majority_of(NonZeroUsize::new(nodes).unwrap());
        ExtendRound::new(&lease(), quorum, Drift::DEFAULT, Moment::from_millis(100))
    }

    const CLOCK: WallMicros = WallMicros(1);

    #[test]
    fn extended_and_healed_count_together_and_the_deadline_counts_from_sending() {
        let mut round = round(5);
        let late = Moment::from_millis(140);
        round.answer(late, 0, Ok(Reply::Extended { clock: CLOCK }));
        round.answer(late, 4, Ok(Reply::Healed { clock: CLOCK }));
        assert_eq!(round.step(), ExtendStep::Wait);
        round.answer(late, 2, Ok(Reply::Extended { clock: CLOCK }));
        let deadline = Moment::from_millis(100 + 1000 - 12);
        assert_eq!(round.step(), ExtendStep::Extended { deadline });
    }

    #[test]
    fn nothing_else_counts() {
        for odd in [
            Ok(Reply::Granted),
            Ok(Reply::Superseded { fence: Fence::new(9).unwrap() }),
            Ok(Reply::Stranger { record: None }),
            Ok(Reply::Released),
            Err(NodeError::Rejected { reason: "READONLY".into() }),
        ] {
            let mut round = round(3);
            round.answer(Moment::default(), 0, Ok(Reply::Extended { clock: CLOCK }));
            round.answer(Moment::default(), 1, odd.clone());
            assert_eq!(round.step(), ExtendStep::Wait);
            round.answer(Moment::default(), 2, odd);
            assert_eq!(round.step(), ExtendStep::Failed);
        }
    }

    #[test]
    fn what_is_claimed_heals_free_nodes_once_a_quorum_confirmed_it_and_with_its_lowest_fence() {
        let lease = lease();
        let other = Owner::Holder(Holder::new("other", 2).unwrap());
        let answers = [
            Ok(Reply::NotHeld { owner: None }),
            Ok(Reply::NotHeld { owner: Some(other) }),
            Ok(Reply::Extended { clock: CLOCK }),
            Ok(Reply::Extended { clock: CLOCK }),
            Ok(Reply::Extended { clock: CLOCK }),
        ];
        let highest = Fence::new(9).unwrap();
        let mut claim = round(5).refresh(highest).unbroken();
        for (node, answer) in answers.clone().into_iter().enumerate() {
            assert_eq!(claim.to_heal(&lease), None, "nobody has confirmed it yet");
            claim.answer(Moment::default(), node, answer);
        }
        let (request, nodes) = claim.to_heal(&lease).unwrap();
        assert_eq!(nodes, [0]);
        let Request::Extend { token, next, unbroken, .. } = request else { panic!("{request:?}") };
        assert_eq!((token, next, unbroken), (lease.fence, lease.fence, false));
        let mut guards = round(5);
        for (node, answer) in answers.into_iter().enumerate() {
            guards.answer(Moment::default(), node, answer);
        }
        assert_eq!(guards.to_heal(&lease), None, "its own extension has healed");
    }

    #[test]
    fn an_unbroken_lease_is_not_made_of_healed_nodes() {
        let mut round = round(5).unbroken();
        for node in 0..2 {
            round.answer(Moment::default(), node, Ok(Reply::Healed { clock: CLOCK }));
        }
        for node in 2..4 {
            round.answer(Moment::default(), node, Ok(Reply::Extended { clock: CLOCK }));
        }
        assert_eq!(round.step(), ExtendStep::Wait, "the fifth may have kept it, too");
        let mut kept = round.clone();
        kept.answer(Moment::default(), 4, Ok(Reply::Extended { clock: CLOCK }));
        assert!(matches!(kept.step(), ExtendStep::Extended { .. }));
        let mut silent = round.clone();
        silent.time_up(Moment::default());
        assert!(silent.step() == ExtendStep::Failed && !silent.is_lost(), "nobody can tell");
        let mut stranger = round.clone();
        stranger.answer(Moment::default(), 4, Ok(Reply::Stranger { record: None }));
        assert!(stranger.step() == ExtendStep::Failed && !stranger.is_lost(), "it did not look");
        let mut gone = round.clone();
        gone.answer(Moment::default(), 4, Err(NodeError::Gone { reason: "removed".into() }));
        assert!(gone.step() == ExtendStep::Failed && gone.is_lost());
        round.answer(Moment::default(), 4, Ok(Reply::Healed { clock: CLOCK }));
        assert!(round.step() == ExtendStep::Failed && round.is_lost());
    }

    #[test]
    fn silence_is_a_no() {
        let mut round = round(3);
        round.answer(Moment::default(), 0, Ok(Reply::Extended { clock: CLOCK }));
        round.time_up(Moment::from_millis(150));
        assert_eq!(round.step(), ExtendStep::Failed);
    }

    #[test]
    fn a_late_answer_takes_the_place_of_silence_and_of_nothing_else() {
        let late = Moment::from_millis(400);
        let refused = Err(NodeError::Overloaded { reason: "busy".into() });
        let mut round = round(3);
        round.answer(Moment::default(), 0, refused);
        round.answer(Moment::default(), 1, Ok(Reply::Extended { clock: CLOCK }));
        round.time_up(Moment::from_millis(150));
        round.answer(late, 0, Ok(Reply::Extended { clock: CLOCK }));
        assert_eq!(round.step(), ExtendStep::Failed, "that node was never asked");
        round.answer(late, 2, Ok(Reply::Extended { clock: CLOCK }));
        let deadline = Moment::from_millis(100 + 1000 - 12);
        assert_eq!(round.step(), ExtendStep::Extended { deadline });
    }
}
