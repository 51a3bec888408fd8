//! A lease while somebody has it: what its guard and the schedule share, when the keeper looks
//! again, and what the clocks of the nodes do to its deadline.
//!
//! The core's [`Keeper`] decides; this carries it out. One mutex per lease orders what is sent for
//! it, so no extension can follow the release. How a lease is extended is in [`extending`], how it
//! ends in [`ending`].

mod ending;
mod extending;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::rounds::ExtendRound;
use leasehold_core::{
    Drift, Ends, Fence, Holder, Keeper, KeeperStep, LeaseState, LockName, LossReason, Moment,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::handoff::Reserving;
use super::queue::Turn;
use super::rota::{Due, Slot};
use super::{Cluster, Op, Proof, Won};
use crate::error::{Loss, NodeReports};

/// A lease and its keeper, from when it was won until it ends.
pub(crate) struct Held {
    cluster: Arc<Cluster>,
    pub(crate) lock: LockName,
    pub(crate) holder: Holder,
    pub(crate) fence: Fence,
    /// The deadline in nanoseconds, to be read without a lock.
    deadline: AtomicU64,
    /// How often clocks of nodes had gone ahead when the deadline was last held against them.
    times_ahead: AtomicU64,
    state: Mutex<HeldState>,
    is_lost: AtomicBool,
    /// Cancelled when the lease is lost; made when it is first asked for.
    lost: OnceLock<CancellationToken>,
}

struct HeldState {
    keeper: Keeper,
    /// Until when each node keeps the lease, by extensions; at first by who granted it.
    ends: Ends,
    proof: Proof,
    /// The last extension: answers that come after its decision tell about nodes that are back.
    last: Option<Arc<Op<ExtendRound>>>,
    phase: Phase,
    /// Local waiters may ask the nodes once this is gone.
    turn: Option<Turn>,
    /// Under way, or answered a moment ago.
    extensions: Vec<Weak<Op<ExtendRound>>>,
    /// The refresh that reserves fences for those of this process who wait, while it is under way.
    reserving: Option<Reserving>,
    /// When the keeper looks again.
    slot: Option<Slot>,
}

impl HeldState {
    /// Notes who keeps the lease by the last extension, also by answers that came after its decision.
    fn note_last(&mut self, drift: Drift) {
        let HeldState { keeper, ends, last, .. } = self;
        if let Some(op) = last {
            op.with(|round| ends.note(round.ballot(), keeper.lease().ttl, drift));
        }
    }

    /// To be called before the release is sent: what a node would have to be asked once more, such
    /// as a script that it forgot, would come behind the release and take the lock back.
    fn abandon_extensions(&mut self) {
        self.reserving = None;
        self.extensions.drain(..).filter_map(|op| op.upgrade()).for_each(|op| op.abandon());
    }
}

enum Phase {
    Held,
    Lost(LossReason),
    Released,
}

/// How a lease is to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeping {
    pub(crate) extends: bool,
    pub(crate) max_hold: Option<Duration>,
}

impl Held {
    /// Keeps the lease from now on, with the turn in which it was won.
    pub(crate) fn start(
        cluster: Arc<Cluster>,
        Won { lease, proof, reserved }: Won,
        turn: Option<Turn>,
        keeping: Keeping,
    ) -> Arc<Self> {
        let now = cluster.now();
        let mut keeper = Keeper::new(lease, now, keeping.extends, keeping.max_hold);
        if let Some(rest) = reserved {
            keeper = keeper.with_reserved(rest);
        }
        keeper.spread(spread(&keeper.lease().holder));
        let lease = keeper.lease();
        let held = Arc::new(Self {
            lock: lease.lock.clone(),
            holder: lease.holder.clone(),
            fence: lease.fence,
            deadline: AtomicU64::new(lease.deadline.as_nanos()),
            times_ahead: AtomicU64::new(0),
            state: Mutex::new(HeldState {
                keeper,
                ends: Ends::default(),
                proof,
                last: None,
                phase: Phase::Held,
                reserving: None,
                turn,
                extensions: Vec::new(),
                slot: None,
            }),
            cluster,
            is_lost: AtomicBool::new(false),
            lost: OnceLock::new(),
        });
        held.plan(now);
        held.reserve(now);
        held
    }

