//! What guardian and warden have in common: a process that does nothing but wait for an order, for a
//! time and for the end of a child, and that nothing but SIGKILL and SIGSTOP keep from it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::descendants::{self, Defier};
use super::message::{News, Order};
use super::signals::Ignored;
use super::socket;

/// How often those are killed again who are still there.
const KILL_EVERY: Duration = Duration::from_millis(5);

/// … and when they have shown for a while that they stay.
const KILL_EVERY_LATER: Duration = Duration::from_millis(250);

/// How long that is.
const FIRST: Duration = Duration::from_secs(2);

pub(super) struct Post {
    pub(super) us: Pid,
    /// Absolute times on the clock of leases: it also runs out while the machine sleeps.
    timer: OwnedFd,
    /// Readable when a child changed.
    changes: UnixStream,
    /// Nobody is left to give orders.
    pub(super) is_abandoned: bool,
    /// Since when everybody is killed who is found.
    killing_since: Option<u64>,
}

/// What woke us.
pub(super) enum Event {
    /// The other end of the socket is gone.
    Abandoned,
    Order(Order, Option<OwnedFd>),
    Nothing,
}

impl Post {
    pub(super) fn new(name: &CStr) -> io::Result<Self> {
        // Cosmetic.
        let _ = rustix::thread::set_name(name);
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
        Ok(Self { us, timer, changes, is_abandoned: false, killing_since: None })
    }

    /// Waits until `time` (in nanoseconds), for an order or for a child that changed. Says whether
    /// there is an order and whether a child changed.
    pub(super) fn wait_until(&self, time: u64) -> io::Result<[bool; 2]> {
        self.set_timer(time)?;
        let control = io::stdin();
        let mut ready = [
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.changes, PollFlags::IN),
            PollFd::new(&control, PollFlags::IN),
        ];
        // A socket whose other end is gone is always ready.
        let heard = if self.is_abandoned { 2 } else { 3 };
        match poll(&mut ready[..heard], self.timeout().as_ref()) {
            Err(Errno::INTR) => return Ok([false, false]),
            result => result?,
        };
        let [_, has_changed, has_order] = ready.map(|fd| !fd.revents().is_empty());
        if has_changed {
            let _ = io::Read::read(&mut &self.changes, &mut [0; 64]);
        }
        Ok([has_order, has_changed])
    }

    /// From now on those who are left are killed again and again.
    pub(super) fn starts_killing(&mut self) {
        self.killing_since.get_or_insert_with(|| SystemClock.now().as_nanos());
    }

    fn timeout(&self) -> Option<Timespec> {
        let since = SystemClock.now().as_nanos().saturating_sub(self.killing_since?);
        let is_first = since < FIRST.as_nanos() as u64;
        Some(timespec(if is_first { KILL_EVERY } else { KILL_EVERY_LATER }))
    }

    fn set_timer(&self, time: u64) -> io::Result<()> {
        // Zero would disarm it, and so may a time that never comes.
        let at = if time == u64::MAX { 0 } else { time.max(1) };
        let spec = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(Duration::from_nanos(at)),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// The next order, if there is one.
    pub(super) fn listen(&mut self) -> Event {
        let received = match socket::receive(control()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Event::Nothing,
            received => received.ok().flatten(),
        };
        match received.and_then(|(bytes, file)| Some((Order::from_bytes(&bytes)?, file))) {
            Some((order, file)) => Event::Order(order, file),
            None => {
                self.is_abandoned = true;
                Event::Abandoned
            }
        }
    }
}

/// The socket to the supervisor is our standard input.
fn control() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

pub(super) fn tell(news: &News) {
    // A supervisor that cannot hear it is dead, which is noticed elsewhere, or stopped for so long
    // that it will learn the rest from the end of this process.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(control().as_fd(), &news.to_bytes(), flags);
}

pub(super) fn tell_of(defiers: &[Defier]) {
    for Defier { pid, is_forbidden } in defiers.iter().copied() {
        tell(&News::Defies { who: descendants::name(pid), is_forbidden });
    }
}

/// Why we cannot do our work.
pub(super) fn tell_why(error: &io::Error) {
    tell(&News::CannotWatch { errno: error.raw_os_error().unwrap_or(0) });
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
