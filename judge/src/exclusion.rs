//! Two holders never both have validity left (M).

use crate::holds::{Hold, Holds};
use crate::rules::{Span, overlap};
use crate::{Event, Promise, Violation};

/// Looks whenever somebody comes to believe in a lock or in a later deadline, and whenever it is
/// told to look. A deadline that moves is only taken in, because several may move at once.
#[derive(Debug)]
pub struct Exclusion<W>(Holds<W>);

impl<W> Default for Exclusion<W> {
    fn default() -> Self {
        Self(Holds::default())
    }
}

impl<W: Clone + Eq> Promise<W> for Exclusion<W> {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn see(&mut self, at: u64, event: &Event<'_, W>) -> Vec<Violation<W>> {
        self.0.see(at, event);
        match event {
            Event::Believes { who, .. } | Event::Extended { who, .. } => {
                let Some((lock, holds)) = self.0.beside(who) else { return Vec::new() };
                let is_of =
                    |(one, other): &(&Hold<W>, &Hold<W>)| one.who == **who || other.who == **who;
                overlaps(at, lock, pairs(holds).filter(is_of)).collect()
            }
            Event::Looked => {
                let all = self.0.all();
                all.flat_map(|(lock, holds)| overlaps(at, lock, pairs(holds))).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// All pairs, with the one that came first in the first place.
fn pairs<W>(holds: &[Hold<W>]) -> impl Iterator<Item = (&Hold<W>, &Hold<W>)> {
    let later = |(place, first)| holds[place + 1..].iter().map(move |second| (first, second));
    holds.iter().enumerate().flat_map(later)
}

fn overlaps<'a, W: Clone + 'a>(
    at: u64,
    lock: &'a str,
    pairs: impl Iterator<Item = (&'a Hold<W>, &'a Hold<W>)>,
) -> impl Iterator<Item = Violation<W>> {
    let from_now = move |hold: &Hold<W>| Span { from: at, until: hold.until };
    let both = pairs.filter(move |(a, b)| overlap(from_now(a), from_now(b)).is_some());
    both.map(move |(first, second)| Violation::Overlap {
        lock: lock.to_owned(),
        first: first.who.clone(),
        second: second.who.clone(),
        at,
        until: [first.until, second.until],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{believes, extended};

    fn overlap(first: u32, second: u32, at: u64, until: [u64; 2]) -> Violation<u32> {
        Violation::Overlap { lock: "l".into(), first, second, at, until }
    }

    #[test]
    fn one_after_another_is_right() {
        let mut promise = Exclusion::default();
        assert_eq!(promise.see(10, &believes(&1, 1, 0, 50)), []);
        assert_eq!(promise.see(20, &extended(&1, 20, 60)), []);
        // Its deadline is over, and it need not know that.
        assert_eq!(promise.see(60, &believes(&2, 2, 0, 90)), []);
        assert_eq!(promise.see(70, &Event::Ended { who: &2 }), []);
        assert_eq!(promise.see(70, &believes(&3, 3, 0, 90)), []);
        assert_eq!(promise.see(71, &Event::Lost { who: &3 }), []);
        assert_eq!(promise.see(72, &believes(&4, 4, 0, 90)), []);
        assert_eq!(promise.see(73, &Event::Vanished { is_gone: &|who| *who > 3 }), []);
        assert_eq!(promise.see(74, &believes(&5, 5, 0, 90)), []);
        // Another lock is another matter.
        let elsewhere = Event::Believes {
            who: &6,
            lock: "m",
            fence: crate::testing::fence(1),
            asked: 0,
            until: 90,
        };
        assert_eq!(promise.see(75, &elsewhere), []);
        assert_eq!(promise.see(76, &Event::Looked), []);
    }

    #[test]
    fn a_second_holder_before_the_deadline_of_the_first_is_found() {
        let mut promise = Exclusion::default();
        promise.see(10, &believes(&1, 1, 0, 50));
        assert_eq!(promise.see(49, &believes(&2, 2, 0, 90)), [overlap(1, 2, 49, [50, 90])]);
        assert_eq!(
            promise.see(49, &believes(&3, 3, 0, 60)),
            [overlap(1, 3, 49, [50, 60]), overlap(2, 3, 49, [90, 60])]
        );
    }

    #[test]
    fn an_extension_beside_the_next_holder_is_found() {
        let mut promise = Exclusion::default();
        promise.see(10, &believes(&1, 1, 0, 50));
        promise.see(50, &believes(&2, 2, 0, 90));
        assert_eq!(promise.see(60, &extended(&1, 40, 80)), [overlap(1, 2, 60, [80, 90])]);
    }

    #[test]
    fn a_look_finds_who_still_holds_and_deadlines_that_moved_count() {
        let mut promise = Exclusion::default();
        promise.see(10, &believes(&1, 1, 0, 50));
        promise.see(20, &believes(&2, 2, 0, 90));
        assert_eq!(promise.see(30, &Event::Looked), [overlap(1, 2, 30, [50, 90])]);
        assert_eq!(promise.see(31, &Event::Moved { who: &1, until: 35 }), []);
        assert_eq!(promise.see(34, &Event::Looked), [overlap(1, 2, 34, [35, 90])]);
        assert_eq!(promise.see(35, &Event::Looked), []);
    }
}
