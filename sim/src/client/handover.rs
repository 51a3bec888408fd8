//! Handing over: a holder is done, another of the same process waits for the same lock, and begins
//! with the holder value of the first. Nothing is released between them.

use std::time::Duration;

use leasehold_core::{Fence, Holder, Lease, LockName, Ttl};

use super::{Act, Client, Doing, Habits};
use crate::clock::Time;
use crate::history::Happening;
use crate::scenario::Assumption;

/// After so many in a row the lease is released, so that other processes have their turn.
const TURNS_MAX: u32 = 16;

impl Habits {
    /// Where leases are handed over, every second holder wants shorter ones.
    pub(super) fn ttl_of(&self, holder: usize) -> Ttl {
        let half = Ttl::new(self.ttl.get() / 2).unwrap_or(self.ttl);
        if self.handovers > 0 && holder % 2 == 1 { half } else { self.ttl }
    }
}

impl Client {
    /// Who gets the lease that a holder is done with, if it is not to be released.
    pub(super) fn successor(&mut self, holder: usize) -> Option<usize> {
        let this = &self.holders[holder];
        let queue = self.queues.get(&this.lock)?;
        if queue.front() != Some(&holder) || this.turns >= TURNS_MAX {
            return None;
        }
        let next = *queue.get(1)?;
        // Nothing is drawn in worlds without it, so that they stay what they were.
        (self.habits.handovers > 0 && self.chance.percent(self.habits.handovers)).then_some(next)
    }

    /// Lets `next` go on with the holder value. Everything that was sent with it may still arrive
    /// somewhere; a proposal above all of it makes that harmless on the nodes that grant.
    pub(super) fn hand_over(
        &mut self,
        time: Time,
        holder: usize,
        next: usize,
        lease: &Lease,
        highest: Fence,
        acts: &mut Vec<Act>,
    ) {
        if let Some(queue) = self.queues.get_mut(&lease.lock) {
            queue.pop_front();
        }
        self.end(time, holder, acts);
        self.begin_wish(time, next, None);
        self.name_attempt(next);
        self.holders[next].turns = self.holders[holder].turns + 1;
        let proposal = self.propose(time, &lease.lock, highest);
        self.ask_as(time, next, lease.holder.clone(), proposal, acts);
    }

    /// One holder value for all attempts of the process, if that is what is wrong.
    pub(super) fn worn_value(&self, lock: &LockName) -> Option<Holder> {
        let label = format!("c{}.{}.{lock}", self.number, self.life);
        (self.habits.broken == Some(Assumption::Fresh))
            .then(|| Holder::new(&label, 0).expect("ASCII"))
    }

    fn end(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        if self.habits.broken == Some(Assumption::Done) {
            return self.work_on(time, holder, acts);
        }
        let who = self.holders[holder].who.clone();
        acts.push(Act::Tell(Happening::Done { who }));
        self.new_op(holder);
        self.think(time, holder, acts);
    }

    /// As if it had not handed over.
    fn work_on(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let more = self.now(time).plus(Duration::from_secs(1));
        if let Doing::Holding { work_until, .. } = &mut self.holders[holder].doing {
            *work_until = more;
        }
        self.go_on(time, holder, acts);
    }
}
