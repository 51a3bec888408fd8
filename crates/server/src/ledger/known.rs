//! What this instance knows of leases beyond what the nodes know, and who it told to hold what. All of it
//! may be forgotten: it decides nothing about a lock.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Holder, LockName};
use tokio::sync::Notify;

/// For how long the end of a lease is remembered at least, so that an answer under way is not taken for
/// news.
const ENDED_FOR: Duration = Duration::from_secs(15);
/// A bound for a busy server, not a measure: then the oldest are forgotten sooner.
const ENDED_MOST: usize = 50_000;

/// Who holds what, as it was told to those who listen.
#[derive(Default)]
pub(crate) struct Known(Mutex<State>, Notify);

#[derive(Default)]
struct State {
    owners: HashMap<LockName, Owned>,
    /// When those are looked at that were granted here.
    looks: BTreeSet<(Instant, LockName)>,
    ended: Ended,
    /// The same of those that were not known here, whose ids may be made up: only so that a look which
    /// began before is no news.
    unproved: Ended,
}

impl State {
    fn remove(&mut self, lock: &LockName) -> Option<Owned> {
        let owned = self.owners.remove(lock)?;
        if let Some(granted) = &owned.granted {
            self.looks.remove(&(granted.next_look(), lock.clone()));
        }
        Some(owned)
    }

    /// Whether it is the next.
    fn look_at(&mut self, at: Instant, lock: &LockName) -> bool {
        self.looks.insert((at, lock.clone()));
        self.looks.first().is_some_and(|(first, _)| *first == at)
    }
}

/// Leases that are over, and whether they were given back. Forgotten by halves, so that nothing is ever
/// searched.
struct Ended {
    since: Instant,
    recent: HashMap<Lease, bool>,
    older: HashMap<Lease, bool>,
}

/// A holder may use its random part again, for another lock or for the same one later.
type Lease = (LockName, Holder);

impl Default for Ended {
    fn default() -> Self {
        Self { since: Instant::now(), recent: HashMap::new(), older: HashMap::new() }
    }
}

impl Ended {
    fn note(&mut self, lease: Lease, properly: bool) {
        if self.since.elapsed() > ENDED_FOR || self.recent.len() >= ENDED_MOST {
            self.older = std::mem::take(&mut self.recent);
            self.since = Instant::now();
        }
        self.recent.insert(lease, properly);
    }

    fn get(&self, lease: &Lease) -> Option<bool> {
        self.recent.get(lease).or_else(|| self.older.get(lease)).copied()
    }

    fn forget(&mut self, lease: &Lease) {
        self.recent.remove(lease);
        self.older.remove(lease);
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
    /// Until when it is good, as it was told.
    pub(crate) until: Instant,
    /// When it was last seen on the nodes.
    pub(crate) seen: Option<Instant>,
    /// Its holder wanted to renew it since it last could, and too few nodes answered.
    pub(crate) is_wanted: bool,
}

impl Granted {
    pub(crate) fn new(ttl: Duration, reason: Option<String>, until: Instant) -> Self {
        Self { ttl, reason, until, seen: None, is_wanted: false }
    }

    /// So long before its end it is looked at: long enough for a look that comes a little late, and too
    /// short for many to give it back in between at another instance.
    fn before_its_end(&self) -> Duration {
        (self.ttl / 20).clamp(Duration::from_millis(5), Duration::from_millis(100))
    }

    /// When it is looked at next: shortly before its end, and then at its end.
    fn next_look(&self) -> Instant {
        if self.was_seen_near_its_end() {
            return self.until;
        }
        self.until.checked_sub(self.before_its_end()).unwrap_or(self.until)
    }

