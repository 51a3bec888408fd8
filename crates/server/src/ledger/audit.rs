//! What is written for the record: who was refused, who took a lock away. It has a target of its own in
//! the log, which no filter switches off, and a ring of its own among the events.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Refusals that are written at once, and how many more each second. All others are counted, and the next
/// line says how many: whoever is let in by nobody must not fill a disk.
const AT_ONCE: f64 = 20.0;
const PER_SECOND: f64 = 1.0;

/// What is written of refusals, and what is left out.
pub(crate) struct Refusals(Mutex<State>);

struct State {
    room: f64,
    at: Instant,
    left_out: u64,
}

impl Refusals {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(State { room: AT_ONCE, at: now, left_out: 0 }))
    }

    /// Whether this one is written; with how many before it were not.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(state.at).as_secs_f64();
        state.room = (state.room + passed * PER_SECOND).min(AT_ONCE);
        state.at = now;
        if state.room < 1.0 {
            state.left_out += 1;
            return None;
        }
        state.room -= 1.0;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn some_refusals_are_written_and_the_others_are_counted() {
        let begin = Instant::now();
        let refusals = Refusals::new(begin);
        let written = (0..1000).filter(|_| refusals.admit(begin).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(refusals.admit(begin + Duration::from_secs(1)), Some(980));
        assert_eq!(refusals.admit(begin + Duration::from_secs(1)), None);
        let later = begin + Duration::from_secs(3600);
        assert_eq!(refusals.admit(later), Some(1));
        assert_eq!((0..1000).filter(|_| refusals.admit(later).is_some()).count(), 19);
    }
}
