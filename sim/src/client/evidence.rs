//! Who in truth gave the votes that a holder counts. The process cannot know and nothing is decided
//! from it; those who watch are told.

use std::collections::VecDeque;

use leasehold_core::Reply;
use leasehold_core::rounds::Ballot;

use crate::history::Given;

/// The latest votes: the question, the member, and what was behind it.
#[derive(Debug, Default)]
pub(super) struct Evidence(VecDeque<(u64, usize, Given)>);

impl Evidence {
    /// More than the latest two questions to all members need.
    const KEPT: usize = 32;

    pub(super) fn note(&mut self, op: u64, member: usize, given: Given) {
        self.0.push_back((op, member, given));
        if self.0.len() > Self::KEPT {
            self.0.pop_front();
        }
    }

    /// What was behind each yes of a ballot.
    pub(super) fn of(&self, op: u64, ballot: &Ballot) -> Vec<Given> {
        let is_yes = |member: usize| {
            let vote = ballot.votes().get(member).and_then(Option::as_ref);
            vote.is_some_and(|vote| vote.answer.as_ref().is_ok_and(is_yes))
        };
        let counted = |(of, member, given): &(u64, usize, Given)| {
            (*of == op && is_yes(*member)).then_some(*given)
        };
        self.0.iter().filter_map(counted).collect()
    }
}

/// Whether a server said that it has the lock for the asker.
pub(super) fn is_yes(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted | Reply::Extended { .. } | Reply::Healed { .. })
}
