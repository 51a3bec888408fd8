//! A contestant's process, seen from the bench.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Need, bound_command, spawn};
use tempfile::TempDir;

use crate::contestants::{Contestant, Language};
use crate::interrupt;
use crate::order::{Order, Outcome, Role};

/// An interpreter needs about a second to import its libraries, and a busy machine makes that many;
/// nodes that are new may have to sit out a quarantine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The last acquire of a slice may wait for a lease of ten seconds to run out, more than once.
const PATIENCE: Duration = Duration::from_secs(30);

/// Slower than this nobody takes leases on a machine worth measuring.
const LEASES_PER_SEC: u64 = 500;

/// One process of a contestant. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Player {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    dir: TempDir,
}

impl Player {
    /// Starts a process that plays `role`, and waits until it is ready.
    pub(crate) fn start(contestant: &Contestant, role: &Role) -> Result<Player, String> {
        let name = contestant.name;
        let failed = |error: &dyn std::fmt::Display| format!("{name} cannot be started: {error}");
        let dir = tempfile::tempdir().map_err(|error| failed(&error))?;
        let log = File::create(dir.path().join("stderr")).map_err(|error| failed(&error))?;
        let mut command = command(contestant.language).map_err(|error| failed(&error))?;
        let text = serde_json::to_string(role).map_err(|error| failed(&error))?;
        command.arg(text).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = spawn(command).map_err(|error| failed(&error))?;
        let (Some(orders), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"no pipes"));
        };
        let (lines, answers) = channel();
        // Ends with the child's output.
        thread::spawn(move || {
            BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let player = Player { name: name.to_owned(), child, orders, answers, dir };
        let leases = Duration::from_secs(role.beside.leases as u64 / LEASES_PER_SEC);
        match player.next_line(READY_WITHIN + leases)?.as_str() {
            "ready" => Ok(player),
            other => Err(format!("{name} said `{other}` instead of `ready`")),
        }
    }

    /// Lets it begin; [`Self::outcome`] waits for what comes of it.
    pub(crate) fn order(&mut self, order: &Order) -> Result<(), String> {
        let line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        writeln!(self.orders, "{line}").map_err(|_| self.ended())
    }

    /// What came of the last order.
    pub(crate) fn outcome(&self, order: &Order) -> Result<Outcome, String> {
        let line = self.next_line(PATIENCE + Duration::from_secs_f64(order.secs))?;
        serde_json::from_str(&line)
            .map_err(|error| format!("{} said something else: {error}", self.name))
    }

    /// How much memory it has now, in bytes.
    pub(crate) fn memory(&self) -> Result<f64, String> {
        memory_of(self.child.id())
    }

    fn next_line(&self, limit: Duration) -> Result<String, String> {
        let end = Instant::now() + limit;
        loop {
            let answer = self.answers.recv_timeout(interrupt::LOOK_EVERY);
            // First: a Ctrl-C also reaches the contestants.
            interrupt::check()?;
            match answer {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                    return Err(format!("{} is not done after {limit:?}", self.name));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn ended(&self) -> String {
        let said = fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default();
        format!("{} ended; its last words: {}", self.name, said.trim())
    }
}

/// How much memory a process has now, in bytes.
pub(crate) fn memory_of(pid: u32) -> Result<f64, String> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024.0).ok_or_else(|| "no VmRSS".to_owned())
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(language: Language) -> Result<Command, String> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    Ok(match language {
        Language::Rust => {
            let this = std::env::current_exe().map_err(|error| error.to_string())?;
            let mut command = bound_command(this);
            command.arg("child");
            command
        }
        Language::Python => {
            Need::PythonPeers.check()?;
            let mut command = bound_command(Need::PythonPeers.path());
            command.arg(peers.join("loop.py"));
            command
        }
        Language::Node => {
            Need::NodePeers.check()?;
            let packages =
                fs::canonicalize(Need::NodePeers.path()).map_err(|error| error.to_string())?;
            let mut command = bound_command("node");
            command.env("LEASEHOLD_TEST_NODE_PEERS", packages).arg(peers.join("loop.mjs"));
            command
        }
    })
}
