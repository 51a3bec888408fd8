//! The door: open a backend, ask for locks, look at them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::{ForceRound, ForceStep};
use leasehold_core::{Drift, Fence, LockName, NodeError, Owner, Reply, Request, Sighting};

use crate::driver::{Cluster, Decides as _, Gather};
use crate::error::{
    ForceReleaseError, InspectError, NodeReport, NodeReports, OpenError, OptionsError,
};
use crate::lock::LockRequest;
use crate::node::NodeId;
use crate::options::Builder;
use crate::status::{self, LockStatus, NodeHealth};

/// Looking and taking away is not timed by a lease; it may take as long as a person waits gladly.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// A backend, opened: the nodes of one member list. Cheap to clone.
///
/// Belongs to the process that opened it. After `fork()` the child is refused everything, holds none
/// of its parent's leases, and gives none of them back: it opens `Locks` anew. A tokio runtime does
/// not survive a fork either, so the child needs a new one.
#[derive(Clone)]
pub struct Locks {
    cluster: Arc<Cluster>,
    label: Arc<str>,
}

impl Locks {
    pub(crate) fn new(cluster: Arc<Cluster>, label: Arc<str>) -> Self {
        Self { cluster, label }
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Opens a backend:
    ///
    /// * `sqlite:PATH`, one file for the processes of one machine; `sqlite:` for the file in the
    ///   user's data folder
    /// * `redis://[user:password@]a[:port],b,c[/db]`, each address an independent node; `rediss://`
    ///   with TLS, `unix://PATH` for a socket
    /// * `https://[:TOKEN@]host[:port]`, a lock server, `leasehold serve`; `http://` without TLS
    /// * `memory:`, for this process only
    ///
    /// Parameters after `?`: `prefix`, `timeout`, `max_ttl`, `max_clock_skew`, `drift`,
    /// `fence_retention`, `quarantine`, `strict`; see [`Builder`]. For a lock server `timeout`,
    /// `drift`, `token_file`, and with TLS `ca`, `cert`, `key`.
    ///
    /// Nodes that are down do not make it fail: a lock asked for without a quorum does.
    pub async fn open(url: impl Into<String>) -> Result<Self, OpenError> {
        Self::builder().url(url).open().await
    }

    /// Settings beyond the URL.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Asks for the lock called `name`. A name has 1 to 512 bytes and no control characters; one
    /// that has not is reported by `acquire`.
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self.cluster.clone(), name.as_ref(), self.label.clone())
    }

    /// Who holds the lock called `name`, as each node sees it. What is left counts from when this
    /// returns: an owner that can have expired while slow nodes were waited for is not among the
    /// answers.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<LockStatus, InspectError> {
        Ok(self.told_now(&self.inspect_as_answered(name).await?))
    }

    /// As [`Self::inspect`], with what each node said when it was asked: for judging what the nodes
    /// did, not for telling who holds the lock now.
    pub async fn inspect_as_answered(
        &self,
        name: impl AsRef<str>,
    ) -> Result<LockStatus, InspectError> {
        self.cluster.check_home()?;
        let lock = LockName::new(name).map_err(OptionsError::from)?;
        let request = Request::Inspect { lock: lock.clone() };
        let mut gather = self.cluster.gather(request, LOOK_LIMIT).await;
        let nodes = self.answers(&mut gather, |reply| match reply {
            Reply::Seen(sighting) => Some(sighting),
            _ => None,
        })?;
        Ok(LockStatus { name: lock, nodes, asked_at: gather.asked_at(), is_ending: false })
    }

    /// All locks that are held and whose names begin with `prefix`, sorted by name. As with
    /// [`Self::inspect`], what is left counts from when this returns.
    pub async fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<LockStatus>, InspectError> {
        let answered = self.list_as_answered(prefix).await?;
        let told = answered.iter().map(|status| self.told_now(status));
        Ok(told.filter(|status| status.owner().is_some()).collect())
    }

    /// As [`Self::list`], with what each node said when it was asked.
    pub async fn list_as_answered(
        &self,
        prefix: impl AsRef<str>,
    ) -> Result<Vec<LockStatus>, InspectError> {
        self.cluster.check_home()?;
        let request = Request::List { prefix: prefix.as_ref().to_owned() };
        let mut gather = self.cluster.gather(request, 10 * LOOK_LIMIT).await;
        let nodes = self.answers(&mut gather, |reply| match reply {
            Reply::Locks(locks) => Some(locks),
            _ => None,
        })?;
        Ok(status::merge(nodes, gather.asked_at()))
    }

    /// What may be told now of what the nodes said: what is left is less by the time that passed since
    /// they were asked and by the drift allowance, and owners that can have expired are left out.
    pub fn told_now(&self, status: &LockStatus) -> LockStatus {
        let (now, drift) = (self.cluster.now(), self.cluster.drift);
        let told = |sighting: Sighting| sighting.told_at(now, status.asked_at, drift);
        let (name, nodes) = (status.name.clone(), status.nodes.iter().cloned());
        let nodes = nodes.map(|(node, seen)| (node, seen.map(told))).collect();
        let mut told = LockStatus { name, nodes, asked_at: now, is_ending: status.is_ending };
        told.is_ending |= told.owner().is_none() && status.owner().is_some();
        told
    }

    /// Waits until every node that answers has carried out what it was asked so far, at most a
    /// second: for a program that is about to end and may have something to give back.
    pub async fn settle(&self) {
        // Nodes carry requests out in order, so the answer to the last one tells.
        self.cluster.gather(Request::Probe, LOOK_LIMIT).await;
    }

    /// How the nodes are.
    pub fn nodes(&self) -> Vec<NodeHealth> {
        let (now, clock) = (self.cluster.now(), &*self.cluster.clock);
        self.cluster.members.iter().map(|member| NodeHealth::of(member, now, clock)).collect()
    }

    /// How many nodes must agree.
    pub fn quorum(&self) -> usize {
        self.cluster.quorum.needed()
    }

    /// The longest Ttl of the cluster, once a node that votes told it.
    pub fn max_ttl(&self) -> Option<Duration> {
        self.cluster.max_ttl()
    }

    /// How long a node may take to answer when it is about a lease of `ttl`; see
    /// [`Builder::timeout`].
    pub fn timeout(&self, ttl: Duration) -> Duration {
        self.cluster.limit.of(ttl)
    }

    /// How far clocks may drift; see [`Builder::drift`].
    pub fn drift(&self) -> Drift {
        self.cluster.drift
    }

    /// How far wall clocks may be apart; see [`Builder::max_clock_skew`].
    pub fn max_clock_skew(&self) -> Duration {
        self.cluster.policy.max_clock_skew
    }

    /// Whether a node that lost its memory sits out; see [`Builder::quarantine`].
    pub fn quarantine(&self) -> bool {
        self.cluster.policy.quarantine
    }

    /// Takes the lock called `name` away from its holder, if that acquired it with the fence
    /// `expected`, and says whether there was one.
    ///
    /// The holder is not asked and may go on until its deadline: this breaks mutual exclusion for
    /// whoever does not check the fence. For people who know that the holder is gone.
    pub async fn force_release(
        &self,
        name: impl AsRef<str>,
        expected: Fence,
    ) -> Result<bool, ForceReleaseError> {
        self.take_away(name.as_ref(), expected, None).await
    }

    /// The same, with a reason for the record, which a lock server keeps. Other backends keep none.
    pub async fn force_release_because(
        &self,
        name: impl AsRef<str>,
        expected: Fence,
        reason: impl AsRef<str>,
    ) -> Result<bool, ForceReleaseError> {
        self.take_away(name.as_ref(), expected, Some(reason.as_ref().into())).await
    }

    async fn take_away(
        &self,
        name: &str,
        expected: Fence,
        reason: Option<Arc<str>>,
    ) -> Result<bool, ForceReleaseError> {
        self.cluster.check_home()?;
        let lock = LockName::new(name).map_err(OptionsError::from)?;
        let moved_on =
            |found| ForceReleaseError::FenceMovedOn { lock: lock.clone(), expected, found };
        let no_quorum = |nodes| ForceReleaseError::NoQuorum { lock: lock.clone(), nodes };
        // Whoever has it may have extended it since: the round finds out.
        let status = match self.inspect_as_answered(lock.as_str()).await {
            Ok(status) => status,
            Err(InspectError::NoQuorum { nodes }) => return Err(no_quorum(nodes)),
            Err(InspectError::Options(error)) => return Err(error.into()),
        };
        let Some((owner, _)) = status.owner() else {
            return Ok(false);
        };
        let Owner::Holder(holder) = owner else {
            return Err(ForceReleaseError::NoFence { lock, owner: owner.clone() });
        };
        let found = status.fence_of(owner).unwrap_or_default();
        if found != expected {
            return Err(moved_on(found));
        }
        let mut round = ForceRound::new(self.cluster.quorum, holder.clone(), expected);
        loop {
            let (lock, holder) = (lock.clone(), holder.clone());
            let (fence, reason) = (round.fence(), reason.clone());
            let inspect = Request::Inspect { lock: lock.clone() };
            let request = Request::ForceRelease { lock, holder, fence, reason };
            let mut reports = self.gathered(request).await;
            let mut step = round.answered(reports.answers());
            if step == ForceStep::Look {
                reports = self.gathered(inspect).await;
                step = round.looked(reports.answers());
            }
            match step {
                ForceStep::Done { was_held } => return Ok(was_held),
                ForceStep::MovedOn { fence } => return Err(moved_on(fence)),
                ForceStep::AskAgain => {}
                ForceStep::Look | ForceStep::NoQuorum => return Err(no_quorum(reports)),
            }
        }
    }

    async fn gathered(&self, request: Request) -> NodeReports {
        let mut gather = self.cluster.gather(request, LOOK_LIMIT).await;
        self.reports(&mut gather)
    }

    pub(crate) fn reports(&self, gather: &mut Gather) -> NodeReports {
        let report = |(index, node): (usize, &NodeId)| {
            let (answer, after) = gather.take(index);
            NodeReport { node: node.clone(), answer: Some(answer), after }
        };
        NodeReports(self.cluster.node_ids().enumerate().map(report).collect())
    }

    /// The answers by node, if a quorum gave one.
    fn answers<T>(
        &self,
        gather: &mut Gather,
        read: impl Fn(Reply) -> Option<T>,
    ) -> Result<ByNode<T>, InspectError> {
        let reports = self.reports(gather);
        if reports.answered() < self.quorum() {
            return Err(InspectError::NoQuorum { nodes: reports });
        }
        let garbled = || NodeError::Garbled { reason: "an answer to another question".into() };
        Ok(reports
            .0
            .into_iter()
            .map(|report| {
                let answer = report.answer.unwrap_or_else(|| Err(garbled()));
                (report.node, answer.and_then(|reply| read(reply).ok_or_else(garbled)))
            })
            .collect())
    }
}

/// What each node says, in the order of the member list.
type ByNode<T> = Vec<(NodeId, Result<T, NodeError>)>;

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("cluster", &self.cluster).finish()
    }
}
