//! A holder whose lease is over is told so before another one has the lock.

use crate::holds::{Hold, Holds};
use crate::{Event, Promise, Violation};

/// Looks for holders that were told nothing whenever another one gets their lock. Two who both have
/// validity left are the business of [`crate::Exclusion`].
#[derive(Debug)]
pub struct Noticed<W>(Holds<W>);

impl<W> Default for Noticed<W> {
    fn default() -> Self {
        Self(Holds::default())
    }
}

impl<W: Clone + Eq> Promise<W> for Noticed<W> {
    fn name(&self) -> &'static str {
        "noticed"
    }

    fn see(&mut self, at: u64, event: &Event<'_, W>) -> Vec<Violation<W>> {
        self.0.see(at, event);
        let Event::Believes { who, lock, .. } = event else { return Vec::new() };
        let is_untold = |hold: &&Hold<W>| hold.who != **who && hold.until <= at;
        let untold = self.0.of(lock).iter().filter(is_untold).map(|hold| Violation::NotTold {
            lock: (*lock).to_owned(),
            first: hold.who.clone(),
            end: hold.until,
            second: (*who).clone(),
        });
        untold.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{believes, extended};

    #[test]
    fn who_is_told_or_done_before_the_next_one_comes_is_right() {
        let mut promise = Noticed::default();
        promise.see(10, &believes(&1, 1, 0, 50));
        promise.see(50, &Event::Lost { who: &1 });
        assert_eq!(promise.see(50, &believes(&2, 2, 0, 90)), []);
        promise.see(60, &Event::Ended { who: &2 });
        assert_eq!(promise.see(91, &believes(&3, 3, 0, 99)), []);
        promise.see(98, &extended(&3, 97, 120));
        assert_eq!(promise.see(99, &believes(&4, 4, 0, 100)), [], "that is exclusion's business");
    }

    #[test]
    fn who_is_told_nothing_is_found() {
        let mut promise = Noticed::default();
        promise.see(10, &believes(&1, 1, 0, 50));
        let not_told = Violation::NotTold { lock: "l".into(), first: 1, end: 50, second: 2 };
        assert_eq!(promise.see(50, &believes(&2, 2, 0, 90)), [not_told]);
    }
}
