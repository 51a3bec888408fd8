//! What is due when: one timer for all leases and questions of a cluster, however many there are. A
//! timer for each would wake the background thread for each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::Moment;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::op::Patient;
use super::{Cluster, Held};

/// What can be due in a cluster.
pub(crate) enum Due {
    Lease(Arc<Held>),
    Op(Weak<dyn Patient>),
}

/// Things of the kind `T`, by the moment at which they are due.
pub(crate) struct Rota<T> {
    state: Mutex<State<T>>,
    /// Something is due before the task would look.
    earlier: Notify,
}

struct State<T> {
    due: BTreeMap<Slot, T>,
    made: u64,
    /// When the task looks again by itself; `None` while it is busy looking.
    looks_at: Option<Moment>,
}

/// A place in the rota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    due: Moment,
    number: u64,
}

impl<T> Rota<T> {
    pub(crate) fn new() -> Self {
        let state = State { due: BTreeMap::new(), made: 0, looks_at: None };
        Self { state: Mutex::new(state), earlier: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `item` looked after at `due`, once.
    pub(crate) fn add(&self, due: Moment, item: T) -> Slot {
        let mut state = self.state();
        state.made += 1;
        let slot = Slot { due, number: state.made };
        state.due.insert(slot, item);
        let is_news = state.looks_at.is_some_and(|at| due < at);
        if is_news {
            state.looks_at = None;
        }
        drop(state);
        if is_news {
            self.earlier.notify_one();
        }
        slot
    }

    /// Nobody needs to look any more.
    pub(crate) fn remove(&self, slot: Slot) {
        // Dropped when the mutex is free again: it may be the last one.
        let item = self.state().due.remove(&slot);
        drop(item);
    }

    /// The first item that is due by `now`, or when to look again.
    pub(crate) fn next(&self, now: Moment) -> Result<T, Moment> {
        let mut state = self.state();
        match state.due.first_entry() {
            Some(first) if first.key().due <= now => Ok(first.remove()),
            first => {
                let at = first.map_or(Moment::MAX, |first| first.key().due);
                state.looks_at = Some(at);
                Err(at)
            }
        }
    }

    /// What of all that is due some time `pick` picks.
    pub(crate) fn all<P>(&self, pick: impl FnMut(&T) -> Option<P>) -> Vec<P> {
        self.state().due.values().filter_map(pick).collect()
    }

    /// Has the task look at once: its own timer may have stood still.
    pub(crate) fn look_now(&self) {
        self.earlier.notify_one();
    }

    /// Completes when something is due before the moment that [`Self::next`] told.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

impl Cluster {
    /// How long until the next is due, or `None` if there is more now, because other tasks want the
    /// thread as well. `is_in_a_burst` if that was so the last time.
    fn see_to_what_is_due(&self, is_in_a_burst: bool) -> Option<Duration> {
        /// Half a millisecond of work.
        const IN_A_ROW: usize = 64;
        for _ in 0..IN_A_ROW {
            let now = self.now();
            match self.rota.next(now) {
                Ok(Due::Lease(held)) => held.look_after(is_in_a_burst),
                Ok(Due::Op(op)) => {
                    if let Some(op) = op.upgrade() {
                        op.time_up();
                    }
                }
                Err(at) => return Some(at.since(now)),
            }
        }
        None
    }
}

/// Runs every renewal and timeout that is due.
pub(super) async fn watch(cluster: Weak<Cluster>, closing: CancellationToken) {
    let Some(rota) = cluster.upgrade().map(|cluster| cluster.rota.clone()) else {
        return;
    };
    let mut is_in_a_burst = false;
    loop {
        let pause = match cluster.upgrade() {
            Some(cluster) => cluster.see_to_what_is_due(is_in_a_burst),
            None => return,
        };
        is_in_a_burst = pause.is_none();
        let Some(pause) = pause else {
            tokio::task::yield_now().await;
            continue;
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = rota.earlier() => {}
            () = closing.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    #[test]
    fn whoever_is_due_comes_in_order_and_once() {
        let rota = Rota::new();
        rota.add(ms(20), 'b');
        let gone = rota.add(ms(15), 'x');
        rota.add(ms(10), 'a');
        rota.add(ms(20), 'c');
        rota.remove(gone);
        assert_eq!(rota.next(ms(9)), Err(ms(10)));
        assert_eq!(rota.next(ms(10)), Ok('a'));
        assert_eq!(rota.next(ms(10)), Err(ms(20)));
        assert_eq!(rota.next(ms(30)), Ok('b'));
        assert_eq!(rota.next(ms(30)), Ok('c'));
        assert_eq!(rota.next(ms(30)), Err(Moment::MAX));
    }

    #[tokio::test]
    async fn only_what_is_due_earlier_wakes_the_task() {
        let rota = Rota::new();
        assert_eq!(rota.next(ms(0)), Err(Moment::MAX));
        let is_told = || {
            let told = std::pin::pin!(rota.earlier());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            Future::poll(told, &mut context).is_ready()
        };
        rota.add(ms(10), ());
        assert!(is_told(), "the first is earlier than never");
        assert_eq!(rota.next(ms(0)), Err(ms(10)));
        rota.add(ms(11), ());
        assert!(!is_told());
        rota.add(ms(9), ());
        assert!(is_told());
    }
}
