//! `leasehold hold NAME`: hold a lock until standard input ends, a signal comes or the time is over.
//!
//! Prints one line of JSON on standard output when it holds: `schema` (`leasehold/hold/v1`), `name`,
//! `fence`, `holder`, `ttl_ms`. A script reads that line, does its work, and closes the pipe; it may
//! also die, with the same effect.

use std::io::Read;
use std::time::Duration;

use leasehold::ValidityError;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::oneshot;

use crate::child::report::Reporter;
use crate::child::signals::Signals;
use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::waiting::Asking;

/// Hold a lock until standard input ends
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints one line of JSON when the lock is held: schema, name, fence, holder, \
                  ttl_ms.\n\nExit codes: 0 when standard input ended, TERM, INT or HUP came, or \
                  the time was over; 79 if the lease was lost; 75 busy; 69 no quorum or \
                  backend; 78 bad configuration; 64 usage."
)]
pub(crate) struct Args {
    #[command(flatten)]
    asking: Asking,
    /// Give the lock back after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    time: Option<Duration>,
    /// Which lock
    name: String,
}

pub(crate) async fn exec(hold: &Args, context: &Context) -> Result<Exit, Failure> {
    let ending = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    let mut signals = Signals::listen(&ending).map_err(Failure::Signals)?;
    let report = Reporter::new(&hold.name, context.output);
    let ttl = hold.asking.ttl(context);
    let locks = context.open().await?;
    let (guard, waited) = match hold.asking.acquire(context, &locks, &hold.name, &mut signals).await
    {
        Ok(acquired) => acquired,
        Err(failure) => return hold.asking.refused(context, failure),
    };
    report.acquired(&guard, ttl, waited);
    let line = json!({
        "schema": "leasehold/hold/v1",
        "name": guard.name().as_str(),
        "fence": guard.fence().get(),
        "holder": guard.holder().as_str(),
        "ttl_ms": duration::millis(ttl),
    });
    let is_heard = context.output.object(&line).is_ok();
    let lost = tokio::select! {
        // Whoever closed the pipe cannot know that the lock is held.
        () = std::future::ready(()), if !is_heard => None,
        end = end_of_input() => match end {
            Ok(()) => None,
            Err(failure) => {
                report.released(&guard.release().await);
                return Err(failure);
            }
        },
        _ = signals.next_end() => None,
        () = tokio::time::sleep(hold.time.unwrap_or(Duration::MAX)) => None,
        loss = guard.lost() => Some(loss),
    };
    // Also if we were stopped: nobody knows what came first then, the end of the lease or our own.
    let lost = lost.map_or_else(|| guard.ensure_valid(Duration::ZERO), |loss| Err(loss.into()));
    if let Err(ValidityError::Lost(loss)) = &lost {
        report.lost(loss, false);
    }
    let released = guard.release().await;
    report.released(&released);
    match (lost, Failure::of_release(&hold.name, &released)) {
        (Err(ValidityError::Lost(loss)), _) => Err(Failure::LostHold(loss)),
        (_, Some(failure)) => Err(failure),
        _ => Ok(Exit::Success),
    }
}

/// On a thread that nobody waits for: reading cannot be cancelled.
async fn end_of_input() -> Result<(), Failure> {
    let (ended, end) = oneshot::channel();
    let read = move || {
        let mut input = std::io::stdin();
        // An error is an end, too. What is typed interests nobody.
        while input.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0) {}
        let _ = ended.send(());
    };
    std::thread::Builder::new().name("stdin".into()).spawn(read).map_err(|error| {
        Failure::System { what: "cannot start a thread for the standard input".into(), error }
    })?;
    let _ = end.await;
    Ok(())
}
