//! The load balancer's configuration, before two real servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use leasehold_testkit::{Daemon, Need, balancer, eventually, http_get, http_send, skip};

use crate::files::{path, text};
use crate::serve::Server;
use crate::support::five_nodes;

/// A check a second, two of which must fail; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

fn haproxy(servers: &[&Server; 2]) -> Daemon {
    balancer(servers.map(Server::addr), 100)
}

fn status(proxy: &Daemon, path: &str) -> u16 {
    http_get(&proxy.addr(), path).map_or(0, |answer| answer.status)
}

/// Requests that wait at a server, as it says.
fn waiters(server: &Server) -> usize {
    let metrics = server.get("/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with("redlock_waiters{"));
    let value = line.and_then(|line| line.rsplit(' ').next()).expect("a gauge");
    value.parse().expect("a number")
}

#[test]
fn haproxy_accepts_its_configuration() {
    if skip(Need::Haproxy) {
        return;
    }
    let mut command = Command::new(Need::Haproxy.path());
    let output = command.arg("-c").arg("-f").arg(path("deploy/haproxy.cfg")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    // The example's names mean nothing here; anything else would be news.
    let warnings = said.lines().filter(|line| line.contains("[WARNING]"));
    for warning in warnings {
        assert!(warning.contains("could not resolve address 'leasehold-"), "{warning}");
    }
}

#[test]
fn a_lock_taken_at_a_server_that_dies_is_renewed_at_the_other() {
    if skip(Need::Redis) || skip(Need::Haproxy) {
        return;
    }
    let (_nodes, url) = five_nodes();
    let mut servers = [Server::start(&url), Server::start(&url)];
    let proxy = haproxy(&servers.each_ref());
    eventually(NOTICED_WITHIN, "a server is ready", || status(&proxy, "/readyz") == 200);
    // One of these names at least belongs to the server that dies.
    let leases: Vec<String> = (0..8)
        .map(|n| {
            let path = format!("/v1/locks/job-{n}/leases");
            let answer = http_send(&proxy.addr(), "POST", &path, r#"{"ttl_ms": 30000}"#).unwrap();
            assert_eq!(answer.status, 201, "{}", answer.body);
            let lease: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            lease["lease_id"].as_str().unwrap().to_owned()
        })
        .collect();
    servers[0].kill();
    for lease in leases {
        let path = format!("/v1/leases/{lease}/renew");
        // Whoever is sent to the dead server before HAProxy knows is refused a connection, and
        // redispatched.
        let answer = http_send(&proxy.addr(), "POST", &path, "{}").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// Whoever knows the id of a lease can release it.
#[test]
fn the_balancers_log_has_no_lease_id() {
    if skip(Need::Redis) || skip(Need::Haproxy) {
        return;
    }
    let (_nodes, url) = five_nodes();
    let servers = [Server::start(&url), Server::start(&url)];
    let proxy = haproxy(&servers.each_ref());
    eventually(NOTICED_WITHIN, "a server is ready", || status(&proxy, "/readyz") == 200);
    let taken = http_send(&proxy.addr(), "POST", "/v1/locks/a%2Fb/leases?x=1", "{}").unwrap();
    assert_eq!(taken.status, 201, "{}", taken.body);
    let lease: serde_json::Value = serde_json::from_str(&taken.body).unwrap();
    let id = lease["lease_id"].as_str().unwrap();
    let ask = |method: &str, path: String, expected: u16| {
        let answer = http_send(&proxy.addr(), method, &path, "").unwrap();
        assert_eq!(answer.status, expected, "{method} {path}: {}", answer.body);
    };
    ask("POST", format!("/v1/leases/{id}/renew"), 200);
    ask("POST", format!("http://{}/v1/leases/{id}/renew?again", proxy.addr()), 200);
    // A client that puts its addresses together wrongly.
    ask("POST", format!("//v1/leases/{id}/renew"), 404);
    ask("DELETE", format!("/v1/leases/{id}"), 204);
    // Lines are written after answers.
    eventually(NOTICED_WITHIN, "all are logged", || proxy.log().contains("\"DELETE /v1/leases/"));
    let log = proxy.log();
    assert!(!log.contains(id), "{log}");
    // It tells all else.
    assert!(log.contains("\"POST /v1/locks/a%2Fb/leases HTTP/1.0\""), "{log}");
    assert!(log.contains("\"POST /v1/leases/-/renew HTTP/1.0\""), "{log}");
    assert!(log.contains("\"DELETE /v1/leases/- HTTP/1.0\""), "{log}");
}

#[test]
fn a_waiter_that_hangs_up_at_the_balancer_leaves_the_line_at_the_server() {
    if skip(Need::Haproxy) {
        return;
    }
    let servers = [Server::start("memory:"), Server::start("memory:")];
    let proxy = haproxy(&servers.each_ref());
    eventually(NOTICED_WITHIN, "a server is ready", || status(&proxy, "/readyz") == 200);
    let path = "/v1/locks/busy/leases";
    let held = http_send(&proxy.addr(), "POST", path, r#"{"ttl_ms": 30000}"#).unwrap();
    assert_eq!(held.status, 201, "{}", held.body);
    let total = || servers.iter().map(waiters).sum::<usize>();

    let body = r#"{"wait_ms": 60000}"#;
    let length = body.len();
    // What stands behind the request is read only when that is answered.
    for more in [0, 1, 5_000] {
        let mut waiter = TcpStream::connect(proxy.addr()).unwrap();
        write!(
            waiter,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        eventually(NOTICED_WITHIN, "one waits", || total() == 1);
        waiter.write_all(&vec![b'x'; more]).unwrap();
        drop(waiter);
        eventually(NOTICED_WITHIN, &format!("nobody waits, {more} bytes"), || total() == 0);
    }
}

#[test]
fn events_come_through_the_balancer_as_they_happen() {
    if skip(Need::Haproxy) {
        return;
    }
    let servers = [Server::start("memory:"), Server::start("memory:")];
    let proxy = haproxy(&servers.each_ref());
    eventually(NOTICED_WITHIN, "a server is ready", || status(&proxy, "/readyz") == 200);
    let mut stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(NOTICED_WITHIN)).unwrap();
    write!(stream, "GET /v1/locks/news/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("the stream goes on"));
    let mut is_told = |event: &str| lines.any(|line| line == format!("event: {event}"));
    assert!(is_told("hello"));
    // Not by the balancer: the stream may come from either server.
    for server in &servers {
        assert_eq!(server.post("/v1/locks/news/leases", "{}").status, 201);
    }
    assert!(is_told("acquired"));
}

#[test]
fn the_balancer_is_more_patient_than_the_longest_wait() {
    let help = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(["serve", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let (_, about) = help.split_once("--max-wait").expect("the option");
    let longest = seconds(about.split_once("[default: ").expect("a default").1);
    let config = text("deploy/haproxy.cfg");
    for timeout in ["timeout client ", "timeout server "] {
        let patience = seconds(config.split_once(timeout).expect("a timeout").1);
        assert!(patience > longest, "{timeout}{patience} s, and one may wait for {longest} s");
    }
}

/// The number at the beginning of `60s…`.
fn seconds(text: &str) -> u64 {
    let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap());
    assert!(rest.starts_with('s'), "{rest}");
    number.parse().unwrap()
}

#[test]
fn without_a_quorum_the_balancer_still_says_which_nodes_are_missing() {
    if skip(Need::Redis) || skip(Need::Haproxy) {
        return;
    }
    let (nodes, url) = five_nodes();
    let servers = [Server::start(&url), Server::start(&url)];
    let proxy = haproxy(&servers.each_ref());
    eventually(NOTICED_WITHIN, "a server is ready", || status(&proxy, "/readyz") == 200);
    nodes[..3].iter().for_each(|node| node.kill());
    // Until then it sends whoever asks to servers that it takes for ready.
    eventually(NOTICED_WITHIN, "HAProxy knows that no server is ready", || {
        proxy.log().contains("has no server available")
    });
    let answer = http_get(&proxy.addr(), "/readyz").unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains(r#""status":"no-quorum""#), "{}", answer.body);
    let refused = http_send(&proxy.addr(), "POST", "/v1/locks/job/leases", "{}").unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("urn:leasehold:problem:no-quorum"), "{}", refused.body);
}
