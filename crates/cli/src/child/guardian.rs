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
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use rustix::process::{getpid, kill_process_group, set_child_subreaper, wait};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::descendants::{self, Defier, Sweep, children};
use super::message::{End, News, Order, Plan};
use super::signals::Ignored;
use super::socket;

/// The hidden command that makes this program a guardian. Followed by the grace in nanoseconds, the
/// number of the stop signal, and the command.
pub(crate) const COMMAND: &str = "__guard";

/// What the process is called. Not by the program's name, so that a `pkill -9` of that name leaves
/// one behind that can tidy up.
pub(crate) const PROCESS_NAME: &str = "lease-guardian";

/// What the command leaves has this long to end by itself, as the tail of a pipeline does.
const PATIENCE: Duration = Duration::from_millis(50);

/// How often those are killed again who are still there.
const KILL_EVERY: Duration = Duration::from_millis(5);

/// … and when they have shown that they stay.
const KILL_EVERY_LATER: Duration = Duration::from_millis(250);

/// Ends when no descendant is left. The exit code interests nobody.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let done = Guardian::new(arguments).and_then(|mut guardian| guardian.watch());
    if let Err(error) = done {
        tell(&News::CannotWatch { errno: error.raw_os_error().unwrap_or(0) });
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Guardian {
    command: Vec<OsString>,
    stop_signal: Signal,
    grace: Duration,
    /// Absolute times on the clock of leases: it also runs out while the machine sleeps.
    timer: OwnedFd,
    /// Readable when a child changed.
    changes: UnixStream,
    us: Pid,
    /// The command, which leads a process group of the same number.
    leader: Option<Pid>,
    /// How the leader ended, while descendants of it are left.
    end: Option<End>,
    plan: Plan,
    stage: Stage,
    sweep: Sweep,
    killed_since: u64,
    is_abandoned: bool,
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
        // Cosmetic.
        let _ = rustix::thread::set_name(c"lease-guardian");
        let us = getpid();
        set_child_subreaper(Some(us))?;
        let ignored = Ignored::now();
        for signal in
            [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2]
        {
            if !ignored.contains(signal) {
                signal_hook::flag::register(signal.as_raw(), Arc::new(AtomicBool::new(false)))?;
            }
        }
        let (changes, changed) = UnixStream::pair()?;
        changes.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), changed)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        // A folder and a file, to look for descendants when it matters.
        drop((changes.try_clone()?, changes.try_clone()?));
        Ok(Self {
            command: arguments.collect(),
            stop_signal,
            grace: Duration::from_nanos(grace),
            timer,
            changes,
            us,
            leader: None,
            end: None,
            plan: Plan::NEVER,
            stage: Stage::Running,
            sweep: Sweep::default(),
            killed_since: 0,
            is_abandoned: false,
        })
    }

    fn watch(&mut self) -> io::Result<()> {
        let control = io::stdin();
        loop {
            self.set_timer()?;
            let [has_order, has_changed] = self.wait_for_events(control.as_fd())?;
            // Time first: whatever else there is may be late already.
            self.look_at_the_clock();
            if has_changed {
                let _ = io::Read::read(&mut &self.changes, &mut [0; 64]);
                if self.bury() {
                    return Ok(());
                }
            }
            if has_order && self.listen(control.as_fd())? {
                return Ok(());
            }
        }
    }

    /// Whether there is an order, and whether a child changed.
    fn wait_for_events(&self, control: BorrowedFd<'_>) -> io::Result<[bool; 2]> {
        let timeout = (self.stage == Stage::Killed).then(|| {
            let since = SystemClock.now().as_nanos().saturating_sub(self.killed_since);
            let is_new = since < Duration::from_secs(2).as_nanos() as u64;
            timespec(if is_new { KILL_EVERY } else { KILL_EVERY_LATER })
        });
        let mut ready = [
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.changes, PollFlags::IN),
            PollFd::new(&control, PollFlags::IN),
        ];
        // A socket whose other end is gone is always ready.
        let heard = if self.is_abandoned { 2 } else { 3 };
        match poll(&mut ready[..heard], timeout.as_ref()) {
            Err(Errno::INTR) => return Ok([false, false]),
            result => result?,
        };
        let [_, has_changed, has_order] = ready.map(|fd| !fd.revents().is_empty());
        Ok([has_order, has_changed])
    }

    /// Reads one order; says whether there is nothing left to do.
    fn listen(&mut self, control: BorrowedFd<'_>) -> io::Result<bool> {
        let received = match socket::receive(control) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            received => received.ok().flatten(),
        };
        match received.and_then(|(bytes, input)| Some((Order::from_bytes(&bytes)?, input))) {
            Some((order, input)) => self.obey(order, input).map(|()| false),
            // The supervisor is no more.
            None => {
                self.is_abandoned = true;
                self.kill();
                Ok(self.leader.is_none() || self.bury())
            }
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
                // Whoever is stopped cannot even end.
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
            self.killed_since = SystemClock.now().as_nanos();
            if let Some(group) = self.group() {
                // All at once; whoever left the group comes next.
                let _ = kill_process_group(group, Signal::KILL);
                tell(&News::Ending { signal: Signal::KILL.as_raw() });
            }
        }
        let defiers = self.sweep.kill(|| children(self.us).unwrap_or_default());
        tell_of(&defiers);
    }

    fn children(&self) -> Vec<Pid> {
        children(self.us).unwrap_or_default()
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

    fn set_timer(&self) -> io::Result<()> {
        let next = match self.stage {
            _ if self.leader.is_none() => u64::MAX,
            Stage::Running => self.plan.stop_at.min(self.plan.kill_at),
            Stage::Stopping => self.plan.kill_at,
            Stage::Killed => u64::MAX,
        };
        // Zero would disarm it, and so may a time that never comes.
        let at = if next == u64::MAX { 0 } else { next.max(1) };
        let spec = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(Duration::from_nanos(at)),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

fn tell(news: &News) {
    // A supervisor that cannot hear it is dead, which is noticed elsewhere, or stopped for so long
    // that it will learn the rest from the end of this process.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(io::stdin(), &news.to_bytes(), flags);
}

fn tell_of(defiers: &[Defier]) {
    for Defier { pid, is_forbidden } in defiers.iter().copied() {
        tell(&News::Defies { who: descendants::name(pid), is_forbidden });
    }
}

fn code_of(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
