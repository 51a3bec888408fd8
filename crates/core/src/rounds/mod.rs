//! Rounds: one question put to all nodes, and what the answers amount to.
//!
//! A round is told what each node answered and what time it is; it says what to do next. It never
//! sends anything. An answer that comes after the decision changes nothing, unless an extension
//! failed for want of it.

mod acquire;
mod extend;
mod force;
mod release;

use std::fmt;
use std::time::Duration;

pub use acquire::{AcquireRound, AcquireSpec, AcquireStep, Refusal};
pub use extend::{ExtendRound, ExtendStep, LeaseClaim};
pub use force::{ForceRound, ForceStep};
pub use release::{Belief, ReleaseRound, ReleaseStep};

use crate::{Answer, Moment, NodeError, Reply};

/// What one node answered, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    /// The answer.
    pub answer: Answer,
    /// From sending to knowing.
    pub after: Duration,
}

/// The votes of one round, by node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballot {
    asked_at: Moment,
    votes: Vec<Option<Vote>>,
}

impl Ballot {
    fn new(nodes: usize, asked_at: Moment) -> Self {
        Self { asked_at, votes: vec![None; nodes] }
    }

    fn restart(&mut self, asked_at: Moment) {
        self.asked_at = asked_at;
        self.votes.iter_mut().for_each(|vote| *vote = None);
    }

    /// Takes the first answer of each node and ignores any other.
    fn cast(&mut self, now: Moment, node: usize, answer: Answer) {
        let after = now.since(self.asked_at);
        if let Some(vote @ None) = self.votes.get_mut(node) {
            *vote = Some(Vote { answer, after });
        }
    }

    /// The same, but an answer takes the place of the silence that was counted before it came.
    fn cast_late(&mut self, now: Moment, node: usize, answer: Answer) {
        let is_silence = |vote: &Vote| matches!(vote.answer, Err(NodeError::TimedOut { .. }));
        if let Some(vote) = self.votes.get_mut(node) {
            vote.take_if(|vote| is_silence(vote));
        }
        self.cast(now, node, answer);
    }

    /// Whoever has not answered by now is counted as a "no".
    fn close(&mut self, now: Moment) {
        let after = now.since(self.asked_at);
        for vote in self.votes.iter_mut().filter(|vote| vote.is_none()) {
            *vote = Some(Vote { answer: Err(NodeError::TimedOut { after }), after });
        }
    }

    fn count(&self, wanted: impl Fn(&Reply) -> bool) -> usize {
        self.replies().filter(|reply| wanted(reply)).count()
    }

    fn waiting(&self) -> usize {
        self.votes.iter().filter(|vote| vote.is_none()).count()
    }

    /// When the question was sent.
    pub fn asked_at(&self) -> Moment {
        self.asked_at
    }

    /// The votes, by node; `None` where the round was decided without it.
    pub fn votes(&self) -> &[Option<Vote>] {
        &self.votes
    }

    /// The replies that came.
    pub fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.votes.iter().filter_map(|vote| vote.as_ref()?.answer.as_ref().ok())
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            Ok(Reply::Granted | Reply::GrantedWith { .. }) => write!(f, "ok {:.1?}", self.after),
            Ok(reply) => reply.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}