    fn state(&self) -> MutexGuard<'_, HeldState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.times_ahead.load(Ordering::Acquire) != self.cluster.times_ahead() {
            self.hold_against_clocks(&mut state);
        }
        state
    }

    /// Whether this process is a fork of the one that acquired the lease.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.cluster.is_elsewhere()
    }

    /// A lease is held in the process that acquired it.
    pub(crate) fn check_home(&self) -> Result<(), Loss> {
        if !self.cluster.is_elsewhere() {
            return Ok(());
        }
        let (lock, fence) = (self.lock.clone(), self.fence);
        Err(Loss { lock, fence, reason: LossReason::Forked })
    }

    /// What the nodes would say to a fork, without asking them.
    pub(crate) fn refusals(&self) -> NodeReports {
        self.cluster.refusals()
    }

    /// What may be believed now.
    pub(crate) fn lease_state(&self) -> LeaseState {
        if self.is_elsewhere() {
            return LeaseState::Lost;
        }
        let state = self.state();
        match state.phase {
            Phase::Held => state.keeper.lease().state_at(self.cluster.now()),
            Phase::Lost(_) | Phase::Released => LeaseState::Lost,
        }
    }

    /// How long the lease is still good; zero if it is lost.
    pub(crate) fn validity(&self) -> Duration {
        match self.lease_state() {
            LeaseState::Held { until } | LeaseState::Uncertain { until } => {
                until.since(self.cluster.now())
            }
            LeaseState::Lost => Duration::ZERO,
        }
    }

    /// Until when the lease is good, or was if it is lost.
    pub(crate) fn deadline(&self) -> Moment {
        self.heed_clocks_if_any();
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// How long the lease is still good, without the mutex as long as it is.
    pub(crate) fn left(&self) -> Result<Duration, Loss> {
        self.heed_clocks_if_any();
        let now = self.cluster.now();
        let left = Moment::from_nanos(self.deadline.load(Ordering::Acquire)).since(now);
        if left.is_zero() || self.is_lost.load(Ordering::Acquire) {
            return Err(self.expire_now(now));
        }
        Ok(left)
    }

    fn heed_clocks_if_any(&self) {
        if self.times_ahead.load(Ordering::Acquire) != self.cluster.times_ahead() {
            drop(self.state());
        }
    }

    /// The clock of a node went ahead: the lease may end earlier, or be over.
    pub(super) fn heed_clocks(self: &Arc<Self>) {
        self.heed_clocks_if_any();
        self.plan(self.cluster.now());
    }

    /// Moves the deadline to when the nodes really end the lease, if that is earlier; to now, if they
    /// forgot it.
    fn hold_against_clocks(&self, state: &mut HeldState) {
        let times = self.cluster.times_ahead();
        if times == 0 {
            return;
        }
        state.note_last(self.cluster.drift);
        let HeldState { keeper, ends, proof, .. } = state;
        proof.tell(ends, keeper.lease(), self.cluster.drift);
        keeper.cut(self.cluster.deadline_of(ends));
        if let Some(reason) = self.cluster.forgot(ends) {
            keeper.forgotten(self.cluster.now(), reason);
        }
        self.deadline.store(keeper.lease().deadline.as_nanos(), Ordering::Release);
        self.times_ahead.store(times, Ordering::Release);
    }

    /// Has the keeper look when there is something to do.
    fn plan(self: &Arc<Self>, now: Moment) {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Held) {
            return;
        }
        let due = match state.keeper.step(now) {
            KeeperStep::WaitUntil(moment) => moment,
            KeeperStep::Extend | KeeperStep::Lost(_) => now,
        };
        let slot = self.cluster.rota.add(due, Due::Lease(self.clone()));
        if let Some(old) = state.slot.replace(slot) {
            self.cluster.rota.remove(old);
        }
    }

    /// The keeper's step; in a burst, if very many others are due at the same moment.
    pub(super) fn look_after(self: Arc<Self>, is_in_a_burst: bool) {
        let now = self.cluster.now();
        let step = {
            let mut state = self.state();
            if !matches!(state.phase, Phase::Held) {
                return;
            }
            state.slot = None;
            let HeldState { keeper, last, .. } = &mut *state;
            if last.as_ref().is_some_and(|op| op.with(|round| keeper.heed(now, round))) {
                debug!(lock = %self.lock, fence = %self.fence, "extended, by late answers");
                self.extended(&mut state);
            }
            if is_in_a_burst {
                state.keeper.give_way(now, crate::chance::jitter());
            }
            state.keeper.step(now)
        };
        match step {
            KeeperStep::WaitUntil(_) => self.plan(now),
            KeeperStep::Lost(reason) => self.lose(reason),
            KeeperStep::Extend => self.extend_in_the_background(),
        }
    }
}

/// Jitter from the holder's random bits.
fn spread(holder: &Holder) -> u32 {
    let text = holder.as_str();
    u32::from_str_radix(&text[text.len() - 8..], 16).unwrap_or(0)
}
