//! `leasehold release TOKEN`: give a lease of `acquire` back.

use leasehold::ReleaseOutcome;
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::given::Given;

/// Give back a lease that `acquire` printed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A lease that ran out before, and that nobody else took, is not an error: there \
                  is nothing left to release, and a note says so.\n\n\
                  Example:\n  lease=$(leasehold acquire db --ttl 1m)\n  \
                  trap 'echo \"$lease\" | leasehold release -' EXIT\n\n\
                  Exit codes: 0 released, or had run out; 79 somebody else has or had it since; 69 too \
                  few nodes answered, at worst it stays until its ttl is over; 77 refused."
)]
pub(crate) struct Args {
    /// What `acquire` printed; - reads it from standard input, @FILE from a file
    token: Given,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let token = &args.token.token(context.output)?;
    let locks = context.open().await?;
    let outcome = locks.release(token).await;
    // A quorum is enough to know; the others are to be told before we end, too.
    locks.settle().await;
    let name = &token.name;
    let (word, by) = match &outcome {
        ReleaseOutcome::Released => ("released", None),
        ReleaseOutcome::AlreadyExpired => ("already_expired", None),
        ReleaseOutcome::TakenOver { by } => ("taken_over", Some(by.to_string())),
        ReleaseOutcome::Superseded { .. } => ("superseded", None),
        _ => ("unknown", None),
    };
    if context.output.json {
        context.output.object(&json!({
            "schema": "leasehold/release/v1",
            "name": name.as_str(),
            "fence": token.fence.get(),
            "outcome": word,
            "taken_over_by": by,
        }))?;
    }
    match outcome {
        ReleaseOutcome::Released => context.output.note(&format!("lock `{name}` is free")),
        ReleaseOutcome::AlreadyExpired => context.output.note(&format!(
            "lock `{name}` had run out before, or was released: there was nothing to give back"
        )),
        ReleaseOutcome::TakenOver { by } => {
            return Err(Failure::TakenOver(format!(
                "lock `{name}` (fence {}) had run out before, and {by} holds it now",
                token.fence
            )));
        }
        ReleaseOutcome::Superseded { fence } => {
            return Err(Failure::TakenOver(format!(
                "lock `{name}` (fence {}) had run out, been released or been taken away before, and \
                 its fence is {fence} by now",
                token.fence
            )));
        }
        ReleaseOutcome::Unknown { nodes } => {
            let text = format!(
                "lock `{name}`: too few nodes answered, at worst it stays taken until its ttl is \
                 over"
            );
            return Err(Failure::NoQuorum { text, nodes });
        }
        other => context.output.note(&format!("lock `{name}`: {other:?}")),
    }
    Ok(Exit::Success)
}
