//! `leasehold extend TOKEN`: make a lease of `acquire` last for another ttl.

use std::time::Duration;

use super::acquire::{give_back, print, uptime};
use crate::context::Context;
use crate::duration::{self, short};
use crate::exit::{Exit, Failure};
use crate::given::Given;

/// Extend a lease that `acquire` printed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Succeeds only if the lease never lapsed in between: what ran out, even for a \
                  moment, is lost. Prints the token, which is another one after --ttl.\n\n\
                  Example:\n  echo \"$lease\" | leasehold extend - || exit   # 79: somebody else may hold it\n\n\
                  Exit codes: 0 extended; 79 lost; 69 no quorum or backend, the old end stands; \
                  77 refused."
)]
pub(crate) struct Args {
    /// How long it shall last from now on [default: as before]
    #[arg(short = 't', long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// What `acquire` printed; - reads it from standard input, @FILE from a file
    token: Given,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let mut token = args.token.token()?;
    token.ttl = args.ttl.unwrap_or(token.ttl);
    let locks = context.open().await?;
    let (uptime, left) = match locks.extend_since(&token, uptime).await {
        Ok(extended) => extended,
        Err(error) => {
            // What nodes took back by mistake is on its way to be free again.
            locks.settle().await;
            return Err(error.into());
        }
    };
    if !print(context, &token, uptime, left)? {
        give_back(&locks, &token).await;
        return Err(Failure::over(&token));
    }
    let (name, fence, left) = (&token.name, token.fence, short(left));
    context.output.note(&format!("lock `{name}` is held with fence {fence} for another {left}"));
    Ok(Exit::Success)
}
