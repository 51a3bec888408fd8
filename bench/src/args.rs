//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::scenarios::Scenario;

/// Measure what a lock costs, beside a bare client and other libraries
///
/// Starts its own servers and contestants and leaves nothing behind. Contestants take turns in each
/// round; figures are medians over the rounds, ratios compare within a round.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What this process is, if not the bench.
    #[command(subcommand)]
    pub part: Option<Part>,
    /// What to measure
    #[arg(required = true, value_enum, value_name = "SCENARIO")]
    pub scenarios: Vec<Scenario>,
    /// How long each turn of a contestant lasts, in seconds [default: 1; 60 for many-leases; 5
    /// for each phase of server-killed]
    #[arg(long, value_parser = seconds)]
    pub secs: Option<f64>,
    /// How many turns each contestant has
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    pub rounds: usize,
    /// Write the rows here, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the rows here, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// On which servers
    #[arg(long, value_enum, default_value = "redis")]
    pub server: ServerKind,
    /// Only these contestants
    #[arg(long, value_delimiter = ',', value_name = "CONTESTANT")]
    pub only: Vec<String>,
    /// Only these numbers of tasks
    #[arg(long, value_delimiter = ',', value_name = "TASKS", value_parser = at_least_one)]
    pub concurrency: Vec<usize>,
    /// At most so many leases in many-leases and growth-leases
    #[arg(long, default_value_t = 50_000, value_parser = at_least_one)]
    pub leases: usize,
    /// At most so many waiters in many-waiters, growth-waiters and server-waiters
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    pub waiters: usize,
    /// At most so many fences in growth-fences
    #[arg(long, default_value_t = 10_000_000, value_parser = at_least_one)]
    pub fences: usize,
    /// What Rust contestants run on
    #[arg(long, value_enum, default_value = "current")]
    pub runtime: RuntimeKind,
}

impl Args {
    /// How long a turn lasts.
    pub fn turn(&self) -> f64 {
        self.secs.unwrap_or(1.0)
    }
}

/// What a process of the bench may be besides the bench itself.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// Draw rows that were measured before
    Draw {
        /// What `--json` wrote; several files are drawn one below the other
        #[arg(required = true, value_name = "ROWS")]
        rows: Vec<PathBuf>,
        /// Where to draw, as SVG
        #[arg(long, value_name = "FILE")]
        svg: PathBuf,
    },
    /// A lock server
    #[command(hide = true)]
    Serve {
        /// Where its nodes are.
        addrs: String,
        /// Where it listens.
        listen: Option<String>,
    },
    /// A contestant
    #[command(hide = true)]
    Child {
        /// Who, where and how, as JSON.
        role: String,
    },
}

/// Which servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerKind {
    /// Redis 7.0, or what the tests found
    Redis,
    /// Valkey 9, which has a native compare-and-delete
    Valkey,
}

/// Which tokio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RuntimeKind {
    /// One thread
    Current,
    /// Two worker threads
    Multi,
}

impl RuntimeKind {
    /// How many threads that is.
    pub fn threads(self) -> usize {
        match self {
            RuntimeKind::Current => 1,
            RuntimeKind::Multi => 2,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let secs: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match secs.is_finite() && secs >= 0.01 {
        true => Ok(secs),
        false => Err("a turn takes at least a hundredth of a second".to_owned()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a whole number".to_owned()),
    }
}
