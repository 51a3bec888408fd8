//! Five real Redis servers for a test, reached directly or through proxies that misbehave on
//! demand.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::{Duration, Instant};

use leasehold::clock::{Clock, SystemClock};
use leasehold::{Builder, Locks};
use leasehold_testkit::{Fault, Proxy, RedisServer};

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Long enough that nothing expires while a slow machine runs a test.
pub(crate) const LONG: Duration = secs(20);

/// How long a node may take in these tests: the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = secs(1);

pub(crate) struct Cluster {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Cluster {
    /// Reached directly.
    pub(crate) fn of(count: usize) -> Self {
        Self { servers: RedisServer::redis().start_many(count), proxies: Vec::new() }
    }

    /// Each behind a proxy.
    pub(crate) fn behind_proxies(count: usize) -> Self {
        let servers = RedisServer::redis().start_many(count);
        let proxies = servers.iter().map(|server| Proxy::to(server.addr())).collect();
        Self { servers, proxies }
    }

    pub(crate) fn addrs(&self) -> Vec<String> {
        match self.proxies.as_slice() {
            [] => self.servers.iter().map(RedisServer::addr).collect(),
            proxies => proxies.iter().map(Proxy::addr).collect(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addrs().join(","))
    }

    /// A client that trusts the servers to be new.
    pub(crate) fn client(&self) -> Builder {
        Locks::builder().url(self.url()).timeout(PATIENCE).trust_new_nodes()
    }

    pub(crate) async fn open(&self) -> Locks {
        self.client().open().await.expect("open")
    }

    /// Puts a fault in force on the proxies `which`.
    pub(crate) fn fault(&self, which: std::ops::Range<usize>, fault: &Fault) {
        self.proxies[which].iter().for_each(|proxy| proxy.set(fault.clone()));
    }

    /// The keys of locks that stand on each server that answers.
    pub(crate) fn keys(&self) -> Vec<Vec<String>> {
        self.servers.iter().filter(|server| server.is_running()).map(lock_keys).collect()
    }
}

/// The keys of locks that stand on a server.
pub(crate) fn lock_keys(server: &RedisServer) -> Vec<String> {
    match server.command(&["KEYS", "leasehold:lock:*"]) {
        Ok(leasehold_testkit::Value::Array(keys)) => {
            keys.iter().filter_map(|key| key.as_text()).map(str::to_owned).collect()
        }
        other => panic!("KEYS: {other:?}"),
    }
}

/// Waits until `is_true`, at most for `limit`.
pub(crate) async fn within(limit: Duration, what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

/// Waits until this many nodes vote.
pub(crate) async fn votes(locks: &Locks, count: usize) {
    let up = |locks: &Locks| {
        let nodes = locks.nodes();
        nodes.iter().filter(|node| node.state == leasehold::NodeState::Up).count()
    };
    let start = Instant::now();
    while up(locks) != count {
        assert!(start.elapsed() < secs(10), "not {count} votes within 10 s: {:#?}", locks.nodes());
        tokio::time::sleep(ms(5)).await;
    }
}

/// A wall clock that is wrong.
#[derive(Debug)]
pub(crate) struct WrongWall {
    pub(crate) offset_secs: i64,
}

impl Clock for WrongWall {
    fn now(&self) -> leasehold_core::Moment {
        SystemClock.now()
    }
    fn wall(&self) -> leasehold_core::WallMicros {
        let wall = SystemClock.wall().0 as i64 + self.offset_secs * 1_000_000;
        leasehold_core::WallMicros(wall as u64)
    }
}
