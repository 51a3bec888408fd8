//! One look at the nodes for all who want the same at once.
//!
//! Nobody is shown what was seen before they asked: whoever acquires a lock and then lists finds it. So whoever
//! comes while a look is under way waits for the next one, together with all others who came meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold::LockName;

/// Looks of one kind, by what is looked for.
pub(crate) struct Shared<T>(Mutex<HashMap<String, Arc<Desk<T>>>>);

/// Who looks, and what was seen by whoever looked last; gone when nobody wants it any more.
type Desk<T> = tokio::sync::Mutex<Option<(Instant, T)>>;

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Shared<T> {
    /// What `look` sees, or what another saw with a look that began after this was called.
    pub(crate) async fn get<F: Future<Output = T>>(
        &self,
        wanted: &str,
        look: impl FnOnce() -> F,
    ) -> T {
        let asked = Instant::now();
        let seat = Seat::take(self, wanted);
        let mut seen = seat.desk.lock().await;
        if let Some((began, value)) = &*seen
            && *began >= asked
        {
            return value.clone();
        }
        let began = Instant::now();
        let value = look().await;
        *seen = Some((began, value.clone()));
        value
    }

    fn desks(&self) -> MutexGuard<'_, HashMap<String, Arc<Desk<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who wants to see something.
struct Seat<'a, T> {
    all: &'a Shared<T>,
    wanted: &'a str,
    desk: Arc<Desk<T>>,
}

impl<'a, T: Clone> Seat<'a, T> {
    fn take(all: &'a Shared<T>, wanted: &'a str) -> Self {
        let desk = all.desks().entry(wanted.to_owned()).or_default().clone();
        Self { all, wanted, desk }
    }
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut desks = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's and ours.
        if Arc::strong_count(&self.desk) <= 2 {
            desks.remove(self.wanted);
        }
    }
}

/// When locks were last looked at for those who listen to them.
#[derive(Default)]
pub(crate) struct Looks(Mutex<HashMap<LockName, Instant>>);

/// So many locks are remembered before those are forgotten that nobody listens to any more.
const REMEMBERED: usize = 1024;

impl Looks {
    /// Whether it is time for another look, which is the caller's then.
    pub(crate) fn is_due(&self, lock: &LockName, every: Duration, now: Instant) -> bool {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= every;
        if looks.get(lock).is_some_and(|at| !is_old(at)) {
            return false;
        }
        if looks.len() >= REMEMBERED {
            looks.retain(|_, at| !is_old(at));
        }
        looks.insert(lock.clone(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_at_once_are_shown_two_looks_at_most_and_none_from_before() {
        let (shared, looks) = (Arc::new(Shared::default()), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (shared, looks) = (shared.clone(), looks.clone());
            tokio::spawn(async move {
                let look = async || {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    looks.fetch_add(1, Ordering::SeqCst)
                };
                shared.get("a/", look).await
            })
        };
        let first = ask();
        tokio::time::sleep(Duration::from_millis(500)).await;
        // While that look is under way: what it sees may be older than their question.
        let later: Vec<_> = (0..100).map(|_| ask()).collect();
        assert_eq!(first.await.unwrap(), 0);
        for one in later {
            assert_eq!(one.await.unwrap(), 1);
        }
        assert!(shared.desks().is_empty(), "nothing is kept for nobody");
        assert_eq!(ask().await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_in_the_middle_of_a_look_leaves_it_to_the_next() {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let leaves = tokio::spawn(async move { theirs.get("", std::future::pending::<u8>).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let ours = shared.clone();
        let next = tokio::spawn(async move { ours.get("", async || 7).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        leaves.abort();
        assert_eq!(next.await.unwrap(), 7);
    }

    #[test]
    fn a_lock_is_looked_at_once_in_a_while_and_forgotten_later() {
        let (looks, every, begin) = (Looks::default(), Duration::from_millis(400), Instant::now());
        let lock = |number: usize| LockName::new(format!("l{number}")).unwrap();
        assert!(looks.is_due(&lock(0), every, begin));
        assert!(!looks.is_due(&lock(0), every, begin + every / 2));
        assert!(looks.is_due(&lock(1), every, begin + every / 2));
        assert!(looks.is_due(&lock(0), every, begin + every));
        for number in 0..10 * REMEMBERED {
            looks.is_due(&lock(number), every, begin + every * number as u32);
        }
        assert!(looks.0.lock().unwrap().len() <= REMEMBERED);
    }
}
