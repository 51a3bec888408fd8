//! Waiting for a lock, and going away meanwhile.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::support::{Running, eventually};

const WAIT: &str = r#"{"ttl_ms": 20000, "wait_ms": 30000}"#;

#[tokio::test]
async fn a_waiter_gets_the_lock_as_soon_as_it_is_released() {
    let running = Running::new().await;
    let (id, fence) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &[], WAIT).await;
    eventually("it waits", async || waiters(&running).await == 1).await;
    let start = Instant::now();
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    let answer = waiter.answer().await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(answer.json["fence"].as_u64().unwrap() > fence);
    // What is left counts from the grant; the time of waiting is told apart.
    let (left, elapsed) = (&answer.json["expires_in_ms"], &answer.json["elapsed_ms"]);
    assert!(left.as_u64().unwrap() > 15_000, "{left}");
    assert!(elapsed.as_u64().unwrap() < 10_000, "{elapsed}");
    assert_eq!(waiters(&running).await, 0);
}

async fn waiters(running: &Running) -> u64 {
    running.ask("GET", "/v1/locks/l", "").await.json["waiters"].as_u64().unwrap()
}

#[tokio::test]
async fn waiting_in_vain_tells_who_holds_it_and_how_many_were_ahead() {
    let running = Running::new().await;
    let _held = running.acquire("l", r#"{"holder": "ana", "ttl_ms": 60000}"#).await;
    let mut first = running.connect().await;
    first.send("POST", "/v1/locks/l/leases", &[], WAIT).await;
    eventually("it waits", async || waiters(&running).await == 1).await;
    let answer = running.ask("POST", "/v1/locks/l/leases", r#"{"wait_ms": 50}"#).await;
    assert_eq!((answer.status, answer.problem()), (423, "lock-held"));
    assert_eq!(answer.json["queue_position"], 1, "{answer:?}");
    assert_eq!(answer.json["holder"], "ana", "{answer:?}");
    assert!(answer.json["waited_ms"].as_u64().unwrap() >= 50, "{answer:?}");
    let timeouts = r#"redlock_acquire_attempts_total{backend="memory",outcome="timeout"}"#;
    assert_eq!(running.metric(timeouts).await, 1.0);
}

#[tokio::test]
async fn a_waiter_whose_connection_closes_leaves_the_queue() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &[], WAIT).await;
    eventually("it waits", async || waiters(&running).await == 1).await;
    drop(waiter);
    eventually("it left", async || waiters(&running).await == 0).await;
    let cancelled = r#"redlock_acquire_attempts_total{backend="memory",outcome="cancelled"}"#;
    assert_eq!(running.metric(cancelled).await, 1.0);
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert!(running.is_free("l").await, "nobody took it for somebody who is gone");
}

#[tokio::test]
async fn a_grant_that_cannot_be_told_is_given_back() {
    let running = Running::new().await;
    for _ in 0..100 {
        let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
        let mut waiter = running.connect().await;
        waiter.send("POST", "/v1/locks/l/leases", &[], WAIT).await;
        eventually("it waits", async || waiters(&running).await == 1).await;
        // A reset, as of a process that was killed; the server hears of both at the same time.
        waiter.stream.set_zero_linger().unwrap();
        drop(waiter);
        let released = running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
        assert_eq!(released.status, 204);
        let start = Instant::now();
        eventually("it is free", || running.is_free("l")).await;
        assert!(start.elapsed() < Duration::from_secs(10), "it ran out by itself");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_no_lease() {
    // Many requests whose answers are not read, on one connection that then breaks: what the kernel did
    // not take is given back.
    let running = Running::new().await;
    let mut connection = running.connect().await;
    let count = 20_000;
    let holder = "h".repeat(200);
    let body = json!({"ttl_ms": 600_000, "holder": holder}).to_string();
    let mut sent = 0;
    for number in 0..count {
        let request = format!(
            "POST /v1/locks/l{number}/leases HTTP/1.1\r\nHost: 127.0.0.1\r\n\
             Idempotency-Key: l{number}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let writing = connection.stream.write_all(request.as_bytes());
        if tokio::time::timeout(Duration::from_millis(500), writing).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < count, "the answers filled no buffer");
    let held = async || {
        let locks = running.locks.list("l").await.unwrap();
        locks.iter().map(|status| status.name.to_string()).collect::<BTreeSet<_>>()
    };
    let granted = held().await;
    connection.stream.set_zero_linger().unwrap();
    drop(connection);
    let given_back = r#"redlock_releases_total{outcome="released"}"#;
    eventually("some are given back", async || running.metric(given_back).await > 0.0).await;
    let kept = held().await;
    let given_back = granted.difference(&kept).next().expect("one that was given back");
    // Who sends the same request again gets a lease that is good.
    let (path, key) =
        (format!("/v1/locks/{given_back}/leases"), [("Idempotency-Key", &**given_back)]);
    let again = running.connect().await.ask("POST", &path, &key, &body).await;
    assert_eq!(again.status, 201, "{again:?}");
    let lease = format!("/v1/leases/{}", again.json["lease_id"].as_str().unwrap());
    assert_eq!(running.ask("GET", &lease, "").await.status, 200);
}
