//! Handing over: a holder is done, another of the same process waits for the same lock, and goes on
//! with the holder value of the first. Nothing is released between them. The core decides; here its
//! questions are put and its answers taken in.

use std::time::Duration;

use leasehold_core::rounds::ExtendStep;
use leasehold_core::{AskAs, Handoff, Holder, Inherited, LocalQueue, LockName, NextWaiter, Ttl};

use super::holding::Taken;
use super::{Act, Client, Doing, Habits, Purpose, Reserving, Timer};
use crate::clock::Time;
use crate::history::{Given, Happening};
use crate::scenario::Assumption;

impl Habits {
    /// Where leases are handed over, every second holder wants shorter ones.
    pub(super) fn ttl_of(&self, holder: usize) -> Ttl {
        let half = Ttl::new(self.ttl.get() / 2).unwrap_or(self.ttl);
        if self.handovers > 0 && holder % 2 == 1 { half } else { self.ttl }
    }
}

impl Client {
    /// The queue as its first one sees it, in worlds with handing over.
    fn queue_of(&self, holder: usize) -> Option<LocalQueue> {
        let this = &self.holders[holder];
        let queue = self.queues.get(&this.lock)?;
        if self.habits.handovers == 0 || queue.front() != Some(&holder) {
            return None;
        }
        let last = queue.back().filter(|last| **last != holder);
        let waiting_up_to = last.map(|last| self.holders[*last].turn);
        Some(LocalQueue { turn: this.turn, waiting_up_to, chain: this.chain })
    }

    /// Sends the refresh that reserves fences for those who wait, if there is a need.
    pub(super) fn reserve(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let (now, limit) = (self.now(time), self.habits.limit);
        let Some(queue) = self.queue_of(holder) else { return };
        let mut doing = std::mem::replace(&mut self.holders[holder].doing, Doing::Thinking);
        let mut question = None;
        if let Doing::Holding { keeper, reserving, since, .. } = &mut doing {
            let lock = keeper.lease().lock.clone();
            let propose = |above| self.propose(time, &lock, above);
            let round = keeper.reserve(&queue, self.quorum, self.policy.drift, now, propose);
            if let Some(round) = round {
                self.counter += 1;
                question = Some((self.counter, round.request(keeper.lease())));
                *reserving =
                    Some(Reserving { op: self.counter, round, asked: time, since: *since });
            }
        }
        self.holders[holder].doing = doing;
        if let Some((op, request)) = question {
            acts.push(Act::Wake { at: now.plus(limit), timer: Timer::ReserveLimit { op } });
            self.put(time, Purpose::Reserve { op }, request, acts);
            self.reserve_decided(time, holder, acts);
        }
    }

    /// The refresh of this number that reserves fences, and who has the lease by now.
    pub(super) fn reserving(&mut self, op: u64) -> Option<(usize, &mut Reserving)> {
        let tasks = self.holders.iter_mut().enumerate();
        let mut under_way = tasks.filter_map(|(holder, task)| match &mut task.doing {
            Doing::Holding { reserving: Some(reserving), .. }
            | Doing::Inheriting { reserving, .. } => Some((holder, reserving)),
            _ => None,
        });
        under_way.find(|(_, reserving)| reserving.op == op)
    }

    /// Lets the core take in what came of the refresh that reserves fences, if it is decided.
    pub(super) fn reserve_decided(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let (now, drift) = (self.now(time), self.policy.drift);
        let mut doing = std::mem::replace(&mut self.holders[holder].doing, Doing::Thinking);
        let under_way = match &mut doing {
            Doing::Holding { reserving, .. } => {
                reserving.take_if(|it| it.round.step() != ExtendStep::Wait)
            }
            Doing::Inheriting { handoff, reserving }
                if reserving.round.step() != ExtendStep::Wait =>
            {
                let is_good = now < handoff.lease().deadline;
                handoff.settle_reserved(now, &reserving.round, drift);
                let (votes, since) = self.won(holder, reserving, is_good);
                return self.inherit(time, holder, (**handoff).clone(), (votes, since), acts);
            }
            _ => None,
        };
        let mut extended = None;
        if let (Doing::Holding { keeper, ends, since, .. }, Some(reserving)) =
            (&mut doing, &under_way)
        {
            let is_good = now < keeper.lease().deadline;
            let step = keeper.settle_reserved(now, &reserving.round);
            if matches!(step, ExtendStep::Extended { .. }) {
                ends.note(reserving.round.ballot(), keeper.lease().ttl, drift);
                let (votes, _) = self.won(holder, reserving, is_good);
                *since = reserving.asked.max(*since);
                extended = is_good.then_some((reserving.asked, true, votes));
            }
        }
        self.holders[holder].doing = doing;
        if let Some(extended) = extended {
            self.tell_extended(time, holder, extended, acts);
            self.keep(time, holder, acts);
        }
    }

