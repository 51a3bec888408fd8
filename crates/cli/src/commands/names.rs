//! `leasehold __names PREFIX`: names of locks, for the shells' completions. Says nothing when
//! something is wrong: nobody wants an error while typing.

use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Names of locks that begin with this
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(default_value = "", allow_hyphen_values = true)]
    prefix: String,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let Ok(locks) = context.open().await else {
        return Ok(Exit::Success);
    };
    for status in locks.list(&args.prefix).await.unwrap_or_default() {
        context.output.text(status.name.as_str())?;
    }
    Ok(Exit::Success)
}
