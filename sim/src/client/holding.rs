//! What the holders of a process do: hold, extend, give back, wait.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{
    AcquireRound, AcquireStep, Belief, ExtendStep, Refusal, ReleaseRound, ReleaseStep,
};
use leasehold_core::wait::{Heard, WaitStep, Waiting};
use leasehold_core::{
    Chain, Ends, Holder, Keeper, KeeperStep, Lease, Request, Reserved, RetryPolicy, TurnNumber,
};

use super::{Act, Client, Doing, HolderTask, LAST_WORK, Purpose, Timer, Told};
use crate::clock::Time;
use crate::history::{Given, Happening};

/// A lease that a holder has from now on.
pub(super) struct Taken {
    pub(super) lease: Lease,
    /// The question by which it was acquired, if it was.
    pub(super) proof: Option<Box<(u64, AcquireRound)>>,
    /// What is left for those behind, if its fence was reserved.
    pub(super) reserved: Option<Reserved>,
    pub(super) ends: Ends,
    /// When the question was sent that the deadline counts from.
    pub(super) since: Time,
    pub(super) votes: Vec<Given>,
}

impl Client {
    pub(super) fn think(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        if self.holders[holder].is_for_callers {
            return self.finish(holder, Told::Unknown, acts);
        }
        if self.is_last_round && self.holders[holder].retired {
            self.holders[holder].doing = Doing::Retired;
            return;
        }
        self.holders[holder].doing = Doing::Thinking;
        let pause = self.chance.duration(Duration::ZERO..self.habits.think);
        self.wake_holder(time, holder, pause, acts);
    }

    fn wake_holder(&mut self, time: Time, holder: usize, after: Duration, acts: &mut Vec<Act>) {
        self.counter += 1;
        let ticket = self.counter;
        self.holders[holder].ticket = ticket;
        let at = self.now(time).plus(after);
        acts.push(Act::Wake { at, timer: Timer::Holder { holder, ticket } });
    }

    pub(super) fn go_on(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        match &self.holders[holder].doing {
            Doing::Thinking => {
                let lock = self.holders[holder].lock.clone();
                let queue = self.queues.entry(lock).or_default();
                queue.push_back(holder);
                self.joined += 1;
                let this = &mut self.holders[holder];
                (this.doing, this.chain) = (Doing::Queued, Chain::default());
                this.turn = TurnNumber(self.joined);
                if queue.front() == Some(&holder) {
                    self.begin(time, holder, acts);
                }
            }
            Doing::Queued | Doing::Looking => self.acquire(time, holder, acts),
            Doing::Pausing => self.wait(time, holder, acts),
            Doing::Holding { .. } => self.keep(time, holder, acts),
            // Its votes have settled.
            Doing::Acquiring(_) => self.decide(time, holder, acts),
            Doing::Inheriting { .. }
            | Doing::Releasing(_)
            | Doing::Renewing { .. }
            | Doing::Retired => {}
        }
    }

    fn begin(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        self.begin_wish(time, holder, None);
        self.acquire(time, holder, acts);
    }

    pub(super) fn begin_wish(&mut self, time: Time, holder: usize, wait: Option<Duration>) {
        let waiting = Waiting::new(self.now(time), wait, RetryPolicy::DEFAULT, self.quorum);
        self.holders[holder].waiting = Some(waiting);
        self.holders[holder].looked = false;
    }

