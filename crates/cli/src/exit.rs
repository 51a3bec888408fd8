//! The one table of exit codes.

use std::path::PathBuf;
use std::process::ExitCode;

use leasehold::{
    AcquireError, Cause, ExtendError, Fence, ForceReleaseError, InitError, InspectError,
    LeaseToken, Loss, NodeError, NodeReport, NodeReports, OpenError, Owner, ReleaseOutcome,
};
use leasehold_server::ServerError;
use thiserror::Error;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// `doctor` found something to look at.
    Warnings,
    /// `doctor` found something dangerous.
    Errors,
    /// The command's own code, or 128 + the signal that ended it.
    Child(u8),
    /// EX_USAGE.
    Usage,
    /// EX_UNAVAILABLE: no quorum, no backend.
    Unavailable,
    /// EX_IOERR: the answer cannot be written.
    Io,
    /// EX_TEMPFAIL: somebody else holds the lock.
    Busy,
    /// EX_NOPERM: credentials, rights, another cluster's nodes, a fence that moved on.
    Refused,
    /// EX_CONFIG.
    Config,
    /// The first code after those of sysexits: the lease was lost.
    Lost,
    /// As shells say it: the command cannot be executed.
    NotExecutable,
    /// As shells say it: there is no such command.
    NotFound,
    /// As if SIGPIPE had ended it: the reader of our output left.
    ClosedOutput,
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
    #[error("{loss}; these processes of the command still run: {left}")]
    LostAndLeft { loss: Loss, left: String },
    #[error("{0}")]
    LostHold(Loss),
    #[error("{0}; the command had ended in time, but --min-hold was not over")]
    LostAfterwards(Loss),
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}; the command went on without it")]
    LostAndWentOn(Loss),
    #[error("lock `{0}`: the lease could not be kept; the command was stopped before it ran out")]
    NotKept(String),
    #[error("lock `{0}`: the lease was over before the command could be started; it was not")]
    NotStarted(String),
    #[error("lock `{name}`: held for max-hold, {limit:?}; the command was stopped")]
    HeldTooLong { name: String, limit: std::time::Duration },
    #[error("cannot start `{command}`: {error}")]
    Start { command: String, error: std::io::Error },
    #[error("{0}")]
    Extend(#[from] ExtendError),
    #[error("{0}")]
    TakenOver(String),
    #[error(
        "lock `{name}` (fence {fence}): the lease was over before it could be handed out, and was given back"
    )]
    Over { name: String, fence: Fence },
    #[error("{text}: {nodes}")]
    NoQuorum { text: String, nodes: NodeReports },
    #[error("{0}")]
    Inspect(#[from] InspectError),
    #[error("{0}")]
    ForceRelease(#[from] ForceReleaseError),
    #[error("{0}")]
    Init(#[from] InitError),
    #[error("{0}")]
    Server(#[from] ServerError),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Config(String),
    #[error("cannot write to the standard output: {0}")]
    Output(std::io::Error),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
    #[error("{what}: {error}")]
    System { what: String, error: std::io::Error },
    /// As `Start`, where it is not known what was to be started.
    #[error("cannot start the command: {0}")]
    CannotRun(std::io::Error),
    #[error(
        "cannot start the guardian: {0}\nhint: it is this program again, started from /proc/self/exe"
    )]
    Guardian(std::io::Error),
    #[error(
        "lock `{0}`: its guardian or warden process was killed, so the command was ended, too\n\
         hint: to end a command early, send a signal to leasehold itself"
    )]
    GuardianDied(String),
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
            Failure::Acquire(AcquireError::NoQuorum { nodes, .. }) => missing(nodes),
            Failure::Acquire(_) => Self::Unavailable,
            Failure::Busy(_) => Self::Busy,
            Failure::Lost(_)
            | Failure::LostAndLeft { .. }
            | Failure::LostHold(_)
            | Failure::LostAfterwards(_)
            | Failure::LostAndWentOn(_)
            | Failure::NotKept(_)
            | Failure::NotStarted(_)
            | Failure::HeldTooLong { .. } => Self::Lost,
            Failure::Guardian(_) | Failure::Signals(_) => Self::Unavailable,
            // The command was ended by SIGKILL.
            Failure::GuardianDied(_) => Self::Child(128 + 9),
            Failure::Interrupted { signal, .. } => Self::Child(128 + signal),
            Failure::Start { error, .. } | Failure::CannotRun(error) => match error.kind() {
                std::io::ErrorKind::NotFound => Self::NotFound,
                _ => Self::NotExecutable,
            },
            Failure::Extend(ExtendError::Lost(_))
            | Failure::TakenOver(_)
            | Failure::Over { .. } => Self::Lost,
            Failure::Extend(ExtendError::NoQuorum { nodes, .. }) => missing(nodes),
            Failure::Extend(_) => Self::Usage,
            Failure::NoQuorum { nodes, .. } => missing(nodes),
            Failure::Inspect(InspectError::NoQuorum { nodes }) => missing(nodes),
            Failure::Inspect(_) => Self::Usage,
            Failure::ForceRelease(
                ForceReleaseError::FenceMovedOn { .. } | ForceReleaseError::NoFence { .. },
            ) => Self::Refused,
            Failure::ForceRelease(ForceReleaseError::NoQuorum { nodes, .. }) => missing(nodes),
            Failure::ForceRelease(_) => Self::Usage,
            Failure::Init(InitError::Unreachable { error, .. }) => match error {
                NodeError::Denied { .. } => Self::Refused,
                _ => Self::Unavailable,
            },
            Failure::Init(_) => Self::Refused,
            Failure::Server(ServerError::Tokens { .. } | ServerError::Tls(_)) => Self::Config,
            Failure::Server(_) => Self::Unavailable,
            Failure::Usage(_) => Self::Usage,
            Failure::Config(_) => Self::Config,
            Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                Self::ClosedOutput
            }
            Failure::Output(_) | Failure::Write { .. } => Self::Io,
            Failure::System { .. } => Self::Unavailable,
        }
    }
}

