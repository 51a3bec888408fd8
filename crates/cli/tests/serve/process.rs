//! A server as a process of its own.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::{bound_command, spawn};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::Place;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

/// A server over locks in memory; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) dir: TempDir,
}

impl Server {
    /// Starts it with these options, and waits until it listens.
    pub(crate) fn start(options: &[&str], prepare: impl FnOnce(&mut Command, &Path)) -> Self {
        let usual = ["--backend", "memory:", "--json", "serve", "--listen", "127.0.0.1:0"];
        Self::spawn(&[&usual, options].concat(), prepare)
    }

    /// Starts it with nothing but these arguments.
    pub(crate) fn spawn(arguments: &[&str], prepare: impl FnOnce(&mut Command, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = bound_command(PROGRAM);
        command
            .args(arguments)
            .env("XDG_CONFIG_HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join("log")).unwrap());
        prepare(&mut command, dir.path());
        let mut child = spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut server = Self { child, url: String::new(), dir };
        let told: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}{}", server.log()));
        assert_eq!(told["schema"], "leasehold/serve/v1");
        server.url = told["url"].as_str().unwrap().to_owned();
        server
    }

    pub(crate) fn addr(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its settings file.
    pub(crate) fn file(dir: &Path) -> PathBuf {
        let folder = dir.join("leasehold");
        fs::create_dir_all(&folder).unwrap();
        folder.join("leasehold.toml")
    }

    /// Its exit code, once it has ended.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < Duration::from_secs(20), "it goes on\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < Duration::from_secs(20), "not so: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn leasehold(args: &[&str]) -> Output {
    let place = Place::new();
    let mut command = bound_command(PROGRAM);
    command.args(args).env("XDG_CONFIG_HOME", place.path()).env("XDG_DATA_HOME", place.path());
    command.stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
