//! What a memory node tells those who wait: everybody is in this process, so it tells them directly.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Holder, LockName};

use crate::node::{InLine, OnNudge, OnPlace, OnWatched, Place, Ticket, Watched};

type TellPlace = Arc<dyn Fn(InLine) + Send + Sync>;
type TellNudge = Arc<dyn Fn(&LockName) + Send + Sync>;

/// Those who wait, by lock.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Numbers everything: tickets, places, watches.
    last: u64,
    watches: HashMap<LockName, BTreeMap<u64, OnWatched>>,
    lines: HashMap<LockName, BTreeMap<(Ticket, u64), TellPlace>>,
    nudges: Vec<TellNudge>,
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

impl Lines {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody who watches `lock`.
    pub(super) fn freed(&self, lock: &LockName) {
        let watches = self.state().watches.remove(lock).unwrap_or_default();
        watches.values().for_each(|told| told(Watched::Free));
    }

    /// To be called before a look at the owner: what is freed in between is told.
    pub(super) fn watch(&self, lock: &LockName, told: OnWatched) -> MemoryWatch {
        let mut state = self.state();
        let number = state.number();
        state.watches.entry(lock.clone()).or_default().insert(number, told);
        MemoryWatch { lines: self.clone(), lock: lock.clone(), number }
    }

    pub(super) fn enter(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> MemoryPlace {
        let told = TellPlace::from(told);
        let mut state = self.state();
        let number = state.number();
        let ticket = ticket.unwrap_or(Ticket(number));
        let line = state.lines.entry(lock.clone()).or_default();
        let was_first = line.first_key_value().map(|(key, told)| (*key, told.clone()));
        line.insert((ticket, number), told.clone());
        let others = line.len() - 1;
        drop(state);
        match was_first {
            Some((first, _)) if first < (ticket, number) => told(InLine::Behind(ticket)),
            former => {
                told(InLine::First { ticket, others });
                if let Some(((ticket, _), told)) = former {
                    told(InLine::Behind(ticket));
                }
            }
        }
        MemoryPlace { lines: self.clone(), lock: lock.clone(), key: (ticket, number) }
    }

    fn leave(&self, lock: &LockName, key: (Ticket, u64)) {
        let next = {
            let mut state = self.state();
            let Some(line) = state.lines.get_mut(lock) else { return };
            let was_first = line.first_key_value().is_some_and(|(first, _)| *first == key);
            line.remove(&key);
            let others = line.len().saturating_sub(1);
            let next = line.first_key_value().map(|((ticket, _), told)| (*ticket, told.clone()));
            if line.is_empty() {
                state.lines.remove(lock);
            }
            next.filter(|_| was_first).map(|(ticket, told)| (ticket, others, told))
        };
        if let Some((ticket, others, told)) = next {
            told(InLine::First { ticket, others });
        }
    }

    pub(super) fn on_nudge(&self, told: OnNudge) {
        self.state().nudges.push(told.into());
    }
}

pub(super) struct MemoryWatch {
    lines: Lines,
    lock: LockName,
    number: u64,
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        let mut state = self.lines.state();
        if let Some(watches) = state.watches.get_mut(&self.lock) {
            watches.remove(&self.number);
            if watches.is_empty() {
                state.watches.remove(&self.lock);
            }
        }
    }
}

pub(super) struct MemoryPlace {
    lines: Lines,
    lock: LockName,
    key: (Ticket, u64),
}

impl Place for MemoryPlace {
    /// Everybody is told: there is one process only, and a nudge too many costs nothing.
    fn nudge(&self, _: &Holder) {
        let nudges = self.lines.state().nudges.clone();
        nudges.iter().for_each(|told| told(&self.lock));
    }
}

impl Drop for MemoryPlace {
    fn drop(&mut self) {
        self.lines.leave(&self.lock, self.key);
    }
}
