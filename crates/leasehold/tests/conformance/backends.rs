//! How each backend is started and how further clients reach the same locks.

use std::any::Any;
use std::sync::Arc;

use leasehold::clock::SystemClock;
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{Builder, Locks};

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
