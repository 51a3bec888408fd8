//! How each backend is started and how further clients reach the same locks.

use std::any::Any;
use std::sync::{Arc, Mutex};

use leasehold::clock::SystemClock;
use leasehold::node::{Ask, Node, NodeId, OnNudge, OnPlace, OnWatched, Place, Ticket, Watch};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{Builder, Holder, LockName, Locks, Owner, ReleaseOutcome};
use leasehold_server::{Server, Settings};
use leasehold_testkit::{Need, RedisServer, ServerBuilder};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

/// A backend under test.
pub(crate) struct Backend {
    client: Box<dyn Fn() -> Builder + Send + Sync>,
    pub(crate) nodes: usize,
    /// How a holder is shown to others.
    pub(crate) shown: fn(&Holder) -> Owner,
    /// What a release says that is repeated at once.
    pub(crate) released_again: ReleaseOutcome,
    /// With `true` so many nodes stop that the rest is no quorum; with `false` they go on, and carry out
    /// what they were asked meanwhile.
    pub(crate) hang: Arc<dyn Fn(bool) + Send + Sync>,
    /// Whether what writes nothing is answered meanwhile.
    pub(crate) reads_while_it_hangs: bool,
    /// Servers and folders that must live as long as the test.
    _alive: Arc<dyn Any + Send + Sync>,
}

impl Backend {
    fn new<A: Any + Send + Sync>(
        nodes: usize,
        alive: A,
        hang: impl Fn(&A, bool) + Send + Sync + 'static,
        client: impl Fn() -> Builder + Send + Sync + 'static,
    ) -> Self {
        let alive = Arc::new(alive);
        let hanging = alive.clone();
        Self {
            client: Box::new(client),
            nodes,
            shown: |holder| Owner::Holder(holder.clone()),
            released_again: ReleaseOutcome::AlreadyExpired,
            hang: Arc::new(move |hangs| hang(&hanging, hangs)),
            reads_while_it_hangs: false,
            _alive: alive,
        }
    }

    /// The same locks, through a lock server.
    async fn behind_a_server(self) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(self.open().await, Settings::default(), listener).unwrap();
        let url = format!("http://{}", server.address());
        let client = move || Locks::builder().url(&url);
        Self {
            shown: shown_by_a_server,
            // The answer to the first may have got lost.
            released_again: ReleaseOutcome::Released,
            reads_while_it_hangs: self.reads_while_it_hangs,
            ..Self::new(1, (server, self), |(_, behind), hangs| (behind.hang)(hangs), client)
        }
    }

    /// Another client of the same locks.
    pub(crate) async fn open(&self) -> Locks {
        self.builder().open().await.expect("open")
    }

    /// Another client, with settings of its own.
    pub(crate) fn builder(&self) -> Builder {
        (self.client)()
    }
}

pub(crate) async fn memory() -> Option<Backend> {
    let node = MemoryNode::new(NodeId::new("memory"), Arc::new(SystemClock));
    let node = Arc::new(Hanging { node, backlog: Mutex::default() });
    let hang = |node: &Arc<Hanging>, hangs| node.hang(hangs);
    Some(Backend::new(1, node.clone(), hang, move || Locks::builder().nodes(vec![node.clone()])))
}

pub(crate) async fn sqlite() -> Option<Backend> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    let blocker = Mutex::new(None);
    // What could not be written within its limit is not written at all.
    let hang = move |_: &tempfile::TempDir, hangs: bool| {
        *blocker.lock().unwrap() = hangs.then(|| {
            let blocker = rusqlite::Connection::open(&file).unwrap();
            blocker.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
            blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
            blocker
        });
    };
    let backend = Backend::new(1, folder, hang, move || Locks::builder().url(&url));
    Some(Backend { reads_while_it_hangs: true, ..backend })
}

pub(crate) async fn one_redis() -> Option<Backend> {
    servers(Need::Redis, RedisServer::redis(), 1)
}

pub(crate) async fn five_redis() -> Option<Backend> {
    servers(Need::Redis, RedisServer::redis(), 5)
}

pub(crate) async fn one_old_redis() -> Option<Backend> {
    servers(Need::OldRedis, RedisServer::old_redis(), 1)
}

pub(crate) async fn one_valkey() -> Option<Backend> {
    servers(Need::Valkey, RedisServer::valkey(), 1)
}

fn servers(need: Need, server: ServerBuilder, count: usize) -> Option<Backend> {
    if leasehold_testkit::skip(need) {
        return None;
    }
    let servers = server.start_many(count);
    let addrs: Vec<_> = servers.iter().map(RedisServer::addr).collect();
    let url = format!("redis://{}", addrs.join(","));
    // Patient, because the machine may be busy with other tests.
    let client = move || {
        Locks::builder().url(&url).timeout(std::time::Duration::from_secs(1)).trust_new_nodes()
    };
    let hang = |servers: &Vec<RedisServer>, hangs: bool| {
        for server in servers.iter().take(servers.len() / 2 + 1) {
            if hangs { server.pause() } else { server.resume() }
        }
    };
    Some(Backend::new(count, servers, hang, client))
}

pub(crate) async fn server_on_sqlite() -> Option<Backend> {
    Some(sqlite().await?.behind_a_server().await)
}

pub(crate) async fn server_on_one_redis() -> Option<Backend> {
    Some(one_redis().await?.behind_a_server().await)
}

pub(crate) async fn server_on_five_redis() -> Option<Backend> {
    Some(five_redis().await?.behind_a_server().await)
}

/// With a digest in place of the random part, with which the lease could be released.
fn shown_by_a_server(holder: &Holder) -> Owner {
    let digest = Sha256::digest(holder.as_str());
    let nonce = u128::from_be_bytes(digest[..16].try_into().unwrap());
    Owner::Holder(Holder::new(holder.label(), nonce).unwrap())
}

/// A memory node that stands still at times, as a server that is stopped does.
struct Hanging {
    node: MemoryNode,
    backlog: Mutex<Option<Vec<Ask>>>,
}

impl Hanging {
    fn hang(&self, hangs: bool) {
        let mut backlog = self.backlog.lock().unwrap();
        let asked = std::mem::replace(&mut *backlog, hangs.then(Vec::new));
        asked.into_iter().flatten().for_each(|ask| self.node.ask(ask));
    }
}

impl Node for Hanging {
    fn id(&self) -> &NodeId {
        self.node.id()
    }

    fn ask(&self, ask: Ask) {
        match &mut *self.backlog.lock().unwrap() {
            Some(backlog) => backlog.push(ask),
            None => self.node.ask(ask),
        }
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.node.generation()
    }

    fn watch(&self, lock: &LockName, told: OnWatched) -> Option<Watch> {
        self.node.watch(lock, told)
    }

    fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> Option<Box<dyn Place>> {
        self.node.stand_in_line(lock, ticket, told)
    }

    fn on_nudge(&self, told: OnNudge) {
        self.node.on_nudge(told);
    }
}
