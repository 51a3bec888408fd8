//! Traces on stderr, only if somebody asks: a plain `run` pays nothing for this file.

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;

use crate::output::Output;

/// How a server writes its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// Which traces somebody asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) text: String,
    targets: Targets,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |error| format!("not a log filter: {error}; write it like leasehold=debug");
        let targets = text.parse().map_err(wrong)?;
        Ok(Self { text: text.to_owned(), targets })
    }
}

/// What is written: what is wanted, or by the number of `-v`; `None` for nothing. A server writes some
/// even if nobody asks.
pub(crate) fn filter(
    verbose: u8,
    wanted: Option<&Wanted>,
    server: Option<LogFormat>,
) -> Option<Targets> {
    let of_leasehold = |level| Some(Targets::new().with_target("leasehold", level));
    let filter = match (wanted, verbose) {
        (Some(wanted), _) => Some(wanted.targets.clone()),
        (None, 0) if server.is_some() => Some(
            Targets::new()
                .with_target("leasehold", LevelFilter::WARN)
                .with_target("leasehold_server", LevelFilter::INFO),
        ),
        (None, 0) => None,
        (None, 1) => of_leasehold(LevelFilter::INFO),
        (None, 2) => of_leasehold(LevelFilter::DEBUG),
        (None, _) => of_leasehold(LevelFilter::TRACE),
    };
    // Who took a lock away is on record whatever else is written.
    match server {
        Some(_) => filter.map(|it| it.with_target("leasehold::audit", LevelFilter::INFO)),
        None => filter,
    }
}

/// Traces that are written, if any are.
#[derive(Debug, Default)]
pub(crate) struct Logs(Option<Handle<Targets, Registry>>);

impl Logs {
    /// Begins to write.
    pub(crate) fn start(filter: Targets, output: &Output, server: Option<LogFormat>) -> Self {
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let (filter, handle) = reload::Layer::new(filter);
        let registry = tracing_subscriber::registry().with(filter);
        // Fails only if somebody else set one, and then traces go there.
        let _ = match server {
            Some(LogFormat::Json) => registry.with(lines.json().flatten_event(true)).try_init(),
            Some(LogFormat::Text) => {
                registry.with(lines.with_ansi(output.paints_stderr())).try_init()
            }
            None => {
                let lines = lines.with_ansi(output.paints_stderr()).with_target(false);
                registry.with(lines).try_init()
            }
        };
        Self(Some(handle))
    }

    /// Writes other traces from now on.
    pub(crate) fn replace(&self, filter: Targets) {
        if let Some(handle) = &self.0 {
            // Fails only when the program ends.
            let _ = handle.reload(filter);
        }
    }
}
