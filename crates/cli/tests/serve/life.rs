//! Signals, systemd, certificates, tokens, logs, and what it refuses.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use leasehold_testkit::{TlsFiles, bound_command, http_get, http_send, spawn};
use rustix::process::Signal;

use crate::process::{PROGRAM, Server, leasehold, text};

#[test]
fn a_signal_ends_it_when_everybody_is_answered() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[], |_, _| {});
        let granted = http_send(server.addr(), "POST", "/v1/locks/l/leases", "{}").unwrap();
        assert_eq!(granted.status, 201);
        let mut waiter = TcpStream::connect(server.addr()).unwrap();
        let body = r#"{"wait_ms": 30000}"#;
        write!(
            waiter,
            "POST /v1/locks/l/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        server.until("it waits", |server| {
            http_get(server.addr(), "/v1/locks/l").unwrap().body.contains(r#""waiters":1"#)
        });
        let announced = std::time::Instant::now();
        server.signal(signal);
        if signal == Signal::TERM {
            // A load balancer asks on a connection of its own, and others still acquire meanwhile.
            server.until("balancers are told", |server| {
                http_get(server.addr(), "/readyz").is_ok_and(|answer| answer.status == 503)
            });
            let late = http_send(server.addr(), "POST", "/v1/locks/late/leases", "{}").unwrap();
            assert_eq!(late.status, 201);
        }
        let mut answer = String::new();
        waiter.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("urn:leasehold:problem:shutting-down"), "{answer}");
        assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
        assert_eq!(server.end(), Some(0), "{}", server.log());
        let took = announced.elapsed();
        assert_eq!(took >= Duration::from_secs(5), signal == Signal::TERM, "{took:?}");
    }
}

#[test]
fn a_server_that_runs_out_of_descriptors_says_so_and_goes_on() {
    use rustix::process::{Resource, Rlimit, prlimit};
    let server = Server::start(&[], |_, _| {});
    let few = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(Some(server.pid()), Resource::Nofile, few).unwrap();
    let connections: Vec<_> =
        (0..100).filter_map(|_| TcpStream::connect(server.addr()).ok()).collect();
    let is_told = |server: &Server| {
        let log = server.log();
        log.lines()
            .any(|line| line.contains(" WARN ") && line.contains("raise the limit of open files"))
    };
    server.until("it is told", is_told);
    drop(connections);
    server.until("it goes on", |server| {
        http_get(server.addr(), "/healthz").is_ok_and(|answer| answer.status == 200)
    });
    let warnings = server.log().matches("raise the limit").count();
    assert!(warnings <= 3, "not with every attempt: {warnings}");
}

