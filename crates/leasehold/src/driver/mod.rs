//! The only place where the core meets clock, tasks and nodes. It carries questions out and answers
//! back, and decides nothing.

mod acquiring;
mod asking;
mod attempt;
mod caretaker;
mod contended;
mod handoff;
mod keeping;
mod member;
mod op;
mod queue;
mod rota;
mod trail;
mod waiter;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{
    AdmissionPolicy, Drift, Ends, Fence, LockName, MemberName, Moment, Outlook, Proposals, Quorum,
    Roster, Standing, Ttl,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use acquiring::{Acquiring, Watcher, yield_if_over_budget};
pub(crate) use attempt::{Attempt, Proof, Refused, Won};
pub(crate) use caretaker::CaretakerSettings;
pub(crate) use keeping::{Held, Keeping};
pub(crate) use member::Member;
pub(crate) use op::{Decides, Gather, Op};
pub(crate) use queue::Turn;

use self::contended::AFTER_A_NUDGE;
use self::queue::Queues;
use self::rota::{Due, Rota};
use crate::clock::Clock;
use crate::error::{NodeReport, NodeReports, OptionsError};
use crate::home::Home;
use crate::node::{Node, NodeId};

/// How long a node may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// At most this …
    pub(crate) time: Duration,
    /// … and at most this share of the Ttl, so that what is left of a lease is worth having.
    pub(crate) share_of_ttl: f64,
}

impl Limit {
    pub(crate) fn for_ttl(self, ttl: Ttl) -> Duration {
        self.of(ttl.get())
    }

    pub(crate) fn of(self, ttl: Duration) -> Duration {
        self.time.min(ttl.mul_f64(self.share_of_ttl))
    }
}

/// What a cluster is made of.
pub(crate) struct ClusterSettings {
    pub(crate) policy: AdmissionPolicy,
    pub(crate) limit: Limit,
    pub(crate) caretaker: CaretakerSettings,
}

/// The nodes of one member list, and what is known of them.
pub(crate) struct Cluster {
    home: Home,
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) quorum: Quorum,
    pub(crate) drift: Drift,
    pub(crate) policy: AdmissionPolicy,
    pub(crate) limit: Limit,
    /// Whether leases can be raised to higher numbers, and so be handed over inside this process.
    pub(crate) raises: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) background: Handle,
    pub(crate) queues: Queues,
    /// When a lease is to be looked after, and when the time of a question is up.
    pub(crate) rota: Arc<Rota<Due>>,
    /// Questions that somebody waits for.
    in_flight: Arc<AtomicUsize>,
    progress: watch::Sender<u64>,
    /// A node of our list that belongs to another cluster.
    foreign: Mutex<Option<NodeId>>,
    proposals: Mutex<Proposals>,
    /// Which server each member shows. Taken before any member's notes.
    roster: Mutex<Roster>,
    /// How often clocks of nodes were found to have gone ahead.
    times_ahead: AtomicU64,
    closing: CancellationToken,
}

impl Cluster {
    /// Starts the caretakers of `nodes`.
    ///
    /// # Panics
    /// If there are no nodes.
    pub(crate) fn start(
        nodes: Vec<Arc<dyn Node>>,
        settings: ClusterSettings,
        clock: Arc<dyn Clock>,
        background: Handle,
    ) -> Arc<Self> {
        let count = NonZeroUsize::new(nodes.len()).expect("a cluster has at least one node");
        let progress = watch::Sender::new(0);
        let member = |(index, node)| {
            Arc::new(Member::new(index, node, settings.policy.clone(), progress.clone()))
        };
        let members: Vec<_> = nodes.into_iter().enumerate().map(member).collect();
        let name = |member: &Arc<Member>| settings.policy.member(member.node.id().as_str());
        let roster = Roster::new(members.iter().map(name).collect(), &settings.policy);
        let cluster = Arc::new(Self {
            home: Home::here(),
            raises: members.iter().all(|member| member.node.raises()),
            members,
            quorum: Quorum::majority_of(count),
            drift: settings.policy.drift,
            policy: settings.policy,
            limit: settings.limit,
            queues: Queues::new(clock.clone()),
            clock,
            background,
            rota: Arc::new(Rota::new()),
            in_flight: Arc::default(),
            progress,
            foreign: Mutex::default(),
            proposals: Mutex::default(),
            roster: Mutex::new(roster),
            times_ahead: AtomicU64::new(0),
            closing: CancellationToken::new(),
        });
        for member in &cluster.members {
            let contended = cluster.queues.contended.clone();
            member.node.on_nudge(Box::new(move |lock| contended.note(lock, AFTER_A_NUDGE)));
            caretaker::spawn(&cluster, member.clone(), settings.caretaker, cluster.closing.clone());
        }
        cluster.background.spawn(rota::watch(Arc::downgrade(&cluster), cluster.closing.clone()));
        caretaker::watch_for_suspend(&cluster, cluster.closing.clone());
        cluster
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Whether this process is a fork of the one that opened it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.home.is_elsewhere()
    }

    pub(crate) fn check_home(&self) -> Result<(), OptionsError> {
        self.home.check()
    }

    /// What the nodes would say to another process, without asking them.
    pub(crate) fn refusals(&self) -> NodeReports {
        let answer = Some(Err(self.home.refusal()));
        let report = |node: &NodeId| NodeReport {
            node: node.clone(),
            answer: answer.clone(),
            after: Duration::ZERO,
        };
        NodeReports(self.node_ids().map(report).collect())
    }

