//! Traces on stderr, only if somebody asks: a plain `run` pays nothing for this file.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::output::Output;

/// Begins to write traces: those that `filter` lets through, or by the number of `-v`.
pub(crate) fn start(verbose: u8, filter: Option<&str>, output: &Output) -> Result<(), Failure> {
    let targets = match (filter, verbose) {
        (Some(filter), _) => filter.parse::<Targets>().map_err(|error| {
            let hint = "write it like leasehold=debug";
            Failure::Config(format!("log filter `{filter}`: {error}; {hint}"))
        })?,
        (None, 0) => return Ok(()),
        (None, 1) => Targets::new().with_target("leasehold", LevelFilter::INFO),
        (None, 2) => Targets::new().with_target("leasehold", LevelFilter::DEBUG),
        (None, _) => Targets::new().with_target("leasehold", LevelFilter::TRACE),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(output.paints_stderr())
        .with_target(false);
    // Fails only if somebody else set one, and then traces go there.
    let _ = tracing_subscriber::registry().with(targets).with(lines).try_init();
    Ok(())
}
