//! `leasehold bench`: what a lock costs on the backend in use. The work is in `bench/load`.

mod load;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::context::Context;
use crate::duration::{self, short};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Tone, heading};
use crate::waiting::line::{self, Line};
use load::{Figures, Load};

/// Measure how fast locks are acquired and released
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes locks whose names begin with `leasehold-bench/`, for no time each, and gives \
                  all of them back; what is left are their fences, which are dropped in time as those \
                  of every lock that nobody uses. It asks the nodes as fast as they answer: on a \
                  cluster in use, others will notice.\n\n\
                  Example:\n  leasehold bench\n  \
                  leasehold bench --secs 10 --concurrency 1,8 --json | jq .acquire_p99_us\n\n\
                  Exit codes: 0; 69 no quorum or backend; 75 somebody else has one of these locks; \
                  77 refused; 78 bad configuration; 128 + signal when interrupted."
)]
pub(crate) struct Args {
    /// How long to measure each number of tasks
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    secs: Duration,
    /// How many tasks take locks at once, one number after the other
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        num_args = 1..,
        default_values_t = [1, 16, 64],
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    concurrency: Vec<u32>,
    /// How many locks each task takes in turn
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    names: u32,
}

/// Columns that the longest bar has.
const BAR: f64 = 24.0;

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let (locks, output) = (context.open().await?, context.output);
    let mut interrupted = Interrupt::new()?;
    let load = Load { locks: &locks, names: args.names, duration: args.secs };
    // What cannot be done once need not be measured.
    load.once().await?;
    let mut measured = Vec::new();
    for (round, &concurrency) in args.concurrency.iter().enumerate() {
        let shown = (!output.quiet && line::can_be_shown()).then(|| Line);
        let draw = |done: Duration| {
            if let Some(line) = &shown {
                line.draw(&progress(args, round, concurrency, done));
            }
        };
        let figures = load.run(concurrency, interrupted.came(), draw).await;
        drop(shown);
        let figures = match figures {
            Ok(figures) => figures,
            Err(signal) => {
                locks.settle().await;
                output.note("interrupted: everything was given back");
                return Ok(Exit::Child(128 + signal));
            }
        };
        if output.json {
            output.object(&object(&figures))?;
        }
        measured.push(figures);
    }
    locks.settle().await;
    if !output.json {
        output.text(&text(output, &measured))?;
    }
    for figures in measured.iter().filter(|figures| figures.failed > 0) {
        let Figures { concurrency, failed, failure, .. } = figures;
        let first = failure.as_deref().unwrap_or("unknown");
        output.note(&format!("{concurrency} task(s): {failed} cycles failed, the first: {first}"));
    }
    Ok(Exit::Success)
}

fn progress(args: &Args, round: usize, concurrency: u32, done: Duration) -> String {
    let share = done.as_secs_f64() / args.secs.as_secs_f64().max(f64::MIN_POSITIVE);
    let filled = (share.min(1.0) * BAR) as usize;
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR as usize - filled));
    let rounds = args.concurrency.len();
    format!("{bar} {} of {rounds}: {concurrency} task(s), {}", round + 1, short(done))
}

fn text(output: Output, measured: &[Figures]) -> String {
    let best = measured.iter().map(Figures::cycles_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let mut rows = vec![heading([
        "tasks",
        "cycles/s",
        "acquire p50",
        "p99",
        "p99.9",
        "release p50",
        "p99",
        "p99.9",
        "",
    ])];
    for figures in measured {
        let mut row = vec![
            (Tone::Plain, figures.concurrency.to_string()),
            (Tone::Plain, format!("{:.0}", figures.cycles_per_s())),
        ];
        for percentiles in [figures.acquire, figures.release] {
            row.extend(percentiles.map(|time| (Tone::Plain, time.map_or("-".into(), short))));
        }
        let columns = (figures.cycles_per_s() / best * BAR).round() as usize;
        row.push((Tone::Good, "█".repeat(columns)));
        rows.push(row);
    }
    output.table(&rows)
}

/// `leasehold/bench/v1`.
fn object(figures: &Figures) -> Value {
    let micros = |time: Option<Duration>| time.map(|time| time.as_nanos() as f64 / 1e3);
    let [acquire_p50, acquire_p99, acquire_p999] = figures.acquire.map(micros);
    let [release_p50, release_p99, release_p999] = figures.release.map(micros);
    json!({
        "schema": "leasehold/bench/v1",
        "concurrency": figures.concurrency,
        "seconds": figures.elapsed.as_secs_f64(),
        "cycles": figures.cycles,
        "cycles_per_s": figures.cycles_per_s(),
        "acquire_p50_us": acquire_p50,
        "acquire_p99_us": acquire_p99,
        "acquire_p999_us": acquire_p999,
        "release_p50_us": release_p50,
        "release_p99_us": release_p99,
        "release_p999_us": release_p999,
        "failed": figures.failed,
    })
}

/// Whoever wants the measuring to end. Locks that are held are given back first.
struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupt {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::Signals);
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: listen(interrupt)?, terminate: listen(terminate)? })
    }

    /// The number of the signal.
    async fn came(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}
