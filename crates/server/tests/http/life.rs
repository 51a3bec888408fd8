//! From the start to the end.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::support::{Running, eventually};

#[tokio::test]
async fn shutting_down_answers_everybody_and_leaves_nothing_behind() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut waiters = Vec::new();
    for _ in 0..20 {
        let mut connection = running.connect().await;
        connection.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 30000}"#).await;
        waiters.push(connection);
    }
    eventually("all wait", async || {
        running.ask("GET", "/v1/locks/l", "").await.json["waiters"] == 20
    })
    .await;
    let mut stream = running.connect().await;
    stream.send("GET", "/v1/events", &[], "").await;
    assert!(stream.until(b"event: hello").await.is_some());
    let mut idle = running.connect().await;
    let address = running.server.address();
    let start = std::time::Instant::now();
    assert!(running.server.stop().await, "in time");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for waiter in &mut waiters {
        let answer = waiter.answer().await;
        assert_eq!((answer.status, answer.problem()), (503, "shutting-down"));
        assert!(answer.header("retry-after").is_some());
    }
    assert!(stream.until(b"never sent").await.is_none());
    assert!(idle.until(b"never sent").await.is_none());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens");
    // The holder's lease is not ours to give back; its id is good at any other instance.
    let status = running.locks.inspect("l").await.unwrap();
    assert!(status.holder().is_some() && !id.is_empty());
}

#[tokio::test]
async fn whoever_asks_after_the_end_was_announced_is_served_and_told_to_connect_anew() {
    let running = Running::new().await;
    let mut kept = running.connect().await;
    assert_eq!(kept.ask("GET", "/readyz", &[], "").await.status, 200);
    running.server.announce_end();
    let ready = running.ask("GET", "/readyz", "").await;
    assert_eq!((ready.status, &ready.json["status"]), (503, &"draining".into()));
    assert_eq!(running.ask("GET", "/readyz?ignore=quorum", "").await.status, 503);
    let granted = kept.ask("POST", "/v1/locks/l/leases", &[], "{}").await;
    assert_eq!((granted.status, granted.header("connection")), (201, Some("close")), "{granted:?}");
    assert!(kept.until(b"never sent").await.is_none());
    assert_eq!(running.ask("POST", "/v1/locks/m/leases", "{}").await.status, 201);
    assert!(running.server.stop().await, "in time");
}

#[tokio::test]
async fn who_asks_while_it_shuts_down_is_told_so() {
    let running = Running::new().await;
    // Two requests that are not complete yet.
    let (mut acquire, mut ready) = (running.connect().await, running.connect().await);
    let head = "POST /v1/locks/l/leases HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                Content-Type: application/json\r\nContent-Length: 2\r\n\r\n";
    acquire.stream.write_all(head.as_bytes()).await.unwrap();
    ready.stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n").await.unwrap();
    eventually("it reads", async || running.metric("http_requests_in_flight").await == 2.0).await;
    let Running { server, locks, .. } = running;
    let address = server.address();
    let stopping = tokio::spawn(server.stop());
    let is_refused = async || tokio::net::TcpStream::connect(address).await.is_err();
    eventually("it takes no more connections", is_refused).await;
    acquire.stream.write_all(b"{}").await.unwrap();
    let answer = acquire.answer().await;
    assert_eq!((answer.status, answer.problem()), (503, "shutting-down"));
    ready.stream.write_all(b"\r\n").await.unwrap();
    let answer = ready.answer().await;
    assert_eq!((answer.status, &answer.json["status"]), (503, &"draining".into()));
    assert!(stopping.await.unwrap(), "in time");
    assert!(locks.inspect("l").await.unwrap().owner().is_none(), "nothing was granted");
}

#[tokio::test]
async fn shutting_down_takes_no_longer_than_it_may() {
    let running =
        Running::with(|settings| settings.limits.drain = Duration::from_millis(100)).await;
    // A request whose body never comes.
    let mut stuck = running.connect().await;
    let head = "POST /v1/locks/l/leases HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                Content-Type: application/json\r\nContent-Length: 9\r\n\r\n";
    stuck.stream.write_all(head.as_bytes()).await.unwrap();
    eventually("it reads", async || running.metric("http_requests_in_flight").await == 2.0).await;
    let start = std::time::Instant::now();
    assert!(!running.server.stop().await, "one is not answered");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn readiness_is_a_quorum_and_health_is_a_process() {
    let running = Running::new().await;
    let ready = running.ask("GET", "/readyz", "").await;
    assert_eq!((ready.status, &ready.json["status"]), (200, &"ready".into()));
    assert_eq!(running.ask("GET", "/healthz", "").await.json["status"], "ok");
    // No node answers at this address.
    let url = "redis://127.0.0.1:1";
    let locks = leasehold::Locks::open(url).await.unwrap();
    let without = Running::on(locks, Default::default());
    let ready = without.ask("GET", "/readyz", "").await;
    assert_eq!((ready.status, &ready.json["status"]), (503, &"no-quorum".into()));
    assert_eq!(without.ask("GET", "/healthz", "").await.status, 200);
    let reachable = without.ask("GET", "/readyz?ignore=quorum", "").await;
    assert_eq!((reachable.status, &reachable.json["status"]), (200, &"ready".into()));
    let odd = without.ask("GET", "/readyz?ignore=all", "").await;
    assert_eq!((odd.status, odd.problem()), (422, "invalid"));
    let refused = without.ask("POST", "/v1/locks/l/leases", "").await;
    assert_eq!((refused.status, refused.problem()), (503, "no-quorum"));
    assert_eq!((&refused.json["available"], &refused.json["quorum"]), (&0.into(), &1.into()));
    let reason = refused.json["nodes"][0]["error"].as_str().unwrap();
    assert!(reason.contains("refused") || reason.contains("reach"), "{reason}");
    assert!(refused.header("retry-after").is_some());
}
