//! A lease in the hands of the caller: how long it is good, how to hear that it is lost, how to
//! give it back.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::rounds::{ExtendRound, ExtendStep, ReleaseRound};
use leasehold_core::{
    Drift, Ends, Fence, Holder, Keeper, KeeperStep, LeaseState, LockName, LossReason, Moment,
    Request,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::driver::{Cluster, Due, Op, PendingHandoff, Proof, Reserving, Slot, Turn, Won};
use crate::error::{ExtendError, Loss, NodeReports, ReleaseOutcome, ValidityError};
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
pub(crate) struct Held {
    cluster: Arc<Cluster>,
    lock: LockName,
    holder: Holder,
    fence: Fence,
    /// The deadline in nanoseconds, to be read without a lock.
    deadline: AtomicU64,
    /// How often clocks of nodes had gone ahead when the deadline was last held against them.
    times_ahead: AtomicU64,
    state: Mutex<HeldState>,
    is_lost: AtomicBool,
    /// Cancelled when the lease is lost; made for whoever wants to know.
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

impl Guard {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        Won { lease, proof, reserved }: Won,
        turn: Option<Turn>,
        keeping: Keeping,
    ) -> Self {
        let now = cluster.now();
        let mut keeper = Keeper::new(lease, now, keeping.extends, keeping.max_hold);
        if let Some(rest) = reserved {
            keeper = keeper.with_reserved(rest);
        }
        keeper.spread(spread(&keeper.lease().holder));
        let lease = keeper.lease();
        let held = Arc::new(Held {
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
        Self { held }
    }

    /// Which lock.
    pub fn name(&self) -> &LockName {
        &self.held.lock
    }

    /// The value that stands for this lease on the nodes. After a hand-off inside this process it is
    /// that of the holder before.
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
        if self.held.cluster.is_elsewhere() {
            return Duration::ZERO;
        }
        match self.state() {
            LeaseState::Held { until } | LeaseState::Uncertain { until } => {
                until.since(self.held.cluster.now())
            }
            LeaseState::Lost => Duration::ZERO,
        }
    }

    /// What may be believed now.
    pub fn state(&self) -> LeaseState {
        if self.held.cluster.is_elsewhere() {
            return LeaseState::Lost;
        }
        let state = self.held.state();
        match state.phase {
            Phase::Held => state.keeper.lease().state_at(self.held.cluster.now()),
            Phase::Lost(_) | Phase::Released => LeaseState::Lost,
        }
    }

    /// Until when the lease is good, or was if it is lost. What happened before that happened under
    /// the lock.
    pub fn deadline(&self) -> Moment {
        if self.held.cluster.is_elsewhere() {
            return Moment::default();
        }
        self.held.heed_clocks_if_any();
        Moment::from_nanos(self.held.deadline.load(Ordering::Acquire))
    }

    /// Succeeds if the lease is good for at least `margin` more, and says for how long. No I/O: call
    /// it before each step that must not happen after the loss.
    pub fn ensure_valid(&self, margin: Duration) -> Result<Duration, ValidityError> {
        let held = &self.held;
        held.check_home()?;
        held.heed_clocks_if_any();
        let now = held.cluster.now();
        let left = Moment::from_nanos(held.deadline.load(Ordering::Acquire)).since(now);
        if left.is_zero() || held.is_lost.load(Ordering::Acquire) {
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
        if let Err(loss) = self.held.check_home() {
            return loss;
        }
        self.held.lost().cancelled().await;
        self.held.loss()
    }

    /// A token that is cancelled when the lease is lost.
    pub fn cancellation_token(&self) -> CancellationToken {
        if self.held.cluster.is_elsewhere() {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return cancelled;
        }
        self.held.lost().child_token()
    }

    /// Extends the lease now and says for how long it is good. A failure changes nothing: the old
    /// deadline stands, and it may be tried again.
    pub async fn extend(&self) -> Result<Duration, ExtendError> {
        let held = &self.held;
        held.check_home()?;
        let mut extension = self.extend_once().await?;
        if let Extension::Failed(nodes) = &extension
            && nodes.has_strangers()
        {
            // They have to be examined before they can say anything of it.
            held.cluster.examine_all(held.cluster.limit.time).await;
            extension = self.extend_once().await?;
        }
        match extension {
            Extension::Done => Ok(self.validity()),
            Extension::Lost => Err(held.expire_now(held.cluster.now()).into()),
            Extension::Failed(nodes) => {
                Err(ExtendError::NoQuorum { lock: held.lock.clone(), left: self.validity(), nodes })
            }
        }
    }

    async fn extend_once(&self) -> Result<Extension, ExtendError> {
        let held = &self.held;
        let (op, limit) = held.begin_extend().map_err(|now| held.expire_now(now))?;
        op.decided(limit).await;
        let extension = held.finish_extend(&op);
        held.plan(held.cluster.now());
        Ok(extension)
    }

    /// Lets go of the lease without giving it back: nobody keeps it any more, and whoever has the
    /// token can extend and release it. See [`crate::Locks::extend`].
    pub fn detach(self) -> LeaseToken {
        let mut state = self.held.state();
        self.held.settle_reserved(&mut state, self.held.cluster.now());
        let token = LeaseToken::of(&state.keeper.detached());
        state.abandon_extensions();
        self.held.end(&mut state, Phase::Released);
        token
    }

    /// Gives the lock back and tells what became of it. Asks each node once and waits for a quorum;
    /// dropping the future does not take the release back.
    ///
    /// Where somebody else of this process waits for the lock, the lease is handed to them instead, and
    /// no node is asked: [`ReleaseOutcome::HandedOver`].
    pub async fn release(self) -> ReleaseOutcome {
        let held = self.held.clone();
        if held.cluster.is_elsewhere() {
            return ReleaseOutcome::Unknown { nodes: held.cluster.refusals() };
        }
        if held.hand_off() {
            return ReleaseOutcome::HandedOver;
        }
        let (op, limit) = held.begin_release();
        // The guard's drop finds it released already.
        drop(self);
        held.cluster.release_ended(&op, &held.lock, limit).await;
        held.cluster.queues.freed(&held.lock);
        op.with(|round| {
            let nodes = || NodeReports::of(held.cluster.node_ids(), round.ballot());
            ReleaseOutcome::of(round.step(), nodes)
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let held = &self.held;
        if held.state.try_lock().is_ok_and(|state| matches!(state.phase, Phase::Released)) {
            return;
        }
        if held.cluster.is_elsewhere() {
            // The lease is the parent's.
            return std::mem::forget(held.clone());
        }
        if held.hand_off() {
            return;
        }
        let mut state = held.state();
        if matches!(state.phase, Phase::Released) {
            return;
        }
        state.abandon_extensions();
        // Sent before the turn is handed on, so that the next local waiter asks behind it.
        held.cluster.give_back(&held.lock, &held.holder, state.keeper.lease().ttl);
        held.end(&mut state, Phase::Released);
        drop(state);
        debug!(lock = %held.lock, fence = %held.fence, "dropped, given back");
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.times_ahead.load(Ordering::Acquire) != self.cluster.times_ahead() {
            self.hold_against_clocks(&mut state);
        }
        state
    }

    /// A lease is held in the process that acquired it.
    fn check_home(&self) -> Result<(), Loss> {
        if !self.cluster.is_elsewhere() {
            return Ok(());
        }
        let (lock, fence) = (self.lock.clone(), self.fence);
        Err(Loss { lock, fence, reason: LossReason::Forked })
    }

    fn heed_clocks_if_any(&self) {
        if self.times_ahead.load(Ordering::Acquire) != self.cluster.times_ahead() {
            drop(self.state());
        }
    }

    /// The clock of a node went ahead: the lease may end earlier, or be over.
    pub(crate) fn heed_clocks(self: &Arc<Self>) {
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

    /// The token that is cancelled when the lease is lost. Made under the mutex, so that a loss
    /// either finds it or is found.
    fn lost(&self) -> &CancellationToken {
        let state = self.state();
        let token = self.lost.get_or_init(CancellationToken::new);
        if matches!(state.phase, Phase::Lost(_)) {
            token.cancel();
        }
        token
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
        self.end(&mut state, Phase::Lost(reason));
        self.is_lost.store(true, Ordering::Release);
        let token = self.lost.get().cloned();
        drop(state);
        if let Some(token) = token {
            token.cancel();
        }
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
        self.settle_reserved(&mut state, now);
        state.note_last(cluster.drift);
        let superseded = state.last.take().and_then(|op| op.with(|round| round.superseded()));
        if let Some(fence) = superseded.filter(|_| cluster.raises) {
            state.keeper.superseded(fence);
        }
        let propose = |above| cluster.propose(&self.lock, above, now);
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

    /// Sends the refresh that reserves fences for those of this process who wait, if there is a need.
    fn reserve(&self, now: Moment) {
        let (mut state, cluster) = (self.state(), &self.cluster);
        let HeldState { keeper, turn: Some(turn), reserving, .. } = &mut *state else { return };
        if !cluster.raises {
            return;
        }
        // Looked at before it is sent: who comes later is not meant.
        let queue = turn.queue();
        let propose = |above| cluster.propose(&self.lock, above, now);
        let round = keeper.reserve(&queue, cluster.quorum, cluster.drift, now, propose);
        if let Some(round) = round {
            let limit = cluster.limit.for_ttl(keeper.lease().ttl);
            let op = cluster.begin_extend(keeper.lease(), round, limit);
            *reserving = Some(Reserving::new(op, limit));
        }
    }

    /// Notes what came of that refresh, if it is decided.
    fn settle_reserved(&self, state: &mut HeldState, now: Moment) {
        let HeldState { keeper, ends, reserving, .. } = state;
        let Some(under_way) = reserving else { return };
        let (ttl, drift) = (keeper.lease().ttl, self.cluster.drift);
        let step = under_way.with(|round| {
            let step = keeper.settle_reserved(now, round);
            if matches!(step, ExtendStep::Extended { .. }) {
                ends.note(round.ballot(), ttl, drift);
            }
            step
        });
        if step != ExtendStep::Wait {
            *reserving = None;
        }
        if matches!(step, ExtendStep::Extended { .. }) {
            self.deadline.store(keeper.lease().deadline.as_nanos(), Ordering::Release);
            self.hold_against_clocks(state);
        }
    }

    fn finish_extend(&self, op: &Op<ExtendRound>) -> Extension {
        let (step, token) = op.with(|round| (round.step(), round.next()));
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
                let ttl = state.keeper.lease().ttl;
                op.with(|round| state.ends.note(round.ballot(), ttl, self.cluster.drift));
                self.extended(&mut state);
                Extension::Done
            }
            ExtendStep::Wait | ExtendStep::Failed => {
                let ids = self.cluster.node_ids();
                let nodes = op.with(|round| NodeReports::of(ids, round.ballot()));
                state.keeper.failed(now, nodes.to_string(), crate::chance::jitter());
                Extension::Failed(nodes)
            }
        }
    }

    /// The keeper knows of a new deadline.
    fn extended(&self, state: &mut HeldState) {
        state.keeper.spread(crate::chance::jitter());
        let deadline = state.keeper.lease().deadline;
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
        self.hold_against_clocks(state);
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

    /// The lease is not held any more.
    fn end(&self, state: &mut HeldState, phase: Phase) {
        state.phase = phase;
        state.turn = None;
        if let Some(slot) = state.slot.take() {
            self.cluster.rota.remove(slot);
        }
    }

    /// The keeper's step; in a crowd, if very many others are due at the same moment.
    pub(crate) fn look_after(self: Arc<Self>, is_in_a_burst: bool) {
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
            KeeperStep::Extend => match self.begin_extend() {
                Ok((op, limit)) => {
                    let background = self.cluster.background.clone();
                    background.spawn(async move {
                        op.decided(limit).await;
                        self.extension_ended(&op);
                    });
                }
                Err(now) => self.plan(now),
            },
        }
    }

    fn extension_ended(self: &Arc<Self>, op: &Op<ExtendRound>) {
        let (lock, fence) = (&self.lock, self.fence);
        match self.finish_extend(op) {
            Extension::Done => debug!(%lock, %fence, "extended"),
            Extension::Failed(nodes) => warn!(%lock, %fence, "not extended: {nodes}"),
            Extension::Lost => {}
        }
        self.plan(self.cluster.now());
    }

    /// Hands a good lease to the next waiter of this process, if the core says so. It stays on the nodes
    /// as it is.
    fn hand_off(&self) -> bool {
        let state = &mut *self.state();
        if !matches!(state.phase, Phase::Held) || !self.cluster.raises {
            return false;
        }
        // Where nobody waits, as nearly always, nothing else is looked at.
        if !state.turn.as_ref().is_some_and(Turn::somebody_waits) {
            return false;
        }
        let now = self.cluster.now();
        self.settle_reserved(state, now);
        state.note_last(self.cluster.drift);
        state.proof.tell(&mut state.ends, state.keeper.lease(), self.cluster.drift);
        let HeldState { keeper, ends, turn, .. } = state;
        let Some(queue) = turn.as_ref().map(Turn::queue) else { return false };
        let Some(handoff) = keeper.hand_off(now, &queue, ends) else { return false };
        let Some(turn) = turn.take() else { return false };
        let reserving = state.reserving.take();
        let pending = PendingHandoff::new(self.cluster.clone(), handoff, reserving);
        // Before the next one asks: nothing of ours may come behind that.
        state.abandon_extensions();
        self.end(state, Phase::Released);
        debug!(lock = %self.lock, fence = %self.fence, "handed to the next waiter");
        turn.hand_off(pending);
        true
    }

    fn begin_release(self: &Arc<Self>) -> (Arc<Op<ReleaseRound>>, Duration) {
        let mut state = self.state();
        state.abandon_extensions();
        let now = self.cluster.now();
        let limit = self.cluster.limit.for_ttl(state.keeper.lease().ttl);
        let is_held = matches!(state.phase, Phase::Held);
        let round = state.keeper.release(self.cluster.quorum, now, is_held);
        let op = Op::new(&self.cluster, round);
        let request = Request::Release { lock: self.lock.clone(), holder: self.holder.clone() };
        self.cluster.ask_all_here(&op, 0, request, limit);
        self.end(&mut state, Phase::Released);
        drop(state);
        (op, limit)
    }
}

/// A number to come apart by, from the random part of the holder.
fn spread(holder: &Holder) -> u32 {
    let text = holder.as_str();
    u32::from_str_radix(&text[text.len() - 8..], 16).unwrap_or(0)
}
