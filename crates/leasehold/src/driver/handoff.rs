//! Carries out what the core says of a lease on its way to the next waiter of this process: waits for
//! the refresh that reserves fences, and gives back what nobody takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::ExtendRound;
use leasehold_core::{AskAs, Chain, Handoff, Holder, Inherited, Lease, LockName, NextWaiter, Ttl};

use super::{Cluster, Op, Proof, Won};

/// A hand-off that nobody took yet. The nodes still know its holder as the owner, so it is given back
/// when dropped.
#[derive(Debug)]
pub(crate) struct PendingHandoff {
    handoff: Handoff,
    /// Before the next one, so that nothing of it comes behind the release.
    reserving: Option<Reserving>,
    unless_taken: GiveBack,
}

/// Gives a lease back when dropped, until that is called off.
#[derive(Debug)]
struct GiveBack {
    cluster: Arc<Cluster>,
    lock: LockName,
    holder: Holder,
    ttl: Ttl,
    is_off: bool,
}

/// The refresh that reserves fences, while it is under way. Dropping it abandons it.
pub(crate) struct Reserving {
    op: Arc<Op<ExtendRound>>,
    /// How long the nodes have, from when they were asked.
    limit: Duration,
}

impl Reserving {
    pub(crate) fn new(op: Arc<Op<ExtendRound>>, limit: Duration) -> Self {
        Self { op, limit }
    }

    /// Looks at the round.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut ExtendRound) -> T) -> T {
        self.op.with(look)
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        self.op.abandon();
    }
}

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reserving")
    }
}

impl PendingHandoff {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        handoff: Handoff,
        reserving: Option<Reserving>,
    ) -> Self {
        let Lease { lock, holder, ttl, .. } = handoff.lease().clone();
        let unless_taken = GiveBack { cluster, lock, holder, ttl, is_off: false };
        Self { handoff, reserving, unless_taken }
    }

    /// The hand-offs in a row, this one included.
    pub(crate) fn chain(&self) -> Chain {
        self.handoff.chain()
    }

    /// Whether a waiter that goes by `label` may have it.
    pub(crate) fn is_for(&self, label: &str) -> bool {
        self.handoff.is_for(label)
    }

    /// The lease for `next`, or how it has to ask. Dropping the future gives everything back.
    pub(crate) async fn take(mut self, next: &NextWaiter) -> Result<Won, AskAs> {
        let cluster = self.unless_taken.cluster.clone();
        if !self.handoff.has_reserved_for(next) {
            self.reserving = None;
        }
        if let Some(Reserving { op, limit }) = &self.reserving {
            op.decided(*limit).await;
            let now = cluster.now();
            op.with(|round| self.handoff.settle_reserved(now, round, cluster.drift));
        }
        // What is still under way is abandoned before the next waiter asks.
        self.reserving = None;
        self.unless_taken.is_off = true;
        match self.handoff.take(next, cluster.now()) {
            Inherited::Lease { lease, rest, ends } => {
                Ok(Won { lease, proof: Proof::Ends(ends), reserved: Some(rest) })
            }
            Inherited::Ask(ask) => Err(ask),
        }
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        if !self.is_off {
            let Self { lock, holder, ttl, .. } = self;
            self.cluster.give_back(lock, holder, *ttl);
        }
    }
}
