//! Other people's clients on the same keys and the same servers: held by them we are refused, held
//! by us they are refused.

mod real;

use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testkit::{Answer, Need, Peer, skip};
use real::{Cluster, LONG, PATIENCE, ms, secs};

/// Somebody else's lock library.
enum Other {
    Peer(Peer),
    Rslock { manager: rslock::LockManager, held: Option<rslock::Lock> },
}

impl Other {
    async fn acquire(&mut self, name: &str) -> bool {
        match self {
            Self::Peer(peer) => match tokio::task::block_in_place(|| peer.acquire(name, LONG)) {
                Answer::Ok => true,
                Answer::Busy => false,
                Answer::Error(error) => panic!("{error}"),
            },
            Self::Rslock { manager, held } => {
                *held = manager.lock(name, LONG).await.ok();
                held.is_some()
            }
        }
    }

    async fn release(&mut self, name: &str) {
        match self {
            Self::Peer(peer) => tokio::task::block_in_place(|| peer.release(name)).unwrap(),
            Self::Rslock { manager, held } => manager.unlock(&held.take().unwrap()).await,
        }
    }
}

/// Both ways round, twice. `prefix` is what the other puts before the name.
async fn excludes(cluster: &Cluster, prefix: &str, mut other: Other) {
    let url = format!("{}?prefix={prefix}", cluster.url());
    let locks = Locks::builder().url(url).timeout(PATIENCE).trust_new_nodes().open().await.unwrap();
    real::votes(&locks, cluster.servers.len()).await;
    for turn in 0..2 {
        let name = format!("job-{turn}");
        let ours = locks.lock(&name).ttl(LONG).acquire().await.unwrap();
        assert!(!other.acquire(&name).await, "they got what we hold");
        assert!(ours.extend().await.is_ok(), "and did not harm it");
        let _ = ours.release().await;

        acquire_eventually(&mut other, &name).await;
        assert!(locks.lock(&name).ttl(LONG).try_acquire().await.unwrap().is_none());
        let error = locks.lock(&name).ttl(LONG).wait(ms(20)).acquire().await.unwrap_err();
        assert!(error.to_string().contains("another library's lock"), "{error}");
        other.release(&name).await;
        let again = locks.lock(&name).ttl(LONG).wait(secs(5)).acquire().await;
        assert!(again.is_ok(), "{again:?}");
    }
}

/// Our release is confirmed by a quorum; the rest may be a moment behind.
async fn acquire_eventually(other: &mut Other, name: &str) {
    let start = Instant::now();
    while !other.acquire(name).await {
        assert!(start.elapsed() < secs(5), "they do not get what is free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_we_exclude_each_other_on_one_node() {
    if skip(Need::PythonPeers) {
        return;
    }
    let cluster = Cluster::of(1);
    let peer = Peer::python("redis-py", &cluster.addrs());
    excludes(&cluster, "", Other::Peer(peer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_py_and_we_exclude_each_other() {
    if skip(Need::PythonPeers) {
        return;
    }
    let cluster = Cluster::of(5);
    let peer = Peer::python("redlock-py", &cluster.addrs());
    excludes(&cluster, "", Other::Peer(peer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pottery_and_we_exclude_each_other() {
    if skip(Need::PythonPeers) {
        return;
    }
    let cluster = Cluster::of(5);
    let peer = Peer::python("pottery", &cluster.addrs());
    excludes(&cluster, "redlock:", Other::Peer(peer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_we_exclude_each_other() {
    if skip(Need::NodePeers) {
        return;
    }
    let cluster = Cluster::of(5);
    let peer = Peer::node("redlock", &cluster.addrs());
    excludes(&cluster, "", Other::Peer(peer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_semaphore_and_we_exclude_each_other() {
    if skip(Need::NodePeers) {
        return;
    }
    let cluster = Cluster::of(5);
    let peer = Peer::node("redis-semaphore", &cluster.addrs());
    excludes(&cluster, "mutex:", Other::Peer(peer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rslock_and_we_exclude_each_other() {
    let cluster = Cluster::of(5);
    let urls = cluster.addrs().into_iter().map(|addr| format!("redis://{addr}/")).collect();
    let mut manager = rslock::LockManager::new(urls);
    manager.set_retry(1, Duration::ZERO);
    excludes(&cluster, "", Other::Rslock { manager, held: None }).await;
}
