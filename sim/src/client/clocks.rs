//! What becomes of the leases of a process when it finds that clocks went ahead.

use leasehold_core::Moment;

use super::{Act, Client, Doing, Timer};
use crate::clock::Time;
use crate::history::Happening;

impl Client {
    /// The clock of a node went ahead, so all leases are held against the clocks. They are looked at
    /// right after this: whoever heard of the clock may have one of them in hand.
    pub(super) fn clocks_went_ahead(&mut self, time: Time, acts: &mut Vec<Act>) {
        self.have_gone_ahead = true;
        for holder in 0..self.holders.len() {
            if self.hold_against_clocks(time, holder, acts) {
                self.counter += 1;
                let ticket = self.counter;
                self.holders[holder].ticket = ticket;
                acts.push(Act::Wake {
                    at: self.now(time),
                    timer: Timer::Holder { holder, ticket },
                });
            }
        }
    }

    /// Moves the deadline of a lease to when the nodes really end it, if that is earlier. Says whether
    /// it was.
    pub(super) fn hold_against_clocks(
        &mut self,
        time: Time,
        holder: usize,
        acts: &mut Vec<Act>,
    ) -> bool {
        if !self.have_gone_ahead {
            return false;
        }
        self.note_ends(holder);
        let task = &mut self.holders[holder];
        let Doing::Holding { keeper, ends, .. } = &mut task.doing else { return false };
        let members = &self.members;
        let before = keeper.lease().deadline;
        keeper.cut(ends.deadline(self.quorum, |node| members[node].admission.jumps()));
        let deadline = keeper.lease().deadline;
        if deadline < before {
            let (who, until) = (task.who.clone(), self.believed(time, deadline));
            acts.push(Act::Tell(Happening::Moved { who, until }));
        }
        deadline < before
    }

    /// Takes in who keeps a lease, by all that is known of it now.
    pub(super) fn note_ends(&mut self, holder: usize) {
        let doing = &mut self.holders[holder].doing;
        let Doing::Holding { keeper, extending, last, ends, proof, .. } = doing else { return };
        let (ttl, drift) = (keeper.lease().ttl, self.policy.drift);
        if let Some(proof) = proof {
            ends.note(proof.1.ballot(), ttl, drift);
        }
        for round in extending.iter().chain(last.as_ref().map(|(_, round)| round)) {
            ends.note(round.ballot(), ttl, drift);
        }
    }

    /// Its clock stood still for `by` and does not know. What its holders believe now, in true time.
    pub fn stand_still(&mut self, time: Time, by: Time, acts: &mut Vec<Act>) {
        // By what it would have shown: it stands still, and does not go back.
        let missed = self.clock.at(time + by) - self.clock.at(time);
        self.clock.jump(time, -(missed as i64));
        for task in &self.holders {
            if let Doing::Holding { keeper, .. } = &task.doing {
                let (who, until) = (task.who.clone(), self.believed(time, keeper.lease().deadline));
                acts.push(Act::Tell(Happening::Moved { who, until }));
            }
        }
    }

    /// The true time of a moment on its clock, which may be past.
    pub(super) fn believed(&self, time: Time, moment: Moment) -> Time {
        self.clock.when(moment.as_nanos(), time)
    }
}
