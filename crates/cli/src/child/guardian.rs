//! The guardian: a process of its own that starts the command, and ends it when nobody else can.
//!
//! It is the command's parent and knows one thing about the lease: until when the command may run.
//! A supervisor that was killed closes the socket, and the command is killed at once; one that is
//! stopped, swapped out or starved sends no newer plan, and the command is ended by the plan it
//! sent last. So time is acted upon in one place, and here nothing else can delay it: no network, no
//! disk, no output.
//!
//! The guardian is a subreaper: whatever a descendant of the command does, the kernel keeps it
//! below the guardian, and `wait` says that there are no children only when nobody is left.
//!
//! The guardian is not in the command's process group nor in the supervisor's, and takes no notice
//! of the signals that ask programs to end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use super::descendants::{self, Sweep, children};
use super::message::{End, News, Order, Plan};
use super::post::{Event, Post, tell, tell_of, tell_why};

/// The hidden command that makes this program a guardian. Followed by the grace in nanoseconds, the
/// number of the stop signal, and the command.
pub(crate) const COMMAND: &str = "__guard";

/// What the process is called. Not by the program's name, so that a `pkill -9` of that name leaves
/// one behind that can tidy up.
pub(crate) const PROCESS_NAME: &str = "lease-guardian";

/// What the command leaves has this long to end by itself, as the tail of a pipeline does.
const PATIENCE: Duration = Duration::from_millis(50);

/// Ends when no descendant is left. The exit code interests nobody.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match Guardian::new(arguments).and_then(|mut guardian| guardian.watch()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell_why(&error);
            ExitCode::FAILURE
        }
    }
}

struct Guardian {
    post: Post,
    command: Vec<OsString>,
    stop_signal: Signal,
    grace: Duration,
    /// The command, which leads a process group of the same number.
    leader: Option<Pid>,
    /// How the leader ended, while descendants of it are left.
    end: Option<End>,
    plan: Plan,
    stage: Stage,
    sweep: Sweep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    Running,
    Stopping,
    Killed,
}

impl Guardian {
    fn new(mut arguments: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let mut number = || {
            let text = arguments.next()?;
            text.to_str()?.parse::<u64>().ok()
        };
        let (grace, signal) = (number(), number());
        let signal = signal.and_then(|number| Signal::from_named_raw(i32::try_from(number).ok()?));
        let (Some(grace), Some(stop_signal)) = (grace, signal) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let post = Post::new(c"lease-guardian")?;
        tell(&News::Watching { pid: post.us.as_raw_pid() });
        Ok(Self {
            post,
            command: arguments.collect(),
            stop_signal,
            grace: Duration::from_nanos(grace),
            leader: None,
            end: None,
            plan: Plan::NEVER,
            stage: Stage::Running,
            sweep: Sweep::default(),
        })
    }

    fn watch(&mut self) -> io::Result<()> {
        loop {
            let [has_order, has_changed] = self.post.wait_until(self.next_time())?;
            // Time first: whatever else there is may be late already.
            self.look_at_the_clock();
            if has_changed && self.bury() {
                return Ok(());
            }
            if has_order {
                match self.post.listen() {
                    Event::Order(order, input) => self.obey(order, input)?,
                    Event::Abandoned => {
                        self.kill();
                        if self.leader.is_none() || self.bury() {
                            return Ok(());
                        }
                    }
                    Event::Nothing => {}
                }
            }
        }
    }

    fn next_time(&self) -> u64 {
        match self.stage {
            _ if self.leader.is_none() => u64::MAX,
            Stage::Running => self.plan.stop_at.min(self.plan.kill_at),
            Stage::Stopping => self.plan.kill_at,
            Stage::Killed => u64::MAX,
        }
    }

