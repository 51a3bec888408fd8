//! `leasehold extend TOKEN`: make a lease of `acquire` last for another ttl.

use std::time::Duration;

use leasehold::{LeaseToken, Locks};
use serde_json::json;

use super::acquire::{give_back, print, uptime};
use crate::context::Context;
use crate::duration::{self, millis, short};
use crate::exit::{Exit, Failure};
use crate::given::Given;

/// One part in so many may be spent to find out how long the nodes keep it.
const OF_WHAT_IS_LEFT: u32 = 8;

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
    /// How long it shall last from now on [default: as before]; shortens nothing
    #[arg(short = 't', long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// What `acquire` printed; - reads it from standard input, @FILE from a file
    token: Given,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let mut token = args.token.token(context.output)?;
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
    let kept = match args.ttl {
        Some(_) => kept(&locks, &token, left / OF_WHAT_IS_LEFT).await,
        None => None,
    };
    let more = args.ttl.map(|_| json!({"nodes_keep_ms": kept.map(millis)}));
    if !print(context, &token, (uptime, left), more)? {
        give_back(&locks, &token).await;
        return Err(Failure::over(&token));
    }
    let (name, fence, left) = (&token.name, token.fence, short(left));
    context.output.note(&format!("lock `{name}` is held with fence {fence} for another {left}"));
    // Without an older end the nodes keep it for the ttl at most.
    if let Some(kept) = kept.filter(|kept| *kept > token.ttl) {
        context.output.note(&format!(
            "its end before was later and stands: the nodes keep lock `{name}` from others for another \
             {}, unless it is released",
            short(kept)
        ));
    }
    Ok(Exit::Success)
}

/// For how long the nodes keep a lease, if enough of them say so in time.
async fn kept(locks: &Locks, token: &LeaseToken, limit: Duration) -> Option<Duration> {
    let status =
        tokio::time::timeout(limit, locks.inspect(token.name.as_str())).await.ok()?.ok()?;
    let is_ours = status.holder().is_some_and(|owner| owner.is(&token.holder));
    status.expires_in().filter(|_| is_ours)
}
