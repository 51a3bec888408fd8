//! How each backend is started and how further clients reach the same locks.

use std::any::Any;
use std::sync::Arc;

use leasehold::clock::SystemClock;
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{Builder, Holder, Locks, Owner, ReleaseOutcome};
use leasehold_server::{Server, Settings};
use leasehold_testkit::{Need, RedisServer, ServerBuilder};
use sha2::{Digest as _, Sha256};

/// A backend under test.
pub(crate) struct Backend {
    client: Box<dyn Fn() -> Builder + Send + Sync>,
    pub(crate) nodes: usize,
    /// How a holder is shown to others.
    pub(crate) shown: fn(&Holder) -> Owner,
    /// What a release says that is repeated at once.
    pub(crate) released_again: ReleaseOutcome,
    /// Servers and folders that must live as long as the test.
    _alive: Box<dyn Any + Send + Sync>,
}

impl Backend {
    fn new<A: Any + Send + Sync>(
        nodes: usize,
        alive: A,
        client: impl Fn() -> Builder + Send + Sync + 'static,
    ) -> Self {
        Self {
            client: Box::new(client),
            nodes,
            shown: |holder| Owner::Holder(holder.clone()),
            released_again: ReleaseOutcome::AlreadyExpired,
            _alive: Box::new(alive),
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
            ..Self::new(1, (server, self), client)
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
    let node: Arc<dyn Node> =
        Arc::new(MemoryNode::new(NodeId::new("memory"), Arc::new(SystemClock)));
    Some(Backend::new(1, (), move || Locks::builder().nodes(vec![node.clone()])))
}

pub(crate) async fn sqlite() -> Option<Backend> {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    Some(Backend::new(1, folder, move || Locks::builder().url(&url)))
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
    Some(Backend::new(count, servers, client))
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
