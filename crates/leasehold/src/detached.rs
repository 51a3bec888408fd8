//! A lease that is not tied to a process: extended and released by anybody who has its text.
//!
//! Nobody keeps it in the background and nobody is told when it is lost, so it is extended only
//! while a quorum still knows it without interruption: what lapsed, even for a moment, is lost.
//!
//! The text is a claim that may be made up. A node changes nothing unless it has just this owner,
//! and then nothing but the time.

use std::time::Duration;

use leasehold_core::rounds::{Belief, ExtendRound, ExtendStep, LeaseClaim, ReleaseRound};
use leasehold_core::{LossReason, Request, Ttl};

use crate::driver::Op;
use crate::error::{ExtendError, Loss, NodeReports, OptionsError, ReleaseOutcome};
use crate::{LeaseToken, Locks};

impl Locks {
    /// Extends the lease that `token` stands for, and says for how long it is good from now.
    ///
    /// Succeeds only if a quorum kept it all the time: a lease that lapsed is lost. It never gets
    /// shorter: of a `ttl` that ends sooner than what the nodes keep already, the longer end stands.
    pub async fn extend(&self, token: &LeaseToken) -> Result<Duration, ExtendError> {
        Ok(self.extend_since(token, || ()).await?.1)
    }

    /// As [`Self::extend`], for a caller that tells it to others by another clock: `read` is called
    /// first, and what is left counts from then. A pause between the two makes it less, never more.
    pub async fn extend_since<T>(
        &self,
        token: &LeaseToken,
        read: impl FnOnce() -> T,
    ) -> Result<(T, Duration), ExtendError> {
        let cluster = self.cluster();
        cluster.check_home()?;
        let now = cluster.now();
        let ttl = Ttl::new(token.ttl).map_err(OptionsError::from)?;
        // A node that forgets sits out max_ttl: a longer lease could be given away in between.
        match cluster.max_ttl() {
            Some(max) if token.ttl > max => {
                return Err(OptionsError::TtlAboveMax { asked: token.ttl, max }.into());
            }
            _ => {}
        }
        let claim = LeaseClaim {
            lock: token.name.clone(),
            holder: token.holder.clone(),
            fence: token.fence,
            highest: token.token,
            ttl,
        };
        let limit = cluster.limit.for_ttl(ttl);
        let (round, lease) = ExtendRound::claim(claim, cluster.quorum, cluster.drift, now);
        let op = cluster.begin_extend(&lease, round, limit);
        op.decided(limit).await;
        let (step, is_lost, ballot) =
            op.with(|round| (round.step(), round.is_lost(), round.ballot().clone()));
        let nodes = NodeReports::of(cluster.node_ids(), &ballot);
        if let Some((request, free)) = op.with(|round| round.to_heal(&lease)) {
            cluster.heal(request, &free, limit);
        }
        match step {
            ExtendStep::Extended { deadline } if cluster.now() < deadline => {
                Ok((read(), deadline.since(cluster.now())))
            }
            _ if is_lost => Err(lost(token, &nodes).into()),
            _ => {
                let (lock, left) = (token.name.clone(), Duration::ZERO);
                Err(ExtendError::NoQuorum { lock, left, nodes })
            }
        }
    }

    /// Gives back the lease that `token` stands for.
    pub async fn release(&self, token: &LeaseToken) -> ReleaseOutcome {
        let cluster = self.cluster();
        let limit = Ttl::new(token.ttl).map_or(cluster.limit.time, |t| cluster.limit.for_ttl(t));
        // Whether it was still good only the nodes can tell.
        let (holder, now) = (token.holder.clone(), cluster.now());
        let round = ReleaseRound::new(holder, token.token, cluster.quorum, Belief::Unknown, now);
        let op = Op::new(cluster, round);
        let request = Request::Release { lock: token.name.clone(), holder: token.holder.clone() };
        cluster.ask_all(&op, 0, request, limit);
        cluster.release_ended(&op, &token.name, limit).await;
        op.with(|round| {
            let nodes = || NodeReports::of(cluster.node_ids(), round.ballot());
            ReleaseOutcome::of(round.step(), nodes)
        })
    }
}

fn lost(token: &LeaseToken, nodes: &NodeReports) -> Loss {
    let reason = LossReason::Expired { last: Some(nodes.to_string()) };
    Loss { lock: token.name.clone(), fence: token.fence, reason }
}
