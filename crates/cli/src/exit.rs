//! The one table of exit codes.

use std::process::ExitCode;

use leasehold::{AcquireError, Loss, OpenError};
use thiserror::Error;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// The command's own code, or 128 + the signal that ended it.
    Child(u8),
    /// EX_USAGE.
    Usage,
    /// EX_UNAVAILABLE: no quorum, no backend.
    Unavailable,
    /// EX_TEMPFAIL: somebody else holds the lock.
    Busy,
    /// EX_CONFIG.
    Config,
    /// The first code after those of sysexits: the lease was lost and the command was stopped.
    Lost,
    /// As shells say it: the command cannot be executed.
    NotExecutable,
    /// As shells say it: there is no such command.
    NotFound,
}

/// What went wrong.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Acquire(#[from] AcquireError),
    #[error("lock `{0}` is held by another")]
    Busy(String),
    #[error("{0}; the command was stopped")]
    Lost(#[from] Loss),
    #[error("{0}")]
    LostHold(Loss),
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}; the command went on without it")]
    LostAndWentOn(Loss),
    #[error("lock `{0}`: the lease could not be kept; the command was stopped before it ran out")]
    NotKept(String),
    #[error("lock `{name}`: held for max-hold, {limit:?}; the command was stopped")]
    HeldTooLong { name: String, limit: std::time::Duration },
    #[error("cannot start `{command}`: {error}")]
    Start { command: String, error: std::io::Error },
    /// As `Start`, where it is not known what was to be started.
    #[error("cannot start the command: {0}")]
    CannotRun(std::io::Error),
    #[error(
        "cannot start the guardian: {0}\nhint: it is this program again, started from /proc/self/exe"
    )]
    Guardian(std::io::Error),
    #[error(
        "lock `{0}`: the guardian process was killed, so the command was ended, too\n\
         hint: to end a command early, send a signal to leasehold itself"
    )]
    GuardianDied(String),
    #[error("{0}")]
    Usage(String),
    #[error("lock `{name}`: no longer waited for, after signal {signal}")]
    Interrupted { name: String, signal: u8 },
}

impl From<&Failure> for Exit {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Open(OpenError::Options(_) | OpenError::File(_)) => Self::Config,
            Failure::Open(_) => Self::Unavailable,
            Failure::Acquire(AcquireError::Options(_)) => Self::Usage,
            Failure::Acquire(error) if error.is_held() => Self::Busy,
            Failure::Acquire(_) => Self::Unavailable,
            Failure::Busy(_) => Self::Busy,
            Failure::Lost(_)
            | Failure::LostHold(_)
            | Failure::LostAndWentOn(_)
            | Failure::NotKept(_)
            | Failure::HeldTooLong { .. } => Self::Lost,
            Failure::Guardian(_) | Failure::Signals(_) => Self::Unavailable,
            // The command was ended by SIGKILL.
            Failure::GuardianDied(_) => Self::Child(128 + 9),
            Failure::Usage(_) => Self::Usage,
            Failure::Interrupted { signal, .. } => Self::Child(128 + signal),
            Failure::Start { error, .. } | Failure::CannotRun(error) => match error.kind() {
                std::io::ErrorKind::NotFound => Self::NotFound,
                _ => Self::NotExecutable,
            },
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Child(code) => code,
            Exit::Usage => 64,
            Exit::Unavailable => 69,
            Exit::Busy => 75,
            Exit::Config => 78,
            Exit::Lost => 79,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
        })
    }
}