    /// Lets the core decide what an answer, or the time limit, amounts to.
    pub(super) fn decide(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let (now, op) = (self.now(time), self.holders[holder].op);
        let HolderTask { doing, evidence, .. } = &mut self.holders[holder];
        match doing {
            Doing::Acquiring(round) => {
                let members = &self.members;
                let settles_for = |node: usize| members[node].admission.settles_for(now);
                let step = round.step(now, settles_for);
                let votes = evidence.of(op, round.ballot());
                let (value, seen, number) =
                    (round.spec().holder.clone(), round.seen(), round.number());
                match step {
                    AcquireStep::Wait => {}
                    // Nobody waits for answers any more: only the time is.
                    AcquireStep::Settle(at) => self.wake_holder(time, holder, at.since(now), acts),
                    AcquireStep::AskAgain => {
                        self.new_op(holder);
                        self.ask_round(time, holder, acts);
                    }
                    AcquireStep::Acquired(lease) => {
                        let proof = Some(Box::new((op, (**round).clone())));
                        if number > 1 {
                            self.remember(time, &lease.lock.clone(), lease.fence);
                        }
                        let (ends, since) = (Ends::default(), self.holders[holder].started);
                        let taken = Taken { lease, proof, reserved: None, ends, since, votes };
                        self.hold(time, holder, taken, acts);
                    }
                    AcquireStep::GiveUp(refusal) => {
                        let is_strange = refusal.is_worth_a_look(round.ballot());
                        let lock = self.holders[holder].lock.clone();
                        self.remember(time, &lock, seen);
                        self.give_back(time, holder, &value, acts);
                        self.refused(time, holder, &refusal, is_strange, acts);
                    }
                }
            }
            Doing::Holding { keeper, extending, last, asked, since, .. } => {
                let Some(round) = extending else { return };
                let mut extended = None;
                match round.step() {
                    ExtendStep::Wait => return,
                    ExtendStep::Extended { deadline } if now < keeper.lease().deadline => {
                        let refreshed = round.next() > keeper.lease().token;
                        keeper.extended(now, deadline, round.next());
                        let (started, votes) = (*asked, evidence.of(op, round.ballot()));
                        *since = started.max(*since);
                        extended = Some((started, refreshed, votes));
                    }
                    ExtendStep::Extended { .. } => {}
                    ExtendStep::Failed => {
                        let jitter = self.chance.jitter();
                        keeper.failed(now, String::new(), jitter);
                    }
                }
                *last = extending.take().map(|round| (op, round));
                if let Some((started, refreshed, votes)) = extended {
                    self.tell_extended(time, holder, (started, refreshed, votes), acts);
                }
                self.new_op(holder);
                self.keep(time, holder, acts);
            }
            Doing::Renewing { .. } => self.renewed(time, holder, acts),
            Doing::Releasing(round) if round.step() != ReleaseStep::Wait => {
                let is_released = round.step() == ReleaseStep::Released;
                self.new_op(holder);
                if is_released && self.holders[holder].is_for_callers {
                    return self.finish(holder, Told::Released, acts);
                }
                self.leave_queue(time, holder, acts);
                self.think(time, holder, acts);
            }
            _ => {}
        }
    }

    fn refused(
        &mut self,
        time: Time,
        holder: usize,
        refusal: &Refusal,
        is_strange: bool,
        acts: &mut Vec<Act>,
    ) {
        self.new_op(holder);
        if self.is_of_its_key(holder, refusal) {
            // Another process granted it, and may be about to take it back.
            return self.finish(holder, Told::Unknown, acts);
        }
        if is_strange && !self.holders[holder].looked {
            // Their records changed; a look at them mends it.
            self.holders[holder].looked = true;
            self.holders[holder].doing = Doing::Looking;
            for member in 0..self.members.len() {
                self.look(time, member, acts);
            }
            let limit = self.habits.limit;
            return self.wake_holder(time, holder, limit, acts);
        }
        self.holders[holder].looked = false;
        let (now, jitter) = (self.now(time), self.chance.jitter());
        if let Some(waiting) = &mut self.holders[holder].waiting {
            waiting.refused(now, refusal, jitter);
        }
        self.holders[holder].doing = Doing::Pausing;
        self.wait(time, holder, acts);
    }