    /// Whether it was still there when there was nearly nothing left of it.
    pub(crate) fn was_seen_near_its_end(&self) -> bool {
        self.seen.is_some_and(|seen| seen + self.before_its_end() >= self.until)
    }
}

impl Known {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lock has a new owner. Says who had it before, if nobody was told of its end.
    pub(crate) fn began(&self, lock: &LockName, owned: Owned) -> Option<Owned> {
        let mut state = self.state();
        let lease = (lock.clone(), owned.holder.clone());
        state.ended.forget(&lease);
        state.unproved.forget(&lease);
        let before = state.remove(lock);
        if let Some(granted) = &owned.granted
            && state.look_at(granted.next_look(), lock)
        {
            self.1.notify_one();
        }
        state.owners.insert(lock.clone(), owned);
        let before = before?;
        state.ended.note((lock.clone(), before.holder.clone()), false);
        Some(before)
    }

    /// It was renewed.
    pub(crate) fn renewed(&self, lock: &LockName, holder: &Holder, ttl: Duration, until: Instant) {
        self.change(lock, holder, |owned| {
            owned.expires = owned.expires.max(Some(until));
            if let Some(granted) = &mut owned.granted {
                granted.ttl = ttl;
                granted.until = granted.until.max(until);
                granted.is_wanted = false;
            }
        });
    }

    /// The nodes keep it for longer than was told here: another instance renewed it, or a renewal that
    /// failed was carried out after all.
    pub(crate) fn lasts(&self, lock: &LockName, holder: &Holder, until: Instant) {
        self.change(lock, holder, |owned| {
            owned.expires = owned.expires.max(Some(until));
            if let Some(granted) = &mut owned.granted {
                granted.until = granted.until.max(until);
            }
        });
    }

    /// Its holder wanted to renew it, and too few nodes answered.
    pub(crate) fn wanted(&self, lock: &LockName, holder: &Holder) {
        self.change(lock, holder, |owned| {
            if let Some(granted) = &mut owned.granted {
                granted.is_wanted = true;
            }
        });
    }

    /// It was there at that time, and the nodes keep it until then.
    pub(crate) fn seen(
        &self,
        lock: &LockName,
        holder: &Holder,
        at: Instant,
        expires: Option<Instant>,
    ) {
        self.change(lock, holder, |owned| {
            owned.expires = expires.or(owned.expires);
            if let Some(granted) = &mut owned.granted {
                granted.seen = granted.seen.max(Some(at));
            }
        });
    }

    /// Changes what is known of an owner, and so when it is looked at.
    fn change(&self, lock: &LockName, holder: &Holder, change: impl FnOnce(&mut Owned)) {
        let mut state = self.state();
        let Some(owned) = state.owners.get_mut(lock).filter(|own| own.holder == *holder) else {
            return;
        };
        let before = owned.granted.as_ref().map(Granted::next_look);
        change(owned);
        let after = owned.granted.as_ref().map(Granted::next_look);
        if let (Some(before), Some(after)) = (before, after) {
            state.looks.remove(&(before, lock.clone()));
            if state.look_at(after, lock) {
                self.1.notify_one();
            }
        }
    }

    /// A holder has nothing any more, or will not in a moment. Says what was known.
    pub(crate) fn ended(&self, lock: &LockName, holder: &Holder) -> Option<Owned> {
        let mut state = self.state();
        let lease = (lock.clone(), holder.clone());
        if state.owners.get(lock).is_some_and(|owned| owned.holder == *holder) {
            state.ended.note(lease, false);
            return state.remove(lock);
        }
        state.unproved.note(lease, false);
        None
    }

    /// It ended by giving its lock back.
    pub(crate) fn gave_back(&self, lock: &LockName, holder: &Holder) {
        self.state().ended.note((lock.clone(), holder.clone()), true);
    }

    /// Whether it gave its lock back here a moment ago.
    pub(crate) fn was_released(&self, lock: &LockName, holder: &Holder) -> bool {
        self.state().ended.get(&(lock.clone(), holder.clone())) == Some(true)
    }

    /// Whether it was granted or seen here. What an id says of a holder may be made up.
    pub(crate) fn is_known(&self, lock: &LockName, holder: &Holder) -> bool {
        let state = self.state();
        state.owners.get(lock).is_some_and(|owned| owned.holder == *holder)
            || state.ended.get(&(lock.clone(), holder.clone())).is_some()
    }

