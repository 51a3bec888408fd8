//! Who is inside each lock, as the holders themselves believe. The judge hears of every entry and
//! says what must never be seen there; nothing excuses it here.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::Fence;
use leasehold_judge::{Event, Exclusion, Fences, Promise as _, Violation};

/// Sees every entry, and notes what is wrong with it.
#[derive(Debug)]
pub(super) struct Witness {
    /// The judge counts time from here.
    start: Instant,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    exclusion: Exclusion<Entry>,
    fences: Fences<Entry>,
    entries: u64,
    wrong: Vec<String>,
}

/// A holder who has not left: one entry of a client. Its deadline moves, so it tells no two apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inside {
    /// Which client.
    pub(super) client: usize,
    pub(super) fence: u64,
    /// The deadline on its own clock.
    pub(super) until: Instant,
}

/// An entry, by the lock, the client and the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry(String, usize, u64);

impl Default for Witness {
    fn default() -> Self {
        Self { start: Instant::now(), seen: Mutex::default() }
    }
}

impl Witness {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Somebody begins to believe that it holds `lock`. It counts as one that asks only now, so its
    /// fence must be above all that came in before.
    pub(super) fn enter(&self, lock: &str, new: Inside, now: Instant) {
        let (who, at, until) = (&new.of(lock), self.nanos(now), self.nanos(new.until));
        let fence = Fence::new(new.fence).unwrap_or(Fence::MAX);
        let event = Event::Believes { who, lock, fence, asked: at, until };
        let mut seen = self.seen();
        seen.entries += 1;
        let mut found = seen.exclusion.see(at, &event);
        found.extend(seen.fences.see(at, &event));
        seen.wrong.extend(found.iter().filter_map(story));
    }

    /// Somebody believes until later than before.
    pub(super) fn extend(&self, lock: &str, new: Inside, now: Instant) {
        let (who, at, until) = (&new.of(lock), self.nanos(now), self.nanos(new.until));
        let mut seen = self.seen();
        let found = seen.exclusion.see(at, &Event::Extended { who, asked: at, until });
        seen.wrong.extend(found.iter().filter_map(story));
    }

    /// Somebody does not believe any more.
    pub(super) fn leave(&self, lock: &str, old: Inside) {
        let at = self.nanos(Instant::now());
        self.seen().exclusion.see(at, &Event::Ended { who: &old.of(lock) });
    }

    /// How often somebody came in, and everything that was wrong.
    pub(super) fn report(&self) -> (u64, Vec<String>) {
        let seen = self.seen();
        (seen.entries, seen.wrong.clone())
    }
}

impl Inside {
    fn of(&self, lock: &str) -> Entry {
        Entry(lock.to_owned(), self.client, self.fence)
    }
}

fn story(violation: &Violation<Entry>) -> Option<String> {
    match violation {
        Violation::Overlap { lock, first, second, at, until } => {
            let (Entry(_, one, its_fence), Entry(_, other, fence)) = (first, second);
            let left = until.map(|until| Duration::from_nanos(until - at).as_secs_f64());
            Some(format!(
                "lock `{lock}`: two inside at once: client {one} with fence {its_fence} has {:.3} s \
                 left, client {other} with fence {fence} has {:.3} s",
                left[0], left[1],
            ))
        }
        Violation::LowerFence { lock, before, second: Entry(_, client, fence), .. } => {
            Some(format!(
                "lock `{lock}`: client {client} came in with fence {fence}, not above {before}"
            ))
        }
        // Such a fence is not above the highest either, which is told already.
        Violation::SameFence { .. } => None,
        other => Some(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn inside(client: usize, fence: u64, until: Instant) -> Inside {
        Inside { client, fence, until }
    }

    #[test]
    fn one_after_another_with_rising_fences_is_right() {
        let (witness, now) = (Witness::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        witness.enter("a", inside(1, 5, later), now);
        witness.extend("a", inside(1, 5, later), now);
        witness.leave("a", inside(1, 5, later));
        witness.enter("a", inside(2, 6, later), now);
        // Nobody has to leave whose time is up, and another lock is another matter.
        witness.enter("a", inside(1, 7, later), later);
        witness.enter("b", inside(2, 1, later), now);
        assert_eq!(witness.report(), (4, Vec::new()));
    }

    #[test]
    fn who_comes_in_before_the_deadline_of_another_is_seen() {
        let (witness, now) = (Witness::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        witness.enter("a", inside(1, 5, later), now);
        witness.enter("a", inside(2, 6, later), now);
        let (_, wrong) = witness.report();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("client 1 with fence 5 has 1.000 s left"), "{wrong:?}");
    }

    #[test]
    fn who_goes_on_although_another_came_in_is_seen() {
        let (witness, now) = (Witness::default(), Instant::now());
        let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        witness.enter("a", inside(1, 5, soon), now);
        witness.enter("a", inside(2, 6, later), soon);
        witness.extend("a", inside(1, 5, later), soon);
        // The first has no business there, so its leaving is not the second's.
        witness.leave("a", inside(1, 5, later));
        witness.enter("a", inside(3, 7, later), soon);
        assert_eq!(witness.report().1.len(), 2);
    }

    #[test]
    fn a_fence_that_does_not_rise_is_seen() {
        let (witness, now) = (Witness::default(), Instant::now());
        for fence in [5, 7, 6, 7] {
            witness.enter("a", inside(1, fence, now), now);
        }
        let (_, wrong) = witness.report();
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].ends_with("with fence 6, not above 7"), "{wrong:?}");
        assert!(wrong[1].ends_with("with fence 7, not above 7"), "{wrong:?}");
    }
}
