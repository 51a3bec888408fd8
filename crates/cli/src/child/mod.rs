//! The command that runs under a lock, and the three processes that see to it that it never outlives
//! its lease.
//!
//! ```text
//!   leasehold run ──parent of──►  lease-warden ──►  lease-guardian ──►  the command, leader of its
//!   (supervisor)                                                        process group
//! ```
//!
//! The supervisor (here and in `supervisor`) keeps the lease and passes signals on; the guardian
//! starts the command and acts upon time; the warden acts upon time if the guardian does not. Each
//! is a subreaper, so all descendants of the command stay below the guardian, or below the next one
//! above it once the guardian is dead. Whichever two of the three are killed or stopped, the third
//! ends the command.

mod descendants;
pub(crate) mod guardian;
mod kin;
mod message;
mod post;
pub(crate) mod report;
pub(crate) mod signals;
mod socket;
mod supervisor;
mod terminal;
pub(crate) mod warden;

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
use message::{News, Order, Plan};
pub(crate) use supervisor::supervise;

/// How long guardian and warden may take to end that has nothing to do any more.
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

/// The supervisor's end of guardian and warden.
#[derive(Debug)]
pub(crate) struct Guardian {
    socket: UnixStream,
    /// To the warden, which is our child; the guardian is the warden's.
    warden: UnixStream,
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
        let (to_warden, of_warden) = socket::pair()?;
        let stop_signal = match manner.on_lost {
            OnLost::Kill => Signal::KILL,
            OnLost::Term | OnLost::Warn => manner.stop_signal,
        };
        // Itself, even if the file was replaced since.
        let process = Command::new("/proc/self/exe")
            .arg0(warden::PROCESS_NAME)
            .arg(warden::COMMAND)
            .arg(manner.grace.as_nanos().to_string())
            .arg(stop_signal.as_raw().to_string())
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(of_warden))
            .process_group(0)
            .spawn()?;
        let first = Order::Extend(Plan::NEVER).to_bytes();
        socket::send(to_warden.as_fd(), &first, Some(theirs.as_fd()))?;
        Ok(Self { socket: heard(ours)?, warden: heard(to_warden)?, process, strangers })
    }

    fn send(&self, order: &Order) -> io::Result<()> {
        let input = io::stdin();
        let (file, plan) = match order {
            Order::Start { plan, .. } => (Some(input.as_fd()), plan),
            Order::Extend(plan) => (None, plan),
        };
        // First, so that it knows the end of the lease before there is a command.
        socket::send(self.warden.as_fd(), &Order::Extend(*plan).to_bytes(), None)?;
        socket::send(self.socket.as_fd(), &order.to_bytes(), file)
    }

    /// What the guardian has said already, whether or not the runtime has noticed.
    fn heard(&self) -> Option<News> {
        let (bytes, _) = receive(&self.socket).ok()??;
        News::from_bytes(&bytes)
    }

    /// What guardian or warden say next; `None` if one of them is dead.
    async fn news(&self) -> Option<News> {
        tokio::select! {
            biased;
            news = next(&self.socket) => news,
            // The warden has nothing to say unless it cannot do its work.
            news = next(&self.warden) => news,
        }
    }

    /// Why guardian or warden ended before they did anything.
    fn excuse(&self) -> Option<io::Error> {
        [&self.socket, &self.warden].into_iter().find_map(|socket| {
            let (bytes, _) = receive(socket).ok()??;
            match News::from_bytes(&bytes)? {
                News::CannotWatch { errno } => Some(io::Error::from_raw_os_error(errno)),
                _ => None,
            }
        })
    }

    /// Has the guardian end the command, if it is there, and itself.
    fn dismiss(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

fn heard(socket: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn receive(socket: &UnixStream) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    match socket::receive(socket.as_fd()) {
        // Said once if it ended with an order unread; its last words come after that.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            socket::receive(socket.as_fd())
        }
        received => received,
    }
}

async fn next(socket: &UnixStream) -> Option<News> {
    loop {
        socket.readable().await.ok()?;
        match socket.try_io(Interest::READABLE, || receive(socket)) {
            Ok(Some((bytes, _))) => return News::from_bytes(&bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

impl Drop for Guardian {
    /// Waits for the warden's end, which waits for the guardian's, which the end of the sockets
    /// brings about: not every container has somebody to bury the dead of others.
    fn drop(&mut self) {
        self.dismiss();
        let _ = rustix::net::shutdown(&self.warden, rustix::net::Shutdown::Both);
        let until = Instant::now() + BURIAL;
        // One that is stopped cannot end.
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_micros(100));
        }
    }
}
