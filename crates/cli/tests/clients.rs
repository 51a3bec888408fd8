//! The clients for other languages against a real server, on a SQLite file and on real Redis servers;
//! and the server against its own description.

mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_testkit::{Need, TlsFiles, bound_command, eventually, skip, spawn};
use support::{Place, SOON, five_nodes};

/// What takes long on a busy machine: an interpreter with many tests, a compiler.
const AT_LAST: Duration = Duration::from_secs(240);

fn repository(path: &str) -> PathBuf {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    fs::canonicalize(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A `leasehold serve` that dies with the test.
struct Server {
    child: Child,
    url: String,
    place: Place,
}

impl Server {
    fn start(place: Place, arguments: &[&str]) -> Self {
        let mut command = bound_command(env!("CARGO_BIN_EXE_leasehold"));
        command.env("XDG_DATA_HOME", place.path()).env("XDG_CONFIG_HOME", place.path());
        command.env_remove("LEASEHOLD_BACKEND").args(arguments);
        let said = place.file("said");
        command.stdin(Stdio::null()).stdout(File::create(&said).expect("a file"));
        command.stderr(File::create(place.file("log")).expect("a file"));
        let child = spawn(command).expect("leasehold starts");
        let mut server = Self { child, url: String::new(), place };
        eventually(SOON, "the server says where it is", || {
            let line = fs::read_to_string(&said).expect("a file");
            let (_, url) = line
                .strip_suffix('\n')
                .and_then(|line| line.rsplit_once(" at "))
                .unwrap_or_default();
            server.url = url.to_owned();
            let ended = server.child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended with {ended:?}: {}", server.log());
            !url.is_empty()
        });
        server
    }

    fn is_ready(&self) -> bool {
        let address = self.url.strip_prefix("http://").expect("no TLS");
        let mut connection = TcpStream::connect(address).expect("a server");
        let request =
            format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).expect("a server");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        answer.starts_with("HTTP/1.1 200 ")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.file("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end: its exit code and all that it said.
fn finish(mut command: Command, limit: Duration) -> (Option<i32>, String) {
    let place = Place::new();
    let said = File::create(place.file("said")).expect("a file");
    command.stderr(said.try_clone().expect("a file")).stdout(said).stdin(Stdio::null());
    let mut child = spawn(command).expect("it starts");
    let text = || fs::read_to_string(place.file("said")).unwrap_or_default();
    let end = std::time::Instant::now() + limit;
    let mut status = None;
    eventually(limit + SOON, "the program ends", || {
        if std::time::Instant::now() > end {
            let _ = child.kill();
        }
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    (status.and_then(|status| status.code()), text())
}

fn python() -> Command {
    let mut command = bound_command(Need::PythonPeers.path());
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(repository("clients/python"));
    command
}

/// The Python client's own tests, which start servers themselves. Says what was reported.
fn python_tests(arrange: impl FnOnce(&mut Command)) -> String {
    let tls = TlsFiles::generate();
    let mut command = python();
    command.args(["-m", "unittest", "-v", "test_leasehold"]);
    command.env("LEASEHOLD_TEST_BINARY", env!("CARGO_BIN_EXE_leasehold"));
    command.env("LEASEHOLD_TEST_TLS", tls.ca().parent().expect("a folder"));
    arrange(&mut command);
    let (code, said) = finish(command, AT_LAST);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\nRan ") && !said.contains("\nRan 0 "), "{said}");
    said
}

#[test]
fn the_python_client_keeps_its_promises_on_sqlite() {
    if skip(Need::PythonPeers) {
        return;
    }
    python_tests(|_| {});
}

#[test]
fn the_python_client_keeps_its_promises_on_redis() {
    if skip(Need::PythonPeers) || skip(Need::Redis) {
        return;
    }
    let (servers, url) = five_nodes();
    let pids: Vec<String> =
        servers.iter().filter_map(|server| server.pid()).map(|pid| pid.to_string()).collect();
    let said = python_tests(|command| {
        command.env("LEASEHOLD_TEST_BACKEND", &url).env("LEASEHOLD_TEST_NODE_PIDS", pids.join(" "));
    });
    assert!(!said.contains("skipped"), "{said}");
}

#[test]
fn the_python_client_is_typed() {
    if skip(Need::PythonPeers) {
        return;
    }
    let mut command = python();
    command.args(["-m", "mypy", "--strict", "--cache-dir", "/dev/null"]);
    command.args(["leasehold.py", "test_leasehold.py"]);
    let (code, said) = finish(command, AT_LAST);
    assert_eq!(code, Some(0), "{said}");
}

fn java(url: &str, token: Option<&str>) -> (Option<i32>, String) {
    let mut command = bound_command(Need::Java.path());
    command.arg(repository("clients/java/LeaseholdExample.java")).arg(url).args(token);
    finish(command, AT_LAST)
}

#[test]
fn the_java_example_counts_together_on_redis_with_a_token() {
    if skip(Need::Java) || skip(Need::Redis) {
        return;
    }
    let (_nodes, backend) = five_nodes();
    let place = Place::new();
    let token = new_token(&place, &["lock:example/*"]);
    let tokens = place.file("tokens");
    let tokens = tokens.to_str().expect("a path");
    let server = Server::start(
        place,
        &["--backend", &backend, "serve", "--listen", "127.0.0.1:0", "--tokens", tokens],
    );
    let (code, said) = java(&server.url, Some(&token));
    assert_eq!(code, Some(0), "{said}{}", server.log());
    assert!(said.contains("counted 20 of 20"), "{said}");
    assert!(said.contains("told of the loss: ") && said.contains("it was released"), "{said}");
    let (code, said) = java(&server.url, None);
    assert_eq!((code, said.contains("token")), (Some(2), true), "{said}");
}

#[test]
fn the_java_example_counts_together_on_sqlite_and_says_if_there_is_no_server() {
    if skip(Need::Java) {
        return;
    }
    let server = Server::start(Place::new(), &["serve", "--listen", "127.0.0.1:0"]);
    let (code, said) = java(&server.url, None);
    assert_eq!(code, Some(0), "{said}{}", server.log());
    let url = server.url.clone();
    drop(server);
    let (code, said) = java(&url, None);
    assert_eq!(code, Some(2), "{said}");
}

/// The Java client's own tests, behind a proxy that answers late or in the server's place.
#[test]
fn the_java_client_keeps_its_promises() {
    if skip(Need::Java) {
        return;
    }
    let server = Server::start(Place::new(), &["serve", "--listen", "127.0.0.1:0"]);
    let classes = Place::new();
    let mut compile = bound_command(Need::Java.path());
    compile.args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-Werror"]);
    compile.args(["-Xlint:all,-auxiliaryclass", "-d"]).arg(classes.path());
    for file in ["LeaseholdExample.java", "LeaseholdTest.java"] {
        compile.arg(repository("clients/java").join(file));
    }
    let (code, said) = finish(compile, AT_LAST);
    assert_eq!(code, Some(0), "{said}");
    let mut command = bound_command(Need::Java.path());
    command.arg("-cp").arg(classes.path()).args(["LeaseholdTest", &server.url]);
    let (code, said) = finish(command, AT_LAST);
    assert_eq!(code, Some(0), "{said}{}", server.log());
    assert!(said.lines().filter(|line| line.starts_with("ok ")).count() >= 8, "{said}");
}

/// schemathesis makes up requests from the description that the server itself gives out, right ones and
/// wrong ones, and holds every answer against it: status, headers, type and content.
#[test]
fn the_server_does_what_its_description_says() {
    if skip(Need::PythonPeers) {
        return;
    }
    let place = Place::new();
    let token = new_token(&place, &["admin", "read", "lock:*"]);
    let tokens = place.file("tokens");
    let tokens = tokens.to_str().expect("a path");
    // In memory, because a node that waits for a busy disk is no quorum, which is right but not of interest.
    let server = Server::start(
        place,
        &[
            "--backend",
            "memory:?nodes=5",
            "serve",
            "--trust-new-nodes",
            "--listen",
            "127.0.0.1:0",
            "--max-wait",
            "100ms",
            "--tokens",
            tokens,
        ],
    );
    eventually(SOON, "the server is ready", || server.is_ready());
    let work = Place::new();
    let mut command = python();
    command.current_dir(work.path()).args(["-m", "schemathesis.cli", "--config-file"]);
    command.arg(repository("crates/server/schemathesis.toml")).arg("run");
    command.arg(format!("{}/openapi.json", server.url)).args(["--url", &server.url, "--no-color"]);
    command.args(["--header", &format!("Authorization: Bearer {token}")]);
    let (code, said) = finish(command, AT_LAST);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Selected: 18/18") && said.contains("Tested: 18"), "{said}");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

fn new_token(place: &Place, scopes: &[&str]) -> String {
    let file = place.file("tokens");
    let mut command = place.leasehold();
    command.args(["token", "new", "--name", "test", "--file"]).arg(&file);
    for scope in scopes {
        command.args(["--scope", scope]);
    }
    let output = command.output().expect("leasehold runs");
    assert!(output.status.success(), "{}", support::stderr(&output));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}
