//! Waiting without polling, against real servers: who is woken by what, and what happens when hints
//! fail to come.
//!
//! Waiters here would ask again by the clock only after `NEVER`, and while hints work after about a
//! second, so what happens sooner was a hint.

#[path = "../real/mod.rs"]
mod real;

mod fallback;
mod line;
mod woken;

use std::time::{Duration, Instant};

use leasehold::{AcquireError, Guard, Locks, ReleaseOutcome, RetryPolicy};
use leasehold_testkit::{RedisServer, Value};
use real::{Cluster, LONG, secs, within};
use tokio::task::JoinHandle;

/// Longer than any test.
const NEVER: RetryPolicy = RetryPolicy { first: secs(600), longest: secs(600), attempts: None };

/// Waits for the lock in a task of its own, and tells when it got it.
fn wait_for(
    locks: &Locks,
    name: &str,
    retry: RetryPolicy,
) -> JoinHandle<Result<(Guard, Instant), AcquireError>> {
    let request = locks.lock(name).ttl(LONG).wait(secs(60)).retry(retry);
    tokio::spawn(async move { request.acquire().await.map(|guard| (guard, Instant::now())) })
}

async fn give_back(guard: Guard) {
    let outcome = guard.release().await;
    assert!(matches!(outcome, ReleaseOutcome::Released), "{outcome:?}");
}

fn number(server: &RedisServer, command: &[&str]) -> i64 {
    match server.command(command) {
        Ok(Value::Int(number)) => number,
        other => panic!("{command:?}: {other:?}"),
    }
}

/// How many stand in line on the servers that run.
fn in_line(cluster: &Cluster, name: &str) -> i64 {
    let line = format!("leasehold:line:leasehold:lock:{name}");
    let running = cluster.servers.iter().filter(|server| server.is_running());
    running.map(|server| number(server, &["ZCARD", &line])).sum()
}

/// Waits until so many stand in line.
async fn until_in_line(cluster: &Cluster, name: &str, count: i64) {
    within(secs(10), "so many stand in line", || in_line(cluster, name) == count).await;
}

/// How many connections of this server watch keys.
fn watching(server: &RedisServer) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]).unwrap();
    let lines = clients.as_text().unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    lines.iter().filter(|line| line.contains("name=leasehold-waits ")).count()
}

/// Waits until somebody watches a key on every server.
async fn until_watched(cluster: &Cluster) {
    let watched = |server: &RedisServer| {
        let info = server.command(&["INFO", "stats"]).unwrap();
        let keys =
            info.as_text().unwrap().lines().find_map(|line| {
                line.strip_prefix("tracking_total_keys:")?.trim().parse::<u64>().ok()
            });
        keys.unwrap() > 0
    };
    within(secs(10), "the lock is watched", || cluster.servers.iter().all(watched)).await;
}

/// Adds up how long it took from each `free` to the acquisition, in so many rounds.
async fn rounds(
    cluster: &Cluster,
    locks: &Locks,
    count: usize,
    mut hold: impl AsyncFnMut(&str),
    mut free: impl AsyncFnMut(&str),
) -> Duration {
    let mut total = Duration::ZERO;
    for round in 0..count {
        let name = format!("l{round}");
        hold(&name).await;
        let waiter = wait_for(locks, &name, NEVER);
        until_in_line(cluster, &name, 1).await;
        // Otherwise it finds the lock free when it begins to watch.
        until_watched(cluster).await;
        let freed = Instant::now();
        free(&name).await;
        let (guard, got) = waiter.await.unwrap().unwrap();
        total += got.saturating_duration_since(freed);
        give_back(guard).await;
    }
    total
}
