//! Waiting for a condition instead of sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

/// Short enough not to slow a test down, long enough to leave the processor to the servers.
const POLL_EVERY: Duration = Duration::from_millis(3);

/// Returns as soon as `condition` holds; panics with `what` when it does not within `limit`.
/// The condition is looked at once more after the limit, so a slow machine gets a fair last look.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(limit, condition), "not within {limit:?}: {what}");
}

pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        let last_look = Instant::now() >= end;
        if condition() {
            return true;
        }
        if last_look {
            return false;
        }
        thread::sleep(POLL_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_once_the_condition_holds() {
        let mut looks = 0;
        eventually(Duration::from_secs(10), "the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "not within 20ms: pigs fly")]
    fn panics_with_what_it_waited_for() {
        eventually(Duration::from_millis(20), "pigs fly", || false);
    }
}
