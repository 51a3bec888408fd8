//! How a lease is extended: by its keeper in the background, by the caller, and by the refresh that
//! reserves fences for waiters of this process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::Moment;
use leasehold_core::rounds::{ExtendRound, ExtendStep};
use tracing::{debug, info, warn};

use super::{Held, HeldState, Phase};
use crate::driver::Op;
use crate::driver::handoff::Reserving;
use crate::error::{ExtendError, NodeReports};

/// What became of an extension.
enum Extension {
    Done,
    Failed(NodeReports),
    Lost,
}

impl Held {
    /// Extends the lease now, for the caller.
    pub(crate) async fn extend(self: &Arc<Self>) -> Result<(), ExtendError> {
        self.check_home()?;
        let mut extension = self.extend_once().await?;
        if let Extension::Failed(nodes) = &extension
            && nodes.has_strangers()
        {
            // They have to be examined before they can say anything of it.
            self.cluster.examine_all(self.cluster.limit.time).await;
            extension = self.extend_once().await?;
        }
        match extension {
            Extension::Done => Ok(()),
            Extension::Lost => Err(self.expire_now(self.cluster.now()).into()),
            Extension::Failed(nodes) => {
                Err(ExtendError::NoQuorum { lock: self.lock.clone(), left: self.validity(), nodes })
            }
        }
    }

    async fn extend_once(self: &Arc<Self>) -> Result<Extension, ExtendError> {
        let (op, limit) = self.begin_extend().map_err(|now| self.expire_now(now))?;
        op.decided(limit).await;
        let extension = self.finish_extend(&op);
        self.plan(self.cluster.now());
        Ok(extension)
    }

    /// Extends the lease now, for the keeper, which looks again when that is decided.
    pub(super) fn extend_in_the_background(self: Arc<Self>) {
        match self.begin_extend() {
            Ok((op, limit)) => {
                let background = self.cluster.background.clone();
                background.spawn(async move {
                    op.decided(limit).await;
                    self.extension_ended(&op);
                });
            }
            Err(now) => self.plan(now),
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
    pub(super) fn extended(&self, state: &mut HeldState) {
        state.keeper.spread(crate::chance::jitter());
        let deadline = state.keeper.lease().deadline;
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
        self.hold_against_clocks(state);
    }

    /// Sends the refresh that reserves fences for those of this process who wait, if there is a need.
    pub(super) fn reserve(&self, now: Moment) {
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
    pub(super) fn settle_reserved(&self, state: &mut HeldState, now: Moment) {
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
}