impl Failure {
    /// Nothing is left of what is to be printed.
    pub(crate) fn over(token: &LeaseToken) -> Self {
        Self::Over { name: token.name.to_string(), fence: token.fence }
    }

    /// A release found somebody else where we should be.
    fn taken_over(name: &str, by: &Owner) -> Self {
        Self::TakenOver(format!(
            "lock `{name}` was not held any more when it was given back: {by} has it, and nobody can \
             tell since when"
        ))
    }

    /// A release found nobody, and fences that moved on.
    fn superseded(name: &str, fence: Fence) -> Self {
        Self::TakenOver(format!(
            "lock `{name}` was not held any more when it was given back: it was taken away by force, or \
             others had it since (fence {fence}), and nobody can tell since when"
        ))
    }

    /// Why a lease that was given back was not ours any more, if it was not.
    pub(crate) fn of_release(name: &str, outcome: &ReleaseOutcome) -> Option<Self> {
        match outcome {
            ReleaseOutcome::TakenOver { by } => Some(Self::taken_over(name, by)),
            ReleaseOutcome::Superseded { fence } => Some(Self::superseded(name, *fence)),
            _ => None,
        }
    }

    /// What a newcomer needs to know beyond what went wrong.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        let (Self::Acquire(AcquireError::NoQuorum { nodes, .. })
        | Self::NoQuorum { nodes, .. }
        | Self::Inspect(InspectError::NoQuorum { nodes })) = self
        else {
            return None;
        };
        let is_first_life = |report: &NodeReport| {
            let forgot = Some(Cause::Forgot);
            matches!(&report.answer, Some(Err(NodeError::NotVoting { cause, .. })) if *cause == forgot)
        };
        nodes
            .0
            .iter()
            .all(is_first_life)
            .then_some("if these nodes are new and never held a lock, run: leasehold init")
    }
}

/// Without a quorum: refused if it would be there had nobody denied us, unavailable otherwise.
fn missing(nodes: &NodeReports) -> Exit {
    let denied = nodes.denied();
    if denied > 0 && nodes.answered() + denied >= nodes.needed() {
        Exit::Refused
    } else {
        Exit::Unavailable
    }
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Warnings => 1,
            Self::Errors => 2,
            Self::Child(code) => code,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Io => 74,
            Self::Busy => 75,
            Self::Refused => 77,
            Self::Config => 78,
            Self::Lost => 79,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::ClosedOutput => 141,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
