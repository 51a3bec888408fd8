//! The only place where the core meets clock, tasks and nodes. It carries questions out and answers
//! back, and decides nothing.

mod acquiring;
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

use leasehold_core::rounds::{ExtendRound, ReleaseRound, ReleaseStep};
use leasehold_core::{
    AdmissionPolicy, Answer, Drift, Ends, Fence, Holder, Lease, LockName, MemberName, Moment,
    NodeError, Outlook, Pass, Proposals, Quorum, Request, Roster, Standing, Ttl,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use acquiring::{Acquiring, Watcher, yield_if_over_budget};
pub(crate) use attempt::{Attempt, Proof, Refused, Won};
pub(crate) use caretaker::CaretakerSettings;
pub(crate) use keeping::{Held, Keeping};
pub(crate) use member::Member;
pub(crate) use op::{Decides, Gather, Op};
pub(crate) use queue::Turn;

use self::contended::AFTER_A_NUDGE;
use self::op::Single;
use self::queue::Queues;
use self::rota::{Due, Rota};
use self::trail::Trail;
use crate::clock::Clock;
use crate::error::{NodeReport, NodeReports, OptionsError};
use crate::home::Home;
use crate::node::{Ask, Node, NodeId, ReplySink, ReplyTo};

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
        // whoever heard of the clock may have one of them in hand.
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

    /// Puts a question to all nodes, in one go and before anything is awaited, so that the order of
    /// calls is the order on each node. A node that may not vote is not asked; its objection is
    /// its answer.
    pub(crate) fn ask_all<R: Decides>(
        &self,
        op: &Arc<Op<R>>,
        round: u32,
        request: Request,
        limit: Duration,
    ) {
        if self.is_elsewhere() {
            let refusal = self.home.refusal();
            let nodes = 0..self.members.len();
            return nodes.for_each(|node| op.answer(node, round, Err(refusal.clone())));
        }
        self.ask_all_here(op, round, request, limit);
    }

    /// The same, for who has just looked which process this is: a look costs a system call.
    pub(crate) fn ask_all_here<R: Decides>(
        &self,
        op: &Arc<Op<R>>,
        round: u32,
        request: Request,
        limit: Duration,
    ) {
        let (request, asked) = (Arc::new(request), Instant::now());
        let is_followed = trail::is_wanted();
        if is_followed {
            let passes = vec![None; self.members.len()];
            op.leave_trail(Trail { request: request.clone(), passes });
        }
        let veto = match &*request {
            Request::Acquire { .. } => self.veto(),
            _ => None,
        };
        for (index, member) in self.members.iter().enumerate() {
            let pass = if request.needs_identity() {
                let pass = member.pass_for(|| self.now(), &request);
                let pass = match &veto {
                    Some(veto) => {
                        Err(pass.err().filter(NodeError::is_denial).unwrap_or(veto.clone()))
                    }
                    None => pass,
                };
                match pass {
                    Ok(pass) => {
                        if is_followed {
                            op.note_pass(index, &pass);
                        }
                        Some(pass)
                    }
                    Err(objection) => {
                        op.answer(index, round, Err(objection));
                        continue;
                    }
                }
            } else {
                None
            };
            let reply_to = ReplyTo::new(op.clone(), index, round);
            let request =
                pass.as_ref().map_or_else(|| request.clone(), |pass| pass.fitted(&request));
            member.node.ask(Ask { request, pass, reply_to, asked, limit });
        }
    }

    /// One node of another cluster is enough not to ask the others: it shows that two member lists
    /// are in use, and their majorities need not meet.
    fn veto(&self) -> Option<NodeError> {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = |node| format!("not asked, because {node} belongs to another cluster");
        foreign.as_ref().map(|node| NodeError::Denied { reason: reason(node) })
    }

    /// Looks for nodes of other clusters in our list.
    fn note_foreign_nodes(&self) {
        let is_foreign = |member: &&Arc<Member>| {
            matches!(member.notes().admission.standing(), Standing::Foreign { .. })
        };
        let found = self.members.iter().find(is_foreign).map(|member| member.node.id().clone());
        *self.foreign.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Gives back what may have been granted, on all nodes. Nobody waits for it and nobody can
    /// cancel it: it is on its way when this returns.
    pub(crate) fn give_back(&self, lock: &LockName, holder: &Holder, ttl: Ttl) {
        self.give_back_where(lock, holder, ttl, |_| true);
    }

    /// The same, on those nodes that may have been asked, by their numbers.
    fn give_back_where(
        &self,
        lock: &LockName,
        holder: &Holder,
        ttl: Ttl,
        may_have_been_asked: impl Fn(usize) -> bool,
    ) {
        if self.is_elsewhere() {
            return;
        }
        let request = Arc::new(Request::Release { lock: lock.clone(), holder: holder.clone() });
        let (asked, limit) = (Instant::now(), self.limit.for_ttl(ttl));
        let members = self.members.iter().enumerate();
        for (_, member) in members.filter(|(index, _)| may_have_been_asked(*index)) {
            let reply_to = ReplyTo::nobody();
            member.node.ask(Ask { request: request.clone(), pass: None, reply_to, asked, limit });
        }
    }

    /// Gives a lease back to nodes that lost it, and waits for nobody.
    pub(crate) fn heal(&self, request: Request, nodes: &[usize], limit: Duration) {
        if self.is_elsewhere() {
            return;
        }
        let (request, asked) = (Arc::new(request), Instant::now());
        for member in nodes.iter().map(|node| &self.members[*node]) {
            let Ok(pass) = member.pass_for(|| self.now(), &request) else { continue };
            let (request, reply_to) = (pass.fitted(&request), ReplyTo::nobody());
            member.node.ask(Ask { request, pass: Some(pass), reply_to, asked, limit });
        }
    }

    /// Puts a question to all nodes and waits for all answers, or for the limit.
    pub(crate) async fn gather(self: &Arc<Self>, request: Request, limit: Duration) -> Gather {
        let op = Op::new(self, Gather::new(self.members.len(), self.now()));
        self.ask_all(&op, 0, request, limit);
        op.decided(limit).await;
        op.with(|gather| {
            let asked_at = gather.asked_at();
            std::mem::replace(gather, Gather::new(0, asked_at))
        })
    }

    /// Waits until it is known what became of a lease that is being released: for the answers, and
    /// where these leave it open for a look at the nodes.
    pub(crate) async fn release_ended(
        self: &Arc<Self>,
        op: &Arc<Op<ReleaseRound>>,
        lock: &LockName,
        limit: Duration,
    ) {
        op.decided(limit).await;
        if op.with(|round| round.step()) == ReleaseStep::Look {
            let mut gather = self.gather(Request::Inspect { lock: lock.clone() }, limit).await;
            let shown: Vec<_> = (0..self.members.len()).map(|node| gather.take(node).0).collect();
            op.with(|round| round.looked(shown.iter()));
        }
    }

    /// Puts a question to node number `index` and waits for its answer, or for the limit.
    pub(crate) async fn ask_one(
        self: &Arc<Self>,
        index: usize,
        request: Request,
        limit: Duration,
    ) -> Answer {
        self.ask_member(&self.members[index], request, None, limit).await
    }

    async fn ask_member(
        self: &Arc<Self>,
        member: &Member,
        request: Request,
        pass: Option<Arc<Pass>>,
        limit: Duration,
    ) -> Answer {
        if self.is_elsewhere() {
            return Err(self.home.refusal());
        }
        let op = Op::new(self, Single::new(self.now()));
        let (request, reply_to) = (Arc::new(request), ReplyTo::new(op.clone(), 0, 0));
        member.node.ask(Ask::new(request, pass, reply_to, limit));
        op.decided(limit).await;
        op.with(Single::take)
    }

    /// Begins a round of extension: the question is on its way when this returns.
    pub(crate) fn begin_extend(
        self: &Arc<Self>,
        lease: &Lease,
        round: ExtendRound,
        limit: Duration,
    ) -> Arc<Op<ExtendRound>> {
        let request = round.request(lease);
        let op = Op::new(self, round);
        self.ask_all(&op, 0, request, limit);
        op
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
