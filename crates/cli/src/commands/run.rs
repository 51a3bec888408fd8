//! `leasehold run NAME -- CMD`: hold a lock while a command runs, and end the command if the lease
//! cannot be kept. How that is made sure stands in `child`.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use leasehold::{Guard, ValidityError};
use rustix::process::Signal;

use crate::child::report::Reporter;
use crate::child::signals::{self, FORWARDED, Signals};
use crate::child::{self, Guardian, Manner, OnLost};
use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::waiting::Asking;

/// Run a command while holding a lock
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: the command's own; 128+N if signal N ended it; 75 busy; 69 no quorum \
                  or backend; 79 lease lost; 77 refused; 78 bad configuration; 64 usage; 126 or \
                  127 if the command cannot be started.\n\nThe command finds LEASEHOLD_NAME, \
                  LEASEHOLD_FENCE, LEASEHOLD_HOLDER, LEASEHOLD_TTL_MS and LEASEHOLD_BACKEND in its \
                  environment. Storage that checks the fence refuses a holder that is too \
                  late.\n\nThe command runs in a process group of its own. What it leaves running \
                  when it ends, in whatever group or session, is ended, too, before the lock is \
                  given back.\n\nExamples:\n  \
                  leasehold run nightly-backup -- ./backup.sh\n  \
                  leasehold run -n report -- ./report.sh --all\n  \
                  leasehold run -w 5m deploy -c './build && ./deploy'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    asking: Asking,
    /// Run this through `sh -c` instead of a command with arguments
    #[arg(short = 'c', long = "command", value_name = "STRING", conflicts_with = "command")]
    shell: Option<OsString>,
    /// How long before the end of the lease the command is asked to stop; at most half the ttl, a
    /// third of it (5s at most) if nothing is said
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    grace: Option<Duration>,
    /// What to do with the command if the lease cannot be kept
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term")]
    on_lost: OnLost,
    /// The signal that asks the command to stop
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    stop_signal: Signal,
    /// Keep the lock at least this long, even if the command ends sooner
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    min_hold: Option<Duration>,
    /// Which lock
    name: String,
    /// The command and its arguments
    #[arg(required_unless_present = "shell", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) async fn exec(run: &Args, context: &Context) -> Result<Exit, Failure> {
    let manner = run.manner(context)?;
    let report = Reporter::new(&run.name, context.output);
    let mut signals = Signals::listen(&FORWARDED).map_err(Failure::Signals)?;
    // Started before the lock is asked for, so that both take their time together.
    let guardian = Guardian::spawn(&run.command(), &manner, &run.environment(context))
        .map_err(Failure::Guardian)?;
    let locks = context.open().await?;
    let (guard, waited) = match run.asking.acquire(context, &locks, &run.name, &mut signals).await {
        Ok(acquired) => acquired,
        Err(failure) => return run.asking.refused(context, failure),
    };
    let since = Instant::now();
    report.acquired(&guard, manner.ttl, waited);
    let mut outcome = child::supervise(&guardian, &guard, &manner, &mut signals, &report).await;
    if outcome.result.is_ok()
        && let Some(least) = run.min_hold
        && let Err(failure) =
            stay(least.saturating_sub(since.elapsed()), &guard, &mut signals, &report).await
    {
        outcome.result = Err(failure);
    }
    if outcome.is_gone {
        let released = guard.release().await;
        report.released(&released);
        if let (Ok(_), Some(failure)) = (&outcome.result, Failure::of_release(&run.name, &released))
        {
            outcome.result = Err(failure);
        }
    } else {
        // Not given back: whatever is left of the command keeps others out until the lease ends.
        guard.detach();
    }
    match outcome.result {
        Ok(code) => Ok(Exit::Child(code)),
        Err(Failure::CannotRun(error)) => {
            let command = run.command().first().map(|program| program.to_string_lossy().into());
            Err(Failure::Start { command: command.unwrap_or_default(), error })
        }
        Err(failure) => Err(failure),
    }
}

/// Holds the lock a little longer, unless it is lost or somebody wants us to end.
async fn stay(
    time: Duration,
    guard: &Guard,
    signals: &mut Signals,
    report: &Reporter,
) -> Result<(), Failure> {
    let lost = tokio::select! {
        () = tokio::time::sleep(time) => None,
        loss = guard.lost() => Some(loss),
        _ = signals.next_end() => None,
    };
    // Also if we were stopped, and the time of both was over when we went on.
    match lost.map_or_else(|| guard.ensure_valid(Duration::ZERO), |loss| Err(loss.into())) {
        Err(ValidityError::Lost(loss)) => {
            report.lost(&loss, false);
            Err(Failure::LostAfterwards(loss))
        }
        _ => Ok(()),
    }
}

impl Args {
    fn manner(&self, context: &Context) -> Result<Manner, Failure> {
        let ttl = self.asking.ttl(context);
        // A third of the ttl: the first two attempts to extend lie before it.
        let grace = self.grace.unwrap_or_else(|| (ttl / 3).min(Duration::from_secs(5)));
        if grace > ttl / 2 {
            return Err(Failure::Usage(format!(
                "--grace {grace:?} is more than half of --ttl {ttl:?}\n\
                 hint: the lease is extended after a third of its ttl; with a longer grace the \
                 command would be stopped although all is well. Give a longer --ttl"
            )));
        }
        Ok(Manner {
            ttl,
            grace,
            on_lost: self.on_lost,
            stop_signal: self.stop_signal,
            max_hold: self.asking.max_hold,
        })
    }

    fn command(&self) -> Vec<OsString> {
        match &self.shell {
            Some(script) => vec!["sh".into(), "-c".into(), script.clone()],
            None => self.command.clone(),
        }
    }

    /// What the command knows before the lock is held; the guardian adds fence and holder.
    fn environment(&self, context: &Context) -> [(&'static str, String); 4] {
        [
            ("LEASEHOLD_NAME", self.name.clone()),
            ("LEASEHOLD_TTL_MS", self.asking.ttl(context).as_millis().to_string()),
            // Instead of ours, which may hold a password.
            ("LEASEHOLD_BACKEND", without_user(&context.backend)),
            // Empty, which means none: ours is not the command's.
            ("LEASEHOLD_TOKEN", String::new()),
        ]
    }
}

/// The URL without user and password.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may hold anything by mistake: everything up to the last `@` goes.
    let place = rest.rfind('@').map_or(rest, |at| &rest[at + 1..]);
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_stay_here() {
        for (url, shown) in [
            ("redis://u:secret@a:1,b/0", "redis://a:1,b/0"),
            ("redis://u:se@cr/et?@a", "redis://a"),
            ("redis://a,b?prefix=x", "redis://a,b?prefix=x"),
            ("https://:secret@a:1/?ca=x", "https://a:1/?ca=x"),
            ("sqlite:x@y", "sqlite:x@y"),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }
}
