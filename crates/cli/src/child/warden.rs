//! The warden: stands between supervisor and guardian, so that two of the three may be killed or
//! stopped at the same moment and the third still ends the command in time.
//!
//! It starts the guardian, inherits the command if the guardian dies, and knows the time of SIGKILL
//! from the supervisor. It says nothing: the guardian tells how the command ended, and the end of the
//! warden tells that nobody is left.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use leasehold::clock::{Clock, SystemClock};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};

use super::guardian;
use super::kin::{Kin, Strangers};
use super::message::{Order, Plan};
use super::post::{Event, Post, tell_why};

/// The hidden command that makes this program a warden. Followed by the arguments of the guardian.
pub(crate) const COMMAND: &str = "__ward";

/// What the process is called. Another name again, so that nobody hits all three by one.
pub(crate) const PROCESS_NAME: &str = "lease-warden";

/// Ends when no descendant is left. The exit code interests nobody.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match Post::new(c"lease-warden").and_then(|post| Warden::new(post, arguments).watch()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell_why(&error);
            ExitCode::FAILURE
        }
    }
}

struct Warden {
    post: Post,
    arguments: Vec<OsString>,
    guardian: Option<Pid>,
    kin: Kin,
    plan: Plan,
    is_killing: bool,
}

impl Warden {
    fn new(post: Post, arguments: impl Iterator<Item = OsString>) -> Self {
        let kin = Kin::new(Strangers::default());
        let (arguments, plan) = (arguments.collect(), Plan::NEVER);
        Self { post, arguments, guardian: None, kin, plan, is_killing: false }
    }

    fn watch(&mut self) -> io::Result<()> {
        loop {
            let next = if self.is_killing { u64::MAX } else { self.plan.kill_at };
            let [has_order, has_changed] = self.post.wait_until(next)?;
            if has_order && self.listen()? {
                return Ok(());
            }
            // After the orders: we may have been stopped, and the lease been extended.
            if self.is_killing || SystemClock.now().as_nanos() >= self.plan.kill_at {
                self.kill();
            }
            if has_changed && self.bury() {
                return Ok(());
            }
        }
    }

    /// Reads all orders; says whether there is nothing left to do.
    fn listen(&mut self) -> io::Result<bool> {
        loop {
            match self.post.listen() {
                Event::Order(Order::Extend(plan), None) => self.plan = plan,
                Event::Order(_, socket) => self.start(socket)?,
                Event::Nothing => return Ok(false),
                Event::Abandoned => {
                    // Nobody is left whom the guardian could tell anything.
                    self.kin.spare_nobody();
                    self.kill();
                    return Ok(self.guardian.is_none());
                }
            }
        }
    }

    /// Starts the guardian, which gets the socket that came with the first order.
    fn start(&mut self, socket: Option<OwnedFd>) -> io::Result<()> {
        let guardian = Command::new("/proc/self/exe")
            .arg0(guardian::PROCESS_NAME)
            .arg(guardian::COMMAND)
            .args(&self.arguments)
            .stdin(socket.map_or_else(Stdio::null, Stdio::from))
            .process_group(0)
            .spawn()?;
        let guardian = Pid::from_child(&guardian);
        self.guardian = Some(guardian);
        self.kin.spare(guardian);
        Ok(())
    }

    /// Ends the command, and spares the guardian: it has to tell how the command ended.
    fn kill(&mut self) {
        self.is_killing = true;
        self.post.starts_killing();
        self.kin.kill();
    }

    /// Takes note of children that ended; says whether nobody is left.
    fn bury(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) if Some(pid) == self.guardian => {
                    // A process that it left is ours, and is nobody's command any more.
                    self.kin.spare_nobody();
                    self.kill();
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return self.guardian.is_some(),
            }
        }
    }
}