    /// Carries out what a waiter wants. Simulated nodes keep no lines.
    fn wait(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let Some(waiting) = &mut self.holders[holder].waiting else { return };
        let step = loop {
            match waiting.step(now) {
                WaitStep::Enter => drop(waiting.line().hear(Heard::NoLine)),
                step => break step,
            }
        };
        match step {
            WaitStep::Ask => self.acquire(time, holder, acts),
            WaitStep::SleepUntil(at) => self.wake_holder(time, holder, at.since(now), acts),
            WaitStep::GiveUp(_) => self.finish(holder, Told::Lost, acts),
            WaitStep::Enter | WaitStep::Watch | WaitStep::Nudge => {
                unreachable!("only in a line, which no simulated node keeps")
            }
        }
    }

    pub(super) fn hold(&mut self, time: Time, holder: usize, taken: Taken, acts: &mut Vec<Act>) {
        let Taken { lease, proof, reserved, ends, since, votes } = taken;
        if self.holders[holder].is_for_callers {
            return self.hand_out(time, holder, lease, votes, acts);
        }
        let now = self.now(time);
        self.new_op(holder);
        self.holders[holder].retired = self.is_last_round;
        let most = if self.is_last_round { LAST_WORK } else { self.habits.work };
        let holds_on = self.habits.holds_on && !self.is_last_round;
        let work = if holds_on { most } else { self.chance.duration(Duration::ZERO..most) };
        let (value, lock, fence) = (lease.holder.clone(), lease.lock.clone(), lease.fence);
        let mut keeper = Keeper::new(lease, now, self.habits.extends, self.habits.max_hold);
        if let Some(rest) = reserved {
            keeper = keeper.with_reserved(rest);
        }
        self.holders[holder].doing = Doing::Holding {
            keeper: Box::new(keeper),
            extending: None,
            reserving: None,
            last: None,
            ends,
            proof,
            asked: time,
            since,
            work_until: now.plus(work),
        };
        self.hold_against_clocks(time, holder, acts);
        let Doing::Holding { keeper, .. } = &self.holders[holder].doing else { return };
        let until = self.believed(time, keeper.lease().deadline);
        let (who, reserved) = (self.holders[holder].who.clone(), reserved.is_some());
        let started = since;
        let acquired =
            Happening::Acquired { who, value, lock, fence, reserved, started, until, votes };
        acts.push(Act::Tell(acquired));
        self.reserve(time, holder, acts);
        self.keep(time, holder, acts);
    }

    /// Works on, extends, gives back, or finds that it is lost.
    pub(super) fn keep(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        self.heed_late_answers(time, holder, acts);
        let Doing::Holding { keeper, extending, work_until, .. } = &self.holders[holder].doing
        else {
            return;
        };
        // Whatever was begun before the last round ends with it.
        let is_overdue = self.is_last_round && !self.holders[holder].retired;
        let work_until = if is_overdue { now } else { *work_until };
        let lease = keeper.lease().clone();
        let (step, is_extending) = (keeper.step(now), extending.is_some());
        if let KeeperStep::Lost(_) = step {
            let who = self.holders[holder].who.clone();
            acts.push(Act::Tell(Happening::Lost { who }));
            return self.release(time, holder, &lease, false, acts);
        }
        if now >= work_until {
            if self.hand_over(time, holder, acts) {
                return;
            }
            let who = self.holders[holder].who.clone();
            acts.push(Act::Tell(Happening::Done { who }));
            return self.release(time, holder, &lease, true, acts);
        }
        let wake = match step {
            KeeperStep::WaitUntil(moment) => moment,
            // The answer, or the limit, wakes it; and the deadline.
            KeeperStep::Extend if is_extending => lease.deadline,
            KeeperStep::Extend => {
                self.extend(time, holder, &lease, acts);
                lease.deadline
            }
            KeeperStep::Lost(_) => unreachable!("handled above"),
        };
        let pause = wake.min(work_until).since(now);
        self.wake_holder(time, holder, pause, acts);
        // No node may have been there to ask.
        if let Doing::Holding { extending: Some(round), .. } = &self.holders[holder].doing
            && round.step() != ExtendStep::Wait
        {
            self.decide(time, holder, acts);
        }
    }

