//! Asking for a lock on the command line: the flags that `run` and `hold` have in common, and the
//! waiting, which a signal can end at any time.

pub(crate) mod line;
mod outage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Guard, LockRequest, Locks};
use rustix::process::Signal;

use crate::child::report::Reporter;
use crate::child::signals::Signals;
use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use line::Refusals;
use outage::Outage;

/// The longest label that a holder may have, in bytes.
const LABEL_BYTES_MAX: usize = 200;

/// How to ask for the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Asking {
    /// Do not wait if the lock is held
    #[arg(short = 'n', long, conflicts_with = "wait")]
    nonblock: bool,
    /// Wait at most this long, like 30s or 5m; a plain number is seconds, 0 does not wait; without
    /// it, for as long as it takes
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Exit with this code if the lock is held by another, instead of 75
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// How long the lock stays taken if nobody is left to give it back [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Give the lock up after this time, whatever happens
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// Who holds the lock, for others to read, instead of user@host:pid
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,
    /// Why, for others to read
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Waits for the lock, shows on a terminal who has it, and says if nobody can tell.
pub(crate) async fn watched(
    request: LockRequest,
    name: &str,
    output: Output,
) -> Result<Guard, Failure> {
    let outage: Arc<Outage> = Arc::default();
    let refusal: Arc<Refusals> = Arc::default();
    let (of_outage, of_line) = (outage.clone(), refusal.clone());
    let request = request.on_refusal(move |error| {
        of_outage.note(error);
        of_line.note(error);
    });
    let has_line = !output.quiet && !output.json && line::can_be_shown();
    let acquired = async {
        match has_line {
            true => line::show_while(request.acquire(), name, &refusal).await,
            false => request.acquire().await,
        }
    };
    let report = Reporter::new(name, output);
    tokio::select! {
        biased;
        acquired = acquired => Ok(acquired?),
        never = outage.tell(&report) => match never {},
    }
}

impl Asking {
    /// How long the lock stays taken by itself.
    pub(crate) fn ttl(&self, context: &Context) -> Duration {
        context.settings.ttl_or(self.ttl)
    }

    /// The guard, and how long it took to get it.
    pub(crate) async fn acquire(
        &self,
        context: &Context,
        locks: &Locks,
        name: &str,
        signals: &mut Signals,
    ) -> Result<(Guard, Duration), Failure> {
        let begun = Instant::now();
        let acquired = tokio::select! {
            biased;
            acquired = self.wait_for(context, self.request(context, locks, name), name) => acquired,
            signal = signals.next_end() => {
                let signal = u8::try_from(signal.as_raw()).unwrap_or(Signal::TERM.as_raw() as u8);
                Err(Failure::Interrupted { name: name.to_owned(), signal })
            }
        };
        if acquired.is_err() {
            // What some nodes may have granted is on its way back, and would end with us.
            locks.settle().await;
        }
        Ok((acquired?, begun.elapsed()))
    }

    async fn wait_for(
        &self,
        context: &Context,
        request: LockRequest,
        name: &str,
    ) -> Result<Guard, Failure> {
        let wait = self.wait.or(context.settings.wait.value);
        if self.nonblock || wait == Some(Duration::ZERO) {
            let guard = request.try_acquire().await?;
            return guard.ok_or_else(|| Failure::Busy(name.to_owned()));
        }
        let request = match wait {
            Some(wait) => request.wait(wait),
            None => request.wait_forever(),
        };
        watched(request, name, context.output).await
    }

    fn request(&self, context: &Context, locks: &Locks, name: &str) -> LockRequest {
        let mut request = locks.lock(name).ttl(self.ttl(context));
        if let Some(limit) = self.max_hold {
            request = request.max_hold(limit);
        }
        match self.label(context) {
            Some(label) => request.holder(label),
            None => request,
        }
    }

    /// `user@host:pid (reason)`, or what was given; `None` for what the library says by itself.
    fn label(&self, context: &Context) -> Option<String> {
        let given = self.holder.as_ref().or(context.settings.holder.value.as_ref());
        let who = match (given, &self.reason) {
            (None, None) => return None,
            (Some(holder), _) => holder.clone(),
            (None, Some(_)) => leasehold::default_holder(),
        };
        let label = match &self.reason {
            Some(reason) => format!("{who} ({reason})"),
            None => who,
        };
        let printable = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
        Some(label.chars().map(printable).take(LABEL_BYTES_MAX).collect())
    }

    /// What to exit with when the lock was not acquired, if the caller asked for something else
    /// than usual.
    pub(crate) fn refused(&self, context: &Context, failure: Failure) -> Result<Exit, Failure> {
        if Exit::from(&failure) != Exit::Busy {
            return Err(failure);
        }
        let code = self.conflict_exit_code.map_or(Exit::Busy, Exit::Child);
        context.output.note(&failure.to_string());
        Ok(code)
    }
}
