//! Asking one node and waiting for its answer, on each kind of server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::node::{Ask, Node, ReplySink, ReplyTo};
use leasehold::nodes::redis::{self, DEFAULT_PREFIX, RedisNode};
use leasehold_core::{
    Answer, Facts, Fence, Fingerprint, Holder, LockName, MemberName, NodeError, Origin, Pass,
    Record, RecordState, Reply, Request, Ttl, WallMicros,
};
use leasehold_testkit::{Need, RedisServer, Value, skip};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Long enough for a machine that compiles on all cores.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One waiting place.
pub(crate) struct Seat {
    sender: Mutex<Option<oneshot::Sender<Answer>>>,
    wanted: AtomicBool,
}

impl Seat {
    pub(crate) fn new() -> (Arc<Self>, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Arc::new(Self { sender: Mutex::new(Some(sender)), wanted: true.into() }), receiver)
    }

    pub(crate) fn give_up(&self) {
        self.wanted.store(false, Ordering::SeqCst);
    }
}

impl ReplySink for Seat {
    fn answer(&self, _: usize, _: u32, answer: Answer) {
        let sender = self.sender.lock().unwrap().take().expect("one answer only");
        let _ = sender.send(answer);
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }
}

pub(crate) fn connect(url: &str) -> RedisNode {
    connect_with(url, DEFAULT_PREFIX)
}

pub(crate) fn connect_with(url: &str, prefix: &str) -> RedisNode {
    let (mut nodes, others) = redis::parse_url(url).unwrap();
    assert!(nodes.len() == 1 && others.is_empty());
    RedisNode::connect(nodes.remove(0), prefix.into(), PATIENCE, Handle::current()).unwrap()
}

/// Hands a request over; the answer comes later.
pub(crate) fn start(
    node: &RedisNode,
    request: Request,
    pass: Option<&Pass>,
    limit: Duration,
) -> (Arc<Seat>, oneshot::Receiver<Answer>) {
    let (seat, receiver) = Seat::new();
    let reply_to = ReplyTo::new(seat.clone(), 0, 0);
    node.ask(Ask::new(Arc::new(request), pass.cloned().map(Arc::new), reply_to, limit));
    (seat, receiver)
}

pub(crate) async fn ask(node: &RedisNode, request: Request, pass: Option<&Pass>) -> Answer {
    wait(start(node, request, pass, PATIENCE).1).await
}

pub(crate) async fn wait(receiver: oneshot::Receiver<Answer>) -> Answer {
    tokio::time::timeout(PATIENCE, receiver).await.expect("an answer in time").expect("an answer")
}

/// Asks until the node answers with facts: it may be connecting.
pub(crate) async fn facts(node: &RedisNode) -> Facts {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match ask(node, Request::Probe, None).await {
            Ok(Reply::Facts(facts)) => return *facts,
            other if std::time::Instant::now() > until => panic!("{other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Writes an identity record with this floor and returns what goes with it.
pub(crate) async fn admit(node: &RedisNode, floor: u64) -> Pass {
    let facts = facts(node).await;
    let expected = facts.record.map(Into::into);
    let record: Arc<str> = record(floor).into();
    let request = Request::ReplaceRecord { expected, record: record.clone() };
    assert_eq!(ask(node, request, None).await, Ok(Reply::Record { replaced: true }));
    pass(&record, facts.generation, floor)
}

pub(crate) fn pass(record: &str, generation: u64, floor: u64) -> Pass {
    let max_ttl = Duration::from_secs(30);
    Pass { record: record.into(), generation, floor: fence(floor), max_ttl, has_waited: true }
}

pub(crate) fn record(floor: u64) -> String {
    let record = Record {
        cluster: Fingerprint::of_members(["a"]),
        nodes: 1,
        member: MemberName::of_one(),
        max_ttl: Duration::from_secs(30),
        life: 7,
        run_id: "r".into(),
        replication_id: "-".into(),
        origin: Origin::First,
        state: RecordState::Admitted,
        floor: fence(floor),
        born: WallMicros(1),
        waits: None,
        clocks: Vec::new(),
    };
    record.to_string()
}

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

pub(crate) fn lock(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn holder(number: u128) -> Holder {
    Holder::new("me", number).unwrap()
}

pub(crate) fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(600)).unwrap()
}

pub(crate) fn acquire(name: &str, who: u128, proposal: u64) -> Request {
    let (lock, holder, proposal) = (lock(name), holder(who), fence(proposal));
    Request::Acquire { lock, holder, proposal, ttl: ttl() }
}

pub(crate) fn extend(name: &str, who: u128, token: u64) -> Request {
    let (lock, holder, token) = (lock(name), holder(who), fence(token));
    Request::Extend { lock, holder, token, next: token, unbroken: false, ttl: ttl() }
}

pub(crate) fn release(name: &str, who: u128) -> Request {
    Request::Release { lock: lock(name), holder: holder(who) }
}

pub(crate) fn force_release(name: &str, who: u128, seen: u64) -> Request {
    Request::ForceRelease {
        lock: lock(name),
        holder: holder(who),
        fence: fence(seen),
        reason: None,
    }
}

pub(crate) fn key(name: &str) -> String {
    format!("{DEFAULT_PREFIX}{name}")
}

/// The words of an error.
pub(crate) fn words(answer: Answer) -> String {
    answer.expect_err("an error").to_string()
}

#[track_caller]
pub(crate) fn assert_garbled(answer: &Answer) {
    assert!(matches!(answer, Err(NodeError::Garbled { .. })), "{answer:?}");
}

/// How often the server has carried out `command`.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let info = server.command(&["INFO", "commandstats"]).unwrap();
    let Value::Text(info) = info else { panic!("{info:?}") };
    let field = format!("cmdstat_{command}:calls=");
    let Some(line) = info.lines().find_map(|line| line.strip_prefix(field.as_str())) else {
        return 0;
    };
    line.split(',').next().unwrap().parse().unwrap()
}

/// Redis, an old one and Valkey, each spoken to in both versions of the protocol.
pub(crate) fn every_server() -> Vec<(RedisServer, &'static str)> {
    let mut servers = Vec::new();
    for (need, builder) in [
        (Need::Redis, RedisServer::redis()),
        (Need::OldRedis, RedisServer::old_redis()),
        (Need::Valkey, RedisServer::valkey()),
    ] {
        if !skip(need) {
            servers.push((builder.clone().start(), "?protocol=3"));
            servers.push((builder.start(), "?protocol=2"));
        }
    }
    servers
}

/// Redis, an old one, and Valkey with its own compare-and-delete.
pub(crate) fn each_server() -> Vec<RedisServer> {
    every_server().into_iter().step_by(2).map(|(server, _)| server).collect()
}
