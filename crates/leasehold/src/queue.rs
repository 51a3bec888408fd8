//! Waiters of one process for one lock, first come first served: only the first asks the nodes. A
//! lease that ends while others wait is left to the next of them, on the nodes as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Fence, Holder, Keeper, LockName, Moment, Ttl};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::clock::Clock;
use crate::crowds::{AFTER_A_LINE, Crowds};
use crate::driver::Cluster;

/// So often in a row a lease is left to the next of this process before it is given back: other
/// processes want their turn, too.
const LEFT_IN_A_ROW: u32 = 16;
/// And for so long: sixteen long holds would be an age.
const LEFT_FOR: Duration = Duration::from_millis(100);

/// The queues of all names that somebody waits for or holds.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    map: Arc<Mutex<HashMap<LockName, Arc<Queue>>>>,
    /// Those of other processes.
    pub(crate) crowds: Arc<Crowds>,
}

#[derive(Debug)]
struct Queue {
    turn: Semaphore,
    freed: Notify,
    legacy: Mutex<Option<Legacy>>,
}

/// What a lease leaves to the next of this process: the nodes still know its holder as the owner.
/// Given back when dropped, unless somebody took it.
#[derive(Debug)]
pub(crate) struct Legacy {
    cluster: Arc<Cluster>,
    lock: LockName,
    ttl: Ttl,
    heritage: Option<Heritage>,
    /// How often in a row it was left, and since when.
    chain: Chain,
}

/// By whom the nodes know a lease that was left.
#[derive(Debug)]
pub(crate) struct Heritage {
    pub(crate) holder: Holder,
    /// The highest number that was ever sent with this holder. The heir's is above it, so that a late
    /// refresh of the former user is refused where the heir was granted the lock: it would set the
    /// former user's Ttl.
    pub(crate) highest: Fence,
}

#[derive(Debug, Clone, Copy)]
struct Chain {
    since: Moment,
    times: u32,
}

impl Legacy {
    pub(crate) fn of(cluster: Arc<Cluster>, keeper: &Keeper) -> Self {
        let chain = Chain { since: cluster.now(), times: 0 };
        let (lease, highest) = (keeper.lease(), keeper.highest_sent());
        let heritage = Some(Heritage { holder: lease.holder.clone(), highest });
        Self { cluster, lock: lease.lock.clone(), ttl: lease.ttl, heritage, chain }
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        if let Some(Heritage { holder, .. }) = &self.heritage {
            self.cluster.give_back(&self.lock, holder, self.ttl);
        }
    }
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
}

/// The turn of one waiter: kept while it asks, and while it holds.
#[derive(Debug)]
pub(crate) struct Turn {
    place: Place,
    stood_in_line: bool,
    /// The lease was left to us.
    chain: Option<Chain>,
}

impl Queues {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { map: Arc::default(), crowds: Arc::new(Crowds::new(clock)) }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Queue>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn join(&self, lock: &LockName) -> Place {
        let fresh =
            || Queue { turn: Semaphore::new(1), freed: Notify::new(), legacy: Mutex::default() };
        let queue = self.map().entry(lock.clone()).or_insert_with(|| Arc::new(fresh())).clone();
        Place { queues: self.clone(), lock: lock.clone(), queue }
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
            Ok(()) => Ok(Turn { place: self, stood_in_line: false, chain: None }),
            Err(_) => Err(self),
        }
    }

    /// Waits for the turn, behind everybody who asked before.
    pub(crate) async fn turn(self) -> Turn {
        let permit = self.queue.turn.acquire().await.expect("the semaphore is never closed");
        // Given back with the turn.
        permit.forget();
        Turn { place: self, stood_in_line: false, chain: None }
    }
}

impl Turn {
    /// Completes when a lease of this process on this lock ended after the call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.place.queue.freed.notified()
    }

    /// Whether somebody else of this process waits.
    pub(crate) fn has_heirs(&self) -> bool {
        // Ours and the map's.
        Arc::strong_count(&self.place.queue) > 2
    }

    /// Whether the lease may be left to one of them.
    pub(crate) fn leaves(&self, now: Moment) -> bool {
        let is_short =
            |chain: Chain| chain.times < LEFT_IN_A_ROW && now.since(chain.since) < LEFT_FOR;
        self.chain.is_none_or(is_short)
    }

    /// Ends the turn and leaves the lease to the next one.
    pub(crate) fn leave(self, mut legacy: Legacy) {
        let chain = self.chain.unwrap_or(legacy.chain);
        legacy.chain = Chain { times: chain.times + 1, ..chain };
        // There is none before: whoever had it took it with the turn.
        *self.place.queue.legacy() = Some(legacy);
    }

    /// What was left to us, if it goes by `label`. What goes by another is given back.
    pub(crate) fn inherit(&mut self, label: &str) -> Option<Heritage> {
        let mut legacy = self.place.queue.legacy().take()?;
        let heritage = legacy.heritage.take_if(|left| left.holder.label() == label)?;
        self.chain = Some(legacy.chain);
        Some(heritage)
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
            self.place.queues.crowds.note(&self.place.lock, AFTER_A_LINE);
        }
        // Then goes the place.
        self.place.queue.turn.add_permits(1);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.queues.map();
        // Ours and the map's: nobody else is here. What was left to nobody is given back with it.
        if Arc::strong_count(&self.queue) == 2 {
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
}
