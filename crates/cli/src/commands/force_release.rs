//! `leasehold force-release NAME --fence N`: take a lock away from a holder that is gone.
//!
//! The one command that can break mutual exclusion, so it wants the fence that the operator saw, a
//! reason, and a confirmation.

use std::io::{BufRead, IsTerminal, Write};

use leasehold::Fence;
use serde_json::json;
use tracing::warn;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::say;

/// Take a lock away from a holder that is gone
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The holder is not asked and not told at once: it may go on until its lease \
                  should have been extended. Only storage that checks the fence keeps it out.\n\n\
                  Example:\n  leasehold status deploy          # shows the fence\n  \
                  leasehold force-release deploy --fence 1763245803123456 --reason 'host db1 is dead' --yes\n\n\
                  Exit codes: 0 free now, or nobody held it; 77 its fence is another: it moved \
                  on since, or never was that; 69 no quorum or backend; 64 no confirmation."
)]
pub(crate) struct Args {
    /// The holder's fence, as `status` shows it; refused if another holds the lock since
    #[arg(long, value_name = "N", value_parser = fence)]
    fence: Fence,
    /// Why, for the record: goes to stderr, to the JSON, to the traces and to a lock server's audit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Which lock
    name: String,
}

const CAVEAT: &str = "this does not stop the holder: until its lease is over it may go on as if it \
                      held the lock, and only storage that checks the fence refuses it";

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let (name, fence, output) = (&args.name, args.fence, context.output);
    if !args.yes {
        confirm(name, fence)?;
    }
    let locks = context.open().await?;
    let released = locks.force_release_because(name, fence, &args.reason).await?;
    warn!(lock = %name, %fence, reason = %args.reason, released, "force-released");
    if output.json {
        output.object(&json!({
            "schema": "leasehold/force-release/v1",
            "name": name,
            "fence": fence.get(),
            "reason": args.reason,
            "released": released,
        }))?;
    }
    if released {
        output.note(&format!("lock `{name}` was taken away from its holder: {}", args.reason));
        output.note(CAVEAT);
    } else {
        output.note(&format!("lock `{name}` was not held: nothing was taken away"));
    }
    Ok(Exit::Success)
}

/// Asks for the lock's name on a terminal.
fn confirm(name: &str, fence: Fence) -> Result<(), Failure> {
    let usage = |text: &str| Failure::Usage(format!("lock `{name}` was left alone: {text}"));
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage("there is no terminal to ask for confirmation; say --yes"));
    }
    say(&format!("taking `{name}` (fence {fence}) away; {CAVEAT}"));
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "type the lock's name to go on: ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    match read {
        Ok(_) if answer.trim_end_matches(['\r', '\n']) == name => Ok(()),
        _ => Err(usage("that was not its name")),
    }
}

fn fence(text: &str) -> Result<Fence, String> {
    text.parse()
        .ok()
        .and_then(Fence::new)
        .ok_or_else(|| format!("`{text}` is not a fence; `leasehold status` shows it"))
}