    /// What the record of a member calls it.
    pub(crate) fn member_name(&self, index: usize) -> MemberName {
        self.policy.member(self.members[index].node.id().as_str())
    }

    /// The clock of a node went ahead, or a node forgot what it granted: leases may end earlier than
    /// their holders believe.
    fn clocks_went_ahead(&self) {
        self.times_ahead.fetch_add(1, Ordering::AcqRel);
        let leases = self.rota.all(|due| match due {
            Due::Lease(held) => Some(held.clone()),
            Due::Op(_) => None,
        });
        // Those that are just being extended are looked at when that is decided, or asked for. Not here:
        // the caller may have one of them in hand.
        self.background.spawn(async move { leases.iter().for_each(Held::heed_clocks) });
    }

    /// Grows when leases may end earlier than their holders believe.
    pub(crate) fn times_ahead(&self) -> u64 {
        self.times_ahead.load(Ordering::Acquire)
    }

    /// Until when the nodes keep a lease, by what is known of their clocks.
    pub(crate) fn deadline_of(&self, ends: &Ends) -> Moment {
        let jumps: Vec<_> =
            self.members.iter().map(|member| member.notes().admission.jumps().to_vec()).collect();
        ends.deadline(self.quorum, |node| jumps.get(node).map_or(&[], Vec::as_slice))
    }

    /// What became of the nodes that kept a lease, if a quorum of others can be free since then.
    pub(crate) fn forgot(&self, ends: &Ends) -> Option<String> {
        let gone = |member: &Arc<Member>| member.notes().admission.gone().cloned();
        let gone: Vec<_> = self.members.iter().map(gone).collect();
        let reason = gone.iter().flatten().max_by_key(|(at, _)| *at)?.1.clone();
        let at = |node: usize| gone.get(node)?.as_ref().map(|(at, _)| *at);
        ends.are_gone(self.quorum, at).then_some(reason)
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node_ids(&self) -> impl Iterator<Item = &NodeId> {
        self.members.iter().map(|member| member.node.id())
    }

    /// Looks for nodes of other clusters in our list.
    fn note_foreign_nodes(&self) {
        let is_foreign = |member: &&Arc<Member>| {
            matches!(member.notes().admission.standing(), Standing::Foreign { .. })
        };
        let found = self.members.iter().find(is_foreign).map(|member| member.node.id().clone());
        *self.foreign.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    fn outlook(&self) -> Outlook {
        let mut outlook = Outlook::default();
        self.members.iter().for_each(|member| outlook.add(&member.notes().admission));
        outlook
    }

    /// A number for an acquire or a refresh of `lock` at `now`, above `seen`.
    pub(crate) fn propose(&self, lock: &LockName, seen: Fence, now: Moment) -> Fence {
        let proposals = self.proposals.lock().unwrap_or_else(PoisonError::into_inner);
        proposals.next(lock, seen, self.outlook(), now, || self.clock.wall())
    }

    /// A node showed this fence of `lock`.
    fn saw_fence(&self, lock: &LockName, fence: Fence) {
        let mut proposals = self.proposals.lock().unwrap_or_else(PoisonError::into_inner);
        proposals.saw(lock, fence, self.outlook(), self.now(), || self.clock.wall());
    }

    /// The longest Ttl of the cluster, as far as it is known.
    pub(crate) fn max_ttl(&self) -> Option<Duration> {
        self.members.iter().find_map(|member| member.max_ttl()).or(self.policy.max_ttl)
    }

    /// Sleeps by the background runtime's timers, which need no runtime of the caller.
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _context = self.background.enter();
        tokio::time::sleep(duration)
    }

    /// Has every node examined once more and waits for it, at most for `limit`.
    pub(crate) async fn examine_all(&self, limit: Duration) {
        let before: Vec<_> = self.members.iter().map(|member| member.examinations()).collect();
        self.members.iter().for_each(|member| member.examine_soon());
        let is_done = || {
            self.members.iter().zip(&before).all(|(member, before)| member.examinations() > *before)
        };
        self.until(limit, is_done).await;
    }

    /// Waits until every node has been tried, or, once a quorum votes, only a little longer.
    pub(crate) async fn ready(&self, limit: Duration) {
        let votes = || self.members.iter().filter(|member| member.votes(self.now())).count();
        let all_tried = || self.members.iter().all(|member| member.examinations() > 0);
        self.until(limit, || all_tried() || votes() >= self.quorum.needed()).await;
        self.until(self.limit.time.min(limit), all_tried).await;
    }

    /// Waits for something that examinations bring about, at most for `limit`.
    async fn until(&self, limit: Duration, is_done: impl Fn() -> bool) {
        let mut progress = self.progress.subscribe();
        let mut sleep = std::pin::pin!(self.sleep(limit));
        while !is_done() {
            tokio::select! {
                biased;
                _ = progress.changed() => {}
                () = &mut sleep => return,
            }
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.node_ids()).finish()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            // The nodes' connections are the parent's: to close them here would close them there.
            std::mem::forget(std::mem::take(&mut self.members));
            std::mem::forget(self.closing.clone());
            return;
        }
        self.closing.cancel();
    }
}
