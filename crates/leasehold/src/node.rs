//! The seam between the driver and the backends: one trait, one verb.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use leasehold_core::wait::{InLine, Ticket, Watched};
use leasehold_core::{Answer, Holder, LockName, NodeError, Pass, Request};
use tokio::sync::watch;
use tokio::time::Instant;

/// A node's name, for people and for the member list: `10.0.0.1:6379/0`. Never holds a password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// A name, as it shall stand in errors, logs and the member list.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(name.as_ref().into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One independent voter. A replicated store, such as an etcd cluster, is still one node.
///
/// Implementors translate and never decide: no retry, no waiting, no judging of answers. Each
/// request answers like [`leasehold_core::LockTable`]; one suite checks that for all backends.
pub trait Node: Send + Sync + 'static {
    /// Its name. Two nodes of one list never share it.
    fn id(&self) -> &NodeId;

    /// Hands a request over and returns at once: never blocks, may be called from any thread and
    /// outside of any async runtime.
    ///
    /// * Requests are carried out in the order of the calls, so that a release can never overtake
    ///   its own acquire.
    /// * A request is sent at most once. One that cannot be sent within its limit is not sent at
    ///   all.
    /// * A request with a pass is sent only on the connection that the pass was given for.
    /// * The answer goes to [`Ask::reply_to`], once.
    fn ask(&self, ask: Ask);

    /// Counts the connections to the node, and the servers that were met on them. A change means:
    /// examine it again before it may vote.
    fn generation(&self) -> watch::Receiver<u64>;

    /// Opens so many further connections to the same address, for a moment, and says whom each met:
    /// its run id, or `None`. Nothing, where an address cannot have several servers behind it.
    fn meet(&self, connections: usize) -> Meeting {
        let _ = connections;
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Opens the connection anew, soon: the server that answers on it may not vote, and the node's
    /// address may lead to another one by now.
    fn redial(&self) {}

    /// Whether a lease can be raised to a higher number, and be acquired once more by the same holder,
    /// as [`Request::Extend`] and [`Request::Acquire`] allow it. Where it cannot, because the node
    /// makes the numbers itself, a lease is not handed over inside a process: it is given back, and
    /// the next waiter asks.
    fn raises(&self) -> bool {
        true
    }

    /// Calls `told` once when `lock` has no owner here, or may have none: at once if it has none
    /// already. Ends when what is returned is dropped. `None` if this node gives no such hints.
    ///
    /// Like everything a node tells a waiter this is a hint, only ever a reason to ask: it may come
    /// without a cause, and may fail to come. It is told from a node's own task or thread, or from
    /// inside of these calls; never while the node holds a mutex of its own.
    fn watch(&self, lock: &LockName, told: OnWatched) -> Option<Watch> {
        let _ = (lock, told);
        None
    }

    /// Stands in the line of those who wait for `lock`, which this node keeps: ordered by ticket,
    /// for all processes. Calls `told` with each change of this place. An entry whose process is
    /// gone goes away by itself, and those behind it move up. `None` if this node keeps no lines.
    ///
    /// `ticket` is the one of an earlier place of the same waiter; without one the node draws one.
    fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> Option<Box<dyn Place>> {
        let _ = (lock, ticket, told);
        None
    }

    /// From now on calls `told` with each lock for which somebody nudges this process; see
    /// [`Place::nudge`]. Called at most once, by whoever opens the node.
    fn on_nudge(&self, told: OnNudge) {
        let _ = told;
    }
}

/// The run ids of the servers that connections met; `None` for one that met nobody.
pub type Meeting = std::pin::Pin<Box<dyn Future<Output = Vec<Option<String>>> + Send>>;

/// Told what became of a watch.
pub type OnWatched = Box<dyn Fn(Watched) + Send + Sync>;
/// Told where a waiter stands.
pub type OnPlace = Box<dyn Fn(InLine) + Send + Sync>;
/// Told of each lock that somebody nudges for.
pub type OnNudge = Box<dyn Fn(&LockName) + Send + Sync>;

/// Keeps a watch going until it is dropped.
pub type Watch = Box<dyn Send + Sync>;

/// A place in line. Dropping it leaves the line, and the next in line is told.
pub trait Place: Send + Sync {
    /// Lets the process of `owner` know that somebody waits in line for what it holds, so that it
    /// does not take the lock again past the line.
    fn nudge(&self, owner: &Holder);
}

/// A request on its way to a node.
pub struct Ask {
    /// What is asked. Shared by all nodes of a round.
    pub request: Arc<Request>,
    /// The identity that is expected; with requests that need one.
    pub pass: Option<Arc<Pass>>,
    /// Where the answer goes.
    pub reply_to: ReplyTo,
    /// When.
    pub asked: Instant,
    /// How long the asker waits from then on. Covers connecting.
    pub limit: Duration,
}

impl Ask {
    /// Asked now.
    pub fn new(
        request: Arc<Request>,
        pass: Option<Arc<Pass>>,
        reply_to: ReplyTo,
        limit: Duration,
    ) -> Self {
        Self { request, pass, reply_to, asked: Instant::now(), limit }
    }
}

/// Whoever waits for answers. Called from a node's own task or thread: must be quick.
pub trait ReplySink: Send + Sync {
    /// Node number `node` answered round `round`.
    fn answer(&self, node: usize, round: u32, answer: Answer);

    /// Whether an answer can still matter. A node may drop a request nobody waits for, if it did
    /// not send it yet.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Whether nothing else of this client is under way, so that there is nothing to gather and send
    /// together.
    fn is_alone(&self) -> bool {
        false
    }
}

/// The way back for one answer. Dropping it answers, too: nobody waits for ever.
pub struct ReplyTo {
    sink: Option<Arc<dyn ReplySink>>,
    node: usize,
    round: u32,
}

impl ReplyTo {
    /// Answers go to `sink`, as those of node number `node` in round `round`.
    pub fn new(sink: Arc<dyn ReplySink>, node: usize, round: u32) -> Self {
        Self { sink: Some(sink), node, round }
    }

    /// Nobody waits; the request is to be carried out all the same.
    pub fn nobody() -> Self {
        Self { sink: None, node: 0, round: 0 }
    }

    /// Hands the answer over.
    pub fn answer(mut self, answer: Answer) {
        if let Some(sink) = self.sink.take() {
            sink.answer(self.node, self.round, answer);
        }
    }

    /// Whether an answer can still matter.
    pub fn is_wanted(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.is_wanted())
    }

    /// Whether nothing else of this client is under way.
    pub fn is_alone(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.is_alone())
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            let reason = "the request was dropped before it was answered".to_owned();
            sink.answer(self.node, self.round, Err(NodeError::Unreachable { reason }));
        }
    }
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyTo(node {}, round {})", self.node, self.round)
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} -> {:?}", self.request, self.reply_to)
    }
}
