//! The live line while a lock is waited for: who has it, since when, what is left of the lease, how
//! long we have waited. Only on a terminal, and gone when the waiting is over.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{AcquireError, Guard, NodeReports, Reply};

/// Often enough to look alive.
const REDRAW_EVERY: Duration = Duration::from_millis(250);

/// A lock that is had at once needs no line: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(150);

/// A terminal that says it is narrower than this is not believed.
const COLUMNS_MIN: usize = 20;

pub(crate) fn can_be_shown() -> bool {
    stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Waits for the lock, and shows the line until it is acquired or the future is dropped.
pub(super) async fn show_while(
    acquired: impl Future<Output = Result<Guard, AcquireError>>,
    name: &str,
    Refusals(last): &Refusals,
) -> Result<Guard, AcquireError> {
    let begun = Instant::now();
    tokio::pin!(acquired);
    if let Ok(acquired) = tokio::time::timeout(PATIENCE, &mut acquired).await {
        return acquired;
    }
    let line = Line;
    loop {
        {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner);
            line.draw(&text(name, last.as_ref(), begun.elapsed()));
        }
        if let Ok(acquired) = tokio::time::timeout(REDRAW_EVERY, &mut acquired).await {
            return acquired;
        }
    }
}

/// The last of the refusals while a lock is waited for.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Option<Refusal>>);

impl Refusals {
    pub(super) fn note(&self, error: &AcquireError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Refusal::of(error));
    }
}

/// What the last attempt met with.
struct Refusal {
    who: String,
    /// When the holder acquired it, in microseconds of the wall clock.
    since: Option<u64>,
    left: Option<Duration>,
    at: Instant,
}

impl Refusal {
    fn of(error: &AcquireError) -> Self {
        let (who, since, left) = match error {
            AcquireError::Held { owner, expires_in, nodes, .. } => {
                let who = owner.as_ref().map_or_else(|| "another".to_owned(), ToString::to_string);
                (format!("by {who}"), acquired_at(nodes), *expires_in)
            }
            AcquireError::NoQuorum { nodes, .. } => {
                (format!("only {} of {} nodes answer", nodes.answered(), nodes.0.len()), None, None)
            }
            _ => ("refused".to_owned(), None, None),
        };
        Self { who, since, left, at: Instant::now() }
    }
}

/// When the holder acquired the lock, as far as the nodes can tell, in microseconds of the wall clock.
fn acquired_at(nodes: &NodeReports) -> Option<u64> {
    let since = |reply: &Reply| match reply {
        Reply::Busy { since, .. } => since.map(|since| since.0),
        _ => None,
    };
    let replies = nodes.0.iter().filter_map(|report| report.answer.as_ref()?.as_ref().ok());
    replies.filter_map(since).max()
}

/// What may be long comes last, where a narrow terminal cuts it off.
fn text(name: &str, refusal: Option<&Refusal>, waited: Duration) -> String {
    let mut text = format!("waiting {} for `{name}`", short(waited));
    let Some(Refusal { who, since, left, at }) = refusal else { return text };
    text.push_str(": ");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let Some(held) = since.and_then(|since| now.checked_sub(Duration::from_micros(since))) {
        text.push_str(&format!("held for {}, ", short(held)));
    }
    if let Some(left) = left {
        let left = left.saturating_sub(at.elapsed());
        text.push_str(&format!("{} of its lease left, ", short(left)));
    }
    text + who
}

/// `4.2s`, `3m 07s`, `2h 05m`.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// The line on the terminal; dropped, it is erased.
pub(crate) struct Line;

/// To the first column, and everything right of it away.
const ERASE: &str = "\r\x1b[K";

impl Line {
    pub(crate) fn draw(&self, text: &str) {
        let size = rustix::termios::tcgetwinsize(stderr()).map(|size| usize::from(size.ws_col));
        // A terminal that does not know its size says 0.
        let columns = size.ok().filter(|columns| *columns >= COLUMNS_MIN).unwrap_or(80);
        let printable = text.chars().map(|c| if c.is_control() { '?' } else { c });
        // One less: some terminals begin a new line with the last column.
        let shown: String = printable.take(columns - 1).collect();
        let _ = stderr().write_all(format!("{ERASE}{shown}").as_bytes());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = stderr().write_all(ERASE.as_bytes());
    }
}

/// Makes place for a sentence where a line may stand.
pub(super) fn erase() {
    if can_be_shown() {
        let _ = stderr().write_all(ERASE.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_who_how_long_and_what_is_left() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let refusal = Refusal {
            who: "by ana@db1:7".into(),
            since: Some(now - 65_000_000),
            left: Some(Duration::from_secs(3600)),
            at: Instant::now(),
        };
        let line = text("l", Some(&refusal), Duration::from_millis(1500));
        let wanted =
            "waiting 1.5s for `l`: held for 1m 05s, 59m 59s of its lease left, by ana@db1:7";
        assert_eq!(line, wanted);
        assert_eq!(text("l", None, Duration::from_secs(7500)), "waiting 2h 05m for `l`");
    }
}
