//! `Idempotency-Key`: a caller that repeats an acquire whose answer got lost gets the same lease, for as long
//! as that lasts. What became of it is asked of the nodes with each repeat.
//!
//! A key is known at the instance that saw it. Its mark stands in the holder of the lease, so that any
//! other instance knows the lease for the key's, and says so: it must not hand it out, because the
//! first may be about to take it back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use leasehold::{Holder, LeaseToken};
use sha2::{Digest as _, Sha256};

use crate::problem::{Kind, Problem};

/// So many keys of one caller may stand for a request under way or a lease that lasts.
const MOST_PER_CALLER: usize = 10_000;
/// Keys of leases that are over are looked for from this many on.
const MANY: usize = 1024;

/// Keys and what came of them.
#[derive(Default)]
pub(crate) struct Idempotency(Mutex<State>);

#[derive(Default)]
struct State {
    entries: HashMap<Mark, Entry>,
    /// How many of them are whose.
    per_caller: HashMap<Arc<str>, usize>,
    /// When there are so many, those of leases that are over go.
    next_sweep: usize,
}

/// What of a key stands in the holder of its lease.
type Mark = u64;

struct Entry {
    caller: Arc<str>,
    key: [u8; 32],
    request: [u8; 32],
    outcome: Option<Granted>,
}

struct Granted {
    token: LeaseToken,
    deadline: Instant,
}

/// What a key stands for.
pub(crate) enum Key {
    /// Nothing yet: go ahead.
    New(UnderWay),
    /// This lease, unless the nodes say otherwise.
    Granted(LeaseToken),
}

impl Idempotency {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks a key of `caller` up; `request` is what it is used for. A caller that is told of a lease may be
    /// told again: from here on it is not taken back.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        caller: &Arc<str>,
        key: &str,
        request: &[u8],
    ) -> Result<Key, Problem> {
        let key: [u8; 32] = Sha256::new()
            .chain_update(&**caller)
            .chain_update([0])
            .chain_update(key)
            .finalize()
            .into();
        let request: [u8; 32] = Sha256::digest(request).into();
        let mark = Mark::from_be_bytes(*key.first_chunk().expect("a digest is longer"));
        let mut state = self.state();
        match state.entries.get_mut(&mark) {
            Some(entry) if entry.key != key || entry.request != request => Err(Problem::new(
                Kind::IdempotencyMismatch,
                "this Idempotency-Key was used with another body or lock; use a fresh one for each acquire",
            )),
            Some(Entry { outcome: None, .. }) => Err(Problem::new(
                Kind::IdempotencyInFlight,
                "the first request with this Idempotency-Key is still under way",
            )),
            Some(Entry { outcome: Some(granted), .. }) => Ok(Key::Granted(granted.token.clone())),
            None => {
                state.make_room(caller)?;
                let caller = caller.clone();
                *state.per_caller.entry(caller.clone()).or_default() += 1;
                state.entries.insert(mark, Entry { caller, key, request, outcome: None });
                Ok(Key::New(UnderWay { keys: self.clone(), mark, is_over: false }))
            }
        }
    }

    /// The lease of `holder` is good until then.
    pub(crate) fn renewed(&self, holder: &Holder, deadline: Instant) {
        let mut state = self.state();
        if let Some(granted) = state.granted(holder) {
            granted.deadline = granted.deadline.max(deadline);
        }
    }

    /// The lease of `holder` is over: its key stands for nothing any more.
    pub(crate) fn ended(&self, holder: &Holder) {
        let mut state = self.state();
        if state.granted(holder).is_some() {
            state.forget(holder.mark());
        }
    }
}

impl State {
    fn granted(&mut self, holder: &Holder) -> Option<&mut Granted> {
        let granted = self.entries.get_mut(&holder.mark())?.outcome.as_mut()?;
        (granted.token.holder == *holder).then_some(granted)
    }

    fn forget(&mut self, mark: Mark) {
        let Some(entry) = self.entries.remove(&mark) else { return };
        if let Some(count) = self.per_caller.get_mut(&entry.caller) {
            *count -= 1;
            if *count == 0 {
                self.per_caller.remove(&entry.caller);
            }
        }
    }

