//! How a question gets to the nodes: to all of them, to some, or to one.
//!
//! It is on its way when the call returns, so the order of calls is the order on each node. A node
//! that may not vote is not asked. What comes back goes to the question's [`Op`].

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::rounds::{ExtendRound, ReleaseRound, ReleaseStep};
use leasehold_core::{Answer, Holder, Lease, LockName, NodeError, Pass, Request, Ttl};
use tokio::time::Instant;

use super::op::Single;
use super::trail::{self, Trail};
use super::{Cluster, Decides, Gather, Member, Op};
use crate::node::{Ask, ReplySink, ReplyTo};

impl Cluster {
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

    /// Gives back what may have been granted, on all nodes. Nobody waits for it and nobody can
    /// cancel it: it is on its way when this returns.
    pub(crate) fn give_back(&self, lock: &LockName, holder: &Holder, ttl: Ttl) {
        self.give_back_where(lock, holder, ttl, |_| true);
    }

    /// The same, on those nodes that may have been asked, by their numbers.
    pub(super) fn give_back_where(
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

    pub(super) async fn ask_member(
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
}
