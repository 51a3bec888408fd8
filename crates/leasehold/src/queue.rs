//! Waiters of one process for one lock, first come first served: only the first asks the nodes. A
//! lease that ends while others wait is left to the next of them, on the nodes as it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{LockName, Moment};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::clock::Clock;
use crate::contended::{AFTER_A_LINE, Contended};
use crate::legacy::{Chain, Legacy, Reserve};

/// The queues of all names that somebody waits for or holds.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    map: Arc<Mutex<HashMap<LockName, Arc<Queue>>>>,
    /// Those of other processes.
    pub(crate) contended: Arc<Contended>,
}

#[derive(Debug)]
struct Queue {
    turn: Semaphore,
    freed: Notify,
    legacy: Mutex<Option<Legacy>>,
    /// How many have joined it.
    joined: AtomicU64,
    /// How many of them are still there. Changes with the map's mutex held, so that the last one knows
    /// that it is the last.
    present: AtomicUsize,
}

impl Queue {
    fn legacy(&self) -> MutexGuard<'_, Option<Legacy>> {
        self.legacy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue of one name. Leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Queues,
    lock: LockName,
    queue: Arc<Queue>,
    /// It was the how manieth to join.
    number: u64,
}

/// The turn of one waiter: kept while it asks, and while it holds.
#[derive(Debug)]
pub(crate) struct Turn {
    place: Place,
    stood_in_line: bool,
    /// The lease was left to us.
    chain: Option<Chain>,
    /// And numbers for those who follow.
    reserve: Option<Reserve>,
}

impl Queues {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { map: Arc::default(), contended: Arc::new(Contended::new(clock)) }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Queue>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, lock: &LockName) -> Place {
        let fresh = || Queue {
            turn: Semaphore::new(1),
            freed: Notify::new(),
            legacy: Mutex::default(),
            joined: AtomicU64::new(0),
            present: AtomicUsize::new(0),
        };
        let mut map = self.map();
        let queue = map.entry(lock.clone()).or_insert_with(|| Arc::new(fresh())).clone();
        queue.present.fetch_add(1, Ordering::SeqCst);
        drop(map);
        let number = queue.joined.fetch_add(1, Ordering::SeqCst) + 1;
        Place { queues: self.clone(), lock: lock.clone(), queue, number }
    }

    /// A lease of this process ended: whoever asks the nodes for it may ask again at once.
    pub(crate) fn freed(&self, lock: &LockName) {
        if let Some(queue) = self.map().get(lock) {
            queue.freed.notify_waiters();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.map().len()
    }
}

impl Place {
    /// The turn, if it can be had at once.
    pub(crate) fn turn_now(self) -> Result<Turn, Self> {
        // Nobody is overtaken: a permit that comes back goes to whoever waits.
        match self.queue.turn.try_acquire().map(SemaphorePermit::forget) {
            Ok(()) => Ok(Turn { place: self, stood_in_line: false, chain: None, reserve: None }),
            Err(_) => Err(self),
        }
    }

    /// Waits for the turn, behind everybody who asked before.
    pub(crate) async fn turn(self) -> Turn {
        let permit = self.queue.turn.acquire().await.expect("the semaphore is never closed");
        // Given back with the turn.
        permit.forget();
        Turn { place: self, stood_in_line: false, chain: None, reserve: None }
    }
}

