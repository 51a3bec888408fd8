//! The memory node, at the end of a long way: requests and answers take their time, in order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Answer, Fence, Holder, LockName, Owner, Pass, Reply, Request};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::site::{Kind, Site};
use crate::node::{
    Ask, Node, NodeId, OnNudge, OnPlace, OnWatched, Place, ReplySink, ReplyTo, Ticket, Watch,
};
use crate::nodes::memory::MemoryNode;

/// One client's way to a memory node.
pub(super) struct FarMemory {
    site: Arc<Site>,
    up: mpsc::UnboundedSender<(Instant, Ask)>,
}

impl FarMemory {
    pub(super) fn new(site: &Arc<Site>) -> Self {
        let (up, arriving) = mpsc::unbounded_channel();
        let (down, leaving) = mpsc::unbounded_channel();
        tokio::spawn(carry_out(site.clone(), arriving, down));
        tokio::spawn(answer(site.clone(), leaving));
        Self { site: site.clone(), up }
    }
}

impl Node for FarMemory {
    fn id(&self) -> &NodeId {
        &self.site.name
    }

    fn ask(&self, ask: Ask) {
        let (from, to) = self.site.sky().up;
        let at = Instant::now() + self.site.world.millis(from, to);
        // Only the end of the run closes it.
        let _ = self.up.send((at, ask));
    }

    fn generation(&self) -> watch::Receiver<u64> {
        inner(&self.site).generation()
    }

    // Hints may come at once or not at all, as they like: nothing rests on them.

    fn watch(&self, lock: &LockName, told: OnWatched) -> Option<Watch> {
        inner(&self.site).watch(lock, told).filter(|_| self.site.world.chance(90))
    }

    fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> Option<Box<dyn Place>> {
        let is_up = self.site.world.chance(90);
        is_up.then(|| inner(&self.site).stand_in_line(lock, ticket, told)).flatten()
    }

    fn on_nudge(&self, told: OnNudge) {
        inner(&self.site).on_nudge(told);
    }
}

fn inner(site: &Site) -> &MemoryNode {
    let Kind::Memory(node) = &site.kind else { panic!("{} is no memory node", site.name) };
    node
}

type Leaving = (Instant, ReplyTo, Answer);

async fn carry_out(
    site: Arc<Site>,
    mut arriving: mpsc::UnboundedReceiver<(Instant, Ask)>,
    down: mpsc::UnboundedSender<Leaving>,
) {
    let wire = site.accept();
    while let Some((at, ask)) = arriving.recv().await {
        tokio::time::sleep_until(at).await;
        site.way_up().await;
        let answer = put(inner(&site), ask.pass, &ask.request, ask.limit);
        if let Ok(reply) = &answer {
            site.carried_out(wire.number, &ask.request, reply);
        }
        let (from, to) = site.sky().down;
        let _ = down.send((Instant::now() + site.world.millis(from, to), ask.reply_to, answer));
    }
}

async fn answer(site: Arc<Site>, mut leaving: mpsc::UnboundedReceiver<Leaving>) {
    while let Some((at, reply_to, answer)) = leaving.recv().await {
        tokio::time::sleep_until(at).await;
        site.way_down().await;
        reply_to.answer(answer);
    }
}

/// The memory node answers before `ask` returns.
fn put(
    node: &MemoryNode,
    pass: Option<Arc<Pass>>,
    request: &Arc<Request>,
    limit: Duration,
) -> Answer {
    #[derive(Default)]
    struct Slot(Mutex<Option<Answer>>);
    impl ReplySink for Slot {
        fn answer(&self, _: usize, _: u32, answer: Answer) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        }
    }
    let slot = Arc::new(Slot::default());
    let reply_to = ReplyTo::new(slot.clone(), 0, 0);
    node.ask(Ask::new(request.clone(), pass, reply_to, limit));
    let answer = slot.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    answer.expect("the memory node answers at once")
}

/// Asks as somebody who knows the node's record, whoever that is.
pub(super) fn apply(node: &MemoryNode, request: &Request) {
    let probe = put(node, None, &Arc::new(Request::Probe), Duration::ZERO);
    let Ok(Reply::Facts(facts)) = probe else { return };
    let pass = facts.record.map(|record| Pass {
        record: record.into(),
        generation: 1,
        floor: Fence::ZERO,
        max_ttl: Duration::MAX,
        has_waited: true,
    });
    let _ = put(node, pass.map(Arc::new), &Arc::new(request.clone()), Duration::ZERO);
}

pub(super) fn owner(node: &MemoryNode, lock: &LockName) -> Option<Holder> {
    let request = Arc::new(Request::Inspect { lock: lock.clone() });
    match put(node, None, &request, Duration::ZERO) {
        Ok(Reply::Seen(sighting)) if sighting.expires_in.is_some_and(|left| !left.is_zero()) => {
            match sighting.owner {
                Some(Owner::Holder(holder)) => Some(holder),
                _ => None,
            }
        }
        _ => None,
    }
}
