//! How each backend is started and how further clients reach the same locks.

use std::any::Any;
use std::sync::Arc;

use leasehold::clock::SystemClock;
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{Builder, Locks};
use leasehold_testkit::{Need, RedisServer, ServerBuilder};

/// A backend under test.
pub(crate) struct Backend {
    client: Box<dyn Fn() -> Builder + Send + Sync>,
    pub(crate) nodes: usize,
    /// Servers and folders that must live as long as the test.
    _alive: Box<dyn Any + Send + Sync>,
}

impl Backend {
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
    let client = move || Locks::builder().nodes(vec![node.clone()]);
    Some(Backend { client: Box::new(client), nodes: 1, _alive: Box::new(()) })
}

pub(crate) async fn sqlite() -> Option<Backend> {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let client = move || Locks::builder().url(&url);
    Some(Backend { client: Box::new(client), nodes: 1, _alive: Box::new(folder) })
}

pub(crate) async fn one_redis() -> Option<Backend> {
    servers(Need::Redis, RedisServer::redis(), 1)
}

pub(crate) async fn five_redis() -> Option<Backend> {
    servers(Need::Redis, RedisServer::redis(), 5)
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
    Some(Backend { client: Box::new(client), nodes: count, _alive: Box::new(servers) })
}
