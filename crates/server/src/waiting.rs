//! Who waits at this instance: for the queue positions that people are told, and for limits.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::LockName;

use crate::problem::{Kind, Problem};
use crate::settings::Limits;

/// Everybody who waits for a lock here.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    total: usize,
    lines: HashMap<LockName, BTreeSet<u64>>,
    by_caller: HashMap<Arc<str>, usize>,
}

/// How many may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaiterLimits {
    pub(crate) total: usize,
    pub(crate) per_caller: usize,
}

impl From<Limits> for WaiterLimits {
    fn from(limits: Limits) -> Self {
        Self { total: limits.max_waiters, per_caller: limits.max_waiters_per_token }
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those who wait for `lock`, until what is returned is dropped.
    pub(crate) fn join(
        self: &Arc<Self>,
        lock: &LockName,
        caller: &Arc<str>,
        limits: WaiterLimits,
    ) -> Result<InLine, Problem> {
        let mut state = self.state();
        if state.total >= limits.total {
            let detail = format!("{} wait at this server already", state.total);
            return Err(Problem::new(Kind::TooManyWaiters, detail));
        }
        let own = state.by_caller.get(caller).copied().unwrap_or(0);
        if own >= limits.per_caller {
            let detail = format!("{own} requests of `{caller}` wait at this server already");
            return Err(Problem::new(Kind::TooManyWaiters, detail));
        }
        state.last += 1;
        let number = state.last;
        state.total += 1;
        *state.by_caller.entry(caller.clone()).or_default() += 1;
        state.lines.entry(lock.clone()).or_default().insert(number);
        Ok(InLine { waiting: self.clone(), lock: lock.clone(), caller: caller.clone(), number })
    }

    /// How many wait for `lock`.
    pub(crate) fn count(&self, lock: &LockName) -> usize {
        self.state().lines.get(lock).map_or(0, BTreeSet::len)
    }

    /// How many wait for whatever.
    pub(crate) fn total(&self) -> usize {
        self.state().total
    }
}

/// A place among those who wait.
pub(crate) struct InLine {
    waiting: Arc<Waiting>,
    lock: LockName,
    caller: Arc<str>,
    number: u64,
}

impl InLine {
    /// How many are ahead of it.
    pub(crate) fn position(&self) -> usize {
        let state = self.waiting.state();
        state.lines.get(&self.lock).map_or(0, |line| line.range(..self.number).count())
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut state = self.waiting.state();
        state.total -= 1;
        if let Some(line) = state.lines.get_mut(&self.lock) {
            line.remove(&self.number);
            if line.is_empty() {
                state.lines.remove(&self.lock);
            }
        }
        if let Some(own) = state.by_caller.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                state.by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_those_ahead_and_limits_hold() {
        let waiting = Arc::new(Waiting::default());
        let (lock, ana, bo) = (LockName::new("l").unwrap(), Arc::from("ana"), Arc::from("bo"));
        let limits = WaiterLimits { total: 3, per_caller: 2 };
        let first = waiting.join(&lock, &ana, limits).unwrap();
        let second = waiting.join(&lock, &ana, limits).unwrap();
        assert_eq!((first.position(), second.position()), (0, 1));
        let refused = waiting.join(&lock, &ana, limits).err().unwrap();
        assert!(refused.detail().contains("2 requests of `ana`"), "{}", refused.detail());
        let third = waiting.join(&lock, &bo, limits).unwrap();
        let refused = waiting.join(&lock, &bo, limits).err().unwrap();
        assert!(refused.detail().contains("3 wait"), "{}", refused.detail());
        drop(first);
        assert_eq!((second.position(), third.position(), waiting.count(&lock)), (0, 1, 2));
        drop((second, third));
        assert_eq!((waiting.count(&lock), waiting.total()), (0, 0));
        assert!(waiting.state().lines.is_empty() && waiting.state().by_caller.is_empty());
    }
}
