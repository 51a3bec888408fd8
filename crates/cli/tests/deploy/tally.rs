//! What two servers count together, when each request comes to whichever of them: the tally of a client
//! that keeps one.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::AddAssign;
use std::thread;
use std::time::Duration;

use leasehold_testkit::{Daemon, Need, eventually, http_get, skip};
use serde_json::Value;

use crate::files::{replaced, text};
use crate::serve::Server;
use crate::support::five_nodes;

/// Cycles of acquire, renew and release.
const CYCLES: usize = 2000;
const CLIENTS: usize = 4;
/// One in so many leases is never given back.
const LEFT: usize = 50;
/// Longer than any cycle takes, and short enough to wait for its end.
const TTL_MS: u64 = 4000;
/// The lease that is longest told of, and the rest for a busy machine.
const COUNTED_WITHIN: Duration = Duration::from_secs(40);

/// HAProxy as it is deployed, but each request goes to the next server, which the answer names.
fn in_turns(servers: &[Server; 2]) -> Daemon {
    let config = text("deploy/haproxy.cfg");
    Daemon::haproxy(|addr| {
        let told = "balance roundrobin\n    http-response set-header x-instance %s";
        let servers: Vec<_> = ["one", "two"].iter().zip(servers).collect();
        let server = |at: usize| format!("server {} {}", servers[at].0, servers[at].1.addr());
        [
            ("maxconn 20000", "maxconn 100".to_owned()),
            ("bind :7717\n", format!("bind {addr}\n")),
            ("server leasehold-1 leasehold-1:7717", server(0)),
            ("server leasehold-2 leasehold-2:7717", server(1)),
            ("balance uri\n    hash-type consistent", told.to_owned()),
        ]
        .iter()
        .fold(config.clone(), |config, (from, to)| replaced(&config, from, to))
    })
}

/// What both servers should have counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Tally {
    acquired: u64,
    /// Repeats that came to the server that does not know the key.
    contended: u64,
    renewed: u64,
    released: u64,
    /// Of leases that somebody had released before.
    released_again: u64,
    /// Granted by one and released at the other.
    elsewhere: u64,
    /// Left to run out.
    lost: u64,
    /// Ends that a server looked at too late to tell either of the two, because the machine was busy.
    unknown: u64,
}

impl Tally {
    /// Whether these are the counts of servers whose client counted `told`.
    fn is_that_of(&self, told: &Self) -> bool {
        let known = Self { elsewhere: told.elsewhere, lost: told.lost, unknown: 0, ..self.clone() }
            == *told;
        let ends = |tally: &Self| tally.elsewhere + tally.lost + tally.unknown;
        let is_seen = |counted: u64, told: u64| (told / 2..=told).contains(&counted);
        known
            && ends(self) == ends(told)
            && is_seen(self.elsewhere, told.elsewhere)
            && is_seen(self.lost, told.lost)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.acquired += other.acquired;
        self.contended += other.contended;
        self.renewed += other.renewed;
        self.released += other.released;
        self.released_again += other.released_again;
        self.elsewhere += other.elsewhere;
        self.lost += other.lost;
        self.unknown += other.unknown;
    }
}

