//! The settings file, read again on a hangup: what takes effect, what needs a restart, and what is left
//! alone.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use leasehold_testkit::{http_get, http_send};
use rustix::process::Signal;

use crate::process::{Server, leasehold, text};

/// What is written when everything was good.
const DONE: &str = "settings, tokens and certificates were read again";

/// A server with a settings file of this text.
fn serving(text: &str, options: &[&str]) -> Server {
    Server::start(options, |_, dir| fs::write(Server::file(dir), text).unwrap())
}

impl Server {
    /// Puts another text into its file, tells it, and waits until it has said `words`, which must be new.
    fn reload(&self, text: &str, words: &str) {
        fs::write(Self::file(self.dir.path()), text).unwrap();
        let before = self.log().len();
        self.signal(Signal::HUP);
        self.until(words, |server| server.log()[before..].contains(words));
    }

    fn acquire(&self, lock: &str, body: &str) -> u16 {
        let path = format!("/v1/locks/{lock}/leases");
        http_send(self.addr(), "POST", &path, body).unwrap().status
    }

    /// Somebody who waits for `lock`, seen by the server.
    fn waiter(&self, lock: &str) -> TcpStream {
        let seen = || http_get(self.addr(), &format!("/v1/locks/{lock}")).unwrap().body;
        let mut waiter = TcpStream::connect(self.addr()).unwrap();
        let body = r#"{"wait_ms": 30000}"#;
        write!(
            waiter,
            "POST /v1/locks/{lock}/leases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        self.until("it waits", |_| seen().contains(r#""waiters":1"#));
        waiter
    }

    fn lines(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }
}

#[test]
fn a_lower_limit_holds_from_now_on_and_who_waits_goes_on() {
    let server = serving("[serve]\nmax-waiters = 5\n", &[]);
    let held = http_send(server.addr(), "POST", "/v1/locks/l/leases", r#"{"ttl_ms": 60000}"#);
    let held: serde_json::Value = serde_json::from_str(&held.unwrap().body).unwrap();
    let mut waiter = server.waiter("l");
    assert_eq!(server.acquire("l", r#"{"wait_ms": 1}"#), 423, "one more may wait");
    server.reload("[serve]\nmax-waiters = 1\n", DONE);
    assert_eq!(server.acquire("l", r#"{"wait_ms": 1}"#), 429);
    let lease = format!("/v1/leases/{}", held["lease_id"].as_str().unwrap());
    assert_eq!(http_send(server.addr(), "DELETE", &lease, "").unwrap().status, 204);
    let mut answer = String::new();
    waiter.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[test]
fn a_higher_limit_holds_from_now_on_unless_a_flag_set_it() {
    let short = "[serve]\nmax-wait = \"1s\"\ndrain = \"1s\"\n";
    let long = "[serve]\nmax-wait = \"1h\"\n";
    let free = serving(short, &[]);
    let bound = serving(short, &["--max-wait", "2s"]);
    // Each for a lock of its own.
    let asks = |server: &Server, millis: u32| {
        server.acquire(&format!("l{millis}"), &format!(r#"{{"wait_ms": {millis}}}"#))
    };
    assert_eq!(asks(&free, 1001), 422);
    assert_eq!((asks(&bound, 1001), asks(&bound, 2001)), (201, 422));
    for server in [&free, &bound] {
        server.reload(long, DONE);
    }
    assert_eq!(asks(&free, 3_600_000), 201);
    assert_eq!(asks(&bound, 2001), 422);
}

#[test]
fn another_log_filter_is_another_log() {
    let server = serving("", &[]);
    assert_eq!(server.acquire("l", "{}"), 201);
    server.reload("log = \"leasehold_server=debug\"", DONE);
    assert_eq!(server.lines("DEBUG"), 0, "{}", server.log());
    assert_eq!(server.acquire("m", "{}"), 201);
    server.until("it says more", |server| server.lines("DEBUG") > 0);
    server.reload("", DONE);
    let before = server.lines("DEBUG");
    assert_eq!(server.acquire("n", "{}"), 201);
    server.reload("", DONE);
    assert_eq!(server.lines("DEBUG"), before, "{}", server.log());
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let good = "[serve]\nmax-wait = \"1s\"\n";
    let server = serving(good, &[]);
    let tokens = server.dir.path().join("tokens");
    fs::write(&tokens, "nonsense").unwrap();
    let with_tokens = format!("log = \"debug\"\n[serve]\nmax-wait = \"1h\"\ntokens = {tokens:?}\n");
    for (text, expected) in [
        (
            "[serve]\nmax-wait = \"1h\"\nmax-waiters = 0\n",
            "line 3: `serve.max-waiters`: `0` is not",
        ),
        ("log = \"a=b=c\"\n[serve]\nmax-wait = \"1h\"\n", "line 1: `log`: not a log filter: "),
        ("[serve]\nmax-wait = \"1h\"\nmax-wiat = 1\n", "did you mean `serve.max-wait`?"),
        ("[serve]\nmax-wait = \"1h\"\ntls-cert = \"x\"\n", "--tls-cert needs --tls-key"),
        (&with_tokens, "the tokens "),
    ] {
        server.reload(text, expected);
        assert_eq!(server.acquire("l", r#"{"wait_ms": 1001}"#), 422, "{text}\n{}", server.log());
    }
    let errors = server.log();
    let errors: Vec<_> = errors.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(errors.len(), 5, "one line each: {errors:#?}");
    assert_eq!((server.lines(DONE), server.lines("DEBUG")), (0, 0), "{}", server.log());
    server.reload(good, DONE);
}

#[test]
fn what_needs_a_restart_is_named_and_the_rest_takes_effect() {
    let server = serving("[serve]\nmax-wait = \"1s\"\n", &[]);
    // Its flags say where to listen and what to serve, so neither can change.
    server.reload("backend = \"sqlite:\"\n[serve]\nlisten = \"127.0.0.1:9\"\n", DONE);
    assert_eq!(server.lines("restart"), 0, "{}", server.log());
    server.reload("[serve]\nlog-format = \"json\"\nmax-wait = \"1h\"\n", "restart");
    let log = server.log();
    let told = log.lines().find(|line| line.contains("restart")).unwrap();
    assert!(told.contains("WARN") && told.contains("`serve.log-format` ("), "{told}");
    assert!(told.contains("leasehold.toml, line 2)") && !told.contains("max-wait"), "{told}");
    assert_eq!(server.acquire("l", r#"{"wait_ms": 1001}"#), 201, "{log}");
}

#[test]
fn where_it_listens_and_what_it_serves_may_stand_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my.toml");
    let write = |backend: &str, listen: &str| {
        fs::write(&file, format!("backend = \"{backend}\"\n[serve]\nlisten = \"{listen}\"\n"))
            .unwrap();
    };
    write("memory:", "127.0.0.1:0");
    let mut server =
        Server::spawn(&["--config", file.to_str().unwrap(), "--json", "serve"], |_, _| {});
    assert_eq!(server.acquire("l", "{}"), 201);
    write("memory:?x=secret", "127.0.0.1:1");
    server.signal(Signal::HUP);
    server.until("it is told", |server| server.lines("restart") == 1);
    let log = server.log();
    let told = log.lines().find(|line| line.contains("restart")).unwrap();
    assert!(told.contains("`backend` (") && told.contains("`serve.listen` ("), "{told}");
    assert!(!told.contains("secret"), "{told}");
    assert_eq!(server.acquire("l", "{}"), 423, "it serves what it served");
    write("memory:", "127.0.0.1:0");
    server.signal(Signal::HUP);
    server.until("it is read", |server| server.lines(DONE) == 2);
    assert_eq!(server.lines("restart"), 1, "{log}");
    server.signal(Signal::TERM);
    assert_eq!(server.end(), Some(0), "{}", server.log());
    // Beyond this machine the file has to say what flags would have to.
    write("memory:", "0.0.0.0:0");
    let refused = leasehold(&["--config", file.to_str().unwrap(), "serve"]);
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    assert!(text(&refused.stderr).contains("can be reached from other machines"), "{refused:?}");
}
