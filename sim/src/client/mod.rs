//! A process that wants locks: the core's rounds, keeper and admissions, carried out in simulated
//! time the way the library's driver carries them out with tasks. It decides nothing itself.

mod acts;
mod answers;
mod asking;
mod clocks;
mod errands;
mod evidence;
mod handover;
mod holding;
mod looking;

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{AcquireRound, ExtendRound, ReleaseRound};
use leasehold_core::wait::Waiting;
use leasehold_core::{
    Admission, AdmissionPolicy, Chain, Ends, Fence, Handoff, Holder, Keeper, Lease, LockName,
    Moment, NodeError, Proposals, Quorum, Roster, Ttl, TurnNumber,
};
use leasehold_judge::Chance;

pub use self::acts::{Act, Question, Timer};
use self::errands::{Errand, Key};
pub use self::errands::{Token, Told, Wish};
use self::evidence::Evidence;
use crate::clock::{Clock, Time};
use crate::scenario::Assumption;

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
    /// Whether the work always takes as long as it may.
    pub holds_on: bool,
    /// Whether leases are kept.
    pub extends: bool,
    /// The longest time that one is kept.
    pub max_hold: Option<Duration>,
    /// Percent of the attempts that the caller drops half-way.
    pub drops: u64,
    /// After how long idle fences are dropped.
    pub fence_retention: Duration,
    /// Percent of the leases that are handed over if another of its holders waits.
    pub handovers: u64,
    /// Which assumption it does not keep, if that is in its hands.
    pub broken: Option<Assumption>,
}

const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks at a member, whatever calls for them.
const PAUSE_MIN: Duration = Duration::from_millis(5);

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
    roster: Roster,
    quorum: Quorum,
    policy: AdmissionPolicy,
    habits: Habits,
    holders: Vec<HolderTask>,
    queues: HashMap<LockName, VecDeque<usize>>,
    /// How many joined a queue.
    joined: u64,
    proposals: Proposals,
    /// Idempotency keys of callers, by what the holders of their leases begin with.
    keys: HashMap<u64, Key>,
    asks: HashMap<u64, Pending>,
    counter: u64,
    /// Whether the clock of a node was ever found to have gone ahead.
    have_gone_ahead: bool,
    chance: Chance,
}

#[derive(Debug)]
struct Member {
    generation: u64,
    is_connected: bool,
    admission: Admission,
    /// The server process that was met when it was last examined.
    run: Option<Arc<str>>,
    looking: Option<u64>,
    /// Somebody wants a look that begins after the one under way.
    looks_again: bool,
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
    Vote {
        holder: usize,
        op: u64,
        round: u32,
    },
    /// The refresh of this number, which reserves fences, for whoever has the lease by then.
    Reserve {
        op: u64,
    },
    Probe,
    Record,
    Forget,
    Nothing,
}

#[derive(Debug)]
struct HolderTask {
    lock: LockName,
    label: String,
    ttl: Ttl,
    /// Its present attempt, for those who watch. Nodes know it by its holder value.
    who: Holder,
    /// Its place in the queue.
    turn: TurnNumber,
    /// The hand-offs in a row that brought the lease to it.
    chain: Chain,
    doing: Doing,
    /// Since when it wants the lock, and when it asks for it again.
    waiting: Option<Waiting>,
    ticket: u64,
    op: u64,
    started: Time,
    looked: bool,
    retired: bool,
    evidence: Evidence,
    /// Not a holder of this process: it carries out what others ask for.
    is_for_callers: bool,
    errand: Option<Errand>,
}

impl HolderTask {
    /// One that has not done anything yet.
    fn new(lock: LockName, label: String, ttl: Ttl) -> Self {
        Self {
            lock,
            label,
            ttl,
            who: Holder::new("nobody", 0).expect("ASCII"),
            turn: TurnNumber(0),
            chain: Chain::default(),
            doing: Doing::Thinking,
            waiting: None,
            ticket: 0,
            op: 0,
            started: 0,
            looked: false,
            retired: false,
            evidence: Evidence::default(),
            is_for_callers: false,
            errand: None,
        }
    }
}

