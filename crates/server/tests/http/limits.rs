//! Nobody can stop the server for everybody else.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Connection, Running, eventually};

#[tokio::test]
async fn too_much_of_anything_is_refused_with_its_own_status() {
    let running = Running::with(|settings| settings.limits.max_body = 1000).await;
    let body = format!(r#"{{"holder": "{}"}}"#, "x".repeat(1000));
    let answer = running.ask("POST", "/v1/locks/l/leases", &body).await;
    assert_eq!((answer.status, answer.problem()), (413, "payload-too-large"));
    // Without a length, in chunks.
    let mut connection = running.connect().await;
    let head = "POST /v1/locks/l/leases HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    connection.stream.write_all(chunk.as_bytes()).await.unwrap();
    let _ = connection.stream.write_all(chunk.as_bytes()).await;
    assert_eq!(connection.answer().await.status, 413);

    let many = running.connect().await.ask("GET", "/healthz", &[("X", "y"); 80], "").await;
    assert_eq!(many.status, 431);
    let long = "y".repeat(20_000);
    let answer = running.connect().await.ask("GET", "/healthz", &[("X", &long)], "").await;
    assert_eq!(answer.status, 431);
    assert_eq!(running.ask("GET", "/healthz", "").await.status, 200);
}

/// A connection that is closed while its peer still sends is reset, and takes the answer along.
#[tokio::test]
async fn whoever_sends_too_large_a_body_can_read_why_it_is_refused() {
    let running = Running::new().await;
    for _ in 0..20 {
        let mut connection = running.connect().await;
        let body = format!(r#"{{"holder": "{}"}}"#, "x".repeat(4_000_000));
        connection.send("POST", "/v1/locks/l/leases", &[], &body).await;
        let answer = connection.answer().await;
        assert_eq!((answer.status, answer.problem()), (413, "payload-too-large"));
        assert!(connection.until(b"never sent").await.is_none(), "the connection ends");
    }
}

#[tokio::test]
async fn waiters_and_requests_are_limited_for_each_caller() {
    let running = Running::with(|settings| {
        settings.limits.max_waiters_per_token = 2;
        settings.limits.max_requests_per_token = 3;
    })
    .await;
    running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let wait = async || {
        let mut connection = running.connect().await;
        connection.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 30000}"#).await;
        connection
    };
    let mut waiters = vec![wait().await, wait().await];
    eventually("both wait", async || {
        running.ask("GET", "/v1/locks/l", "").await.json["waiters"] == 2
    })
    .await;
    let third = wait().await.answer().await;
    assert_eq!((third.status, third.problem()), (429, "too-many-waiters"));
    assert!(third.header("retry-after").is_some());
    let mut stream = running.connect().await;
    stream.send("GET", "/v1/events", &[], "").await;
    assert!(stream.until(b"event: hello").await.is_some());
    let fourth = running.ask("GET", "/v1/locks", "").await;
    assert_eq!((fourth.status, fourth.problem()), (429, "too-many-requests"));
    assert_eq!(running.ask("GET", "/healthz", "").await.status, 200, "health is for everybody");
    waiters.pop();
    eventually("there is room again", async || {
        running.ask("GET", "/v1/locks", "").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn idle_and_never_ending_requests_make_room_for_others() {
    let running = Running::with(|settings| settings.limits.max_connections = 20).await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 30000}"#).await;
    let mut idle = Vec::new();
    for number in 0..60 {
        let mut connection = running.connect().await;
        if number % 2 == 0 {
            // A request that goes on for ever, a line at a time.
            let begun = b"POST /v1/locks/l/leases HTTP/1.1\r\nHost: x\r\nX: ";
            connection.stream.write_all(begun).await.unwrap();
        } else {
            assert_eq!(connection.ask("GET", "/healthz", &[], "").await.status, 200);
        }
        idle.push(connection);
    }
    for _ in 0..50 {
        assert_eq!(running.ask("GET", "/healthz", "").await.status, 200);
    }
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert_eq!(waiter.answer().await.status, 201, "who waits is not idle");
    let open = running.metric("http_connections").await;
    assert!(open <= 25.0, "{open}");
}

#[tokio::test]
async fn when_all_connections_are_busy_one_more_is_told_so() {
    let running = Running::with(|settings| settings.limits.max_connections = 2).await;
    running.locks.lock("l").acquire().await.unwrap().detach();
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut connection = running.connect().await;
        connection.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 2000}"#).await;
        busy.push(connection);
    }
    eventually("one more is refused", async || {
        let mut connection = running.connect().await;
        connection.send("GET", "/healthz", &[], "").await;
        connection.answer().await.status == 429
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_sends_nothing_is_closed_in_time() {
    let running =
        Running::with(|settings| settings.limits.head_within = Duration::from_millis(200)).await;
    let mut silent = running.connect().await;
    let mut slow = running.connect().await;
    slow.stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
    assert!(silent.until(b"never sent").await.is_none());
    let told = slow.until(b"never sent").await;
    assert!(told.is_none(), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_begins_tls_is_closed_in_time() {
    let files = leasehold_testkit::TlsFiles::generate();
    let (cert, key) = (files.server_cert(), files.server_key());
    let tls = leasehold_server::TlsFiles { cert, key, client_ca: None };
    let running = Running::with(|settings| settings.tls = Some(tls)).await;
    let mut silent = running.connect().await;
    let ended = tokio::time::timeout(Duration::from_secs(60), silent.stream.read_u8()).await;
    assert!(ended.expect("a minute is too long").is_err(), "nothing was said");
}

#[tokio::test]
async fn connections_that_never_begin_tls_make_room_for_others() {
    let files = leasehold_testkit::TlsFiles::generate();
    let (cert, key) = (files.server_cert(), files.server_key());
    let tls = leasehold_server::TlsFiles { cert, key, client_ca: None };
    let running = Running::with(|settings| {
        settings.tls = Some(tls);
        settings.limits.max_connections = 20;
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(running.connect().await);
    }
    let mut ended = 0;
    for connection in &mut silent {
        let end = connection.stream.read_u8();
        // Long before a handshake takes too long.
        let end = tokio::time::timeout(Duration::from_millis(50), end).await;
        ended += usize::from(end.is_ok());
    }
    assert!(ended >= 80, "only {ended} of 100 made room, and 20 are the most");
}

#[tokio::test]
async fn ten_thousand_idle_connections_do_not_stop_it() {
    // As many as this process may open, if that is less: both ends of each are ours.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let count = most.map_or(10_000, |most| (most.saturating_sub(200) / 2).min(10_000)) as usize;
    let running = Running::new().await;
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        idle.push(Connection::to(running.server.address()).await);
    }
    eventually("all are there", async || running.metric("http_connections").await >= count as f64)
        .await;
    for _ in 0..100 {
        let (id, _) = running.acquire("l", "").await;
        assert_eq!(running.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status, 204);
    }
    drop(idle);
    eventually("they are gone", async || running.metric("http_connections").await < 10.0).await;
}