impl Turn {
    /// Completes when a lease of this process on this lock ended after the call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.place.queue.freed.notified()
    }

    /// Whether somebody else of this process waits.
    pub(crate) fn has_heirs(&self) -> bool {
        self.place.queue.present.load(Ordering::SeqCst) > 1
    }

    /// Whether the lease may be left to one of them.
    pub(crate) fn leaves(&self, now: Moment) -> bool {
        self.chain.is_none_or(|chain| chain.is_short(now))
    }

    /// Its place in the queue.
    pub(crate) fn place(&self) -> u64 {
        self.place.number
    }

    /// The last place that anybody has taken so far.
    pub(crate) fn last_place(&self) -> u64 {
        self.place.queue.joined.load(Ordering::SeqCst)
    }

    /// Ends the turn and leaves the lease to the next one.
    pub(crate) fn leave(self, mut legacy: Legacy) {
        legacy.chain = self.chain.unwrap_or(legacy.chain).longer();
        // There is none before: whoever had it took it with the turn.
        *self.place.queue.legacy() = Some(legacy);
    }

    /// What was left to us, if it goes by `label`. What goes by another is given back.
    pub(crate) fn inherit(&mut self, label: &str) -> Option<Legacy> {
        let legacy = self.place.queue.legacy().take().filter(|left| left.goes_by(label))?;
        self.chain = Some(legacy.chain);
        Some(legacy)
    }

    /// Numbers that were seen to for those who follow.
    pub(crate) fn reserve(&mut self) -> &mut Option<Reserve> {
        &mut self.reserve
    }

    /// The lock was waited for in line: whoever of this process is next stands there as well.
    pub(crate) fn stood_in_line(&mut self) {
        self.stood_in_line = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Before the permit goes on, so that the next one knows.
        if self.stood_in_line {
            self.place.queues.contended.note(&self.place.lock, AFTER_A_LINE);
        }
        // Then goes the place.
        self.place.queue.turn.add_permits(1);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.queues.map();
        // What was left to nobody is given back with the queue, when its last user lets go of it.
        if self.queue.present.fetch_sub(1, Ordering::SeqCst) == 1 {
            let queue = map.remove(&self.lock);
            drop(map);
            drop(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[tokio::test]
    async fn turns_are_taken_in_order_and_empty_queues_go_away() {
        let (queues, lock) = (Queues::new(Arc::new(SystemClock)), LockName::new("l").unwrap());
        let first = queues.join(&lock).turn().await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..10)
            .map(|i| {
                let (place, order) = (queues.join(&lock), order.clone());
                let mut turn = Box::pin(place.turn());
                // Queue up in this order, whatever order the tasks run in.
                assert!(
                    std::future::Future::poll(
                        turn.as_mut(),
                        &mut std::task::Context::from_waker(std::task::Waker::noop())
                    )
                    .is_pending()
                );
                tokio::spawn(async move {
                    let _turn = turn.await;
                    order.lock().unwrap().push(i);
                })
            })
            .collect();
        drop(first);
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
        assert_eq!(queues.len(), 0);
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_does_not_block_the_others() {
        let (queues, lock) = (Queues::new(Arc::new(SystemClock)), LockName::new("l").unwrap());
        let first = queues.join(&lock).turn().await;
        let second = tokio::spawn(queues.join(&lock).turn());
        let third = tokio::spawn(queues.join(&lock).turn());
        second.abort();
        drop(first);
        drop(third.await.unwrap());
        let _ = second.await;
        assert_eq!(queues.len(), 0);
    }

    #[test]
    fn whoever_is_the_last_to_leave_takes_the_queue_along_however_they_overlap() {
        let (queues, lock) = (Queues::new(Arc::new(SystemClock)), LockName::new("l").unwrap());
        let (leaver, heir) = (queues.join(&lock), queues.join(&lock));
        // As if the leaver were stopped between saying that it goes and letting go of the queue.
        let not_yet = leaver.queue.clone();
        drop(leaver);
        drop(heir);
        drop(not_yet);
        assert_eq!(queues.len(), 0, "what was left in it is given back");
    }

    #[tokio::test]
    async fn only_who_is_still_there_is_an_heir() {
        let (queues, lock) = (Queues::new(Arc::new(SystemClock)), LockName::new("l").unwrap());
        let turn = queues.join(&lock).turn().await;
        assert!(!turn.has_heirs());
        let heir = queues.join(&lock);
        assert!(turn.has_heirs());
        let not_yet = heir.queue.clone();
        drop(heir);
        assert!(!turn.has_heirs(), "nobody waits");
        drop(not_yet);
    }
}
