//! Locks that other processes waited for recently. A process that gave such a lock back stands in line
//! before it asks for it again: asking at once, right behind its own release, it would be faster than
//! anybody who has to be woken first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{LockName, Moment};

use crate::clock::Clock;

/// After a hold that was waited for in line. Long against the way to a node, short against the time
/// after which others have given up.
pub(crate) const AFTER_A_LINE: Duration = Duration::from_millis(250);
/// After a nudge. A waiter nudges again about once a second.
pub(crate) const AFTER_A_NUDGE: Duration = Duration::from_secs(2);
/// So many are remembered before those that are over are looked for.
const SWEEP_AT: usize = 1024;

/// Locks, and until when each counts as contended.
#[derive(Debug)]
pub(crate) struct Contended {
    clock: Arc<dyn Clock>,
    until: Mutex<HashMap<LockName, Moment>>,
    /// Spares those who never met anybody the mutex.
    any: AtomicBool,
}

impl Contended {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, until: Mutex::default(), any: AtomicBool::new(false) }
    }

    fn until(&self) -> MutexGuard<'_, HashMap<LockName, Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Others wait for `lock`, and do so for another while.
    pub(crate) fn note(&self, lock: &LockName, for_a: Duration) {
        let now = self.clock.now();
        let mut until = self.until();
        if until.len() >= SWEEP_AT {
            until.retain(|_, until| *until > now);
        }
        let entry = until.entry(lock.clone()).or_insert(now);
        *entry = (*entry).max(now.plus(for_a));
        self.any.store(true, Ordering::Release);
    }

    /// Nobody else waits for `lock`.
    pub(crate) fn gone(&self, lock: &LockName) {
        let mut until = self.until();
        until.remove(lock);
        self.any.store(!until.is_empty(), Ordering::Release);
    }

    /// Whether others were seen waiting for `lock` a moment ago.
    pub(crate) fn has(&self, lock: &LockName) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let now = self.clock.now();
        let mut until = self.until();
        match until.get(lock) {
            Some(end) if *end > now => true,
            Some(_) => {
                until.remove(lock);
                self.any.store(!until.is_empty(), Ordering::Release);
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use leasehold_core::WallMicros;

    use super::*;

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment::from_millis(self.0.load(Ordering::Relaxed))
        }
        fn wall(&self) -> WallMicros {
            WallMicros(0)
        }
    }

    #[test]
    fn a_contended_lock_is_remembered_for_its_time_and_not_longer() {
        let clock = Arc::new(Hand::default());
        let (contended, lock) = (Contended::new(clock.clone()), LockName::new("l").unwrap());
        assert!(!contended.has(&lock));
        contended.note(&lock, Duration::from_millis(100));
        contended.note(&lock, Duration::from_millis(10));
        clock.0.store(99, Ordering::Relaxed);
        assert!(contended.has(&lock), "the later end counts");
        assert!(!contended.has(&LockName::new("other").unwrap()));
        clock.0.store(100, Ordering::Relaxed);
        assert!(!contended.has(&lock));
        contended.note(&lock, Duration::from_millis(100));
        contended.gone(&lock);
        assert!(!contended.has(&lock));
    }

    #[test]
    fn old_locks_do_not_pile_up() {
        let clock = Arc::new(Hand::default());
        let contended = Contended::new(clock.clone());
        for number in 0..10 * SWEEP_AT as u64 {
            clock.0.store(number, Ordering::Relaxed);
            let lock = LockName::new(format!("l{number}")).unwrap();
            contended.note(&lock, Duration::from_millis(1));
        }
        assert!(contended.until().len() <= SWEEP_AT);
    }
}
