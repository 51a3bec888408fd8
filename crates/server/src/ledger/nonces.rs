//! The nonces that callers used a moment ago. One that comes again is a request that a proxy repeated: the
//! first of the two may be about to give back what the second one would be granted.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a nonce is remembered at least. A proxy repeats within its own time limits.
const FOR: Duration = Duration::from_secs(60);
/// A bound for a busy server: then the oldest are forgotten sooner.
const MOST: usize = 50_000;

/// Forgotten by halves, so that nothing is ever searched.
pub(super) struct Nonces(Mutex<Halves>);

struct Halves {
    since: Instant,
    recent: HashSet<u128>,
    older: HashSet<u128>,
}

impl Default for Nonces {
    fn default() -> Self {
        let (recent, older) = (HashSet::new(), HashSet::new());
        Self(Mutex::new(Halves { since: Instant::now(), recent, older }))
    }
}

impl Nonces {
    /// Remembers a nonce. Whether it was not there.
    pub(super) fn note(&self, nonce: u128) -> bool {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.since.elapsed() > FOR || halves.recent.len() >= MOST {
            halves.older = std::mem::take(&mut halves.recent);
            halves.since = Instant::now();
        }
        !halves.older.contains(&nonce) && halves.recent.insert(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_fresh_once_and_memory_has_an_end() {
        let nonces = Nonces::default();
        assert!(nonces.note(1) && !nonces.note(1));
        (2..MOST as u128 + 10).for_each(|nonce| assert!(nonces.note(nonce)));
        assert!(!nonces.note(1) && !nonces.note(2), "the older half");
        (0..MOST as u128).for_each(|nonce| _ = nonces.note(nonce << 64));
        let halves = nonces.0.lock().unwrap();
        assert!(halves.recent.len() <= MOST && halves.older.len() <= MOST);
    }
}
