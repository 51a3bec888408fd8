//! `leasehold serve` as a process, on ports of its own.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use leasehold_testkit::{HttpAnswer, RedisServer, bound_command, http_get, http_send, spawn};
use tempfile::TempDir;

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    addr: String,
    dir: TempDir,
}

impl Server {
    /// Serves `backend` to everybody on this machine, and waits until it listens.
    #[track_caller]
    pub(crate) fn start(backend: &str) -> Server {
        Server::start_with(backend, &[])
    }

    /// The same, with these options.
    #[track_caller]
    pub(crate) fn start_with(backend: &str, options: &[&str]) -> Server {
        let dir = tempfile::tempdir().expect("a folder");
        let log = File::create(dir.path().join("log")).expect("a log");
        let mut command = bound_command(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(["--backend", backend, "serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .env("XDG_CONFIG_HOME", dir.path())
            .env("XDG_DATA_HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = spawn(command).expect("leasehold starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let mut server = Server { child, addr: String::new(), dir };
        let (_, addr) = line
            .trim()
            .rsplit_once(" at http://")
            .unwrap_or_else(|| panic!("{line}{}", server.log()));
        server.addr = addr.to_owned();
        server
    }

    /// `127.0.0.1:port`.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> HttpAnswer {
        http_get(&self.addr, path).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log()))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, json: &str) -> HttpAnswer {
        http_send(&self.addr, "POST", path, json)
            .unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log()))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Takes a lock, is refused it, renews and releases it, so that everything has been counted once.
    pub(crate) fn bustle(&self) {
        let path = "/v1/locks/bustle/leases";
        let granted = self.post(path, "{}");
        assert_eq!(granted.status, 201, "{}\n{}", granted.body, self.log());
        let lease: serde_json::Value = serde_json::from_str(&granted.body).expect("JSON");
        let lease = format!("/v1/leases/{}", lease["lease_id"].as_str().expect("a lease"));
        assert_eq!(self.post(path, r#"{"wait_ms": 1}"#).status, 423);
        assert_eq!(self.post(&format!("{lease}/renew"), "{}").status, 200);
        assert_eq!(http_send(&self.addr, "DELETE", &lease, "").expect("an answer").status, 204);
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Five nodes of a cluster with short leases, so that one that restarted votes again after some
/// five seconds, and their URL.
pub(crate) fn five_quick_nodes() -> (Vec<RedisServer>, String) {
    let servers = RedisServer::redis().append_fsync("always");
    crate::support::five_with(servers, "&max_ttl=5s&max_clock_skew=100ms")
}
