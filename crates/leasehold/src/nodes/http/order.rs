//! The order of requests, of which many may be under way at once, each on a connection of its own.
//!
//! * Whatever belongs to a holder waits for all that was asked for that holder before: a release can
//!   never overtake its own acquire or extension.
//! * Whoever wants to know about a lock waits for the releases of it that were asked for before, so
//!   that the next waiter of this process is not refused because of the one before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Holder, LockName, Request};
use tokio_util::sync::CancellationToken;

/// What is under way, by lock.
#[derive(Debug, Default)]
pub(super) struct Order(Mutex<HashMap<LockName, Vec<UnderWay>>>);

#[derive(Debug)]
struct UnderWay {
    holder: Holder,
    gives_back: bool,
    done: CancellationToken,
}

/// A request's place. What waits for it goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    order: Arc<Order>,
    before: Vec<CancellationToken>,
    /// Set if others have to wait for it.
    own: Option<(LockName, CancellationToken)>,
}

impl Order {
    fn under_way(&self) -> MutexGuard<'_, HashMap<LockName, Vec<UnderWay>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind what was asked before, as far as that matters.
    pub(super) fn enter(self: &Arc<Self>, request: &Request) -> Place {
        let mut under_way = self.under_way();
        let waits_for = |earlier: &UnderWay| match request {
            Request::Extend { holder, .. } | Request::Release { holder, .. } => {
                earlier.holder == *holder
            }
            _ => earlier.gives_back,
        };
        let of_one = |lock| under_way.get(lock).into_iter().flatten().collect::<Vec<_>>();
        let earlier = match request.lock() {
            Some(lock) => of_one(lock),
            None => under_way.values().flatten().collect(),
        };
        let before = earlier.into_iter().filter(|earlier| waits_for(earlier));
        let before = before.map(|earlier| earlier.done.clone()).collect();
        let own = note(request).map(|(lock, holder, gives_back)| {
            let done = CancellationToken::new();
            let noted = UnderWay { holder: holder.clone(), gives_back, done: done.clone() };
            under_way.entry(lock.clone()).or_default().push(noted);
            (lock.clone(), done)
        });
        Place { order: self.clone(), before, own }
    }
}

/// What others may have to wait for: lock, holder, and whether the lock is given back.
fn note(request: &Request) -> Option<(&LockName, &Holder, bool)> {
    match request {
        Request::Acquire { lock, holder, .. } | Request::Extend { lock, holder, .. } => {
            Some((lock, holder, false))
        }
        Request::Release { lock, holder } | Request::ForceRelease { lock, holder, .. } => {
            Some((lock, holder, true))
        }
        Request::Inspect { .. }
        | Request::List { .. }
        | Request::Probe
        | Request::ReplaceRecord { .. }
        | Request::ForgetIdle { .. } => None,
    }
}

impl Place {
    /// Completes when nothing is before it any more. Can be cancelled and asked again.
    pub(super) async fn is_next(&self) {
        for earlier in &self.before {
            earlier.cancelled().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((lock, done)) = self.own.take() else { return };
        // Before the others go on, so that nobody waits for what is over.
        done.cancel();
        let mut under_way = self.order.under_way();
        if let Some(requests) = under_way.get_mut(&lock) {
            requests.retain(|request| !request.done.is_cancelled());
            if requests.is_empty() {
                under_way.remove(&lock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Fence, Ttl};

    use super::*;

    fn lock(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    fn acquire(name: &str, holder: u128) -> Request {
        let (ttl, holder) = (Duration::from_secs(1), Holder::new("h", holder).unwrap());
        let ttl = Ttl::new(ttl).unwrap();
        Request::Acquire { lock: lock(name), holder, proposal: Fence::ZERO, ttl }
    }

    fn extend(name: &str, holder: u128) -> Request {
        let Request::Acquire { lock, holder, proposal, ttl } = acquire(name, holder) else {
            unreachable!()
        };
        Request::Extend { lock, holder, token: proposal, next: proposal, unbroken: false, ttl }
    }

    fn release(name: &str, holder: u128) -> Request {
        Request::Release { lock: lock(name), holder: Holder::new("h", holder).unwrap() }
    }

    /// Whether `second` waits for `first`, and goes on once that is over.
    async fn waits(first: &Request, second: &Request) -> bool {
        let order = Arc::new(Order::default());
        let (first, second) = (order.enter(first), order.enter(second));
        let waits = tokio::time::timeout(Duration::ZERO, second.is_next()).await.is_err();
        drop(first);
        second.is_next().await;
        drop(second);
        assert!(order.under_way().is_empty(), "nothing is left behind");
        waits
    }

    #[tokio::test]
    async fn what_must_wait_waits_and_nothing_else() {
        let inspect = |name| Request::Inspect { lock: lock(name) };
        let cases = [
            (acquire("l", 1), release("l", 1), true),
            (extend("l", 1), release("l", 1), true),
            (acquire("l", 1), extend("l", 1), true),
            (release("l", 1), acquire("l", 2), true),
            (release("l", 1), inspect("l"), true),
            (release("l", 1), Request::Probe, true),
            (release("l", 1), Request::List { prefix: String::new() }, true),
            (acquire("l", 1), acquire("l", 2), false),
            (acquire("l", 1), release("l", 2), false),
            (acquire("l", 1), inspect("l"), false),
            (release("l", 1), acquire("m", 2), false),
            (extend("l", 1), acquire("l", 2), false),
            (extend("l", 1), Request::Probe, false),
            (inspect("l"), acquire("l", 1), false),
        ];
        for (first, second, expected) in cases {
            assert_eq!(waits(&first, &second).await, expected, "{first:?} then {second:?}");
        }
    }
}
