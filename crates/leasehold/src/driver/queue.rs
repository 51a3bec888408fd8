//! Waiters of one process for one lock, first come first served: only the first asks the nodes. A
//! lease that ends while others wait goes to the next of them, as the core says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Chain, LocalQueue, LockName, TurnNumber};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::contended::{AFTER_A_LINE, Contended};
use super::handoff::PendingHandoff;
use crate::clock::Clock;

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
    /// For the waiter that has the next turn.
    handoff: Mutex<Option<PendingHandoff>>,
    /// How many have joined it.
    joined: AtomicU64,
    /// How many of them are still there. Changes with the map's mutex held, so that the last one knows
    /// that it is the last.
    present: AtomicUsize,
}

impl Queue {
    fn handoff(&self) -> MutexGuard<'_, Option<PendingHandoff>> {
        self.handoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue of one name. Leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Queues,
    lock: LockName,
    queue: Arc<Queue>,
    number: TurnNumber,
}

/// The turn of one waiter: kept while it asks, and while it holds.
#[derive(Debug)]
pub(crate) struct Turn {
    place: Place,
    stood_in_line: bool,
    /// The hand-offs in a row that brought the lease here.
    chain: Chain,
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
            handoff: Mutex::default(),
            joined: AtomicU64::new(0),
            present: AtomicUsize::new(0),
        };
        let mut map = self.map();
        let queue = map.entry(lock.clone()).or_insert_with(|| Arc::new(fresh())).clone();
        queue.present.fetch_add(1, Ordering::SeqCst);
        drop(map);
        let number = TurnNumber(queue.joined.fetch_add(1, Ordering::SeqCst) + 1);
        Place { queues: self.clone(), lock: lock.clone(), queue, number }
    }

    /// A lease of this process ended: a waiter that asks the nodes may ask again at once.
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
        // Nobody is overtaken: a permit that comes back goes to the first waiter.
        match self.queue.turn.try_acquire().map(SemaphorePermit::forget) {
            Ok(()) => Ok(Turn::of(self)),
            Err(_) => Err(self),
        }
    }

    /// Waits for the turn, behind everybody who asked before.
    pub(crate) async fn turn(self) -> Turn {
        let permit = self.queue.turn.acquire().await.expect("the semaphore is never closed");
        // Given back with the turn.
        permit.forget();
        Turn::of(self)
    }
}

impl Turn {
    fn of(place: Place) -> Self {
        Self { place, stood_in_line: false, chain: Chain::default() }
    }

    /// Completes when a lease of this process on this lock ended after the call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.place.queue.freed.notified()
    }

    /// Its place in the queue.
    pub(crate) fn number(&self) -> TurnNumber {
        self.place.number
    }

    /// The queue as its holder sees it now.
    pub(crate) fn queue(&self) -> LocalQueue {
        let queue = &self.place.queue;
        let last = || TurnNumber(queue.joined.load(Ordering::SeqCst));
        let waiting_up_to = self.somebody_waits().then(last);
        LocalQueue { turn: self.number(), waiting_up_to, chain: self.chain }
    }

    /// Whether somebody else of this process waits.
    pub(crate) fn somebody_waits(&self) -> bool {
        self.place.queue.present.load(Ordering::SeqCst) > 1
    }

    /// Ends the turn and hands the lease to the next one.
    pub(crate) fn hand_off(self, handoff: PendingHandoff) {
        // There is none before: the waiter whose turn it was took it.
        *self.place.queue.handoff() = Some(handoff);
    }

    /// What was handed to us, if it goes by `label`. What goes by another is given back.
    pub(crate) fn inherit(&mut self, label: &str) -> Option<PendingHandoff> {
        let handoff = self.place.queue.handoff().take().filter(|handoff| handoff.is_for(label))?;
        self.chain = handoff.chain();
        Some(handoff)
    }

    /// The lock was waited for in line: the next waiter of this process stands there as well.
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
        // What nobody took is given back with the queue, when its last user lets go of it.
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
        let (leaver, next) = (queues.join(&lock), queues.join(&lock));
        // As if the leaver were stopped between saying that it goes and letting go of the queue.
        let not_yet = leaver.queue.clone();
        drop(leaver);
        drop(next);
        drop(not_yet);
        assert_eq!(queues.len(), 0, "what was handed to nobody is given back");
    }

    #[tokio::test]
    async fn only_who_is_still_there_waits() {
        let (queues, lock) = (Queues::new(Arc::new(SystemClock)), LockName::new("l").unwrap());
        let turn = queues.join(&lock).turn().await;
        assert!(!turn.somebody_waits());
        let next = queues.join(&lock);
        assert!(turn.somebody_waits());
        let not_yet = next.queue.clone();
        drop(next);
        assert!(!turn.somebody_waits(), "nobody waits");
        drop(not_yet);
    }
}
