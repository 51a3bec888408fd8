//! The guardian: a process of its own that starts the command, and ends it when nobody else can.
//!
//! It is the command's parent and knows one thing about the lease: until when the command may run.
//! A supervisor that was killed closes the socket, and the group is killed at once; one that is
//! stopped, swapped out or starved sends no newer plan, and the group is ended by the plan it sent
//! last. So time is acted upon in one place, and here nothing else can delay it: no network, no
//! disk, no output.
//!
//! It is not in the command's process group nor in the supervisor's, takes no notice of the signals
//! that ask programs to end, and is gone when the group is.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use rustix::process::{kill_process_group, test_kill_process_group, waitpid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::message::{End, News, Order, Plan};
use super::signals::Ignored;
use super::socket;

/// The hidden command that makes this program a guardian. Followed by the grace in nanoseconds, the
/// number of the stop signal, and the command.
pub(crate) const COMMAND: &str = "__guard";

/// What the process is called. Not by the program's name, so that a `pkill -9` of that name leaves
/// one behind that can tidy up.
pub(crate) const PROCESS_NAME: &str = "lease-guardian";

/// How often what is left of a group is looked at, whose leader has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long the dead may take to disappear. Something that hangs in the kernel can do no more harm
/// than it has done.
const BURIAL: Duration = Duration::from_secs(1);

/// Ends with the group. The exit code interests nobody.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match Guardian::new(arguments).and_then(|mut guardian| guardian.watch()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Guardian {
    command: Vec<OsString>,
    stop_signal: Signal,
    grace: Duration,
    /// Absolute times on the clock of leases: it also runs out while the machine sleeps.
    timer: OwnedFd,
    /// Readable when a child changed.
    changes: UnixStream,
    group: Option<Pid>,
    plan: Plan,
    stage: Stage,
    /// How the leader ended, while others of its group are left.
    end: Option<End>,
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
        Ok(Self {
            command: arguments.collect(),
            stop_signal,
            grace: Duration::from_nanos(grace),
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?,
            changes,
            group: None,
            plan: Plan::NEVER,
            stage: Stage::Running,
            end: None,
        })
    }

    fn watch(&mut self) -> io::Result<()> {
        let control = io::stdin();
        loop {
            self.set_timer()?;
            let mut ready = [
                PollFd::new(&control, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.changes, PollFlags::IN),
            ];
            let timeout = self.end.map(|_| timespec(LOOK_EVERY));
            match poll(&mut ready, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            let [has_order, _, has_changed] = ready.map(|fd| !fd.revents().is_empty());
            // Time first: whatever else there is may be late already.
            self.look_at_the_clock();
            if has_changed {
                let _ = io::Read::read(&mut &self.changes, &mut [0; 64]);
                self.look_at_the_command();
            }
            if self.is_over() {
                return Ok(());
            }
            if has_order {
                match socket::receive(control.as_fd()) {
                    Ok(Some((bytes, input))) => match Order::from_bytes(&bytes) {
                        Some(order) => self.obey(order, input)?,
                        None => return self.abandon(),
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The supervisor is no more.
                    Ok(None) | Err(_) => return self.abandon(),
                }
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
            Order::Start { plan, .. } if SystemClock.now().as_nanos() >= plan.stop_at => {
                self.tell(News::TooLate);
            }
            Order::Start { plan, fence, holder } => {
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
                        self.group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                        self.tell(News::Started { pid: child.id() as i32 });
                    }
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(0);
                        self.tell(News::CannotStart { errno });
                    }
                }
            }
        }
        Ok(())
    }

    fn look_at_the_clock(&mut self) {
        let now = SystemClock.now().as_nanos();
        if now >= self.plan.kill_at && self.stage < Stage::Killed {
            self.end_with(Signal::KILL);
        } else if now >= self.plan.stop_at && self.stage < Stage::Stopping {
            self.end_with(self.stop_signal);
        }
    }

    fn end_with(&mut self, signal: Signal) {
        let Some(group) = self.group else { return };
        self.stage = if signal == Signal::KILL { Stage::Killed } else { Stage::Stopping };
        // Fails only if nobody is left.
        let _ = kill_process_group(group, signal);
        if signal != Signal::KILL {
            // Whoever is stopped cannot even end.
            let _ = kill_process_group(group, Signal::CONT);
        }
        if self.end.is_none() {
            self.tell(News::Ending { signal: signal.as_raw() });
        }
    }

    fn look_at_the_command(&mut self) {
        let Some(group) = self.group else { return };
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while self.end.is_none()
            && let Ok(Some((_, status))) = waitpid(Some(group), options)
        {
            if let Some(signal) = status.stopping_signal() {
                // What is being ended may stop once more; that is nobody's business any longer.
                if self.stage == Stage::Running {
                    self.tell(News::Suspended { signal });
                }
            } else if let Some(code) = code_of(status) {
                self.end = Some(End { code, forced: self.stage > Stage::Running });
                self.end_the_rest(group);
            }
        }
    }

    /// What the command left running in its group works under the same lock.
    fn end_the_rest(&mut self, group: Pid) {
        if test_kill_process_group(group).is_ok() && self.stage == Stage::Running {
            let now = SystemClock.now();
            self.plan.kill_at = self.plan.kill_at.min(now.plus(self.grace).as_nanos());
            self.end_with(self.stop_signal);
        }
    }

    /// Whether nothing is left to watch; says so to the supervisor.
    fn is_over(&mut self) -> bool {
        let (Some(end), Some(group)) = (self.end, self.group) else { return false };
        let too_long = self.plan.kill_at.saturating_add(BURIAL.as_nanos() as u64);
        if test_kill_process_group(group).is_ok() && SystemClock.now().as_nanos() < too_long {
            return false;
        }
        self.tell(News::Ended(end));
        true
    }

    fn abandon(&mut self) -> io::Result<()> {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        Ok(())
    }

    fn tell(&self, news: News) {
        // A supervisor that cannot hear it is dead, which is noticed elsewhere, or stopped for so
        // long that it will learn the rest from the end of this process.
        let _ = rustix::net::send(io::stdin(), &news.to_bytes(), SendFlags::DONTWAIT);
    }

    fn set_timer(&self) -> io::Result<()> {
        let next = match self.stage {
            _ if self.group.is_none() => u64::MAX,
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
