//! Waiting for other processes. SQLite's own handler sleeps up to 100 ms between two looks, so that
//! a process which asks rarely loses against those that ask all the time: measured with eight
//! processes, some waited for seconds. Here a waiter looks often, and the more often the longer it
//! waits, at random times so that two of them do not step on each other for ever.

use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Error, ErrorCode, ffi};

/// Up to here a waiter is one of many: a transaction takes some 20 µs, so with eight processes at
/// it most have their turn by then.
const YOUNG: Duration = Duration::from_millis(5);

/// Carries `attempt` out, again and again while other processes are in the way, until `until`. The
/// last refusal is returned then.
pub(super) fn patiently<T>(
    until: Instant,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut begun = None;
    loop {
        let error = match attempt() {
            Err(error) if is_busy(&error) => error,
            done => return done,
        };
        let now = Instant::now();
        if now >= until {
            return Err(error);
        }
        let begun = *begun.get_or_insert(now);
        // The lock was free, yet somebody wrote while we took it: it is likely free again.
        if !is_outdated(&error) {
            thread::sleep(pause(now - begun).min(until - now));
        }
    }
}

/// Whether only other processes were in the way. Nothing was written then.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed)
    )
}

fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(ffi, _) if ffi.extended_code == ffi::SQLITE_BUSY_SNAPSHOT)
}

/// Microseconds from a range that becomes smaller with age: who waits longest looks most often.
fn pause(waited: Duration) -> Duration {
    let (least, span) = if waited < YOUNG { (50, 200) } else { (20, 60) };
    Duration::from_micros(u64::from(least + crate::chance::jitter() % span))
}
