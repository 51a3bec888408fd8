//! The command that runs under a lock, and the two processes that see to it that it never outlives
//! its lease.
//!
//! ```text
//!   leasehold run ──socket──►  lease-guardian ──parent of──►  the command, leader of its group
//!   (supervisor)               (guardian)
//! ```
//!
//! The supervisor (here and in `supervisor`) keeps the lease and passes signals on; the guardian
//! starts the command and acts upon time. Both are subreapers, so all descendants of the command
//! stay below the guardian, or below the supervisor once the guardian is dead. Whichever of the two
//! is killed, the other ends them; killing both at the same moment is the one thing that leaves the
//! command alone.

mod descendants;
pub(crate) mod guardian;
mod kin;
mod message;
pub(crate) mod report;
pub(crate) mod signals;
mod socket;
mod supervisor;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::net::UnixStream;

use kin::Strangers;
use message::{News, Order};
pub(crate) use supervisor::supervise;

/// How long a guardian may take to end that has nothing to do any more.
const BURIAL: Duration = Duration::from_millis(100);

/// What to do with the command when the lease cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// The stop signal, then SIGKILL
    Term,
    /// SIGKILL
    Kill,
    /// A message; the command goes on
    Warn,
}

/// How the command is to be treated.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) stop_signal: Signal,
    pub(crate) max_hold: Option<Duration>,
}

/// The supervisor's end of the guardian.
#[derive(Debug)]
pub(crate) struct Guardian {
    socket: UnixStream,
    process: Child,
    strangers: Strangers,
}

impl Guardian {
    /// Starts a guardian for `command`, which it starts in turn when it is told that the lock is
    /// held. Until then it costs nothing, and its start takes no time that is not spent on asking
    /// for the lock anyway.
    pub(crate) fn spawn(
        command: &[OsString],
        manner: &Manner,
        environment: &[(&str, String)],
    ) -> io::Result<Self> {
        let strangers = Strangers::note()?;
        let (ours, theirs) = socket::pair()?;
        let stop_signal = match manner.on_lost {
            OnLost::Kill => Signal::KILL,
            OnLost::Term | OnLost::Warn => manner.stop_signal,
        };
        // Itself, even if the file was replaced since.
        let process = Command::new("/proc/self/exe")
            .arg0(guardian::PROCESS_NAME)
            .arg(guardian::COMMAND)
            .arg(manner.grace.as_nanos().to_string())
            .arg(stop_signal.as_raw().to_string())
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(theirs))
            .process_group(0)
            .spawn()?;
        let ours = std::os::unix::net::UnixStream::from(ours);
        ours.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(ours)?, process, strangers })
    }

    fn send(&self, order: &Order) -> io::Result<()> {
        let input = io::stdin();
        let file = matches!(order, Order::Start { .. }).then_some(input.as_fd());
        socket::send(self.socket.as_fd(), &order.to_bytes(), file)
    }

    fn receive(&self) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
        match socket::receive(self.socket.as_fd()) {
            // Said once if it ended with an order unread; its last words come after that.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                socket::receive(self.socket.as_fd())
            }
            received => received,
        }
    }

    /// What the guardian has said already, whether or not the runtime has noticed.
    fn heard(&self) -> Option<News> {
        let (bytes, _) = self.receive().ok()??;
        News::from_bytes(&bytes)
    }

    /// What the guardian says next; `None` if it is dead.
    async fn news(&self) -> Option<News> {
        loop {
            self.socket.readable().await.ok()?;
            match self.socket.try_io(Interest::READABLE, || self.receive()) {
                Ok(Some((bytes, _))) => return News::from_bytes(&bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Guardian {
    /// Waits for the guardian's end, which the end of the socket brings about: not every container
    /// has somebody to bury the dead of others.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let until = Instant::now() + BURIAL;
        // One that is stopped cannot end.
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
    }
}
