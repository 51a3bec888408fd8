//! `Idempotency-Key`: whoever repeats an acquire whose answer got lost gets the same lease, at the
//! instance that granted it. Another instance knows nothing of the key: there the request waits until
//! the first grant expires, which is what would happen without keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use leasehold::LeaseToken;
use sha2::{Digest as _, Sha256};

use crate::problem::{Kind, Problem};

/// Keys beyond this are not remembered: the first answer is all that such a caller gets.
const MOST: usize = 100_000;

/// Keys and what came of them.
#[derive(Default)]
pub(crate) struct Idempotency(Mutex<HashMap<Key, Entry>>);

type Key = [u8; 32];

struct Entry {
    request: Key,
    outcome: Option<Remembered>,
}

/// A lease that was granted.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) token: LeaseToken,
    pub(crate) deadline: Instant,
}

/// What a key stands for.
pub(crate) enum Known {
    /// Nothing yet: go ahead.
    New(UnderWay),
    /// This lease.
    Granted(Remembered),
}

impl Idempotency {
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a key of `caller` up; `request` is what it is used for.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        caller: &str,
        key: &str,
        request: &[u8],
    ) -> Result<Known, Problem> {
        let key: Key = Sha256::new()
            .chain_update(caller)
            .chain_update([0])
            .chain_update(key)
            .finalize()
            .into();
        let request: Key = Sha256::digest(request).into();
        let mut entries = self.entries();
        let now = Instant::now();
        if entries.len() >= MOST {
            entries
                .retain(|_, entry| entry.outcome.as_ref().is_none_or(|lease| now < lease.deadline));
        }
        match entries.get(&key) {
            Some(entry) if entry.request != request => Err(Problem::new(
                Kind::IdempotencyMismatch,
                "this Idempotency-Key was used with another body or lock; use a fresh one for each acquire",
            )),
            Some(Entry { outcome: None, .. }) => Err(Problem::new(
                Kind::IdempotencyInFlight,
                "the first request with this Idempotency-Key is still under way",
            )),
            Some(Entry { outcome: Some(lease), .. }) if now < lease.deadline => {
                Ok(Known::Granted(lease.clone()))
            }
            _ => {
                if entries.len() < MOST {
                    entries.insert(key, Entry { request, outcome: None });
                }
                Ok(Known::New(UnderWay { keys: self.clone(), key, is_over: false }))
            }
        }
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, key: &Key) {
        self.entries().remove(key);
    }
}

/// A request under way: forgotten when it ends without a lease.
pub(crate) struct UnderWay {
    keys: Arc<Idempotency>,
    key: Key,
    is_over: bool,
}

impl UnderWay {
    /// It got a lease. Says under which key, for whoever has to forget it.
    pub(crate) fn granted(mut self, token: &LeaseToken, deadline: Instant) -> Key {
        self.is_over = true;
        if let Some(entry) = self.keys.entries().get_mut(&self.key) {
            entry.outcome = Some(Remembered { token: token.clone(), deadline });
        }
        self.key
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.keys.forget(&self.key);
        }
    }
}