#[derive(Debug)]
enum Doing {
    Thinking,
    Queued,
    Acquiring(Box<AcquireRound>),
    Looking,
    Pausing,
    /// The lease was handed to it, and the refresh that reserves its fence is under way.
    Inheriting {
        handoff: Box<Handoff>,
        reserving: Reserving,
    },
    Holding {
        keeper: Box<Keeper>,
        extending: Option<ExtendRound>,
        /// The refresh that reserves fences for those who wait, while it is under way.
        reserving: Option<Reserving>,
        last: LastExtension,
        /// Until when each node keeps the lease, as far as is known.
        ends: Ends,
        /// The question by which it was acquired, if it was, and what was answered, also after the
        /// decision.
        proof: Option<Box<(u64, AcquireRound)>>,
        asked: Time,
        /// When the question was sent that the deadline counts from.
        since: Time,
        work_until: Moment,
    },
    Releasing(ReleaseRound),
    /// For a caller that handed in what it knows of a lease.
    Renewing {
        round: ExtendRound,
        lease: Lease,
    },
    Retired,
}

/// A refresh under way that reserves fences.
#[derive(Debug)]
struct Reserving {
    op: u64,
    round: ExtendRound,
    asked: Time,
    /// When the question was sent that the deadline counts from without it.
    since: Time,
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
        members: &[String],
        locks: &[LockName],
        habits: Habits,
        chance: Chance,
    ) -> Self {
        let member = |name: &String| Member {
            generation: 0,
            is_connected: false,
            admission: Admission::new(policy.clone(), name),
            run: None,
            looking: None,
            looks_again: false,
            ticket: 0,
            forget_at: Moment::default(),
            forgets: None,
        };
        let ttls: Vec<Ttl> = (0..locks.len()).map(|i| habits.ttl_of(i)).collect();
        let holder = |(i, lock): (usize, &LockName)| {
            HolderTask::new(lock.clone(), format!("c{number}.{life}.h{i}"), ttls[i])
        };
        Self {
            number,
            life,
            clock,
            wall,
            is_last_round: false,
            members: members.iter().map(member).collect(),
            roster: Roster::new(members.iter().map(|name| policy.member(name)).collect(), &policy),
            quorum: Quorum::majority_of(NonZeroUsize::new(members.len()).expect("some members")),
            policy,
            habits,
            holders: locks.iter().enumerate().map(holder).collect(),
            queues: HashMap::new(),
            joined: 0,
            proposals: Proposals::default(),
            keys: HashMap::new(),
            asks: HashMap::new(),
            counter: 0,
            have_gone_ahead: false,
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
        for ask in self.asks_of(member, |_| true) {
            let reason = "connection closed".to_owned();
            self.answered(time, ask, Err(NodeError::Unreachable { reason }), None, acts);
        }
    }

    /// The server behind a connection says that all of its data was replaced: what was examined is
    /// void, and whatever was asked before may be answered by what it knows since.
    pub fn replaced(&mut self, time: Time, member: usize, acts: &mut Vec<Act>) {
        let error = || NodeError::not_voting("its data was replaced");
        self.members[member].admission.down(error());
        for ask in self.asks_of(member, Purpose::is_vote) {
            self.answered(time, ask, Err(error()), None, acts);
        }
        self.look(time, member, acts);
    }

    /// What is under way to a member, in the order in which it was asked.
    fn asks_of(&self, member: usize, wanted: impl Fn(Purpose) -> bool) -> Vec<u64> {
        let is_wanted = |pending: &Pending| pending.member == member && wanted(pending.purpose);
        let asks = self.asks.iter().filter(|(_, pending)| is_wanted(pending));
        let mut asks: Vec<u64> = asks.map(|(ask, _)| *ask).collect();
        asks.sort_unstable();
        asks
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
                    Doing::Renewing { round, .. } => round.time_up(now),
                    _ => {}
                }
                self.decide(time, holder, acts);
            }
            Timer::ReserveLimit { op } => {
                let now = self.now(time);
                if let Some((holder, reserving)) = self.reserving(op) {
                    reserving.round.time_up(now);
                    self.reserve_decided(time, holder, acts);
                }
            }
            Timer::Drop { holder, op } if self.holders[holder].op == op => {
                let value = match &self.holders[holder].doing {
                    Doing::Acquiring(round) => round.spec().holder.clone(),
                    Doing::Inheriting { handoff, .. } => handoff.lease().holder.clone(),
                    _ => return,
                };
                self.give_back(time, holder, &value, acts);
                self.leave_queue(time, holder, acts);
                self.think(time, holder, acts);
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
}
