//! Traces on stderr, only if somebody asks: a plain `run` pays nothing for this file.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::output::Output;

/// How a server writes its logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// Begins to write traces: those that `filter` lets through, or by the number of `-v`. A server writes
/// some even if nobody asks.
pub(crate) fn start(
    verbose: u8,
    filter: Option<&str>,
    output: &Output,
    server: Option<LogFormat>,
) -> Result<(), Failure> {
    let targets = match (filter, verbose) {
        (Some(filter), _) => filter.parse::<Targets>().map_err(|error| {
            let hint = "write it like leasehold=debug";
            Failure::Config(format!("log filter `{filter}`: {error}; {hint}"))
        })?,
        (None, 0) if server.is_some() => Targets::new()
            .with_target("leasehold", LevelFilter::WARN)
            .with_target("leasehold_server", LevelFilter::INFO)
            .with_target("leasehold::audit", LevelFilter::INFO),
        (None, 0) => return Ok(()),
        (None, 1) => Targets::new().with_target("leasehold", LevelFilter::INFO),
        (None, 2) => Targets::new().with_target("leasehold", LevelFilter::DEBUG),
        (None, _) => Targets::new().with_target("leasehold", LevelFilter::TRACE),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    // Fails only if somebody else set one, and then traces go there.
    let _ = match server {
        Some(LogFormat::Json) => registry.with(lines.json().flatten_event(true)).try_init(),
        Some(LogFormat::Text) => registry.with(lines.with_ansi(output.paints_stderr())).try_init(),
        None => {
            let lines = lines.with_ansi(output.paints_stderr()).with_target(false);
            registry.with(lines).try_init()
        }
    };
    Ok(())
}
