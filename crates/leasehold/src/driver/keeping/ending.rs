//! How a lease ends: lost, detached, handed to the next waiter of this process, or given back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::rounds::ReleaseRound;
use leasehold_core::{KeeperStep, Lease, LossReason, Moment, Request};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Held, HeldState, Phase};
use crate::driver::Op;
use crate::driver::handoff::PendingHandoff;
use crate::driver::queue::Turn;
use crate::error::{Loss, NodeReports, ReleaseOutcome};

impl Held {
    /// The token that is cancelled when the lease is lost. Made under the mutex, so that a loss
    /// either finds it or is found.
    pub(crate) fn lost(&self) -> &CancellationToken {
        let state = self.state();
        let token = self.lost.get_or_init(CancellationToken::new);
        if matches!(state.phase, Phase::Lost(_)) {
            token.cancel();
        }
        token
    }

    /// Why the lease is lost.
    pub(crate) fn loss(&self) -> Loss {
        let reason = match &self.state().phase {
            Phase::Lost(reason) => reason.clone(),
            Phase::Held | Phase::Released => LossReason::Expired { last: None },
        };
        Loss { lock: self.lock.clone(), fence: self.fence, reason }
    }

    /// Declares the loss, if nobody did yet.
    pub(super) fn lose(&self, reason: LossReason) {
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
    pub(super) fn expire_now(&self, now: Moment) -> Loss {
        let step = self.state().keeper.step(now);
        if let KeeperStep::Lost(reason) = step {
            self.lose(reason);
        }
        self.loss()
    }

    /// The lease is not held any more.
    fn end(&self, state: &mut HeldState, phase: Phase) {
        state.phase = phase;
        state.turn = None;
        if let Some(slot) = state.slot.take() {
            self.cluster.rota.remove(slot);
        }
    }

    /// Whether the guard let go of the lease. `false` if somebody else is just looking at it.
    pub(crate) fn is_released(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| matches!(state.phase, Phase::Released))
    }

    /// Lets go of the lease without giving it back.
    pub(crate) fn detach(&self) -> Lease {
        let mut state = self.state();
        self.settle_reserved(&mut state, self.cluster.now());
        let lease = state.keeper.detached();
        state.abandon_extensions();
        self.end(&mut state, Phase::Released);
        lease
    }

    /// Hands a good lease to the next waiter of this process, if the core says so. It stays on the nodes
    /// as it is.
    pub(crate) fn hand_off(&self) -> bool {
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

    /// Gives the lease back and waits for nobody, unless it was released already.
    pub(crate) fn give_back(&self) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Released) {
            return;
        }
        state.abandon_extensions();
        // Sent before the turn is handed on, so that the next local waiter asks behind it.
        self.cluster.give_back(&self.lock, &self.holder, state.keeper.lease().ttl);
        self.end(&mut state, Phase::Released);
        drop(state);
        debug!(lock = %self.lock, fence = %self.fence, "dropped, given back");
        self.cluster.queues.freed(&self.lock);
    }

    /// Sends the release: it is on its way when this returns.
    pub(crate) fn begin_release(self: &Arc<Self>) -> (Arc<Op<ReleaseRound>>, Duration) {
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
    /// Waits until it is known what became of the release.
    pub(crate) async fn released(
        &self,
        op: &Arc<Op<ReleaseRound>>,
        limit: Duration,
    ) -> ReleaseOutcome {
        self.cluster.release_ended(op, &self.lock, limit).await;
        self.cluster.queues.freed(&self.lock);
        op.with(|round| {
            let nodes = || NodeReports::of(self.cluster.node_ids(), round.ballot());
            ReleaseOutcome::of(round.step(), nodes)
        })
    }
}