    fn obey(&mut self, order: Order, input: Option<OwnedFd>) -> io::Result<()> {
        match order {
            // What was begun is not taken back: the command may be half-way through its end.
            Order::Extend(plan) if self.stage == Stage::Running && self.end.is_none() => {
                self.plan = plan;
            }
            Order::Extend(_) => {}
            // Whoever sent it, or we, may have been stopped since the lock was acquired.
            Order::Start { start_by, .. } if SystemClock.now().as_nanos() >= start_by => {
                tell(&News::TooLate);
            }
            Order::Start { plan, fence, holder, .. } => {
                self.plan = plan;
                let (program, arguments) =
                    self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                let started = Command::new(program)
                    .args(arguments)
                    .env("LEASEHOLD_FENCE", fence.to_string())
                    .env("LEASEHOLD_HOLDER", holder)
                    .stdin(input.map_or_else(Stdio::null, Stdio::from))
                    .process_group(0)
                    .spawn();
                match started {
                    Ok(child) => {
                        self.leader = Some(Pid::from_child(&child));
                        tell(&News::Started { pid: child.id() as i32 });
                    }
                    Err(error) => {
                        tell(&News::CannotStart { errno: error.raw_os_error().unwrap_or(0) });
                    }
                }
            }
        }
        Ok(())
    }

    fn look_at_the_clock(&mut self) {
        let now = SystemClock.now().as_nanos();
        if self.leader.is_none() {
            return;
        }
        if now >= self.plan.kill_at || self.stage == Stage::Killed {
            self.kill();
        } else if now >= self.plan.stop_at && self.stage < Stage::Stopping {
            self.stop();
        }
    }

    /// The process group of the leader, for as long as its number cannot be anybody else's.
    fn group(&self) -> Option<Pid> {
        self.leader.filter(|_| self.end.is_none())
    }

    fn stop(&mut self) {
        if self.stop_signal == Signal::KILL {
            return self.kill();
        }
        self.stage = Stage::Stopping;
        match self.group() {
            Some(group) => {
                let _ = kill_process_group(group, self.stop_signal);
                // A stopped process cannot even end.
                let _ = kill_process_group(group, Signal::CONT);
                tell(&News::Ending { signal: self.stop_signal.as_raw() });
            }
            None => {
                let who = descendants::names(&descendants::alive(self.children()));
                tell(&News::Leftovers { who });
            }
        }
        self.ask_the_rest();
    }

    /// Once, and only those who are there now: what they start in order to tidy up is left alone.
    fn ask_the_rest(&mut self) {
        let defiers = self.sweep.ask(self.children(), self.stop_signal, self.group());
        tell_of(&defiers);
    }

    fn kill(&mut self) {
        if self.stage < Stage::Killed {
            self.stage = Stage::Killed;
            self.post.starts_killing();
            if let Some(group) = self.group() {
                // All at once; those that left the group come next.
                let _ = kill_process_group(group, Signal::KILL);
                tell(&News::Ending { signal: Signal::KILL.as_raw() });
            }
        }
        let defiers = self.sweep.kill(|| children(self.post.us).unwrap_or_default());
        tell_of(&defiers);
    }

    fn children(&self) -> Vec<Pid> {
        children(self.post.us).unwrap_or_default()
    }

    /// Takes note of children that ended or were stopped; says whether no descendant is left.
    fn bury(&mut self) -> bool {
        let had_ended = self.end.is_some();
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if Some(pid) == self.leader => self.leader_changed(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => {
                    if let Some(end) = self.end {
                        tell(&News::Ended(End { at: SystemClock.now().as_nanos(), ..end }));
                    }
                    return self.end.is_some();
                }
            }
        }
        if self.end.is_some() && !had_ended {
            self.turn_to_the_rest();
        }
        false
    }

    fn leader_changed(&mut self, status: WaitStatus) {
        if let Some(signal) = status.stopping_signal() {
            // What is being ended may stop once more; that is nobody's business any longer.
            if self.stage == Stage::Running {
                tell(&News::Suspended { signal });
            }
        } else if let Some(code) = code_of(status) {
            self.end = Some(End { code, forced: self.stage > Stage::Running, at: u64::MAX });
        }
    }

    /// What the command left running works under the same lock.
    fn turn_to_the_rest(&mut self) {
        tell(&News::LeaderEnded);
        match self.stage {
            Stage::Running => {
                let stop_at = SystemClock.now().plus(PATIENCE);
                self.plan.stop_at = self.plan.stop_at.min(stop_at.as_nanos());
                self.plan.kill_at = self.plan.kill_at.min(stop_at.plus(self.grace).as_nanos());
            }
            Stage::Stopping => self.ask_the_rest(),
            Stage::Killed => {}
        }
    }
}

fn code_of(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}
