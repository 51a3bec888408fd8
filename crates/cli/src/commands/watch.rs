//! `leasehold watch NAME`: a line for each change of a lock, until interrupted.
//!
//! It looks every so often: nodes tell those who wait that a lock may be free, and nobody who has it.
//! Two changes between two looks are seen as one, but never as none: the fence goes up with each
//! acquisition.

use std::time::{Duration, SystemTime};

use leasehold::{InspectError, LockState, Locks};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{Output, Tone};
use crate::shown::{Shown, time};

/// Print each change of a lock until interrupted
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first line says how it is now. Looks are --interval apart; what comes and \
                  goes in between shows only by its fence.\n\n\
                  Example:\n  leasehold watch deploy\n  \
                  leasehold watch deploy --count 2 --json   # now, and the next change\n\n\
                  Exit codes: 0 the time or the number of changes is over; 64 usage."
)]
pub(crate) struct Args {
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "250ms", value_parser = duration::parse)]
    interval: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// End after this many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Which lock
    name: String,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let end = args.duration.and_then(|duration| Instant::now().checked_add(duration));
    let locks = context.open().await?;
    let watching = watch(&locks, args, context.output);
    match end {
        Some(end) => timeout_at(end, watching).await.unwrap_or(Ok(()))?,
        None => watching.await?,
    }
    Ok(Exit::Success)
}

async fn watch(locks: &Locks, args: &Args, output: Output) -> Result<(), Failure> {
    let mut last = None;
    let mut lines = 0;
    loop {
        let seen = look(locks, &args.name, output).await?;
        if last.as_ref() != Some(&seen.what) {
            output.write(&seen.line)?;
            last = Some(seen.what);
            lines += 1;
            if args.count.is_some_and(|count| lines >= count) {
                return Ok(());
            }
        }
        // At least a little, or one watcher keeps every node busy.
        sleep(args.interval.max(Duration::from_millis(10))).await;
    }
}

/// What makes one look differ from another.
#[derive(Debug, PartialEq, Eq)]
enum What {
    Lock { state: LockState, owner: Option<String>, fence: Option<u64> },
    Unknown,
}

struct Look {
    what: What,
    line: String,
}

async fn look(locks: &Locks, name: &str, output: Output) -> Result<Look, Failure> {
    let status = locks.inspect(name).await;
    let now = SystemTime::now();
    let (what, text, value) = match &status {
        Ok(status) => {
            let shown = Shown::new(status, now);
            let (state, owner, fence) = (shown.state(), shown.owner(), shown.fence());
            let text = match (&owner, fence) {
                (Some(owner), Some(fence)) => {
                    format!("{owner}, fence {fence}, {} left", shown.left_text())
                }
                (Some(owner), None) => format!("{owner}, {} left", shown.left_text()),
                (None, Some(fence)) => format!("last fence {fence}"),
                (None, None) => String::new(),
            };
            let text = format!("{:<7}  {text}", state.as_str());
            (What::Lock { state, owner, fence }, text, shown.json())
        }
        // Nobody can tell, which is news, too; the nodes may come back.
        Err(error @ InspectError::NoQuorum { .. }) => {
            let value = json!({"error": error.to_string()});
            (What::Unknown, format!("{:<7}  {error}", "unknown"), value)
        }
        Err(error) => return Err(error.clone().into()),
    };
    let line = if output.json {
        change(now, name, &what, value)
    } else {
        format!("{}  {}\n", time(now), output.paint(Tone::Plain, text.trim_end()))
    };
    Ok(Look { what, line })
}

/// `leasehold/change/v1`.
fn change(now: SystemTime, name: &str, what: &What, value: Value) -> String {
    let (state, status, error) = match what {
        What::Lock { state, .. } => (state.as_str(), value, Value::Null),
        What::Unknown => ("unknown", Value::Null, value["error"].clone()),
    };
    let value = json!({
        "schema": "leasehold/change/v1",
        "at": time(now),
        "name": name,
        "state": state,
        "status": status,
        "error": error,
    });
    format!("{value}\n")
}