    /// Whether it ended here a moment ago.
    pub(crate) fn has_ended(&self, lock: &LockName, holder: &Holder) -> bool {
        let (state, lease) = (self.state(), (lock.clone(), holder.clone()));
        state.ended.get(&lease).or_else(|| state.unproved.get(&lease)).is_some()
    }

    /// The next lease that is near its end, or at it, unless somebody renewed or released it elsewhere.
    /// Waits for one.
    pub(crate) async fn next_end(&self) -> (LockName, Owned) {
        loop {
            let changed = self.1.notified();
            let wait = {
                let mut state = self.state();
                match state.looks.first() {
                    Some((at, _)) if *at <= Instant::now() => {
                        let (at, lock) = state.looks.pop_first().expect("it is there");
                        let is_meant = |owned: &&Owned| {
                            owned.granted.as_ref().is_some_and(|granted| granted.next_look() == at)
                        };
                        match state.owners.get(&lock).filter(is_meant).cloned() {
                            Some(owned) => return (lock, owned),
                            None => continue,
                        }
                    }
                    Some((at, _)) => Some(*at),
                    None => None,
                }
            };
            tokio::select! {
                () = changed => {}
                () = async {
                    match wait {
                        Some(at) => tokio::time::sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    /// What came with the request of whoever holds `lock`.
    pub(crate) fn granted(&self, lock: &LockName, holder: &Holder) -> Option<Granted> {
        let state = self.state();
        state.owners.get(lock).filter(|own| own.holder == *holder)?.granted.clone()
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
        assert!(
            known.has_ended(&lock, &owned(1).holder)
                && !known.was_released(&lock, &owned(1).holder)
        );
        assert!(known.ended(&lock, &owned(2).holder).is_some());
        assert!(known.began(&lock, owned(3)).is_none(), "the second was about to end");
        known.gave_back(&lock, &owned(2).holder);
        assert!(known.was_released(&lock, &owned(2).holder));
        assert!(known.ended(&lock, &owned(2).holder).is_none(), "the third has it");
        assert_eq!(known.owner(&lock).unwrap().holder, owned(3).holder);
    }
    #[test]
    fn one_nonce_on_two_locks_or_twice_on_one_is_two_leases() {
        let known = Known::default();
        let [one, other] = ["l", "m"].map(|name| LockName::new(name).unwrap());
        let holder = owned(1).holder;
        known.gave_back(&one, &holder);
        assert!(!known.was_released(&other, &holder) && !known.has_ended(&other, &holder));
        known.began(&one, owned(1));
        assert!(!known.was_released(&one, &holder), "it has the lock again");
    }

    #[tokio::test]
    async fn what_was_granted_here_is_looked_at_near_its_end_and_at_it_unless_that_moved() {
        let (known, start) = (Known::default(), Instant::now());
        let until = |ms| start + Duration::from_millis(ms);
        let granted = |nonce, ms| {
            let granted = Granted::new(Duration::from_millis(200), None, until(ms));
            Owned { granted: Some(granted), ..owned(nonce) }
        };
        let [one, other, third] = ["l", "m", "n"].map(|name| LockName::new(name).unwrap());
        known.began(&one, granted(1, 30));
        known.began(&other, granted(2, 40));
        known.began(&third, granted(3, 20));
        known.renewed(&one, &owned(1).holder, Duration::from_millis(200), until(90));
        known.ended(&third, &owned(3).holder);
        for (expected, ms) in [(&other, 30), (&other, 40), (&one, 80), (&one, 90)] {
            let (lock, owned) = known.next_end().await;
            let now = Instant::now();
            assert!(lock == *expected && now >= until(ms), "{lock} {:?}", now - start);
            let is_last = owned.granted.unwrap().was_seen_near_its_end();
            assert_eq!(is_last, [40, 90].contains(&ms));
            match is_last {
                true => drop(known.ended(&lock, &owned.holder)),
                false => known.seen(&lock, &owned.holder, until(ms), None),
            }
        }
        assert!(known.state().looks.is_empty());
    }
}
