//! What the user typed. No behaviour.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Distributed locks for people who cannot afford two holders
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Args {
    /// Where the locks live: sqlite:PATH, redis://a,b,c, rediss://…, unix://…
    #[arg(long, env = "LEASEHOLD_BACKEND", default_value = "sqlite:", hide_env_values = true)]
    pub(crate) backend: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = "Exit codes: the command's own; 128+N if signal N ended it; 75 busy; \
                            69 no quorum or backend; 79 lease lost; 78 bad configuration; 64 usage; \
                            126 or 127 if the command cannot be started.\n\nThe command finds \
                            LEASEHOLD_NAME, LEASEHOLD_FENCE, LEASEHOLD_HOLDER and LEASEHOLD_TTL_MS \
                            in its environment. Storage that checks the fence refuses a holder that \
                            is too late.")]
    Run(Run),
}

/// `leasehold run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Do not wait if the lock is held
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most this long, like 30s or 5m; without it, for as long as it takes
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// How long the lock stays taken if this process dies
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Duration,
    /// Which lock
    pub(crate) name: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}
