//! What a process does for callers that are no processes of this protocol: requests through a lock server, or
//! commands of a script. Each is one round or a few; nothing is kept between them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{Belief, ExtendRound, ExtendStep, LeaseClaim, Refusal, ReleaseRound};
use leasehold_core::{Fence, Holder, Lease, LockName, Moment, Owner, Request, Ttl};

use super::{Act, Client, Doing, HolderTask, Purpose};
use crate::clock::Time;
use crate::history::Given;

/// What a caller hands in of a lease. All of it may be made up.
#[derive(Debug, Clone)]
pub struct Token {
    /// Of what.
    pub lock: LockName,
    /// By whom.
    pub holder: Holder,
    /// With which fence.
    pub fence: Fence,
    /// The highest that the nodes may have for it.
    pub highest: Fence,
}

/// What a caller wants.
#[derive(Debug, Clone)]
pub enum Wish {
    /// A lock.
    Acquire {
        /// Which.
        lock: LockName,
        /// What its holder is called.
        label: String,
        /// For how long.
        ttl: Ttl,
        /// How long it waits.
        wait: Duration,
        /// What the holder of this caller's idempotency key begins with.
        mark: Option<u64>,
    },
    /// To go on.
    Renew {
        /// With what.
        token: Token,
        /// For how long.
        ttl: Ttl,
    },
    /// To be done.
    Release {
        /// With what.
        token: Token,
    },
}

/// What a caller is told.
#[derive(Debug, Clone)]
pub enum Told {
    /// It has the lease.
    Held {
        /// Which.
        token: Token,
        /// So much time passed at least since it was asked for.
        elapsed: Duration,
        /// So much is left of it.
        left: Duration,
        /// When the question was sent that it counts from.
        started: Time,
        /// What was counted.
        votes: Vec<Given>,
    },
    /// It has not, and will not have it again.
    Lost,
    /// A quorum has it no more.
    Released,
    /// Nobody can tell.
    Unknown,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Errand {
    caller: usize,
    request: u64,
    asked: Moment,
    /// Of an acquire with an idempotency key.
    pub(super) mark: Option<u64>,
    /// What is asked of the nodes if the lease of the key is over.
    afresh: Option<Wish>,
}

/// What an idempotency key stands for in this life of a process.
#[derive(Debug)]
pub(super) enum Key {
    /// A request under way.
    UnderWay,
    /// A lease, which may be over.
    Granted(Token, Ttl),
}

impl Client {
    /// A caller asks for something.
    pub fn run_errand(
        &mut self,
        time: Time,
        (caller, request): (usize, u64),
        wish: Wish,
        acts: &mut Vec<Act>,
    ) {
        let asked = self.now(time);
        let task = self.free_task();
        let errand = |mark, afresh| Some(Errand { caller, request, asked, mark, afresh });
        match wish {
            Wish::Acquire { mark: Some(mark), .. } if self.keys.contains_key(&mark) => {
                // A repeat: of a lease the nodes are asked, whatever became of it.
                self.holders[task].errand = errand(None, Some(wish));
                match &self.keys[&mark] {
                    Key::UnderWay => self.finish(task, Told::Unknown, acts),
                    Key::Granted(token, ttl) => {
                        let (token, ttl) = (token.clone(), *ttl);
                        self.renew(time, task, token, ttl, acts);
                    }
                }
            }
            Wish::Acquire { lock, label, ttl, wait, mark } => {
                let this = &mut self.holders[task];
                (this.lock, this.label, this.ttl) = (lock, label, ttl);
                this.errand = errand(mark, None);
                if let Some(mark) = mark {
                    self.keys.insert(mark, Key::UnderWay);
                }
                self.begin_wish(time, task, Some(wait));
                self.acquire(time, task, acts);
            }
            Wish::Renew { token, ttl } => {
                self.holders[task].errand = errand(None, None);
                self.renew(time, task, token, ttl, acts);
            }
            Wish::Release { token } => {
                self.holders[task].errand = errand(None, None);
                self.forget_key(&token);
                let (value, highest) = (token.holder.clone(), token.highest);
                let round = ReleaseRound::new(value, highest, self.quorum, Belief::Unknown, asked);
                self.holders[task].doing = Doing::Releasing(round);
                self.new_op(task);
                let request = Request::Release { lock: token.lock, holder: token.holder };
                self.ask_all(time, task, 0, request, self.habits.limit, acts);
                self.decide(time, task, acts);
            }
        }
    }

    /// As the library extends by a token.
    fn renew(&mut self, time: Time, task: usize, token: Token, ttl: Ttl, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let Token { lock, holder, fence, highest } = token;
        let claim = LeaseClaim { lock, holder, fence, highest, ttl };
        let (round, lease) = ExtendRound::claim(claim, self.quorum, self.policy.drift, now);
        let request = round.request(&lease);
        self.holders[task].started = time;
        self.holders[task].doing = Doing::Renewing { round, lease };
        self.new_op(task);
        self.ask_all(time, task, 0, request, self.habits.limit, acts);
        self.decide(time, task, acts);
    }

