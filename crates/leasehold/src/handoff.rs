//! A lease that is left to the next waiter of the same process, on the nodes as it is.
//!
//! While it is held and others of the process wait, its token is raised beforehand, by a refresh. The
//! numbers from its fence to a token that a quorum has are nobody else's, ever: whoever waited when
//! the refresh was sent takes the next of them, and no node is asked. Why that is sound stands in
//! DESIGN.md.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{Ballot, ExtendRound, ExtendStep};
use leasehold_core::{Ends, Fence, Holder, Keeper, Lease, Moment};

use crate::driver::{Attempt, Cluster, Op, Proof, Won};

/// So often in a row a lease is left to the next of this process before it is given back: other
/// processes want their turn, too.
pub(crate) const LEFT_IN_A_ROW: u32 = 16;
/// And for so long: sixteen long holds would be an age.
const LEFT_FOR: Duration = Duration::from_millis(100);

/// What a lease leaves to the next of this process: the nodes still know its holder as the owner.
/// Given back when dropped, unless somebody took it.
#[derive(Debug)]
pub(crate) struct Legacy {
    cluster: Arc<Cluster>,
    lease: Lease,
    ends: Ends,
    /// The highest number that was ever sent with this holder.
    highest: Fence,
    reserve: Option<Reserve>,
    is_taken: bool,
    /// How often in a row it was left, and since when.
    pub(crate) chain: Chain,
}

/// By whom the nodes know a lease that was left.
#[derive(Debug)]
pub(crate) struct Heritage {
    pub(crate) holder: Holder,
    /// The highest number that was ever sent with this holder. The heir's is above it, so that a late
    /// refresh of the former user is refused where the heir was granted the lock: it would set the
    /// former user's Ttl.
    pub(crate) highest: Fence,
}

/// How often in a row a lease was left, and since when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    since: Moment,
    times: u32,
}

/// A refresh that was sent for those who waited then. Dropping it abandons what is under way.
pub(crate) struct Reserve {
    under_way: Option<UnderWay>,
    /// The number to which it raises the token. If it fails, some nodes may have it all the same.
    next: Fence,
    /// The last place in the queue that was taken when it was sent: whoever came later may have come
    /// after somebody with a higher number. 0 if nothing came of it.
    last_place: u64,
}

struct UnderWay {
    op: Arc<Op<ExtendRound>>,
    /// How long the nodes have, from when they were asked.
    limit: Duration,
}

impl Reserve {
    pub(crate) fn new(op: Arc<Op<ExtendRound>>, limit: Duration, last_place: u64) -> Self {
        let next = op.with(|round| round.next());
        Self { under_way: Some(UnderWay { op, limit }), next, last_place }
    }

    /// Whether it is for more than those who came before `place` or have it.
    pub(crate) fn goes_beyond(&self, place: u64) -> bool {
        self.last_place > place
    }

    /// The new token and deadline, once, if a quorum has them by now.
    /// Who has them is told to `ends`.
    pub(crate) fn settle(&mut self, mut ends: impl FnMut(&Ballot)) -> Option<(Fence, Moment)> {
        let under_way = self.under_way.as_ref()?;
        match under_way.op.with(|round| round.step()) {
            ExtendStep::Wait => None,
            ExtendStep::Extended { deadline } => {
                under_way.op.with(|round| ends(round.ballot()));
                self.under_way = None;
                Some((self.next, deadline))
            }
            ExtendStep::Failed => {
                self.under_way = None;
                self.last_place = 0;
                None
            }
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some(under_way) = &self.under_way {
            under_way.op.abandon();
        }
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reserve(up to place {})", self.last_place)
    }
}

impl Chain {
    /// Whether a lease may be left once more.
    pub(crate) fn is_short(self, now: Moment) -> bool {
        self.times < LEFT_IN_A_ROW && now.since(self.since) < LEFT_FOR
    }

    pub(crate) fn longer(self) -> Self {
        Self { times: self.times + 1, ..self }
    }
}

impl Legacy {
    pub(crate) fn of(
        cluster: Arc<Cluster>,
        keeper: &Keeper,
        ends: Ends,
        reserve: Option<Reserve>,
    ) -> Self {
        let chain = Chain { since: cluster.now(), times: 0 };
        let (lease, highest) = (keeper.lease().clone(), keeper.highest_sent());
        Self { cluster, lease, ends, highest, reserve, is_taken: false, chain }
    }

    /// Whether whoever goes by `label` may hold it: the label is part of what the nodes know.
    pub(crate) fn goes_by(&self, label: &str) -> bool {
        self.lease.holder.label() == label
    }

    /// The lease of the next user, if a number was seen to beforehand for whoever has this place in the
    /// queue, and what is left for those who follow. Without a place it is the nodes that are to be
    /// asked. Dropping the future gives everything back.
    pub(crate) async fn take(
        mut self,
        attempt: &Attempt,
        place: Option<u64>,
    ) -> Result<(Won, Reserve), Heritage> {
        let is_meant = |reserve: &Reserve| place.is_some_and(|place| place <= reserve.last_place);
        self.reserve = self.reserve.take().filter(is_meant);
        self.settled().await;
        let proof = Proof::Ends(std::mem::take(&mut self.ends));
        let won = self.next_lease(attempt).map(|lease| Won { lease, proof });
        self.is_taken = true;
        let heritage = Heritage { holder: self.lease.holder.clone(), highest: self.highest };
        // What is still under way is abandoned before the heir asks.
        let reserve = self.reserve.take();
        won.zip(reserve).ok_or(heritage)
    }

    /// Waits until the refresh is decided, if there is one.
    async fn settled(&mut self) {
        let Some(reserve) = &mut self.reserve else { return };
        if let Some(UnderWay { op, limit }) = &reserve.under_way {
            op.decided(*limit).await;
        }
        let is_late = self.cluster.now() >= self.lease.deadline;
        let (ttl, drift) = (self.lease.ttl, self.cluster.drift);
        let settled = reserve.settle(|ballot| self.ends.note(ballot, ttl, drift));
        if let Some((token, deadline)) = settled.filter(|_| !is_late) {
            self.lease.token = self.lease.token.max(token);
            self.lease.deadline = self.lease.deadline.max(deadline);
            self.lease.uncertain = false;
        }
    }

    /// The lease with its next number, if that is not above the token which a quorum has.
    fn next_lease(&self, attempt: &Attempt) -> Option<Lease> {
        let lease = Lease { fence: self.lease.fence.next(), ..self.lease.clone() };
        let is_seen_to = self.reserve.as_ref().is_some_and(|reserve| reserve.last_place > 0)
            && lease.fence <= lease.token
            && self.highest == lease.token;
        let validity = lease.validity_at(self.cluster.now());
        let is_as_asked = lease.ttl == attempt.ttl && validity > attempt.min_validity;
        // As good as new: the first extension, at a third, may fail and be tried again.
        let is_good = !lease.uncertain && validity >= lease.ttl.get().mul_f64(0.75);
        (is_seen_to && is_as_asked && is_good).then_some(lease)
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        // Nothing of it may come behind the release.
        self.reserve = None;
        if !self.is_taken {
            let Lease { lock, holder, ttl, .. } = &self.lease;
            self.cluster.give_back(lock, holder, *ttl);
        }
    }
}