    fn heed_late_answers(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let HolderTask { doing, evidence, .. } = &mut self.holders[holder];
        if let Doing::Holding { keeper, last: Some((op, round)), asked, since, .. } = doing
            && keeper.heed(now, round)
        {
            *since = (*asked).max(*since);
            let refreshed = round.next() > keeper.lease().fence;
            let (started, votes) = (*asked, evidence.of(*op, round.ballot()));
            self.tell_extended(time, holder, (started, refreshed, votes), acts);
        }
    }

    /// The keeper knows of a new deadline, which is held against the clocks before anybody believes it.
    pub(super) fn tell_extended(
        &mut self,
        time: Time,
        holder: usize,
        (started, refreshed, votes): (Time, bool, Vec<Given>),
        acts: &mut Vec<Act>,
    ) {
        self.hold_against_clocks(time, holder, acts);
        let Doing::Holding { keeper, .. } = &self.holders[holder].doing else { return };
        let until = self.believed(time, keeper.lease().deadline);
        let who = self.holders[holder].who.clone();
        acts.push(Act::Tell(Happening::Extended { who, started, refreshed, until, votes }));
    }

    fn extend(&mut self, time: Time, holder: usize, lease: &Lease, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let limit = self.habits.limit.min(lease.validity_at(now));
        // The answers to the last extension are not kept any longer than this.
        self.note_ends(holder);
        let mut doing = std::mem::replace(&mut self.holders[holder].doing, Doing::Thinking);
        let Doing::Holding { keeper, extending, last, asked, .. } = &mut doing else {
            return;
        };
        *asked = time;
        if let Some(fence) = last.take().and_then(|(_, round)| round.superseded()) {
            keeper.superseded(fence);
        }
        let propose = |above| self.propose(time, &lease.lock, above);
        let round = keeper.round(self.quorum, self.policy.drift, now, propose);
        let request = round.request(lease);
        *extending = Some(round);
        self.holders[holder].doing = doing;
        self.new_op(holder);
        self.ask_all(time, holder, 0, request, limit, acts);
    }

    fn release(
        &mut self,
        time: Time,
        holder: usize,
        lease: &Lease,
        was_valid: bool,
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        let (value, token) = (lease.holder.clone(), lease.token);
        let belief = if was_valid { Belief::Valid } else { Belief::Over };
        let round = ReleaseRound::new(value, token, self.quorum, belief, now);
        self.holders[holder].doing = Doing::Releasing(round);
        self.new_op(holder);
        let request = Request::Release { lock: lease.lock.clone(), holder: lease.holder.clone() };
        self.ask_all(time, holder, 0, request, self.habits.limit, acts);
        self.decide(time, holder, acts);
    }

    /// Releases to all members and waits for nobody.
    pub(super) fn give_back(
        &mut self,
        time: Time,
        holder: usize,
        value: &Holder,
        acts: &mut Vec<Act>,
    ) {
        self.new_op(holder);
        let who = self.holders[holder].who.clone();
        acts.push(Act::Tell(Happening::GaveUp { who }));
        let lock = self.holders[holder].lock.clone();
        let request = Arc::new(Request::Release { lock, holder: value.clone() });
        for member in 0..self.members.len() {
            if self.members[member].is_connected {
                self.send(time, member, Purpose::Nothing, request.clone(), None, acts);
            }
        }
    }

    pub(super) fn leave_queue(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let Some(queue) = self.queues.get_mut(&self.holders[holder].lock) else { return };
        if queue.front() == Some(&holder) {
            queue.pop_front();
            if let Some(next) = queue.front().copied() {
                self.begin(time, next, acts);
            }
        }
    }
}