#[test]
fn no_filter_of_the_log_switches_the_record_off() {
    for filter in ["off", "leasehold::audit=off", "leasehold::audit=error,leasehold_server=trace"] {
        let server = Server::start(&[], |command, _| {
            command.env("LEASEHOLD_LOG", filter);
        });
        let granted = http_send(server.addr(), "POST", "/v1/locks/l/leases", "{}").unwrap();
        let lease: serde_json::Value = serde_json::from_str(&granted.body).unwrap();
        let body = format!(r#"{{"expected_fence": {}, "reason": "ana is ill"}}"#, lease["fence"]);
        let forced = http_send(server.addr(), "POST", "/v1/locks/l/force-release", &body).unwrap();
        assert_eq!(forced.status, 200);
        let log = server.log();
        let on_record: Vec<_> =
            log.lines().filter(|line| line.contains("leasehold::audit")).collect();
        assert_eq!(on_record.len(), 2, "before and after: {log}");
        assert!(on_record.iter().all(|line| line.contains(r#"from="127.0.0.1""#)), "{log}");
    }
}

/// What a caller sends may stand in a log, and a log is read line by line.
#[test]
fn no_request_forges_a_line_of_the_log() {
    for format in ["text", "json"] {
        let server = Server::start(&["--log-format", format], |command, _| {
            command.env("LEASEHOLD_LOG", "leasehold_server=trace,leasehold=trace");
        });
        for (path, body) in [
            ("/v1/locks/l/leases", r#"{"x\n2026-01-01 WARN leasehold::audit: forged": 1}"#),
            ("/v1/locks/l/leases", r#"{"ttl_ms": "x\n2026-01-01 WARN leasehold::audit: forged"}"#),
            ("/v1/locks/a%0AWARN%20forged/leases", "{}"),
            ("/v1/leases/a%0AWARN%20forged/renew", "{}"),
            ("/v1/locks/l/leases?x=%0AWARN%20forged", "{}"),
        ] {
            assert!(http_send(server.addr(), "POST", path, body).unwrap().status >= 200);
        }
        server.until("they are logged", |server| server.log().matches("answered").count() >= 5);
        for line in server.log().lines() {
            let is_own = line.starts_with('{') || line.contains(" leasehold");
            assert!(is_own && !line.starts_with("2026-01-01 WARN"), "{line}");
        }
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--drain", "1h"], |_, _| {});
    // An answer that is never read to its end keeps a connection busy.
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"POST /v1/locks/l/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n").unwrap();
    server.until("it reads", |server| {
        http_get(server.addr(), "/metrics").unwrap().body.contains("http_requests_in_flight 2")
    });
    server.signal(Signal::TERM);
    server.until("it drains", |server| server.log().contains("shutting down"));
    server.signal(Signal::TERM);
    assert_eq!(server.end(), Some(69), "{}", server.log());
}

fn monotonic_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

#[test]
fn systemd_is_told_how_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let next = || {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).expect("a word");
        text(&bytes[..length])
    };
    let mut server = Server::start(&[], |command, _| {
        command.env("NOTIFY_SOCKET", &path);
    });
    assert_eq!(next(), "READY=1");
    // It is ready again also if what it read cannot be used.
    for text in ["", "nonsense"] {
        fs::write(Server::file(server.dir.path()), text).unwrap();
        let before = monotonic_micros();
        server.signal(Signal::HUP);
        let reloading = next();
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&reloading);
        let since: u64 = since.parse().expect("microseconds");
        assert!((before..=monotonic_micros()).contains(&since), "{since}, not before {before}");
        assert_eq!(next(), "READY=1");
    }
    server.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn beyond_this_machine_it_wants_tokens_and_tls() {
    let tls = TlsFiles::generate();
    let (cert, key) = (tls.server_cert(), tls.server_key());
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    // An address for documents, which no machine has: nothing is ever reachable.
    let listen = ["--backend", "memory:", "serve", "--listen", "192.0.2.1:7717"];
    for (more, missing) in [
        (&[][..], "--tokens, --tls-cert and --tls-key are missing"),
        (&["--tls-cert", cert, "--tls-key", key], "--tokens is missing"),
        (&["--tokens", "x"], "--tls-cert and --tls-key are missing"),
    ] {
        let refused = leasehold(&[&listen[..], more].concat());
        assert_eq!(refused.status.code(), Some(64));
        let error = text(&refused.stderr);
        assert!(error.contains(missing) && error.contains("--insecure"), "{error}");
    }
    for enough in [&["--insecure"][..], &["--tls-cert", cert, "--tls-key", key, "--tokens", "x"]] {
        let let_through = leasehold(&[&listen[..], enough].concat());
        assert_ne!(let_through.status.code(), Some(64), "{let_through:?}");
        assert!(!text(&let_through.stderr).contains("missing"), "{let_through:?}");
    }
    for (option, file) in [("--tokens", "/nonexistent"), ("--tls-cert", "/dev/null")] {
        let wrong = leasehold(&[
            "--backend",
            "memory:",
            "serve",
            "--listen",
            "127.0.0.1:0",
            option,
            file,
            if option == "--tokens" { "--insecure" } else { "--tls-key" },
            if option == "--tokens" { "--quiet" } else { key },
        ]);
        assert_eq!(wrong.status.code(), Some(78), "{wrong:?}");
        assert!(text(&wrong.stderr).contains(file), "{wrong:?}");
    }
    let served =
        leasehold(&["--backend", "http://127.0.0.1:1", "serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(served.status.code(), Some(78), "{served:?}");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let taken = leasehold(&["--backend", "memory:", "serve", "--listen", &address]);
    assert_eq!(taken.status.code(), Some(69), "{taken:?}");
    assert!(text(&taken.stderr).contains(&address), "{taken:?}");
}

#[test]
fn certificates_and_tokens_are_read_again_on_a_hangup() {
    let (old, new) = (TlsFiles::generate(), TlsFiles::generate());
    let (cert, key, tokens) = ("cert.pem", "key.pem", "tokens.toml");
    let mut made = String::new();
    let server = Server::start(
        &["--tls-cert", cert, "--tls-key", key, "--tokens", tokens],
        |command, dir| {
            fs::copy(old.server_cert(), dir.join(cert)).unwrap();
            fs::copy(old.server_key(), dir.join(key)).unwrap();
            made = new_token(dir, "first");
            command.current_dir(dir);
        },
    );
    let ask = |ca: &TlsFiles, token: &str| {
        let url = format!("{}?ca={}", server.url, ca.ca().display());
        let mut command = bound_command(PROGRAM);
        command.args(["--backend", &url, "list"]).env("LEASEHOLD_TOKEN", token);
        command.env("XDG_CONFIG_HOME", server.dir.path()).output().unwrap()
    };
    assert_eq!(ask(&old, &made).status.code(), Some(0), "{:?}", ask(&old, &made));
    assert_ne!(ask(&new, &made).status.code(), Some(0));
    // A broken file first: the old ones stand.
    fs::write(server.dir.path().join(cert), "nonsense").unwrap();
    server.signal(Signal::HUP);
    server.until("it says so", |server| server.log().contains("not read again"));
    assert_eq!(ask(&old, &made).status.code(), Some(0));
    fs::copy(new.server_cert(), server.dir.path().join(cert)).unwrap();
    fs::copy(new.server_key(), server.dir.path().join(key)).unwrap();
    let second = new_token(server.dir.path(), "second");
    let revoked = leasehold(&[
        "token",
        "revoke",
        "--file",
        server.dir.path().join(tokens).to_str().unwrap(),
        "first",
    ]);
    assert_eq!(revoked.status.code(), Some(0), "{revoked:?}");
    server.signal(Signal::HUP);
    server.until("the new ones count", |_| ask(&new, &second).status.code() == Some(0));
    assert_eq!(ask(&new, &made).status.code(), Some(77), "it was revoked");
    assert_ne!(ask(&old, &second).status.code(), Some(0), "another certificate");
    let log = server.log();
    assert!(!log.contains(&made) && !log.contains(&second), "no token in the log: {log}");
    assert!(log.contains(r#"tokens_added="second" tokens_removed="first""#), "{log}");
}

#[test]
fn certificates_are_read_again_when_their_files_change() {
    let (old, new) = (TlsFiles::generate(), TlsFiles::generate());
    let server =
        Server::start(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], |command, dir| {
            fs::copy(old.server_cert(), dir.join("cert.pem")).unwrap();
            fs::copy(old.server_key(), dir.join("key.pem")).unwrap();
            command.current_dir(dir);
        });
    let is_shown = |ca: &TlsFiles| {
        let url = format!("{}?ca={}", server.url, ca.ca().display());
        let mut command = bound_command(PROGRAM);
        command.args(["--backend", &url, "list"]).env("XDG_CONFIG_HOME", server.dir.path());
        command.output().unwrap().status.code() == Some(0)
    };
    assert!(is_shown(&old) && !is_shown(&new));
    // Half of it first, as whoever renews them does: the old ones stay.
    fs::copy(new.server_cert(), server.dir.path().join("cert.pem")).unwrap();
    server.until("it says so", |server| server.log().contains("the old certificates stay"));
    assert!(is_shown(&old));
    fs::copy(new.server_key(), server.dir.path().join("key.pem")).unwrap();
    server.until("the new ones are shown", |_| is_shown(&new));
    assert!(!is_shown(&old));
}

fn new_token(dir: &Path, name: &str) -> String {
    let file = dir.join("tokens.toml");
    let made = leasehold(&[
        "token",
        "new",
        "--file",
        file.to_str().unwrap(),
        "--name",
        name,
        "--scope",
        "read",
    ]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    text(&made.stdout).trim().to_owned()
}

#[test]
fn tokens_are_made_listed_and_revoked_and_the_file_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let file = path.to_str().unwrap();
    let token = new_token(dir.path(), "ana");
    assert!(token.starts_with("lh_") && token.len() == 46, "{token}");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    new_token(dir.path(), "bo");
    assert_eq!(mode(), 0o640, "it stays readable for its server");
    assert!(!fs::read_to_string(&path).unwrap().contains(&token));
    let listed = text(&leasehold(&["token", "list", "--file", file]).stdout);
    assert!(
        listed.contains("ana") && listed.contains("bo") && listed.contains("never"),
        "{listed}"
    );
    let twice = leasehold(&["token", "new", "--file", file, "--name", "ana", "--scope", "read"]);
    assert_eq!(twice.status.code(), Some(64), "{twice:?}");
    let scope = leasehold(&["token", "new", "--file", file, "--name", "c", "--scope", "write"]);
    assert_eq!(scope.status.code(), Some(64));
    assert!(text(&scope.stderr).contains("not a scope"), "{scope:?}");
    for (name, code) in [("ana", 0), ("ana", 64)] {
        let gone = leasehold(&["token", "revoke", "--file", file, name]);
        assert_eq!(gone.status.code(), Some(code), "{gone:?}");
    }
    fs::write(&path, "nonsense").unwrap();
    assert_eq!(leasehold(&["token", "list", "--file", file]).status.code(), Some(78));
}

#[test]
fn tokens_that_are_made_and_revoked_at_once_are_all_made_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let file = path.to_str().unwrap();
    let names =
        |prefix: &str| (0..12).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
    for old in names("old") {
        new_token(dir.path(), &old);
    }
    let mut all = Vec::new();
    for (old, new) in names("old").iter().zip(names("new")) {
        let scope = ["--scope", "read"];
        let new = [&["token", "new", "--file", file, "--name", &new][..], &scope].concat();
        for arguments in [&["token", "revoke", "--file", file, old][..], &new] {
            let mut command = bound_command(PROGRAM);
            command.args(arguments).stdout(std::process::Stdio::null());
            command.env("XDG_CONFIG_HOME", dir.path());
            all.push(spawn(command).unwrap());
        }
    }
    for child in &mut all {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let listed = text(&leasehold(&["token", "list", "--file", file]).stdout);
    for name in names("new") {
        assert!(listed.contains(&name), "{name} was made\n{listed}");
    }
    assert!(!listed.contains("old"), "all of those were revoked\n{listed}");
}

#[test]
fn tokens_that_cannot_be_locked_or_written_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let file = path.to_str().unwrap();
    new_token(dir.path(), "ana");
    let before = fs::read_to_string(&path).unwrap();
    let refused = |words: &str| {
        for change in [&["new", "--name", "bo", "--scope", "read"][..], &["revoke", "ana"]] {
            let arguments = [&["token"], &change[..1], &["--file", file], &change[1..]].concat();
            let refused = leasehold(&arguments);
            assert_eq!(refused.status.code(), Some(74), "{refused:?}");
            let said = text(&refused.stderr);
            assert!(said.contains("tokens.toml.lock") && said.contains(words), "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
    };
    let sidecar = dir.path().join("tokens.toml.lock");
    let held = fs::File::create(&sidecar).unwrap();
    held.lock().unwrap();
    refused("another `leasehold token`");
    drop(held);
    fs::remove_file(&sidecar).unwrap();
    fs::create_dir(&sidecar).unwrap();
    refused("directory");
}

#[test]
fn logs_are_lines_or_json_and_carry_the_callers_trace() {
    let server = Server::start(&["--log-format", "json"], |command, _| {
        command.env("LEASEHOLD_LOG", "leasehold_server=debug,leasehold=debug");
    });
    let nonce = "0123456789abcdef0123456789abcdef";
    let body = format!(r#"{{"nonce": "{nonce}"}}"#);
    let granted = http_send(server.addr(), "POST", "/v1/locks/l/leases", &body).unwrap();
    let lease: serde_json::Value = serde_json::from_str(&granted.body).unwrap();
    let lease = lease["lease_id"].as_str().unwrap();
    for (method, what) in [("POST", "/renew"), ("DELETE", "")] {
        let path = format!("/v1/leases/{lease}{what}");
        assert!(http_send(server.addr(), method, &path, "").unwrap().status < 300);
    }
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    write!(
        stream,
        "GET /v1/locks/l HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hunter2\r\n\
         traceparent: 00-{trace}-00f067aa0ba902b7-01\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
    server.until("it is logged", |server| server.log().contains(trace));
    let log = server.log();
    for secret in ["hunter2", nonce, lease] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
    for line in log.lines() {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(value["level"].is_string() && value["timestamp"].is_string(), "{line}");
    }
    let refused = "POST /v1/locks/l/force-release";
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    write!(
        stream,
        "{refused} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
    server.until("it is on record", |server| {
        server
            .log()
            .lines()
            .any(|line| line.contains("leasehold::audit") && line.contains("refused"))
    });
}