    /// What was counted for a refresh, and when the question was sent that the deadline counts from now.
    fn won(&self, holder: usize, reserving: &Reserving, is_good: bool) -> (Vec<Given>, Time) {
        let Reserving { op, round, asked, since } = reserving;
        match round.step() {
            ExtendStep::Extended { .. } if is_good => {
                let votes = self.holders[holder].evidence.of(*op, round.ballot());
                (votes, (*asked).max(*since))
            }
            _ => (Vec::new(), *since),
        }
    }

    /// Lets the next one have the lease that a holder is done with, if it is not to be released.
    pub(super) fn hand_over(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) -> bool {
        let (now, lock) = (self.now(time), self.holders[holder].lock.clone());
        let Some(queue) = self.queue_of(holder) else { return false };
        let waits = self.queues.get(&lock).and_then(|queue| queue.get(1).copied());
        // Nothing is drawn where nobody waits.
        let Some(next) = waits.filter(|_| self.chance.percent(self.habits.handovers)) else {
            return false;
        };
        self.note_ends(holder);
        let doing = &mut self.holders[holder].doing;
        let Doing::Holding { keeper, ends, reserving, since, .. } = doing else { return false };
        // A copy, for one that is not done although it should be.
        let Some(handoff) = keeper.hand_off(now, &queue, &mut ends.clone()) else { return false };
        let (reserving, since) = (reserving.take(), *since);
        if let Some(queue) = self.queues.get_mut(&lock) {
            queue.pop_front();
        }
        // What came of it so far is its former user's evidence.
        let evidence = |it: &Reserving| (it.op, self.holders[holder].evidence.to(it.op));
        let evidence = reserving.as_ref().map(evidence);
        self.end(time, holder, acts);
        self.begin_wish(time, next, None);
        self.name_attempt(next);
        self.holders[next].chain = handoff.chain();
        let op = self.new_op(next);
        match reserving.filter(|_| handoff.has_reserved_for(&self.next_waiter(next))) {
            Some(reserving) => {
                let reserving = Reserving { since, ..reserving };
                if let Some((op, votes)) = evidence {
                    self.holders[next].evidence.take_over(op, votes);
                }
                let handoff = Box::new(handoff);
                self.holders[next].doing = Doing::Inheriting { handoff, reserving };
                self.drop_half_way(time, next, op, acts);
            }
            None => self.inherit(time, next, handoff, (Vec::new(), since), acts),
        }
        true
    }

    fn next_waiter(&self, holder: usize) -> NextWaiter {
        let this = &self.holders[holder];
        let (turn, ttl, extends) = (this.turn, this.ttl, self.habits.extends);
        NextWaiter { turn, ttl, min_validity: Duration::ZERO, extends }
    }

    /// Goes on with a lease that was handed to it, or asks for it.
    fn inherit(
        &mut self,
        time: Time,
        holder: usize,
        handoff: Handoff,
        (votes, since): (Vec<Given>, Time),
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        match handoff.take(&self.next_waiter(holder), now) {
            Inherited::Lease { lease, rest, ends } => {
                let (who, lock) = (self.holders[holder].who.clone(), lease.lock.clone());
                acts.push(Act::Tell(Happening::Started { who, lock }));
                let reserved = Some(rest);
                let taken = Taken { lease, proof: None, reserved, ends, since, votes };
                self.hold(time, holder, taken, acts);
            }
            Inherited::Ask(AskAs { holder: value, above }) => {
                let proposal = self.propose(time, &self.holders[holder].lock, above);
                self.ask_as(time, holder, value, proposal, acts);
            }
        }
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
