//! What this instance knows of leases beyond what the nodes know, and who it told to hold what. All of it
//! may be forgotten: it decides nothing about a lock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Holder, LockName};

/// For how long the end of a lease is remembered at least, so that an answer under way is not taken for
/// news.
const ENDED_FOR: Duration = Duration::from_secs(15);
/// A bound for a busy server, not a measure: then the oldest are forgotten sooner.
const ENDED_MOST: usize = 50_000;

/// Who holds what, as it was told to those who listen.
#[derive(Default)]
pub(crate) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    owners: HashMap<LockName, Owned>,
    ended: Ended,
}

/// Holders that have nothing any more, and whether they gave it back. Forgotten by halves, so that
/// nothing is ever searched.
struct Ended {
    since: Instant,
    recent: HashMap<Holder, bool>,
    older: HashMap<Holder, bool>,
}

impl Default for Ended {
    fn default() -> Self {
        Self { since: Instant::now(), recent: HashMap::new(), older: HashMap::new() }
    }
}

impl Ended {
    fn note(&mut self, holder: &Holder, properly: bool) {
        if self.since.elapsed() > ENDED_FOR || self.recent.len() >= ENDED_MOST {
            self.older = std::mem::take(&mut self.recent);
            self.since = Instant::now();
        }
        self.recent.insert(holder.clone(), properly);
    }

    fn get(&self, holder: &Holder) -> Option<bool> {
        self.recent.get(holder).or_else(|| self.older.get(holder)).copied()
    }
}

/// An owner that was told of.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) holder: Holder,
    pub(crate) fence: u64,
    pub(crate) at: Instant,
    /// When the nodes would let it expire, as far as it was seen.
    pub(crate) expires: Option<Instant>,
    /// What only the instance that granted it knows.
    pub(crate) granted: Option<Granted>,
}

/// What came with the request.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) ttl: Duration,
    pub(crate) reason: Option<String>,
}

impl Known {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lock has a new owner. Says who had it before, if nobody was told of its end.
    pub(crate) fn began(&self, lock: &LockName, owned: Owned) -> Option<Owned> {
        let mut state = self.state();
        let before = state.owners.insert(lock.clone(), owned)?;
        state.ended.note(&before.holder, false);
        Some(before)
    }

    /// It was renewed.
    pub(crate) fn renewed(
        &self,
        lock: &LockName,
        holder: &Holder,
        ttl: Duration,
        expires: Instant,
    ) {
        if let Some(owned) = self.state().owners.get_mut(lock).filter(|own| own.holder == *holder) {
            owned.expires = Some(expires);
            if let Some(granted) = &mut owned.granted {
                granted.ttl = ttl;
            }
        }
    }

    /// A holder has nothing any more, or will not in a moment. Says what was known.
    pub(crate) fn ended(&self, lock: &LockName, holder: &Holder) -> Option<Owned> {
        let mut state = self.state();
        state.ended.note(holder, false);
        if state.owners.get(lock).is_some_and(|owned| owned.holder == *holder) {
            return state.owners.remove(lock);
        }
        None
    }

    /// It ended by giving its lock back.
    pub(crate) fn gave_back(&self, holder: &Holder) {
        self.state().ended.note(holder, true);
    }

    /// Whether it gave its lock back here a moment ago.
    pub(crate) fn was_released(&self, holder: &Holder) -> bool {
        self.state().ended.get(holder) == Some(true)
    }

    /// Whether it ended here a moment ago.
    pub(crate) fn has_ended(&self, holder: &Holder) -> bool {
        self.state().ended.get(holder).is_some()
    }

    /// What came with the request of whoever holds `lock`.
    pub(crate) fn granted(&self, lock: &LockName, holder: &Holder) -> Option<Granted> {
        let state = self.state();
        state.owners.get(lock).filter(|own| own.holder == *holder)?.granted.clone()
    }

    /// It would expire then.
    pub(crate) fn expires(&self, lock: &LockName, holder: &Holder, at: Instant) {
        if let Some(owned) = self.state().owners.get_mut(lock).filter(|own| own.holder == *holder) {
            owned.expires = Some(at);
        }
    }

    /// Who was told to hold `lock`.
    pub(crate) fn owner(&self, lock: &LockName) -> Option<Owned> {
        self.state().owners.get(lock).cloned()
    }

    /// All owners that were told of.
    pub(crate) fn owners(&self) -> Vec<(LockName, Owned)> {
        let state = self.state();
        state.owners.iter().map(|(lock, owned)| (lock.clone(), owned.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(nonce: u128) -> Owned {
        let holder = Holder::new("ana", nonce).unwrap();
        Owned { holder, fence: 1, at: Instant::now(), expires: None, granted: None }
    }

    #[test]
    fn who_is_replaced_has_lost_the_lock_unless_it_is_giving_it_back() {
        let (known, lock) = (Known::default(), LockName::new("l").unwrap());
        assert!(known.began(&lock, owned(1)).is_none());
        let replaced = known.began(&lock, owned(2)).expect("the first was not told to end");
        assert_eq!(replaced.holder, owned(1).holder);
        assert!(known.has_ended(&owned(1).holder) && !known.was_released(&owned(1).holder));
        assert!(known.ended(&lock, &owned(2).holder).is_some());
        assert!(known.began(&lock, owned(3)).is_none(), "the second was about to end");
        known.gave_back(&owned(2).holder);
        assert!(known.was_released(&owned(2).holder));
        assert!(known.ended(&lock, &owned(2).holder).is_none(), "the third has it");
        assert_eq!(known.owner(&lock).unwrap().holder, owned(3).holder);
    }
}
