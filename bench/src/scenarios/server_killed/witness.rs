//! Who is inside each lock, as the holders themselves believe, and what must never be seen there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Sees every entry, and notes what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Witness(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    locks: HashMap<String, Room>,
    entries: u64,
    wrong: Vec<String>,
}

#[derive(Debug, Default)]
struct Room {
    inside: Option<Inside>,
    highest: u64,
}

/// A holder who has not left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inside {
    /// Which client.
    pub(super) client: usize,
    pub(super) fence: u64,
    /// The deadline on its own clock.
    pub(super) until: Instant,
}

impl Witness {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody begins to believe that it holds `lock`.
    pub(super) fn enter(&self, lock: &str, new: Inside, now: Instant) {
        let mut seen = self.seen();
        seen.entries += 1;
        let room = seen.locks.entry(lock.to_owned()).or_default();
        let highest = room.highest;
        room.highest = highest.max(new.fence);
        let old = room.inside.replace(new);
        if let Some(old) = old.filter(|old| now < old.until) {
            seen.wrong.push(two_at_once(lock, old, new, now));
        }
        if new.fence <= highest {
            let Inside { client, fence, .. } = new;
            seen.wrong.push(format!(
                "lock `{lock}`: client {client} came in with fence {fence}, not above {highest}"
            ));
        }
    }

    /// Somebody believes until later than before.
    pub(super) fn extend(&self, lock: &str, new: Inside, now: Instant) {
        let mut seen = self.seen();
        let room = seen.locks.entry(lock.to_owned()).or_default();
        match room.inside {
            Some(other) if other.fence != new.fence && now < other.until => {
                seen.wrong.push(two_at_once(lock, new, other, now));
            }
            _ => room.inside = Some(new),
        }
    }

    /// The holder with this fence does not believe any more.
    pub(super) fn leave(&self, lock: &str, fence: u64) {
        let mut seen = self.seen();
        if let Some(room) = seen.locks.get_mut(lock)
            && room.inside.is_some_and(|inside| inside.fence == fence)
        {
            room.inside = None;
        }
    }

    /// How often somebody came in, and everything that was wrong.
    pub(super) fn report(&self) -> (u64, Vec<String>) {
        let seen = self.seen();
        (seen.entries, seen.wrong.clone())
    }
}

fn two_at_once(lock: &str, old: Inside, new: Inside, now: Instant) -> String {
    format!(
        "lock `{lock}`: two inside at once: client {} with fence {} has {:.3} s left, client {} with \
         fence {} has {:.3} s",
        old.client,
        old.fence,
        old.until.saturating_duration_since(now).as_secs_f64(),
        new.client,
        new.fence,
        new.until.saturating_duration_since(now).as_secs_f64(),
    )
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
        witness.leave("a", 5);
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
        witness.leave("a", 5);
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
