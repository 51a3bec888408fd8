//! What comes of an answer: it goes to the round that it belongs to, which may be decided by it.

use leasehold_core::{Answer, ClockSample, Moment, Reply};

use super::evidence::is_yes;
use super::{Act, Client, Doing, Pending, Purpose};
use crate::clock::Time;
use crate::history::Given;

impl Purpose {
    /// Whether the answer is a vote.
    pub(super) fn is_vote(self) -> bool {
        matches!(self, Self::Vote { .. } | Self::Reserve { .. })
    }
}

impl Client {
    /// An answer came; `given` is what those who watch know of it.
    pub fn answered(
        &mut self,
        time: Time,
        ask: u64,
        answer: Answer,
        given: Option<Given>,
        acts: &mut Vec<Act>,
    ) {
        let Some(Pending { member, sent, purpose }) = self.asks.remove(&ask) else { return };
        let now = self.now(time);
        if let (Ok(reply), Some(given)) = (&answer, given) {
            self.tell_reading(reply, given, now.since(sent), acts);
        }
        match &answer {
            Ok(Reply::Stranger { .. }) if purpose.is_vote() => self.look(time, member, acts),
            Ok(Reply::Extended { clock } | Reply::Healed { clock }) => {
                let sample = ClockSample { sent, received: now, clock: *clock };
                let jump = self.members[member].admission.observe_clock(sample);
                if jump.is_some_and(|jump| !jump.ahead.is_zero()) {
                    self.clocks_went_ahead(time, acts);
                }
            }
            _ => {}
        }
        if let (Ok(reply), Some(given)) = (&answer, given)
            && is_yes(reply)
            && let Some((holder, op)) = self.whose(purpose)
        {
            self.holders[holder].evidence.note(op, member, given);
        }
        if !purpose.is_vote() {
            if self.members[member].looking == Some(ask) {
                self.looked(time, member, sent, answer, acts);
            }
            return;
        }
        if !self.cast(now, member, purpose, answer) {
            return;
        }
        match (purpose, self.whose(purpose)) {
            (Purpose::Reserve { .. }, Some((holder, _))) => {
                self.reserve_decided(time, holder, acts);
            }
            (_, Some((holder, _))) => self.decide(time, holder, acts),
            (_, None) => {}
        }
    }

    /// The holder that a vote is for, and the number of its question.
    fn whose(&mut self, purpose: Purpose) -> Option<(usize, u64)> {
        match purpose {
            Purpose::Vote { holder, op, .. } => Some((holder, op)),
            Purpose::Reserve { op } => self.reserving(op).map(|(holder, _)| (holder, op)),
            _ => None,
        }
    }

    /// Hands a vote to its round. Whether something may be decided by it.
    pub(super) fn cast(
        &mut self,
        now: Moment,
        member: usize,
        purpose: Purpose,
        answer: Answer,
    ) -> bool {
        let (holder, op, number) = match purpose {
            Purpose::Vote { holder, op, round } => (holder, op, round),
            Purpose::Reserve { op } => {
                let Some((_, reserving)) = self.reserving(op) else { return false };
                reserving.round.answer(now, member, answer);
                return true;
            }
            _ => return false,
        };
        let is_current = self.holders[holder].op == op;
        match &mut self.holders[holder].doing {
            Doing::Holding { last, proof, .. } if !is_current => {
                match (last, proof) {
                    (Some((last, round)), _) if *last == op => round.answer(now, member, answer),
                    (_, Some(proof)) if proof.0 == op => {
                        proof.1.answer(now, number, member, answer);
                    }
                    _ => {}
                }
                return false;
            }
            _ if !is_current => return false,
            Doing::Acquiring(round) => round.answer(now, number, member, answer),
            Doing::Holding { extending: Some(round), .. } => round.answer(now, member, answer),
            Doing::Releasing(round) => round.answer(now, member, answer),
            Doing::Renewing { round, .. } => round.answer(now, member, answer),
            _ => return false,
        }
        true
    }
}
