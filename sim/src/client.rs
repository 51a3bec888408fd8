//! A process that wants locks: the core's rounds, keeper and admissions, carried out in simulated
//! time the way the library's driver carries them out with tasks. It decides nothing itself.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{
    AcquireRound, AcquireSpec, AcquireStep, ExtendRound, ExtendStep, Refusal, ReleaseRound,
    ReleaseStep,
};
use leasehold_core::{
    Admission, AdmissionPolicy, AdmissionStep, Answer, Backoff, ClockSample, Fence, Holder, Keeper,
    KeeperStep, Lease, LockName, Moment, NodeError, Outlook, Proposals, Quorum, Record, Reply,
    Request, RetryPolicy, Standing, Ttl, WallMicros,
};

use crate::chance::Chance;
use crate::clock::{Clock, MICROS, Time};
use crate::history::Happening;

/// What a process does with its locks.
#[derive(Debug, Clone)]
pub struct Habits {
    /// How long a lease lasts on the nodes.
    pub ttl: Ttl,
    /// How long a node may take.
    pub limit: Duration,
    /// Between two wishes.
    pub think: Duration,
    /// How long the work under the lock takes.
    pub work: Duration,
    /// Whether leases are kept.
    pub extends: bool,
    /// The longest time that one is kept.
    pub max_hold: Option<Duration>,
    /// Percent of the attempts that the caller drops half-way.
    pub drops: u64,
    /// After how long idle fences are dropped.
    pub fence_retention: Duration,
}

/// What a process wants from the world.
#[derive(Debug)]
pub enum Act {
    /// Send a request to one of its members.
    Send {
        /// Which member.
        member: usize,
        /// The number under which the answer is awaited.
        ask: u64,
        /// What.
        request: Arc<Request>,
        /// The identity that the node must have.
        identity: Option<Arc<str>>,
    },
    /// Be woken.
    Wake {
        /// When, by its own clock.
        at: Moment,
        /// What for.
        timer: Timer,
    },
    /// Tell the observer.
    Tell(Happening),
}

/// What a process is woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// A holder has something to do.
    Holder {
        /// Which.
        holder: usize,
        /// Only if it still waits for this.
        ticket: u64,
    },
    /// The time limit of a question is over.
    Limit {
        /// Whose.
        holder: usize,
        /// Which question.
        op: u64,
    },
    /// The caller loses interest.
    Drop {
        /// Whose.
        holder: usize,
        /// In which question.
        op: u64,
    },
    /// A member is to be looked at.
    Examine {
        /// Which.
        member: usize,
        /// Only if nothing was scheduled since.
        ticket: u64,
    },
    /// A look at a member takes too long.
    ExamineLimit {
        /// Which.
        member: usize,
        /// Only if it still is the same look.
        ask: u64,
    },
}

const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// The last work is short, so that fifty holders have their turn before the run ends.
const LAST_WORK: Duration = Duration::from_millis(40);

/// One process.
#[derive(Debug)]
pub struct Client {
    /// Its number in the world.
    pub number: usize,
    /// Counts its starts.
    pub life: u64,
    /// The clock that leases are counted by.
    pub clock: Clock,
    /// Its wall clock.
    pub wall: Clock,
    /// Whether it wants one more lock each, and then no more.
    pub is_last_round: bool,
    members: Vec<Member>,
    quorum: Quorum,
    policy: AdmissionPolicy,
    habits: Habits,
    holders: Vec<HolderTask>,
    queues: HashMap<LockName, VecDeque<usize>>,
    proposals: Proposals,
    asks: HashMap<u64, Pending>,
    counter: u64,
    chance: Chance,
}

#[derive(Debug)]
struct Member {
    generation: u64,
    is_connected: bool,
    admission: Admission,
    looking: Option<u64>,
    ticket: u64,
    forget_at: Moment,
    /// The floor was raised to this, so that what lies below may go.
    forgets: Option<Fence>,
}

#[derive(Debug)]
struct Pending {
    member: usize,
    sent: Moment,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy)]
enum Purpose {
    Vote { holder: usize, op: u64, round: u32 },
    Probe,
    Record,
    Forget,
    Nothing,
}

