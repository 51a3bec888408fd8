//! What nodes tell those who wait: one body of cases for every backend that tells something.
//!
//! To add a backend, write how two processes reach one node of it and add one line at the end of
//! this file.

#[path = "../asking/mod.rs"]
mod asking;
mod cases;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::SystemClock;
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::nodes::redis::{self, DEFAULT_PREFIX, RedisNode};
use leasehold::nodes::sqlite::SqliteNode;
use leasehold_testkit::{Need, RedisServer, ServerBuilder};

/// One node, as two processes reach it; `ana` opened the first and `ben` the second.
pub(crate) struct Backend {
    pub(crate) ana: Arc<dyn Node>,
    pub(crate) ben: Arc<dyn Node>,
    /// A server that must live as long as the test.
    _alive: Box<dyn Any>,
}

fn memory() -> Option<Backend> {
    let node: Arc<dyn Node> =
        Arc::new(MemoryNode::new(NodeId::new("memory"), Arc::new(SystemClock)));
    Some(Backend { ana: node.clone(), ben: node, _alive: Box::new(()) })
}

fn one_file() -> Option<Backend> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let open = || Arc::new(SqliteNode::open(&path, Arc::new(SystemClock)).unwrap());
    Some(Backend { ana: open(), ben: open(), _alive: Box::new(folder) })
}

fn one_redis() -> Option<Backend> {
    server(Need::Redis, RedisServer::redis())
}

fn one_valkey() -> Option<Backend> {
    server(Need::Valkey, RedisServer::valkey())
}

fn server(need: Need, builder: ServerBuilder) -> Option<Backend> {
    if leasehold_testkit::skip(need) {
        return None;
    }
    let server = builder.start();
    let config = redis::parse_url(&server.url()).unwrap().0.remove(0);
    let connect = |label| {
        let (config, runtime) = (config.clone().labelled(label), tokio::runtime::Handle::current());
        let limit = Duration::from_secs(10);
        Arc::new(RedisNode::connect(config, DEFAULT_PREFIX.into(), limit, runtime).unwrap())
    };
    Some(Backend { ana: connect("ana"), ben: connect("ben"), _alive: Box::new(server) })
}

/// Every case as a test of every backend.
macro_rules! hints {
    ($backend:ident) => {
        mod $backend {
            hints!(@cases $backend:
                a_watch_on_a_free_lock_is_told_at_once,
                a_watch_is_told_when_the_lock_is_given_back,
                a_watch_that_is_over_is_told_nothing,
                those_in_line_become_first_in_their_order,
                a_ticket_keeps_its_place,
                locks_have_lines_of_their_own,
                a_nudge_is_heard_by_the_holder,
            );
        }
    };
    (@cases $backend:ident: $($case:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(backend) = $crate::$backend() else { return };
                tokio::task::block_in_place(|| $crate::cases::$case(&backend));
            }
        )*
    };
}

hints!(memory);
hints!(one_redis);
hints!(one_valkey);

/// Here nobody nudges: a process that gives the lock back sees the line.
mod one_file {
    hints!(@cases one_file:
        a_watch_on_a_free_lock_is_told_at_once,
        a_watch_is_told_when_the_lock_is_given_back,
        a_watch_that_is_over_is_told_nothing,
        those_in_line_become_first_in_their_order,
        a_ticket_keeps_its_place,
        locks_have_lines_of_their_own,
    );
}