    fn free_task(&mut self) -> usize {
        let is_free =
            |task: &HolderTask| task.is_for_callers && matches!(task.doing, Doing::Retired);
        if let Some(free) = self.holders.iter().position(is_free) {
            return free;
        }
        let lock = LockName::new("none yet").expect("a name");
        let task = HolderTask::new(lock, String::new(), self.habits.ttl);
        self.holders.push(HolderTask { doing: Doing::Retired, is_for_callers: true, ..task });
        self.holders.len() - 1
    }

    /// Whether the lock is held by a lease of the same idempotency key.
    pub(super) fn is_of_its_key(&self, task: usize, refusal: &Refusal) -> bool {
        let mark = self.holders[task].errand.as_ref().and_then(|errand| errand.mark);
        let Refusal::Held { owner: Some(Owner::Holder(owner)), .. } = refusal else { return false };
        mark.is_some_and(|mark| owner.mark() == mark)
    }

    /// A lease was acquired for a caller, who may have gone meanwhile: then it is given back.
    pub(super) fn hand_out(
        &mut self,
        time: Time,
        task: usize,
        lease: Lease,
        votes: Vec<Given>,
        acts: &mut Vec<Act>,
    ) {
        if self.chance.percent(3) {
            self.give_back(time, task, &lease.holder, acts);
            return self.finish(task, Told::Unknown, acts);
        }
        let told = self.held(time, task, &lease, lease.deadline, votes);
        let mark = self.holders[task].errand.as_ref().and_then(|errand| errand.mark);
        if let (Some(mark), Told::Held { token, .. }) = (mark, &told) {
            self.keys.insert(mark, Key::Granted(token.clone(), lease.ttl));
        }
        self.finish(task, told, acts);
    }

    /// A key dies with its lease.
    fn forget_key(&mut self, token: &Token) {
        self.keys.retain(
            |_, key| !matches!(key, Key::Granted(lease, _) if lease.holder == token.holder),
        );
    }

    /// The lease of a key is over: the request is carried out as if it were the first.
    fn begin_afresh(&mut self, time: Time, task: usize, acts: &mut Vec<Act>) -> bool {
        let Some(errand) = &mut self.holders[task].errand else { return false };
        let (caller, request) = (errand.caller, errand.request);
        let Some(wish @ Wish::Acquire { mark: Some(mark), .. }) = errand.afresh.take() else {
            return false;
        };
        if matches!(self.keys.get(&mark), Some(Key::Granted(..))) {
            self.keys.remove(&mark);
        }
        self.holders[task].errand = None;
        self.new_op(task);
        self.holders[task].doing = Doing::Retired;
        self.run_errand(time, (caller, request), wish, acts);
        true
    }

    /// Gives nodes that lost a lease it back, once others have confirmed it.
    fn heal(&mut self, time: Time, task: usize, acts: &mut Vec<Act>) {
        let Doing::Renewing { round, lease } = &self.holders[task].doing else { return };
        let Some((request, free)) = round.to_heal(lease) else { return };
        let (now, request) = (self.now(time), Arc::new(request));
        for member in free {
            let this = &self.members[member];
            let Ok(pass) = this.admission.pass_for(|| now, &request) else { continue };
            if this.is_connected && pass.generation == this.generation {
                let (request, identity) = (pass.fitted(&request), Some(pass.record.clone()));
                self.send(time, member, Purpose::Nothing, request, identity, acts);
            }
        }
    }

    pub(super) fn renewed(&mut self, time: Time, task: usize, acts: &mut Vec<Act>) {
        self.heal(time, task, acts);
        let now = self.now(time);
        let Doing::Renewing { round, lease } = &self.holders[task].doing else { return };
        let told = match round.step() {
            ExtendStep::Wait => return,
            ExtendStep::Extended { deadline } if now < deadline => {
                let votes = self.holders[task].evidence.of(self.holders[task].op, round.ballot());
                self.held(time, task, lease, deadline, votes)
            }
            _ if round.is_lost() => Told::Lost,
            _ => Told::Unknown,
        };
        if matches!(told, Told::Lost) && self.begin_afresh(time, task, acts) {
            return;
        }
        self.finish(task, told, acts);
    }

    fn held(
        &self,
        time: Time,
        task: usize,
        lease: &Lease,
        deadline: Moment,
        votes: Vec<Given>,
    ) -> Told {
        let (now, this) = (self.now(time), &self.holders[task]);
        let asked = this.errand.as_ref().map_or(now, |errand| errand.asked);
        let token = Token {
            lock: lease.lock.clone(),
            holder: lease.holder.clone(),
            fence: lease.fence,
            highest: lease.fence,
        };
        let elapsed = self.policy.drift.passed_at_least(now.since(asked));
        let left = deadline.since(now);
        Told::Held { token, elapsed, left, started: this.started, votes }
    }

    /// The caller is told, and nothing is left of its request.
    pub(super) fn finish(&mut self, task: usize, told: Told, acts: &mut Vec<Act>) {
        self.new_op(task);
        self.holders[task].doing = Doing::Retired;
        if let Some(Errand { caller, request, mark, .. }) = self.holders[task].errand.take() {
            if let Some(mark) = mark
                && matches!(self.keys.get(&mark), Some(Key::UnderWay))
            {
                self.keys.remove(&mark);
            }
            acts.push(Act::Answer { caller, request, told });
        }
    }
}
