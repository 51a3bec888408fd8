//! `leasehold acquire NAME`: take a lock for a script and print the lease as text.
//!
//! Nobody keeps such a lease in the background: it runs out unless `extend` comes in time.

use std::time::Duration;

use leasehold::clock::{Clock as _, SystemClock};
use leasehold::{AcquireError, Guard, LeaseToken, Locks};
use serde_json::{Value, json};

use crate::context::Context;
use crate::duration::{self, millis, short};
use crate::exit::{Exit, Failure};
use crate::settings::Source;
use crate::waiting;

/// The longest label that a holder may have.
const LABEL_BYTES_MAX: usize = 200;

/// Take a lock and print a lease token, for scripts
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The lease is tied to no process and nobody extends it: it runs out after its \
                  ttl unless `leasehold extend` comes in time. Where one command is to run under \
                  a lock, use `leasehold run`.\n\n\
                  Example:\n  \
                  lease=$(leasehold acquire deploy --ttl 5m -w 30s) || exit\n  \
                  ./step-1.sh && leasehold extend \"$lease\" && ./step-2.sh\n  \
                  leasehold release \"$lease\"\n\n\
                  Exit codes: 0 acquired; 75 held by another; 69 no quorum or backend; 77 refused; \
                  79 acquired, but over before it was printed."
)]
pub(crate) struct Args {
    /// How long the lock stays taken; needed here, or as LEASEHOLD_TTL, or in the settings file
    #[arg(short = 't', long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Do not wait if the lock is held
    #[arg(short = 'n', long, conflicts_with = "wait")]
    nonblock: bool,
    /// Wait at most this long, like 30s or 5m; without it, for as long as it takes
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Who holds it, for others to read, instead of user@host:pid
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,
    /// Why, for people; shown beside the holder
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Which lock
    name: String,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    if args.ttl.is_none() && context.settings.ttl.source == Source::Default {
        let text = "acquire needs --ttl: nobody extends this lease by itself, so say how long it \
                    may last, like --ttl 5m";
        return Err(Failure::Usage(text.into()));
    }
    let locks = context.open().await?;
    let guard = ask(&locks, args, context).await?;
    let (uptime, validity) = (uptime(), guard.validity());
    let token = guard.detach();
    let is_good = print(context, &token, (uptime, validity), None);
    if !matches!(is_good, Ok(true)) {
        // Nobody got the token, so nobody could give the lock back; or nobody may use it.
        give_back(&locks, &token).await;
        is_good?;
        return Err(Failure::over(&token));
    }
    let (name, fence, left) = (&token.name, token.fence, short(validity));
    context.output.note(&format!("lock `{name}` is held with fence {fence} for {left}"));
    Ok(Exit::Success)
}

/// Prints a lease of which so much was left at that uptime, with more members of its object, and says
/// whether it is good. The program can be stopped at any moment, so it looks before and after.
pub(crate) fn print(
    context: &Context,
    token: &LeaseToken,
    (read_at, validity): (Duration, Duration),
    more: Option<Value>,
) -> Result<bool, Failure> {
    let is_over = || uptime() >= read_at + validity;
    if is_over() {
        return Ok(false);
    }
    if context.output.json {
        let mut object = lease(token, read_at, validity);
        if let (Some(object), Some(Value::Object(more))) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        context.output.object(&object)?;
    } else {
        context.output.text(&token.to_string())?;
    }
    Ok(!is_over())
}

/// What is over at the nodes, too, is another's or nobody's, and stays so.
pub(crate) async fn give_back(locks: &Locks, token: &LeaseToken) {
    let _ = locks.release(token).await;
    locks.settle().await;
}

async fn ask(locks: &Locks, args: &Args, context: &Context) -> Result<Guard, Failure> {
    let mut request = locks.lock(&args.name).ttl(context.settings.ttl_or(args.ttl)).manual();
    if let Some(label) = label(args, context) {
        request = request.holder(label);
    }
    let nonblock = args.nonblock.then_some(Duration::ZERO);
    let request = match nonblock.or(args.wait).or(context.settings.wait.value) {
        Some(wait) => request.wait(wait),
        None => request.wait_forever(),
    };
    let failure = match waiting::watched(request, &args.name, context.output).await {
        Ok(guard) => return Ok(guard),
        Err(failure) => failure,
    };
    // Some nodes may have granted it: they get it back before we end.
    locks.settle().await;
    Err(match failure {
        // Without waiting, who holds it is all there is to tell.
        Failure::Acquire(AcquireError::TimedOut { attempts: 1, last: Some(last), .. }) => {
            (*last).into()
        }
        failure => failure,
    })
}

/// The reason stands beside the holder: the only words about a lease that every backend keeps. They
/// keep printable ASCII, and not much of it.
fn label(args: &Args, context: &Context) -> Option<String> {
    let holder = args.holder.clone().or_else(|| context.settings.holder.value.clone());
    let Some(reason) = &args.reason else {
        return holder;
    };
    let label = format!("{} ({reason})", holder.unwrap_or_else(leasehold::default_holder));
    let printable = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
    Some(label.chars().map(printable).take(LABEL_BYTES_MAX).collect())
}

/// How long the machine is up, suspends included: the first number of `/proc/uptime`.
pub(crate) fn uptime() -> Duration {
    Duration::from_nanos(SystemClock.now().as_nanos())
}

/// `leasehold/lease/v1`. What is left counts from `uptime`, which was read before it.
fn lease(token: &LeaseToken, uptime: Duration, validity: Duration) -> Value {
    json!({
        "schema": "leasehold/lease/v1",
        "name": token.name.as_str(),
        "token": token.to_string(),
        "fence": token.fence.get(),
        "holder": token.holder.label(),
        "ttl_ms": millis(token.ttl),
        "validity_ms": millis(validity),
        "until_uptime_ms": millis(uptime + validity),
        "nodes_keep_ms": Value::Null,
    })
}
