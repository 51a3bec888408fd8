//! A lease in the hands of the caller: how long it is good, how to hear that it is lost, how to
//! give it back.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::rounds::{ExtendRound, ExtendStep, ReleaseRound};
use leasehold_core::{
    Fence, Holder, Keeper, KeeperStep, Lease, LeaseState, LockName, LossReason, Moment, Request,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::driver::{Cluster, Op};
use crate::error::{ExtendError, Loss, NodeReports, ReleaseOutcome, ValidityError};
use crate::queue::Turn;
use crate::token::LeaseToken;

/// Stands for a held lock.
///
/// Kept in the background unless it was acquired with `manual()`. Dropping it gives the lock back
/// without waiting; [`Guard::release`] also tells what became of it. Not `Clone`: there is one
/// holder.
///
/// What it does *not* promise: while the process is paused, nobody can tell it anything. Check
/// [`Guard::ensure_valid`] before what must not happen twice, and hand [`Guard::fence`] to the
/// storage, which can refuse a holder that is too late.
#[must_use = "a guard that is dropped gives the lock back at once"]
pub struct Guard {
    held: Arc<Held>,
}

/// What guard and keeper share.
struct Held {
    cluster: Arc<Cluster>,
    lock: LockName,
    holder: Holder,
    fence: Fence,
    /// The deadline in nanoseconds, to be read without a lock.
    deadline: AtomicU64,
    state: Mutex<HeldState>,
    lost: CancellationToken,
    /// Wakes the keeper.
    changed: Notify,
}

struct HeldState {
    keeper: Keeper,
    /// The last extension: answers that come after its decision tell about nodes that are back.
    last: Option<Arc<Op<ExtendRound>>>,
    phase: Phase,
    /// Local waiters may ask the nodes once this is gone.
    turn: Option<Turn>,
    /// Under way, or answered a moment ago.
    extensions: Vec<Weak<Op<ExtendRound>>>,
}

impl HeldState {
    /// To be called before the release is sent: what a node would have to be asked once more, such
    /// as a script that it forgot, would come behind the release and take the lock back.
    fn abandon_extensions(&mut self) {
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

impl Guard {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        lease: Lease,
        turn: Option<Turn>,
        keeping: Keeping,
    ) -> Self {
        let now = cluster.now();
        let background = cluster.background.clone();
        let held = Arc::new(Held {
            lock: lease.lock.clone(),
            holder: lease.holder.clone(),
            fence: lease.fence,
            deadline: AtomicU64::new(lease.deadline.as_nanos()),
            state: Mutex::new(HeldState {
                keeper: Keeper::new(lease, now, keeping.extends, keeping.max_hold),
                last: None,
                phase: Phase::Held,
                turn,
                extensions: Vec::new(),
            }),
            cluster,
            lost: CancellationToken::new(),
            changed: Notify::new(),
        });
        background.spawn(keep(held.clone()));
        Self { held }
    }

    /// Which lock.
    pub fn name(&self) -> &LockName {
        &self.held.lock
    }

    /// The value that stands for this acquisition on the nodes.
    pub fn holder(&self) -> &Holder {
        &self.held.holder
    }

    /// The fencing token: larger than that of every acquisition that completed before this one
    /// started. Storage keeps the highest it has seen and refuses lower ones.
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// How long the lease is still good, without asking anybody; zero if it is lost.
    pub fn validity(&self) -> Duration {
        match self.state() {
            LeaseState::Held { until } | LeaseState::Uncertain { until } => {
                until.since(self.held.cluster.now())
            }
            LeaseState::Lost => Duration::ZERO,
        }
    }

    /// What may be believed now.
    pub fn state(&self) -> LeaseState {
        let state = self.held.state();
        match state.phase {
            Phase::Held => state.keeper.lease().state_at(self.held.cluster.now()),
            Phase::Lost(_) | Phase::Released => LeaseState::Lost,
        }
    }

    /// Succeeds if the lease is good for at least `margin` more, and says for how long. No I/O: call
    /// it before each step that must not happen after the loss.
    pub fn ensure_valid(&self, margin: Duration) -> Result<Duration, ValidityError> {
        let held = &self.held;
        let now = held.cluster.now();
        let left = Moment::from_nanos(held.deadline.load(Ordering::Acquire)).since(now);
        if left.is_zero() || held.lost.is_cancelled() {
            return Err(held.expire_now(now).into());
        }
        if left < margin {
            return Err(ValidityError::TooShort { lock: held.lock.clone(), left, margin });
        }
        Ok(left)
    }

    /// Completes when the lease is lost, at the latest at its deadline, which is before any node
    /// gives the lock away.
    pub async fn lost(&self) -> Loss {
        self.held.lost.cancelled().await;
        self.held.loss()
    }

    /// A token that is cancelled when the lease is lost.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held.lost.child_token()
    }

    /// Extends the lease now and says for how long it is good. A failure changes nothing: the old
    /// deadline stands, and it may be tried again.
    pub async fn extend(&self) -> Result<Duration, ExtendError> {
        let held = &self.held;
        let (op, limit) = held.begin_extend().map_err(|now| held.expire_now(now))?;
        op.decided(limit).await;
        match held.finish_extend(&op) {
            Extension::Done => Ok(self.validity()),
            Extension::Lost => Err(held.expire_now(held.cluster.now()).into()),
            Extension::Failed(nodes) => {
                Err(ExtendError::NoQuorum { lock: held.lock.clone(), left: self.validity(), nodes })
            }
        }
    }

    /// Lets go of the lease without giving it back: nobody keeps it any more, and whoever has the
    /// token can extend and release it. See [`crate::Locks::extend`].
    pub fn detach(self) -> LeaseToken {
        let mut state = self.held.state();
        state.phase = Phase::Released;
        state.turn = None;
        let token = LeaseToken::of(state.keeper.lease());
        drop(state);
        self.held.changed.notify_one();
        token
    }

    /// Gives the lock back and tells what became of it. Asks each node once and waits for a quorum;
    /// dropping the future does not take the release back.
    pub async fn release(self) -> ReleaseOutcome {
        let held = self.held.clone();
        let (op, limit) = held.begin_release();
        // The guard's drop finds it released already.
        drop(self);
        op.decided(limit).await;
        let (step, ballot) = op.with(|round| (round.step(), round.ballot().clone()));
        held.cluster.queues.freed(&held.lock);
        ReleaseOutcome::of(step, NodeReports::of(held.cluster.node_ids(), &ballot))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let held = &self.held;
        let mut state = held.state();
        if matches!(state.phase, Phase::Released) {
            return;
        }
        state.phase = Phase::Released;
        state.abandon_extensions();
        // Sent before the turn is handed on, so that the next local waiter asks behind it.
        held.cluster.give_back(&held.lock, &held.holder, state.keeper.lease().ttl);
        state.turn = None;
        drop(state);
        debug!(lock = %held.lock, fence = %held.fence, "dropped, given back");
        held.changed.notify_one();
        held.cluster.queues.freed(&held.lock);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.held.lock)
            .field("fence", &self.held.fence)
            .field("state", &self.state())
            .finish()
    }
}

