//! Where no hints come, waiters ask again by the clock, and nothing fails.

use leasehold_testkit::{Need, skip};

use super::real::{PATIENCE, ms};
use super::*;

/// Rights that a user needs for hints, beyond those for locks.
const HINT_RIGHTS: &str = "resetchannels &leasehold:* +publish +subscribe +client|tracking +client|caching +zrange +zcard +pexpire";
/// As in the documentation; another test compares them.
const RIGHTS: &str = "-@all +hello +auth +info +eval +evalsha +time \
    +get +mget +set +del +exists +type +pttl +zadd +zscore +zrem +zscan +zrangebyscore +zrevrangebyscore";

async fn open(url: &str) -> Locks {
    Locks::builder().url(url).timeout(PATIENCE).trust_new_nodes().open().await.unwrap()
}

/// One holds the lock, another waits for it; whether that one stood in line.
async fn is_served(server: &RedisServer, a: &Locks, b: &Locks, name: &str) -> bool {
    let guard = a.lock(name).ttl(LONG).acquire().await.unwrap();
    let waiter = wait_for(b, name, RetryPolicy::DEFAULT);
    let line = format!("leasehold:line:leasehold:lock:{name}");
    let start = Instant::now();
    let mut stood = false;
    // A refused waiter asks again within half a second, so this covers several of its attempts.
    while start.elapsed() < ms(1500) && !stood {
        stood = number(server, &["EXISTS", &line]) == 1;
        tokio::time::sleep(ms(5)).await;
    }
    give_back(guard).await;
    let (guard, _) = waiter.await.unwrap().unwrap();
    give_back(guard).await;
    stood
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_resp2_waiters_ask_again_by_the_clock() {
    let cluster = Cluster::of(1);
    let url = format!("{}?protocol=2", cluster.url());
    let (a, b) = (open(&url).await, open(&url).await);
    assert!(!is_served(&cluster.servers[0], &a, &b, "l").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_bring_hints_and_without_one_of_them_the_clock_serves() {
    for (need, builder, native) in
        [(Need::Redis, RedisServer::redis(), ""), (Need::Valkey, RedisServer::valkey(), "+delifeq")]
    {
        if skip(need) {
            return;
        }
        let user = |name: &str, hints: &str| {
            format!("{name} on >pw ~leasehold:* resetchannels {RIGHTS} {native} {hints}")
        };
        let all: Vec<_> = HINT_RIGHTS.split(' ').collect();
        let mut builder = builder.config("user", &user("full", HINT_RIGHTS));
        for (number, missing) in all.iter().enumerate() {
            let rest: Vec<_> = all.iter().filter(|right| *right != missing).copied().collect();
            builder = builder.config("user", &user(&format!("less{number}"), &rest.join(" ")));
        }
        let server = builder.start();
        let url = |user: &str| format!("redis://{user}:pw@{}", server.addr());
        let holder = open(&url("full")).await;
        assert!(is_served(&server, &holder, &open(&url("full")).await, "full").await);
        for (number, missing) in all.iter().enumerate() {
            let waiter = open(&url(&format!("less{number}"))).await;
            let name = format!("less{number}");
            if ["&leasehold:*", "+subscribe", "+client|tracking"].contains(missing) {
                // It could not be woken there, so it stands in no line.
                assert!(!is_served(&server, &holder, &waiter, &name).await, "without {missing}");
                continue;
            }
            let guard = holder.lock(&name).ttl(LONG).acquire().await.unwrap();
            let waits = wait_for(&waiter, &name, RetryPolicy::DEFAULT);
            tokio::time::sleep(ms(100)).await;
            give_back(guard).await;
            let served = waits.await.unwrap();
            assert!(served.is_ok(), "without {missing}: {served:?}");
        }
    }
}

#[test]
fn the_tested_rights_are_the_documented_ones() {
    let text = include_str!("../../../../docs/backends/redis.md");
    assert!(text.contains(&format!("    {HINT_RIGHTS}\n")));
    assert!(text.contains(RIGHTS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_counts_its_attempts_stands_in_no_line() {
    let cluster = Cluster::of(1);
    let (a, b) = (cluster.open().await, cluster.open().await);
    let _guard = a.lock("l").ttl(LONG).acquire().await.unwrap();
    let retry = RetryPolicy { first: ms(10), longest: ms(10), attempts: Some(5) };
    let refused = wait_for(&b, "l", retry).await.unwrap();
    let error = refused.expect_err("it is held").to_string();
    assert!(error.contains("5 attempt(s)"), "{error}");
    assert_eq!(watching(&cluster.servers[0]), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_may_be_called_like_a_line() {
    let cluster = Cluster::of(1);
    let locks = open(&format!("{}?prefix=", cluster.url())).await;
    for name in ["leasehold:line:x", "leasehold:seen:x", "leasehold:fences:x", "leasehold:node"] {
        let error = locks.lock(name).try_acquire().await.unwrap_err().to_string();
        assert!(error.contains("leasehold's own"), "{error}");
    }
    for name in ["leasehold:lines", "leasehold:lock:x", "line"] {
        assert!(locks.lock(name).try_acquire().await.unwrap().is_some(), "{name}");
    }
}
