//! The real binary as a real process, and what tests need to look at it from outside.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use leasehold::{Locks, NodeState};
use leasehold_testkit::{RedisServer, ServerBuilder, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// What must happen soon, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A folder with lock files of its own.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// The same in a folder of our choice.
    pub(crate) fn within(folder: &Path) -> Option<Self> {
        Some(Self(tempfile::tempdir_in(folder).ok()?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The binary, with the SQLite file of this place. `LEASEHOLD_BINARY` names another one, say of
    /// an older release that a test should fail on.
    pub(crate) fn leasehold(&self) -> Command {
        let binary = std::env::var_os("LEASEHOLD_BINARY");
        let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_leasehold").into());
        let mut command = Command::new(binary);
        command.env("XDG_DATA_HOME", self.path()).env("XDG_CONFIG_HOME", self.path());
        command.env_remove("LEASEHOLD_BACKEND").current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.leasehold().args(arguments).stdin(Stdio::null()).output().expect("leasehold runs")
    }

    /// Runs it in the background, with pipes.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::new(self.leasehold().args(arguments))
    }

    pub(crate) fn is_free(&self, name: &str) -> bool {
        code(&self.run(&["run", "-n", name, "--", "true"])) == 0
    }
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("it exits by itself")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A leasehold in the background. Killed when dropped, and its command with it.
pub(crate) struct Running {
    child: Child,
    pub(crate) output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Running {
    pub(crate) fn new(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("leasehold starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, output, errors }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let is_there = !self.output.buffer().is_empty() || speaks(self.output.get_ref());
        assert!(is_there, "it says nothing");
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// The next line, which must be a process id.
    pub(crate) fn pid_line(&mut self) -> i32 {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("not a pid: {line:?}: {}", self.complaints()))
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        input.write_all(text.as_bytes()).expect("it reads");
    }

    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for the end: the exit code, `None` if it was killed.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let mut code = None;
        eventually(SOON, "leasehold ends", || {
            let status = self.child.try_wait().expect("a child");
            code = status.and_then(|status| status.code());
            status.is_some()
        });
        code
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for a line on standard error that contains `words`.
    pub(crate) fn remarks(&mut self, words: &str) {
        let mut seen = String::new();
        while !seen.contains(words) {
            let is_there = !self.errors.buffer().is_empty() || speaks(self.errors.get_ref());
            assert!(is_there, "{words:?} is not said: {seen}");
            let bytes = self.errors.read_line(&mut seen).expect("a line");
            assert!(bytes > 0, "{words:?} was not said: {seen}");
        }
    }

    /// The rest of standard error. Only after the end.
    pub(crate) fn complaints(&mut self) -> String {
        let _ = self.child.kill();
        let mut text = String::new();
        let _ = self.errors.read_to_string(&mut text);
        text
    }

    /// The process that starts the command.
    pub(crate) fn guardian(&self) -> i32 {
        child(self.warden(), "lease-guardian")
    }

    /// The process between leasehold and the guardian.
    pub(crate) fn warden(&self) -> i32 {
        child(self.pid(), "lease-warden")
    }
}

/// The child of this name, as soon as it has it.
fn child(parent: i32, name: &str) -> i32 {
    let mut found = None;
    eventually(SOON, name, || {
        found = children(parent).into_iter().find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        });
        found.is_some()
    });
    found.expect("just seen")
}

/// The children that a process has now.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = |list: String| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>();
    lists.flat_map(pids).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("it is there");
}

/// The same to a process that may have ended.
pub(crate) fn send_if_there(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).expect("a pid"), signal);
}

/// Whether the process runs; one that only waits to be buried does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether the process may still do something: not even its next instruction comes before a SIGKILL
/// that it was sent, however long a busy machine takes to bury it.
pub(crate) fn can_act(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let kill = 1 << (Signal::KILL.as_raw() - 1);
    is_alive(pid) && pending.fold(0, |all, mask| all | mask) & kill == 0
}

/// `R`, `S`, `T` …
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Nanoseconds on the clock of leases.
pub(crate) fn boot_nanos() -> u64 {
    SystemClock.now().as_nanos()
}

/// Five new Redis nodes that vote, and their URL.
pub(crate) fn five_nodes() -> (Vec<RedisServer>, String) {
    five_of(RedisServer::redis())
}

/// Five new nodes like this that vote, and their URL.
pub(crate) fn five_of(server: ServerBuilder) -> (Vec<RedisServer>, String) {
    five_with(server, "")
}

/// The same, with further parameters of the URL.
pub(crate) fn five_with(server: ServerBuilder, parameters: &str) -> (Vec<RedisServer>, String) {
    let servers = server.start_many(5);
    let addresses: Vec<_> = servers.iter().map(RedisServer::addr).collect();
    let url = format!("redis://{}?timeout=200ms{parameters}", addresses.join(","));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let builder = Locks::builder().url(&url).trust_new_nodes();
        let locks = builder.open().await.expect("open");
        let start = std::time::Instant::now();
        while locks.nodes().iter().filter(|node| node.state == NodeState::Up).count() < 5 {
            assert!(start.elapsed() < SOON, "five votes: {:#?}", locks.nodes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    (servers, url)
}

impl Place {
    /// A shell in the same surroundings.
    pub(crate) fn leasehold_shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("XDG_DATA_HOME", self.path());
        command.env("XDG_CONFIG_HOME", self.path());
        command.env_remove("LEASEHOLD_BACKEND").current_dir(self.path()).stdin(Stdio::null());
        command
    }
}

/// Whether something comes, or the end, before it takes too long.
fn speaks(pipe: &impl AsFd) -> bool {
    let limit = Timespec { tv_sec: SOON.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&limit)).expect("a pipe") > 0
}