/// What became of an extension.
enum Extension {
    Done,
    Failed(NodeReports),
    Lost,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, HeldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loss(&self) -> Loss {
        let reason = match &self.state().phase {
            Phase::Lost(reason) => reason.clone(),
            Phase::Held | Phase::Released => LossReason::Expired { last: None },
        };
        Loss { lock: self.lock.clone(), fence: self.fence, reason }
    }

    /// Declares the loss, if nobody did yet.
    fn lose(&self, reason: LossReason) {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Held) {
            return;
        }
        warn!(lock = %self.lock, fence = %self.fence, "the lease is lost: {reason}");
        state.phase = Phase::Lost(reason);
        state.turn = None;
        drop(state);
        self.lost.cancel();
        self.cluster.queues.freed(&self.lock);
    }

    /// The caller found out before the keeper did.
    fn expire_now(&self, now: Moment) -> Loss {
        let step = self.state().keeper.step(now);
        if let KeeperStep::Lost(reason) = step {
            self.lose(reason);
        }
        self.loss()
    }

    /// Sends an extension, unless the lease is over: under the lock, so that it can never follow
    /// the release.
    fn begin_extend(&self) -> Result<(Arc<Op<ExtendRound>>, Duration), Moment> {
        let (mut state, cluster) = (self.state(), &self.cluster);
        let now = cluster.now();
        if !matches!(state.phase, Phase::Held) || now >= state.keeper.lease().deadline {
            return Err(now);
        }
        if let Some(fence) = state.last.take().and_then(|op| op.with(|round| round.superseded())) {
            state.keeper.superseded(fence);
        }
        let propose = |above| cluster.propose(&self.lock, above);
        let round = state.keeper.round(cluster.quorum, cluster.drift, now, propose);
        let lease = state.keeper.lease();
        if round.next() > lease.token {
            info!(lock = %self.lock, fence = %self.fence, token = %round.next(), "refreshing");
        }
        // At the deadline the answer does not matter any more.
        let limit = cluster.limit.for_ttl(lease.ttl).min(lease.validity_at(now));
        let op = cluster.begin_extend(lease, round, limit);
        state.last = Some(op.clone());
        state.extensions.retain(|op| op.strong_count() > 0);
        state.extensions.push(Arc::downgrade(&op));
        Ok((op, limit))
    }

    fn finish_extend(&self, op: &Op<ExtendRound>) -> Extension {
        let (step, token, ballot) =
            op.with(|round| (round.step(), round.next(), round.ballot().clone()));
        let mut state = self.state();
        if !matches!(state.phase, Phase::Held) {
            return Extension::Lost;
        }
        let now = self.cluster.now();
        if now >= state.keeper.lease().deadline {
            return Extension::Lost;
        }
        match step {
            ExtendStep::Extended { deadline } => {
                state.keeper.extended(now, deadline, token);
                let deadline = state.keeper.lease().deadline;
                self.deadline.store(deadline.as_nanos(), Ordering::Release);
                drop(state);
                self.changed.notify_one();
                Extension::Done
            }
            ExtendStep::Wait | ExtendStep::Failed => {
                let nodes = NodeReports::of(self.cluster.node_ids(), &ballot);
                state.keeper.failed(now, nodes.to_string(), crate::chance::jitter());
                Extension::Failed(nodes)
            }
        }
    }

    fn begin_release(self: &Arc<Self>) -> (Arc<Op<ReleaseRound>>, Duration) {
        let mut state = self.state();
        state.abandon_extensions();
        let lease = state.keeper.lease();
        let now = self.cluster.now();
        let was_valid = matches!(state.phase, Phase::Held) && now < lease.deadline;
        let limit = self.cluster.limit.for_ttl(lease.ttl);
        let round = ReleaseRound::new(self.holder.clone(), self.cluster.quorum, was_valid, now);
        let op = Op::new(&self.cluster, round);
        let request = Request::Release { lock: self.lock.clone(), holder: self.holder.clone() };
        self.cluster.ask_all(&op, 0, request, limit);
        state.phase = Phase::Released;
        state.turn = None;
        drop(state);
        self.changed.notify_one();
        (op, limit)
    }
}

/// The keeper's task. Ends when the lease is given back or lost, and can end nothing else.
async fn keep(held: Arc<Held>) {
    loop {
        let step = {
            let state = held.state();
            if !matches!(state.phase, Phase::Held) {
                return;
            }
            state.keeper.step(held.cluster.now())
        };
        match step {
            KeeperStep::WaitUntil(moment) => {
                let pause = moment.since(held.cluster.now());
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(pause) => {}
                    () = held.changed.notified() => {}
                    () = held.cluster.resumed.notified() => {}
                }
            }
            KeeperStep::Extend => {
                let Ok((op, limit)) = held.begin_extend() else {
                    continue;
                };
                op.decided(limit).await;
                match held.finish_extend(&op) {
                    Extension::Done => debug!(lock = %held.lock, fence = %held.fence, "extended"),
                    Extension::Failed(nodes) => {
                        warn!(lock = %held.lock, fence = %held.fence, "not extended: {nodes}");
                    }
                    Extension::Lost => {}
                }
            }
            KeeperStep::Lost(reason) => return held.lose(reason),
        }
    }
}
