//! What the user typed: the commands and what all of them understand. Each command's own flags
//! stand in its file.

use clap::{Parser, Subcommand};

use crate::commands::{hold, run};

/// Distributed locks for people who cannot afford two holders
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Args {
    /// Where the locks live: sqlite:PATH, redis://a,b,c, rediss://…, unix://…
    #[arg(
        long,
        global = true,
        env = "LEASEHOLD_BACKEND",
        default_value = "sqlite:",
        hide_env_values = true
    )]
    pub(crate) backend: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Hold(hold::Args),
}
