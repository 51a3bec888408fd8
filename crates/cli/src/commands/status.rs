//! `leasehold status NAME`: who holds a lock, as each node sees it.

use std::time::SystemTime;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::shown::Shown;

/// Show who holds a lock, since when, and what each node says
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  leasehold status deploy\n  leasehold status deploy --json | jq .fence\n\n\
                  Exit codes: 0 answered, held or not; 69 no quorum or backend; 77 refused."
)]
pub(crate) struct Args {
    /// Which lock
    name: String,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let status = context.open().await?.inspect(&args.name).await?;
    let shown = Shown::new(&status, SystemTime::now());
    if context.output.json {
        context.output.object(&shown.json())?;
    } else {
        context.output.text(&shown.text(context.output))?;
    }
    Ok(Exit::Success)
}