/// What both counted.
fn counted(servers: &[Server; 2]) -> Tally {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for server in servers {
        let metrics = server.get("/metrics").body;
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            *sums.entry(series.to_owned()).or_default() +=
                value.parse::<f64>().unwrap_or(0.0) as u64;
        }
    }
    let sum = |name: &str, label: &str| {
        let is_meant = |series: &str| series.starts_with(name) && series.contains(label);
        sums.iter().filter(|(series, _)| is_meant(series)).map(|(_, value)| value).sum()
    };
    let attempts = |outcome: &str| sum("redlock_acquire_attempts_total{", outcome);
    let releases = |outcome: &str| -> u64 { sum("redlock_releases_total{", outcome) };
    Tally {
        acquired: attempts(r#"outcome="acquired""#),
        contended: attempts(r#"outcome="contended""#),
        renewed: sum("redlock_renewals_total{", r#"outcome="ok""#),
        released: releases(r#"outcome="released""#),
        // A server that never knew of the lease cannot tell it from one that was made up.
        released_again: releases(r#"outcome="expired""#) + releases(r#"outcome="not_known""#),
        elsewhere: releases(r#"outcome="elsewhere""#),
        unknown: releases(r#"outcome="unknown""#),
        // Whatever the reason.
        lost: sum("redlock_leases_lost_total{", ""),
    }
}

/// One request of a client, and what came back.
struct Answer {
    status: u16,
    instance: String,
    body: Value,
}

/// A client with a connection that it keeps.
struct Client {
    stream: BufReader<TcpStream>,
    tally: Tally,
    /// By instance: the requests that it answered.
    served: BTreeMap<String, usize>,
}

impl Client {
    fn new(proxy: &Daemon) -> Self {
        let stream = TcpStream::connect(proxy.addr()).expect("HAProxy listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream: BufReader::new(stream), tally: Tally::default(), served: BTreeMap::new() }
    }

    fn send(&mut self, method: &str, path: &str, key: Option<&str>, body: &str) -> Answer {
        let key = key.map_or(String::new(), |key| format!("Idempotency-Key: {key}\r\n"));
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{key}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes()).expect("HAProxy reads");
        let mut first = String::new();
        self.stream.read_line(&mut first).expect("an answer");
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (mut length, mut instance) = (0, String::new());
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("the head of an answer");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a number"),
                "x-instance" => instance = value.to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the body of an answer");
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        *self.served.entry(instance.clone()).or_default() += 1;
        Answer { status: status.unwrap_or_else(|| panic!("{first}")), instance, body }
    }

    /// Acquires what is free. Says the lease and who granted it.
    fn acquire(&mut self, lock: &str, key: Option<&str>) -> (String, String) {
        let body = format!(r#"{{"ttl_ms": {TTL_MS}}}"#);
        let answer = self.send("POST", &format!("/v1/locks/{lock}/leases"), key, &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        self.tally.acquired += 1;
        (answer.body["lease_id"].as_str().expect("a lease").to_owned(), answer.instance)
    }

    /// Repeats an acquire whose lease is still held.
    fn repeat(&mut self, lock: &str, key: &str, lease: &str, granted_by: &str) {
        let body = format!(r#"{{"ttl_ms": {TTL_MS}}}"#);
        let answer = self.send("POST", &format!("/v1/locks/{lock}/leases"), Some(key), &body);
        if answer.instance == granted_by {
            assert_eq!((answer.status, answer.body["lease_id"].as_str()), (201, Some(lease)));
        } else {
            assert_eq!(answer.status, 409, "{}", answer.body);
            assert_eq!(answer.body["type"], "urn:leasehold:problem:idempotency-elsewhere");
            self.tally.contended += 1;
        }
    }

    fn renew(&mut self, lease: &str, body: &str) {
        let answer = self.send("POST", &format!("/v1/leases/{lease}/renew"), None, body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.tally.renewed += 1;
    }

    fn release(&mut self, lease: &str, granted_by: &str) -> String {
        let answer = self.send("DELETE", &format!("/v1/leases/{lease}"), None, "");
        assert_eq!(answer.status, 204, "{}", answer.body);
        self.tally.released += 1;
        self.tally.elsewhere += u64::from(answer.instance != granted_by);
        answer.instance
    }

    /// Releases again what was released where it was granted, which remembers that.
    fn release_again(&mut self, lease: &str, granted_by: &str) {
        let answer = self.send("DELETE", &format!("/v1/leases/{lease}"), None, "");
        let expected = if answer.instance == granted_by { 204 } else { 410 };
        assert_eq!(answer.status, expected, "{}", answer.body);
        self.tally.released_again += 1;
    }

    /// One cycle; what its number says is done in it.
    fn cycle(&mut self, lock: &str, number: usize) {
        let key = format!("{lock}/{number}");
        let key = number.is_multiple_of(2).then_some(key.as_str());
        let (lease, granted_by) = self.acquire(lock, key);
        if let Some(key) = key.filter(|_| !number.is_multiple_of(3)) {
            self.repeat(lock, key, &lease, &granted_by);
        }
        self.renew(&lease, "{}");
        if number.is_multiple_of(5) {
            self.renew(&lease, r#"{"ttl_ms": 1000}"#);
        }
        let released_at = self.release(&lease, &granted_by);
        if number.is_multiple_of(5) && released_at == granted_by {
            self.release_again(&lease, &granted_by);
        }
        if let Some(key) = key.filter(|_| number.is_multiple_of(8)) {
            // The lease is over, so the key stands for a new one.
            let (again, granted_by) = self.acquire(lock, Some(key));
            assert_ne!(again, lease);
            self.release(&again, &granted_by);
        }
    }

    /// Takes a lease, at times renews it, and does not give it back.
    fn leave(&mut self, lock: &str, number: usize) {
        let (lease, _) = self.acquire(lock, None);
        match number % 3 {
            0 => {}
            1 => self.renew(&lease, "{}"),
            _ => self.renew(&lease, r#"{"ttl_ms": 1000}"#),
        }
        self.tally.lost += 1;
    }
}

/// Has each client do its part at the same time, and adds up what they tell.
fn all_clients(proxy: &Daemon, part: impl Fn(&mut Client, usize) + Sync) -> Tally {
    let mut sum = Tally::default();
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    thread::scope(|scope| {
        let part = &part;
        let one = |number| {
            let mut client = Client::new(proxy);
            part(&mut client, number);
            client
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || one(number))).collect();
        for client in clients {
            let client = client.join().expect("a client that was answered as it expects");
            sum += client.tally;
            for (instance, count) in client.served {
                *served.entry(instance).or_default() += count;
            }
        }
    });
    let all: usize = served.values().sum();
    for instance in ["one", "two"] {
        let share = served.get(instance).copied().unwrap_or(0) as f64 / all as f64;
        assert!((0.4..0.6).contains(&share), "requests by instance: {served:?}");
    }
    sum
}

#[track_caller]
fn assert_counted(servers: &[Server; 2], expected: &Tally, what: &str) {
    let mut seen = Tally::default();
    let met = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually(COUNTED_WITHIN, what, || {
            seen = counted(servers);
            seen.is_that_of(expected)
        });
    }));
    assert!(met.is_ok(), "{what}: the client counted\n{expected:?}, the servers\n{seen:?}");
}

#[test]
fn two_servers_behind_a_balancer_count_together_what_their_client_counts() {
    if skip(Need::Redis) || skip(Need::Haproxy) {
        return;
    }
    let (_nodes, url) = five_nodes();
    let servers = [Server::start(&url), Server::start(&url)];
    let proxy = in_turns(&servers);
    eventually(Duration::from_secs(30), "both servers are ready", || {
        let instance = || {
            let answer = http_get(&proxy.addr(), "/readyz").ok()?;
            let headers = answer.headers.to_ascii_lowercase();
            let line = headers.lines().find_map(|line| line.strip_prefix("x-instance: "))?;
            (answer.status == 200).then(|| line.to_owned())
        };
        let seen = [instance(), instance()];
        seen.iter().all(Option::is_some) && seen[0] != seen[1]
    });

    let mut tally = all_clients(&proxy, |client, number| {
        for cycle in 0..CYCLES / CLIENTS {
            client.cycle(&format!("job-{number}-{}", cycle % 5), cycle);
        }
    });
    assert!(tally.elsewhere > CYCLES as u64 / 4, "{tally:?}");
    assert!(tally.contended > 0, "{tally:?}");
    // Nothing is lost, so RedLockLeaseLost, which asks for an increase of losses, stays silent.
    assert_counted(&servers, &tally, "proper releases are no losses");

    tally += all_clients(&proxy, |client, number| {
        for left in 0..CYCLES / LEFT / CLIENTS {
            client.leave(&format!("left-{number}-{left}"), left);
        }
    });
    assert_eq!(tally.lost, (CYCLES / LEFT) as u64);
    assert_counted(&servers, &tally, "each lease that ran out is lost, once");
}
