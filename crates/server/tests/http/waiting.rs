//! Waiting for a lock, and going away meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::support::{Connection, Running, eventually};

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

#[tokio::test]
async fn a_caller_that_waited_is_told_of_no_more_time_than_passed_by_any_clock() {
    let running = Running::new().await;
    let _held = running.acquire("l", r#"{"ttl_ms": 1000}"#).await;
    let start = Instant::now();
    let answer = running.ask("POST", "/v1/locks/l/leases", WAIT).await;
    let waited = start.elapsed();
    assert_eq!(answer.status, 201, "{answer:?}");
    let elapsed = answer.json["elapsed_ms"].as_u64().unwrap();
    assert!(elapsed > 500, "{elapsed}");
    // A clock that is slower by the drift allowance shows so much at least.
    assert!(Duration::from_millis(elapsed) <= waited.mul_f64(0.99), "{elapsed} of {waited:?}");
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

/// What stands behind a request is read only when the request is answered.
#[tokio::test]
async fn a_waiter_that_sent_more_and_closed_leaves_the_queue() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    for more in [1, 5_000, 16 * 1024, 100_000] {
        for closes_its_side_only in [true, false] {
            let mut waiter = running.connect().await;
            waiter.send("POST", "/v1/locks/l/leases", &[], WAIT).await;
            eventually("it waits", async || waiters(&running).await == 1).await;
            waiter.stream.write_all(&vec![b'x'; more]).await.unwrap();
            if closes_its_side_only {
                waiter.stream.shutdown().await.unwrap();
                eventually("it left", async || waiters(&running).await == 0).await;
            }
            drop(waiter);
            eventually("it left", async || waiters(&running).await == 0).await;
        }
    }
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert!(running.is_free("l").await, "nobody took it for somebody who is gone");
}

/// Under TLS what was sent and the end of it come as records.
#[tokio::test]
async fn a_waiter_under_tls_that_sent_more_and_closed_leaves_the_queue() {
    let files = leasehold_testkit::TlsFiles::generate();
    let (cert, key) = (files.server_cert(), files.server_key());
    let tls = leasehold_server::TlsFiles { cert, key, client_ca: None };
    let running = Running::with(|settings| settings.tls = Some(tls)).await;
    let held = running.locks.lock("l").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let waits = async || {
        let mut connection = connect_by_tls(&running, &files).await;
        write(&mut connection, "GET /v1/locks/l HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer.contains("\"waiters\":1,") || answer.contains("\"waiters\":1}")
    };
    let length = WAIT.len();
    let request = format!(
        "POST /v1/locks/l/leases HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{WAIT}"
    );
    for more in [0, 1, 5_000, 16 * 1024, 100_000] {
        for how in ["says so", "closes its side", "is gone"] {
            let mut waiter = connect_by_tls(&running, &files).await;
            write(&mut waiter, &request).await;
            eventually("it waits", &waits).await;
            write(&mut waiter, &"x".repeat(more)).await;
            match how {
                // A close_notify.
                "says so" => waiter.shutdown().await.unwrap(),
                "closes its side" => waiter.get_mut().0.shutdown().await.unwrap(),
                _ => waiter.get_mut().0.set_zero_linger().unwrap(),
            }
            let waiter = (how != "is gone").then_some(waiter);
            eventually(&format!("it left: {more} bytes, {how}"), async || !waits().await).await;
            drop(waiter);
        }
    }
    drop(held.release().await);
    eventually("nobody took it for somebody who is gone", || running.is_free("l")).await;
}

async fn connect_by_tls(
    running: &Running,
    files: &leasehold_testkit::TlsFiles,
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.ca()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(running.server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

async fn write(connection: &mut TlsStream<TcpStream>, text: &str) {
    connection.write_all(text.as_bytes()).await.unwrap();
    connection.flush().await.unwrap();
}

#[tokio::test]
async fn requests_behind_one_that_waits_are_answered_in_turn() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &[], WAIT).await;
    eventually("it waits", async || waiters(&running).await == 1).await;
    // More of them than are read ahead.
    for number in 0..500 {
        waiter.send("POST", "/v1/locks/m/leases", &[], r#"{"holder": "next"}"#).await;
        if number < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert_eq!(waiter.answer().await.json["name"], "l");
    let second = waiter.answer().await;
    assert_eq!((second.status, &second.json["holder"]), (201, &"next".into()), "{second:?}");
    for _ in 1..500 {
        assert_eq!(waiter.answer().await.status, 423);
    }
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
    let running = Running::new().await;
    let (mut connection, body) = (running.connect().await, body_of_an_unread_acquire());
    let last = acquire_without_reading(&running, &mut connection, &body).await;
    reset(connection);
    eventually("it is given back", || running.is_free(&last)).await;
    // Who sends the same request again gets a lease that is good.
    let again = repeat(&running, &last, &body).await;
    assert_eq!(renewed(&running, &again).await, 200);
}

#[tokio::test]
async fn a_lease_that_another_connection_was_told_of_stays_when_the_first_one_breaks() {
    let running = Running::new().await;
    let (mut connection, body) = (running.connect().await, body_of_an_unread_acquire());
    let last = acquire_without_reading(&running, &mut connection, &body).await;
    let told = repeat(&running, &last, &body).await;
    let connections = async || running.metric("http_connections").await;
    eventually("it and the one that asks", async || connections().await == 2.0).await;
    reset(connection);
    eventually("the connection ended", async || connections().await == 1.0).await;
    // Longer than a release takes that is under way by now.
    for _ in 0..100 {
        assert_eq!(renewed(&running, &told).await, 200);
    }
}

/// Who chose the nonce knows the lease id before the answer comes.
#[tokio::test]
async fn a_lease_that_its_caller_renewed_stays_when_the_connection_of_its_grant_breaks() {
    let running = Running::new().await;
    let mut connection = running.connect().await;
    let nonce = |number: u32| format!("{:032x}", number + 1);
    let body = |number| {
        json!({"ttl_ms": 600_000, "holder": "h".repeat(200), "nonce": nonce(number)}).to_string()
    };
    let last =
        without_reading(&running, &mut connection, |number| (String::new(), body(number))).await;
    let number = last.trim_start_matches('l').parse().unwrap();
    let id =
        format!("lease1:1-9007199254740991:600000:{}:{}/{last}", "h".repeat(200), nonce(number));
    use base64::Engine as _;
    let id = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(id);
    assert_eq!(renewed(&running, &id).await, 200);
    let connections = async || running.metric("http_connections").await;
    eventually("it and the one that asks", async || connections().await == 2.0).await;
    reset(connection);
    eventually("the connection ended", async || connections().await == 1.0).await;
    for _ in 0..100 {
        assert_eq!(renewed(&running, &id).await, 200);
    }
}

fn body_of_an_unread_acquire() -> String {
    json!({"ttl_ms": 600_000, "holder": "h".repeat(200)}).to_string()
}

/// Acquires many locks on one connection, whose answers nobody reads, until the kernel takes no more of
/// them. Says the last that was granted: its answer stands in no buffer of the kernel.
async fn acquire_without_reading(
    running: &Running,
    connection: &mut Connection,
    body: &str,
) -> String {
    let request = |number| (format!("Idempotency-Key: l{number}\r\n"), body.to_owned());
    without_reading(running, connection, request).await
}

/// The same, with a header and a body for each number.
async fn without_reading(
    running: &Running,
    connection: &mut Connection,
    request: impl Fn(u32) -> (String, String),
) -> String {
    let count = 20_000;
    let mut sent = 0;
    for number in 0..count {
        let (header, body) = request(number);
        let request = format!(
            "POST /v1/locks/l{number}/leases HTTP/1.1\r\nHost: 127.0.0.1\r\n\
             {header}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let writing = connection.stream.write_all(request.as_bytes());
        if tokio::time::timeout(Duration::from_millis(500), writing).await.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < count, "the answers filled no buffer");
    let granted = running.locks.list("l").await.unwrap();
    let number = |name: &str| name.trim_start_matches('l').parse::<u32>().unwrap();
    let last = granted.iter().map(|status| number(status.name.as_str())).max().unwrap();
    format!("l{last}")
}

fn reset(connection: Connection) {
    connection.stream.set_zero_linger().unwrap();
}

/// Sends the acquire of `name` again, on a connection of its own, and says the id of the lease.
async fn repeat(running: &Running, name: &str, body: &str) -> String {
    let (path, key) = (format!("/v1/locks/{name}/leases"), [("Idempotency-Key", name)]);
    let again = running.connect().await.ask("POST", &path, &key, body).await;
    assert_eq!(again.status, 201, "{again:?}");
    again.json["lease_id"].as_str().unwrap().to_owned()
}

async fn renewed(running: &Running, lease: &str) -> u16 {
    running.ask("POST", &format!("/v1/leases/{lease}/renew"), "").await.status
}
