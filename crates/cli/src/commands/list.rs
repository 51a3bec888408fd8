//! `leasehold list [PREFIX]`: all locks that somebody has.

use std::time::SystemTime;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Tone, heading};
use crate::shown::{Shown, tone};

/// List the locks that are held
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "ls",
    after_help = "Example:\n  leasehold list\n  leasehold list invoice/ --json | jq -r .name\n\n\
                  Exit codes: 0 answered; 69 no quorum or backend; 77 refused."
)]
pub(crate) struct Args {
    /// Only those whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let output = context.output;
    let locks = context.open().await?.list(&args.prefix).await?;
    let now = SystemTime::now();
    if output.json {
        for status in &locks {
            output.object(&Shown::new(status, now).json())?;
        }
        return Ok(Exit::Success);
    }
    if locks.is_empty() {
        output.note("no lock is held");
        return Ok(Exit::Success);
    }
    let mut rows = vec![heading(["lock", "state", "holder", "left", "fence"])];
    for status in &locks {
        let shown = Shown::new(status, now);
        rows.push(vec![
            (Tone::Plain, status.name.to_string()),
            (tone(shown.state()), shown.state().as_str().into()),
            (Tone::Plain, shown.owner().unwrap_or_else(|| "-".into())),
            (Tone::Plain, shown.left_text()),
            (Tone::Plain, shown.fence().map_or("-".into(), |fence| fence.to_string())),
        ]);
    }
    output.text(&output.table(&rows))?;
    Ok(Exit::Success)
}
