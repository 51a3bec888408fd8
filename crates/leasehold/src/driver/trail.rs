//! Which lives a won round rests on, and when the clock of a node was read, for tests that check
//! it: events of the targets `leasehold::ballot` and `leasehold::clock` at the level TRACE. Chaos
//! tests judge by them. Nothing is kept where nobody listens.

use std::fmt::Write as _;
use std::sync::Arc;

use leasehold_core::rounds::Ballot;
use leasehold_core::{Moment, Pass, Record, Reply, Request};

use super::Cluster;
use crate::node::NodeId;

const TARGET: &str = "leasehold::ballot";

/// What was asked, and with which passes.
pub(super) struct Trail {
    pub(super) request: Arc<Request>,
    pub(super) passes: Vec<Option<Arc<Pass>>>,
}

/// Whether anybody listens.
pub(super) fn is_wanted() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

/// The clock of a node was read, and whatever follows from that for leases was done.
pub(super) fn tell_reading(node: &NodeId, sent: Moment, received: Moment) {
    let (sent_ns, received_ns) = (sent.as_nanos(), received.as_nanos());
    tracing::trace!(target: "leasehold::clock", %node, sent_ns, received_ns, "reading");
}

impl Trail {
    /// A quorum said yes.
    pub(super) fn tell(&self, cluster: &Cluster, ballot: &Ballot) {
        let (kind, holder, fence) = match &*self.request {
            Request::Acquire { holder, proposal, .. } => ("acquire", holder, proposal),
            Request::Extend { holder, next, .. } => ("extend", holder, next),
            _ => return,
        };
        let lock = self.request.lock().map(|lock| lock.as_str()).unwrap_or_default();
        let mut votes = String::new();
        for (index, vote) in ballot.votes().iter().enumerate() {
            let word = match vote.as_ref().map(|vote| &vote.answer) {
                Some(Ok(Reply::Granted | Reply::GrantedWith { .. })) => "granted",
                Some(Ok(Reply::Extended { .. })) => "extended",
                Some(Ok(Reply::Healed { .. })) => "healed",
                _ => continue,
            };
            let node = cluster.members[index].node.id();
            let record = self.passes[index].as_ref().and_then(|p| Record::parse(&p.record).ok());
            let (life, run) = record.map_or((0, String::new()), |r| (r.life, r.run_id));
            let _ = write!(votes, "{node}|{life:032x}|{run}|{word} ");
        }
        let asked_at_ns = ballot.asked_at().as_nanos();
        let (fence, votes, holder) = (fence.get(), votes.trim_end(), holder.as_str());
        tracing::trace!(target: TARGET, kind, lock, holder, fence, asked_at_ns, votes, "ballot");
    }
}
