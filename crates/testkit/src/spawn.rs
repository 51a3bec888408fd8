//! Starting children that cannot outlive the test process.
//!
//! `setpriv` sets the parent-death signal and then becomes the program, so the child's pid is the
//! program's own. That signal is sent when the *thread* that started the child ends, not the
//! process, and a test runs on a thread of its own: so one thread, which never ends, starts every
//! child.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

struct Job {
    command: Command,
    started: Sender<io::Result<Child>>,
}

/// A command that dies with this process. Where `setpriv` (util-linux) is missing it is the plain
/// program: such a child is still killed on drop, but not when the test process itself is killed.
pub fn bound_command(program: impl AsRef<OsStr>) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let has_setpriv = *SETPRIV.get_or_init(|| {
        ["/usr/bin/setpriv", "/bin/setpriv"].iter().any(|place| Path::new(place).exists())
    });
    if !has_setpriv {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts `command` from the thread that never ends.
pub fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, todo) = channel::<Job>();
        thread::Builder::new()
            .name("testkit-spawner".into())
            .spawn(move || {
                for mut job in todo {
                    let _ = job.started.send(job.command.spawn());
                }
            })
            .expect("a thread");
        jobs
    });
    let (started, answer) = channel();
    spawner.send(Job { command, started }).expect("the spawner never ends");
    answer.recv().expect("the spawner never ends")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually;
    use std::fs;
    use std::process::Stdio;
    use std::time::Duration;

    /// Run with this variable set, the test below starts a child, says its pid and kills itself.
    const DIE_AFTER_START: &str = "LEASEHOLD_TESTKIT_DIE_AFTER_START";

    fn sleeper() -> Child {
        let mut command = bound_command("sleep");
        // Not the test's own pipes, on which others would wait for as long as it lives.
        command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        spawn(command).expect("sleep starts")
    }

    fn is_alive(pid: u32) -> bool {
        // A zombie that nobody reaps yet is dead enough.
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut child = thread::spawn(sleeper).join().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "its parent kills itself before it could wait")]
    fn a_child_dies_with_a_killed_test_process() {
        if let Some(report) = std::env::var_os(DIE_AFTER_START) {
            let child = sleeper();
            let pid = child.id();
            eventually(Duration::from_secs(10), "setpriv became sleep", || {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
            });
            fs::write(report, pid.to_string()).unwrap();
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
                .unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("pid");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "spawn::tests::a_child_dies_with_a_killed_test_process"])
            .env(DIE_AFTER_START, &report)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.code(), None, "killed by its own signal");
        let pid: u32 = fs::read_to_string(report).unwrap().parse().unwrap();
        eventually(Duration::from_secs(10), "the orphan died", || !is_alive(pid));
    }
}
