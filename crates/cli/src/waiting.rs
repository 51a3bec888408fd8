//! Asking for a lock on the command line: the flags that `run` and `hold` have in common, and the
//! waiting, which a signal can end at any time.

mod line;

use std::time::{Duration, Instant};

use leasehold::{Guard, LockRequest, Locks};
use rustix::process::Signal;

use crate::child::report::{Reporter, say};
use crate::child::signals::Signals;
use crate::exit::{Exit, Failure};

/// The longest label that a holder may have, in bytes.
const LABEL_BYTES_MAX: usize = 200;

/// How long what was taken but not wanted any more may need to be given back.
const GIVE_BACK: Duration = Duration::from_millis(100);

/// How to ask for the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Asking {
    /// Do not wait if the lock is held
    #[arg(short = 'n', long, conflicts_with = "wait")]
    nonblock: bool,
    /// Wait at most this long, like 30s or 5m; a plain number is seconds, 0 does not wait; without
    /// it, for as long as it takes
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Exit with this code if the lock is held by another, instead of 75
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// How long the lock stays taken if nobody is left to give it back
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Give the lock up after this time, whatever happens
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Who holds the lock, for others to read, instead of user@host:pid
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,
    /// Why, for others to read
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Say nothing that is not an error, and nothing if the lock is held by another
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Say what happens as JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Reads `1.5`, which is seconds, `90s`, `5m` or `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_| "not a time: give seconds, or a unit as in 90s or 5m".to_owned());
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; give seconds, or a unit as in 90s or 5m"))
}

impl Asking {
    pub(crate) fn reporter(&self, name: &str) -> Reporter {
        Reporter { name: name.to_owned(), json: self.json, quiet: self.quiet }
    }

    /// The guard, and how long it took to get it.
    pub(crate) async fn acquire(
        &self,
        locks: &Locks,
        name: &str,
        signals: &mut Signals,
    ) -> Result<(Guard, Duration), Failure> {
        let begun = Instant::now();
        let acquired = tokio::select! {
            biased;
            acquired = self.wait_for(self.request(locks, name), name) => acquired,
            signal = signals.next_end() => {
                // What the dropped request may have been granted is on its way back.
                tokio::time::sleep(GIVE_BACK).await;
                let signal = u8::try_from(signal.as_raw()).unwrap_or(Signal::TERM.as_raw() as u8);
                return Err(Failure::Interrupted { name: name.to_owned(), signal });
            }
        };
        Ok((acquired?, begun.elapsed()))
    }

    async fn wait_for(&self, request: LockRequest, name: &str) -> Result<Guard, Failure> {
        if self.nonblock || self.wait == Some(Duration::ZERO) {
            let guard = request.try_acquire().await?;
            return guard.ok_or_else(|| Failure::Busy(name.to_owned()));
        }
        let request = match self.wait {
            Some(wait) => request.wait(wait),
            None => request.wait_forever(),
        };
        if self.quiet || self.json || !line::can_be_shown() {
            return Ok(request.acquire().await?);
        }
        Ok(line::show_while(request, name).await?)
    }

    fn request(&self, locks: &Locks, name: &str) -> LockRequest {
        let mut request = locks.lock(name).ttl(self.ttl);
        if let Some(limit) = self.max_hold {
            request = request.max_hold(limit);
        }
        match self.label() {
            Some(label) => request.holder(label),
            None => request,
        }
    }

    /// `user@host:pid (reason)`, or what was given; `None` for what the library says by itself.
    fn label(&self) -> Option<String> {
        let who = match (&self.holder, &self.reason) {
            (None, None) => return None,
            (Some(holder), _) => holder.clone(),
            (None, Some(_)) => default_holder(),
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
    pub(crate) fn refused(&self, failure: Failure) -> Result<Exit, Failure> {
        if Exit::from(&failure) != Exit::Busy {
            return Err(failure);
        }
        let code = self.conflict_exit_code.map_or(Exit::Busy, Exit::Child);
        if !self.quiet {
            say(&failure.to_string());
        }
        Ok(code)
    }
}

fn default_holder() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let system = rustix::system::uname();
    format!("{user}@{}:{}", system.nodename().to_string_lossy(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_is_seconds() {
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for bad in ["", "-1", "x", "5 parsecs", "inf", "NaN", "1e300"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