#[derive(Debug)]
struct HolderTask {
    lock: LockName,
    label: String,
    doing: Doing,
    backoff: Backoff,
    ticket: u64,
    op: u64,
    started: Time,
    looked: bool,
    retired: bool,
}

#[derive(Debug)]
enum Doing {
    Thinking,
    Queued,
    Acquiring(Box<AcquireRound>),
    Looking,
    Pausing,
    Holding {
        keeper: Box<Keeper>,
        extending: Option<ExtendRound>,
        last: LastExtension,
        work_until: Moment,
    },
    Releasing(ReleaseRound),
    Retired,
}

/// The number of the last extension and what was answered, also after its decision.
type LastExtension = Option<(u64, ExtendRound)>;

impl Client {
    /// A process that knows nothing yet.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        number: usize,
        life: u64,
        clock: Clock,
        wall: Clock,
        policy: AdmissionPolicy,
        members: usize,
        locks: &[LockName],
        habits: Habits,
        chance: Chance,
    ) -> Self {
        let member = |_| Member {
            generation: 0,
            is_connected: false,
            admission: Admission::new(policy.clone()),
            looking: None,
            ticket: 0,
            forget_at: Moment::default(),
            forgets: None,
        };
        let holder = |(i, lock): (usize, &LockName)| HolderTask {
            lock: lock.clone(),
            label: format!("c{number}.{life}.h{i}"),
            doing: Doing::Thinking,
            backoff: Backoff::new(RetryPolicy::DEFAULT),
            ticket: 0,
            op: 0,
            started: 0,
            looked: false,
            retired: false,
        };
        Self {
            number,
            life,
            clock,
            wall,
            is_last_round: false,
            members: (0..members).map(member).collect(),
            quorum: Quorum::majority_of(NonZeroUsize::new(members).expect("some members")),
            policy,
            habits,
            holders: locks.iter().enumerate().map(holder).collect(),
            queues: HashMap::new(),
            proposals: Proposals::default(),
            asks: HashMap::new(),
            counter: 0,
            chance,
        }
    }

    /// Whether all its holders are done.
    pub fn is_retired(&self) -> bool {
        self.holders.iter().all(|holder| matches!(holder.doing, Doing::Retired))
    }

    /// Its clock, as the core reads it.
    pub fn now(&self, time: Time) -> Moment {
        Moment::from_nanos(self.clock.at(time))
    }

    /// It begins.
    pub fn start(&mut self, time: Time, acts: &mut Vec<Act>) {
        for holder in 0..self.holders.len() {
            self.think(time, holder, acts);
        }
    }

    /// A connection to a member stands.
    pub fn connected(&mut self, time: Time, member: usize, generation: u64, acts: &mut Vec<Act>) {
        let this = &mut self.members[member];
        (this.generation, this.is_connected) = (generation, true);
        self.look(time, member, acts);
    }

    /// A connection broke: whatever was under way on it has no answer.
    pub fn disconnected(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        self.members[member].is_connected = false;
        let mut lost: Vec<u64> = self
            .asks
            .iter()
            .filter(|(_, pending)| pending.member == member)
            .map(|(ask, _)| *ask)
            .collect();
        lost.sort_unstable();
        for ask in lost {
            let reason = "connection closed".to_owned();
            self.answered(time, ask, Err(NodeError::Unreachable { reason }), acts);
        }
    }

    /// A timer rang.
    pub fn woken(&mut self, time: Time, timer: Timer, acts: &mut Vec<Act>) {
        match timer {
            Timer::Holder { holder, ticket } if self.holders[holder].ticket == ticket => {
                self.go_on(time, holder, acts);
            }
            Timer::Limit { holder, op } if self.holders[holder].op == op => {
                let now = self.now(time);
                match &mut self.holders[holder].doing {
                    Doing::Acquiring(round) => round.time_up(now),
                    Doing::Holding { extending: Some(round), .. } => round.time_up(now),
                    Doing::Releasing(round) => round.time_up(now),
                    _ => {}
                }
                self.decide(time, holder, acts);
            }
            Timer::Drop { holder, op } if self.holders[holder].op == op => {
                if let Doing::Acquiring(round) = &self.holders[holder].doing {
                    let value = round.spec().holder.clone();
                    self.give_back(time, holder, &value, acts);
                    self.leave_queue(time, holder, acts);
                    self.think(time, holder, acts);
                }
            }
            Timer::Examine { member, ticket } if self.members[member].ticket == ticket => {
                self.look(time, member, acts);
            }
            Timer::ExamineLimit { member, ask } if self.members[member].looking == Some(ask) => {
                self.asks.remove(&ask);
                let after = PROBE_LIMIT;
                let now = self.now(time);
                self.looked(time, member, now, Err(NodeError::TimedOut { after }), acts);
            }
            _ => {}
        }
    }

    /// An answer came.
    pub fn answered(&mut self, time: Time, ask: u64, answer: Answer, acts: &mut Vec<Act>) {
        let Some(Pending { member, sent, purpose }) = self.asks.remove(&ask) else { return };
        let now = self.now(time);
        match (&answer, purpose) {
            (Ok(Reply::Stranger { .. }), Purpose::Vote { .. }) => self.look(time, member, acts),
            (Ok(Reply::Extended { clock } | Reply::Healed { clock }), _) => {
                let sample = ClockSample { sent, received: now, clock: *clock };
                self.members[member].admission.observe_clock(sample);
            }
            _ => {}
        }
        match purpose {
            Purpose::Vote { holder, op, .. } if self.holders[holder].op != op => {
                if let Doing::Holding { last: Some((number, round)), .. } =
                    &mut self.holders[holder].doing
                    && *number == op
                {
                    round.answer(now, member, answer);
                }
            }
            Purpose::Vote { holder, round, .. } => {
                match &mut self.holders[holder].doing {
                    Doing::Acquiring(acquire) => acquire.answer(now, round, member, answer),
                    Doing::Holding { extending: Some(extend), .. } => {
                        extend.answer(now, member, answer);
                    }
                    Doing::Releasing(release) => release.answer(now, member, answer),
                    _ => return,
                }
                self.decide(time, holder, acts);
            }
            Purpose::Probe | Purpose::Record | Purpose::Forget
                if self.members[member].looking == Some(ask) =>
            {
                self.looked(time, member, sent, answer, acts);
            }
            _ => {}
        }
    }

    // ---- holders

    fn think(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
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

    fn go_on(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        match &self.holders[holder].doing {
            Doing::Thinking => {
                let lock = self.holders[holder].lock.clone();
                let queue = self.queues.entry(lock).or_default();
                queue.push_back(holder);
                self.holders[holder].doing = Doing::Queued;
                if queue.front() == Some(&holder) {
                    self.begin(time, holder, acts);
                }
            }
            Doing::Queued | Doing::Looking | Doing::Pausing => self.acquire(time, holder, acts),
            Doing::Holding { .. } => self.keep(time, holder, acts),
            Doing::Acquiring(_) | Doing::Releasing(_) | Doing::Retired => {}
        }
    }

    fn begin(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        self.holders[holder].backoff = Backoff::new(RetryPolicy::DEFAULT);
        self.holders[holder].looked = false;
        self.acquire(time, holder, acts);
    }

    fn acquire(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let value = Holder::new(&self.holders[holder].label, self.chance.nonce()).expect("ASCII");
        let lock = self.holders[holder].lock.clone();
        let proposal = self.propose(time, &lock, Fence::ZERO);
        let spec = AcquireSpec {
            lock: lock.clone(),
            holder: value.clone(),
            ttl: self.habits.ttl,
            drift: self.policy.drift,
            min_validity: Duration::ZERO,
        };
        let round = AcquireRound::new(spec, self.quorum, proposal, now);
        self.holders[holder].started = time;
        self.holders[holder].doing = Doing::Acquiring(Box::new(round));
        acts.push(Act::Tell(Happening::Started { who: value, lock }));
        let op = self.new_op(holder);
        if self.chance.percent(self.habits.drops) {
            let after = self.chance.duration(Duration::ZERO..self.habits.limit);
            acts.push(Act::Wake { at: now.plus(after), timer: Timer::Drop { holder, op } });
        }
        self.ask_round(time, holder, acts);
    }

    /// Puts the acquire question to all members.
    fn ask_round(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let Doing::Acquiring(round) = &self.holders[holder].doing else { return };
        let spec = round.spec();
        let request = Request::Acquire {
            lock: spec.lock.clone(),
            holder: spec.holder.clone(),
            proposal: round.proposal(),
            ttl: spec.ttl,
        };
        let number = round.number();
        self.ask_all(time, holder, number, request, self.habits.limit, acts);
        self.decide(time, holder, acts);
    }

    fn ask_all(
        &mut self,
        time: Time,
        holder: usize,
        number: u32,
        request: Request,
        limit: Duration,
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        let op = self.holders[holder].op;
        let request = Arc::new(request);
        let is_acquire = matches!(*request, Request::Acquire { .. });
        let is_vetoed = is_acquire
            && self
                .members
                .iter()
                .any(|member| matches!(member.admission.standing(), Standing::Foreign { .. }));
        acts.push(Act::Wake { at: now.plus(limit), timer: Timer::Limit { holder, op } });
        for member in 0..self.members.len() {
            let this = &self.members[member];
            let refusal = |reason: &str| NodeError::NotVoting { reason: reason.to_owned() };
            let pass = match this.admission.standing() {
                _ if !request.needs_identity() => Ok(None),
                Standing::Voting(_) if is_vetoed => Err(refusal("another is foreign")),
                Standing::Voting(pass) if pass.generation != this.generation => {
                    Err(refusal("a new connection"))
                }
                Standing::Voting(pass) => Ok(Some(pass.record.clone())),
                standing => Err(standing.objection(now).unwrap_or_else(|| refusal("unknown"))),
            };
            let pass = pass.and_then(|pass| {
                let reason = || "connection refused".to_owned();
                if this.is_connected {
                    Ok(pass)
                } else {
                    Err(NodeError::Unreachable { reason: reason() })
                }
            });
            match pass {
                Ok(identity) => {
                    let purpose = Purpose::Vote { holder, op, round: number };
                    self.send(time, member, purpose, request.clone(), identity, acts);
                }
                Err(error) => match &mut self.holders[holder].doing {
                    Doing::Acquiring(round) => round.answer(now, number, member, Err(error)),
                    Doing::Holding { extending: Some(round), .. } => {
                        round.answer(now, member, Err(error));
                    }
                    Doing::Releasing(round) => round.answer(now, member, Err(error)),
                    _ => {}
                },
            }
        }
    }

    fn send(
        &mut self,
        time: Time,
        member: usize,
        purpose: Purpose,
        request: Arc<Request>,
        identity: Option<Arc<str>>,
        acts: &mut Vec<Act>,
    ) -> u64 {
        self.counter += 1;
        let ask = self.counter;
        self.asks.insert(ask, Pending { member, sent: self.now(time), purpose });
        acts.push(Act::Send { member, ask, request, identity });
        ask
    }

    fn new_op(&mut self, holder: usize) -> u64 {
        self.counter += 1;
        self.holders[holder].op = self.counter;
        self.counter
    }

    /// Lets the core decide what an answer, or the time limit, amounts to.
    fn decide(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let (now, op) = (self.now(time), self.holders[holder].op);
        match &mut self.holders[holder].doing {
            Doing::Acquiring(round) => {
                let step = round.step(now);
                let (value, seen, number) =
                    (round.spec().holder.clone(), round.seen(), round.number());
                match step {
                    AcquireStep::Wait => {}
                    AcquireStep::AskAgain => {
                        self.new_op(holder);
                        self.ask_round(time, holder, acts);
                    }
                    AcquireStep::Acquired(lease) => {
                        if number > 1 {
                            self.remember(time, &lease.lock.clone(), lease.fence);
                        }
                        self.hold(time, holder, lease, acts);
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
            Doing::Holding { keeper, extending, last, .. } => {
                let Some(round) = extending else { return };
                match round.step() {
                    ExtendStep::Wait => return,
                    ExtendStep::Extended { deadline } if now < keeper.lease().deadline => {
                        keeper.extended(now, deadline, round.next());
                        let lease = keeper.lease();
                        let until = self.clock.when(lease.deadline.as_nanos(), time);
                        let who = lease.holder.clone();
                        acts.push(Act::Tell(Happening::Extended { who, until }));
                    }
                    ExtendStep::Extended { .. } => {}
                    ExtendStep::Failed => {
                        let jitter = self.chance.jitter();
                        keeper.failed(now, String::new(), jitter);
                    }
                }
                *last = extending.take().map(|round| (op, round));
                self.new_op(holder);
                self.keep(time, holder, acts);
            }
            Doing::Releasing(round) if round.step() != ReleaseStep::Wait => {
                self.new_op(holder);
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
        let expires_in = match refusal {
            Refusal::Held { expires_in, .. } => *expires_in,
            Refusal::NoQuorum | Refusal::TooLate { .. } => None,
        };
        let jitter = self.chance.jitter();
        let pause = self.holders[holder].backoff.after_refusal(jitter, expires_in);
        self.holders[holder].doing = Doing::Pausing;
        self.wake_holder(time, holder, pause.unwrap_or_default(), acts);
    }

    fn hold(&mut self, time: Time, holder: usize, lease: Lease, acts: &mut Vec<Act>) {
        let now = self.now(time);
        self.new_op(holder);
        self.holders[holder].retired = self.is_last_round;
        acts.push(Act::Tell(Happening::Acquired {
            who: lease.holder.clone(),
            lock: lease.lock.clone(),
            fence: lease.fence,
            started: self.holders[holder].started,
            until: self.clock.when(lease.deadline.as_nanos(), time),
        }));
        let most = if self.is_last_round { LAST_WORK } else { self.habits.work };
        let work = self.chance.duration(Duration::ZERO..most);
        let keeper = Box::new(Keeper::new(lease, now, self.habits.extends, self.habits.max_hold));
        let work_until = now.plus(work);
        self.holders[holder].doing =
            Doing::Holding { keeper, extending: None, last: None, work_until };
        self.keep(time, holder, acts);
    }

    /// Works on, extends, gives back, or finds that it is lost.
    fn keep(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let Doing::Holding { keeper, extending, work_until, .. } = &self.holders[holder].doing
        else {
            return;
        };
        let (work_until, lease) = (*work_until, keeper.lease().clone());
        let (step, is_extending) = (keeper.step(now), extending.is_some());
        if let KeeperStep::Lost(_) = step {
            acts.push(Act::Tell(Happening::Lost { who: lease.holder.clone() }));
            return self.release(time, holder, &lease, false, acts);
        }
        if now >= work_until {
            acts.push(Act::Tell(Happening::Done { who: lease.holder.clone() }));
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

    fn extend(&mut self, time: Time, holder: usize, lease: &Lease, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let limit = self.habits.limit.min(lease.validity_at(now));
        let mut doing = std::mem::replace(&mut self.holders[holder].doing, Doing::Thinking);
        let Doing::Holding { keeper, extending, last, .. } = &mut doing else { return };
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
        let round = ReleaseRound::new(lease.holder.clone(), self.quorum, was_valid, now);
        self.holders[holder].doing = Doing::Releasing(round);
        self.new_op(holder);
        let request = Request::Release { lock: lease.lock.clone(), holder: lease.holder.clone() };
        self.ask_all(time, holder, 0, request, self.habits.limit, acts);
        self.decide(time, holder, acts);
    }

    /// Releases to all members and waits for nobody.
    fn give_back(&mut self, time: Time, holder: usize, value: &Holder, acts: &mut Vec<Act>) {
        self.new_op(holder);
        acts.push(Act::Tell(Happening::GaveUp { who: value.clone() }));
        let lock = self.holders[holder].lock.clone();
        let request = Arc::new(Request::Release { lock, holder: value.clone() });
        for member in 0..self.members.len() {
            if self.members[member].is_connected {
                self.send(time, member, Purpose::Nothing, request.clone(), None, acts);
            }
        }
    }

    fn leave_queue(&mut self, time: Time, holder: usize, acts: &mut Vec<Act>) {
        let Some(queue) = self.queues.get_mut(&self.holders[holder].lock) else { return };
        if queue.front() == Some(&holder) {
            queue.pop_front();
            if let Some(next) = queue.front().copied() {
                self.begin(time, next, acts);
            }
        }
    }

    // ---- what is known of the nodes

    fn propose(&self, time: Time, lock: &LockName, seen: Fence) -> Fence {
        let (now, wall) = (self.now(time), self.wall_micros(time));
        self.proposals.next(lock, seen, self.outlook(), now, wall)
    }

    fn wall_micros(&self, time: Time) -> WallMicros {
        WallMicros(self.wall.at(time) / MICROS)
    }

    fn outlook(&self) -> Outlook {
        let mut outlook = Outlook::default();
        self.members.iter().for_each(|member| outlook.add(&member.admission));
        outlook
    }

    fn remember(&mut self, time: Time, lock: &LockName, fence: Fence) {
        let (outlook, now, wall) = (self.outlook(), self.now(time), self.wall_micros(time));
        self.proposals.saw(lock, fence, outlook, now, wall);
    }

    fn look(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        if self.members[member].looking.is_some() {
            return;
        }
        if !self.members[member].is_connected {
            let reason = "connection refused".to_owned();
            self.members[member].admission.down(NodeError::Unreachable { reason });
            return self.look_later(time, member, acts);
        }
        let request = Arc::new(Request::Probe);
        self.question(time, member, Purpose::Probe, request, None, acts);
    }

    fn question(
        &mut self,
        time: Time,
        member: usize,
        purpose: Purpose,
        request: Arc<Request>,
        identity: Option<Arc<str>>,
        acts: &mut Vec<Act>,
    ) {
        let ask = self.send(time, member, purpose, request, identity, acts);
        self.members[member].looking = Some(ask);
        let at = self.now(time).plus(PROBE_LIMIT);
        acts.push(Act::Wake { at, timer: Timer::ExamineLimit { member, ask } });
    }

    fn look_later(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        let now = self.now(time);
        let pause = self.members[member].admission.standing().look_again_in(now, PROBE_EVERY);
        self.counter += 1;
        self.members[member].ticket = self.counter;
        let timer = Timer::Examine { member, ticket: self.counter };
        acts.push(Act::Wake { at: now.plus(pause), timer });
    }

    /// Lets the core judge what a member said, and does what it wants written there.
    fn looked(
        &mut self,
        time: Time,
        member: usize,
        sent: Moment,
        answer: Answer,
        acts: &mut Vec<Act>,
    ) {
        let now = self.now(time);
        let life = self.chance.nonce();
        let this = &mut self.members[member];
        this.looking = None;
        match answer {
            Ok(Reply::Facts(facts)) => {
                let step = this.admission.examine(sent, now, &facts, life);
                if let AdmissionStep::Replace { expected, record } = step {
                    let record = record.to_string().into();
                    let request = Arc::new(Request::ReplaceRecord { expected, record });
                    return self.question(time, member, Purpose::Record, request, None, acts);
                }
                if let Standing::Voting(pass) = this.admission.standing() {
                    if let Some(below) = this.forgets.take() {
                        let identity = Some(pass.record.clone());
                        let request = Arc::new(Request::ForgetIdle { below });
                        return self.question(
                            time,
                            member,
                            Purpose::Forget,
                            request,
                            identity,
                            acts,
                        );
                    }
                    if now >= this.forget_at
                        && let Some((expected, record)) =
                            Record::raised(&facts, self.habits.fence_retention)
                    {
                        this.forget_at = now.plus(self.habits.fence_retention / 4);
                        this.forgets = Some(record.floor);
                        let expected = Some(expected.into());
                        let record = record.to_string().into();
                        let request = Arc::new(Request::ReplaceRecord { expected, record });
                        return self.question(time, member, Purpose::Record, request, None, acts);
                    }
                }
            }
            Ok(Reply::Record { replaced }) => {
                if !replaced {
                    this.forgets = None;
                }
                return self.look(time, member, acts);
            }
            Ok(_) => {}
            Err(error) => {
                this.forgets = None;
                this.admission.down(error);
            }
        }
        self.look_later(time, member, acts);
    }
}
