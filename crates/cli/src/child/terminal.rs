//! The terminal, and whose turn it is to have it.
//!
//! The command has a process group of its own. With that group in the foreground the terminal sends
//! it Ctrl-C and Ctrl-Z as if it had been started without us. In a pipeline our own group has other
//! members that may need the terminal, a pager for instance: there the command gets it only when it
//! reaches for it, and until then what the terminal sends us is passed on.

use std::fs::File;
use std::io::{IsTerminal, stderr, stdin, stdout};
use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{self, Pid};
use rustix::termios::{self, OptionalActions, Termios};

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: OwnedFd,
    us: Pid,
    modes: Option<Termios>,
    /// Whether the command gets the terminal from the start.
    is_ours_alone: bool,
}

impl Terminal {
    /// `None` where no terminal is in sight.
    ///
    /// Blocks SIGTTOU for this thread and for what it starts: only so may a process in the
    /// background hand the terminal over.
    pub(crate) fn open() -> Option<Self> {
        let (input, output) = (stdin().is_terminal(), stdout().is_terminal());
        if !input && !output && !stderr().is_terminal() {
            return None;
        }
        let tty: OwnedFd = File::options().read(true).write(true).open("/dev/tty").ok()?.into();
        let mut ttou = SigSet::empty();
        ttou.add(NixSignal::SIGTTOU);
        ttou.thread_block().ok()?;
        let modes = termios::tcgetattr(&tty).ok();
        Some(Self { tty, us: process::getpgrp(), modes, is_ours_alone: input && output })
    }

    /// Gives the terminal to the command when it starts or goes on, unless others may need it.
    pub(crate) fn give_first(&self, group: Pid) {
        if self.is_ours_alone {
            self.give(group);
        }
    }

    /// Gives the terminal to `group`, if it is ours to give; says whether it has it.
    pub(crate) fn give(&self, group: Pid) -> bool {
        match termios::tcgetpgrp(&self.tty) {
            Ok(foreground) if foreground == group => true,
            Ok(foreground) if foreground == self.us => termios::tcsetpgrp(&self.tty, group).is_ok(),
            _ => false,
        }
    }

    /// Takes the terminal back from `group`, if it has it; says whether it had.
    pub(crate) fn take_back(&self, group: Pid) -> bool {
        termios::tcgetpgrp(&self.tty) == Ok(group) && termios::tcsetpgrp(&self.tty, self.us).is_ok()
    }

    /// Takes the terminal back for good. What was killed could not tidy up: an editor's raw mode
    /// would leave a terminal that shows nothing of what is typed.
    pub(crate) fn finish(&self, group: Pid, was_killed: bool) {
        if self.take_back(group)
            && was_killed
            && let Some(modes) = &self.modes
        {
            // It may have been hung up; then there is nothing to restore.
            let _ = termios::tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }
}

/// Whether somebody above us does job control, and so could continue us after a stop: what POSIX
/// calls a process group that is not orphaned.
pub(crate) fn can_be_continued() -> bool {
    let Some(parent) = process::getppid() else { return false };
    let same_session = process::getsid(Some(parent)) == process::getsid(None);
    let other_group = process::getpgid(Some(parent)).is_ok_and(|group| group != process::getpgrp());
    same_session && other_group
}
