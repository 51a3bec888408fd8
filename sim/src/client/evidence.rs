//! Who in truth gave the votes that a holder counts. The process cannot know and nothing is decided
//! from it; those who watch are told.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::Reply;
use leasehold_core::rounds::Ballot;

use super::{Act, Client};
use crate::clock::Time;
use crate::history::{Given, Happening};

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

    /// Takes over what another holder was answered to a question.
    pub(super) fn take_over(&mut self, op: u64, votes: Vec<(usize, Given)>) {
        votes.into_iter().for_each(|(member, given)| self.note(op, member, given));
    }

    /// What each member said to a question.
    pub(super) fn to(&self, op: u64) -> Vec<(usize, Given)> {
        let all = self.0.iter().filter(|(of, ..)| *of == op);
        all.map(|(_, member, given)| (*member, *given)).collect()
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

impl Client {
    /// Tells those who watch that it knows what the clock of a server showed.
    pub(super) fn tell_reading(
        &self,
        reply: &Reply,
        given: Given,
        took: Duration,
        acts: &mut Vec<Act>,
    ) {
        let is_probe = matches!(reply, Reply::Facts(_));
        if is_probe || matches!(reply, Reply::Extended { .. } | Reply::Healed { .. }) {
            let (client, life, blur) = (self.number, self.life, took.as_nanos() as Time);
            acts.push(Act::Tell(Happening::Read { client, life, given, blur, is_probe }));
        }
    }
}

/// Whether a server said that it has the lock for the asker.
pub(super) fn is_yes(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted | Reply::Extended { .. } | Reply::Healed { .. })
}