    /// For one more key of `caller`: never by forgetting what another one's stands for.
    fn make_room(&mut self, caller: &Arc<str>) -> Result<(), Problem> {
        let is_full = |state: &Self| {
            state.per_caller.get(caller).is_some_and(|count| *count >= MOST_PER_CALLER)
        };
        if self.entries.len() >= self.next_sweep.max(MANY) || is_full(self) {
            let now = Instant::now();
            let is_over =
                |entry: &Entry| entry.outcome.as_ref().is_some_and(|it| it.deadline <= now);
            let over = self.entries.iter().filter(|(_, entry)| is_over(entry));
            let over: Vec<Mark> = over.map(|(mark, _)| *mark).collect();
            over.into_iter().for_each(|mark| self.forget(mark));
            self.next_sweep = 2 * self.entries.len();
        }
        if is_full(self) {
            let detail = format!(
                "{MOST_PER_CALLER} of your Idempotency-Keys stand for leases that last; release some, or \
                 acquire without a key"
            );
            return Err(Problem::new(Kind::TooManyRequests, detail));
        }
        Ok(())
    }
}

/// A request under way: forgotten when it ends without a lease.
pub(crate) struct UnderWay {
    keys: Arc<Idempotency>,
    mark: Mark,
    is_over: bool,
}

impl UnderWay {
    /// What stands in the holder of a lease of this key, at every instance.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// It got a lease.
    pub(crate) fn granted(mut self, token: &LeaseToken, deadline: Instant) {
        self.is_over = true;
        if let Some(entry) = self.keys.state().entries.get_mut(&self.mark) {
            entry.outcome = Some(Granted { token: token.clone(), deadline });
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.keys.state().forget(self.mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{Fence, LockName};

    use super::*;

    fn lease(mark: u64, nonce: u64) -> LeaseToken {
        let holder = Holder::new("h", u128::from(mark) << 64 | u128::from(nonce)).unwrap();
        let (name, fence) = (LockName::new("l").unwrap(), Fence::new(7).unwrap());
        format!("lease1:{fence}:30000:{holder}/{name}").parse().unwrap()
    }

    fn new(keys: &Arc<Idempotency>, caller: &Arc<str>, key: &str) -> UnderWay {
        match keys.look_up(caller, key, b"request") {
            Ok(Key::New(under_way)) => under_way,
            Ok(Key::Granted(token)) => panic!("{token}"),
            Err(problem) => panic!("{problem:?}"),
        }
    }

    #[test]
    fn another_lease_of_the_same_key_does_not_end_it() {
        let (keys, caller) = (Arc::<Idempotency>::default(), Arc::from("a"));
        let under_way = new(&keys, &caller, "k");
        let token = lease(under_way.mark(), 1);
        under_way.granted(&token, Instant::now() + Duration::from_secs(60));
        keys.ended(&lease(token.holder.mark(), 2).holder);
        assert!(keys.look_up(&caller, "k", b"request").is_ok_and(is_granted));
        keys.ended(&token.holder);
        drop(new(&keys, &caller, "k"));
        assert!(keys.state().per_caller.is_empty() && keys.state().entries.is_empty());
    }

    /// A renewal with a shorter ttl leaves the longer end.
    #[test]
    fn a_key_is_kept_for_as_long_as_its_lease_may_last() {
        let (keys, caller) = (Arc::<Idempotency>::default(), Arc::from("a"));
        let under_way = new(&keys, &caller, "k");
        let token = lease(under_way.mark(), 1);
        under_way.granted(&token, Instant::now() + Duration::from_secs(60));
        keys.renewed(&token.holder, Instant::now());
        for number in 0..MANY {
            let under_way = new(&keys, &caller, &number.to_string());
            let token = lease(under_way.mark(), 1);
            under_way.granted(&token, Instant::now());
        }
        drop(new(&keys, &caller, "one more"));
        assert!(keys.state().entries.len() < MANY, "those that are over went");
        assert!(keys.look_up(&caller, "k", b"request").is_ok_and(is_granted));
    }

    fn is_granted(key: Key) -> bool {
        matches!(key, Key::Granted(_))
    }

    #[test]
    fn a_caller_with_too_many_keys_is_refused_and_nobody_else() {
        let (keys, caller) = (Arc::<Idempotency>::default(), Arc::from("a"));
        let later = Instant::now() + Duration::from_secs(60);
        for number in 0..MOST_PER_CALLER {
            let under_way = new(&keys, &caller, &number.to_string());
            let deadline = if number == 0 { Instant::now() } else { later };
            let token = lease(under_way.mark(), 1);
            under_way.granted(&token, deadline);
        }
        let one_more = new(&keys, &caller, "in the place of the one that is over");
        let refused = keys.look_up(&caller, "too many", b"request").err();
        assert_eq!(refused.map(|problem| problem.kind), Some(Kind::TooManyRequests));
        drop(new(&keys, &Arc::from("b"), "k"));
        drop(one_more);
        drop(new(&keys, &caller, "again"));
        assert!(matches!(keys.look_up(&caller, "7", b"request"), Ok(Key::Granted(_))));
    }
}
