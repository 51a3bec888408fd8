//! No two acquisitions of a lock get the same fence (F1), and one that began after another was
//! complete gets the higher one (F2).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use leasehold_core::Fence;

use crate::rules::grows;
use crate::{Event, Promise, Violation};

/// Remembers every fence that was given.
#[derive(Debug)]
pub struct Fences<W>(HashMap<String, Given<W>>);

impl<W> Default for Fences<W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

/// The fences of one lock.
#[derive(Debug)]
struct Given<W> {
    /// Who got each, and when.
    all: HashMap<Fence, (W, u64)>,
    /// When each acquisition was complete, and the highest fence up to then, with who got it.
    complete: Vec<(u64, Fence, W)>,
}

impl<W: Clone> Given<W> {
    /// Who has had this fence, and since when.
    fn given(&mut self, at: u64, fence: Fence, who: &W) -> Option<(W, u64)> {
        match self.all.entry(fence) {
            Entry::Occupied(entry) => Some(entry.get().clone()),
            Entry::Vacant(entry) => {
                entry.insert((who.clone(), at));
                None
            }
        }
    }

    /// The highest fence of those that were complete at a time.
    fn highest(&self, at: u64) -> Option<&(u64, Fence, W)> {
        let before = self.complete.partition_point(|(complete, ..)| *complete <= at);
        before.checked_sub(1).map(|last| &self.complete[last])
    }

    fn completed(&mut self, at: u64, fence: Fence, who: &W) {
        let so_far = self.complete.last().filter(|(_, highest, _)| *highest > fence);
        let (_, fence, who) = so_far.cloned().unwrap_or_else(|| (at, fence, who.clone()));
        self.complete.push((at, fence, who));
    }
}

impl<W: Clone> Promise<W> for Fences<W> {
    fn name(&self) -> &'static str {
        "fences"
    }

    fn see(&mut self, at: u64, event: &Event<'_, W>) -> Vec<Violation<W>> {
        let Event::Believes { who, lock, fence, asked, .. } = event else { return Vec::new() };
        if !self.0.contains_key(*lock) {
            let none = Given { all: HashMap::new(), complete: Vec::new() };
            self.0.insert((*lock).to_owned(), none);
        }
        let Some(known) = self.0.get_mut(*lock) else { return Vec::new() };
        let (lock, fence, asked) = (|| (*lock).to_owned(), *fence, *asked);
        let same = known.given(at, fence, who).map(|(first, given)| Violation::SameFence {
            lock: lock(),
            fence,
            first,
            given,
            second: (*who).clone(),
        });
        let highest = known.highest(asked).filter(|(_, before, _)| !grows(fence, *before));
        let lower = highest.map(|(_, before, first)| Violation::LowerFence {
            lock: lock(),
            first: first.clone(),
            before: *before,
            second: (*who).clone(),
            asked,
            fence,
        });
        let found = same.into_iter().chain(lower).collect();
        known.completed(at, fence, who);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{believes, fence};

    fn lower(first: u32, before: u64, second: u32, asked: u64, got: u64) -> Violation<u32> {
        let (before, got) = (fence(before), fence(got));
        Violation::LowerFence { lock: "l".into(), first, before, second, asked, fence: got }
    }

    #[test]
    fn fences_that_grow_are_right_and_overlapping_acquires_may_have_them_in_any_order() {
        let mut promise = Fences::default();
        assert_eq!(promise.see(10, &believes(&1, 5, 0, 11)), []);
        assert_eq!(promise.see(20, &believes(&2, 7, 10, 21)), []);
        assert_eq!(promise.see(30, &believes(&3, 6, 19, 31)), [], "it asked before 7 was told");
        assert_eq!(promise.see(40, &believes(&4, 8, 30, 41)), []);
        let elsewhere =
            Event::Believes { who: &5, lock: "m", fence: fence(1), asked: 50, until: 60 };
        assert_eq!(promise.see(50, &elsewhere), []);
    }

    #[test]
    fn a_fence_that_is_given_twice_is_found() {
        let mut promise = Fences::default();
        promise.see(10, &believes(&1, 5, 0, 11));
        let same = |second| Violation::SameFence {
            lock: "l".into(),
            fence: fence(5),
            first: 1,
            given: 10,
            second,
        };
        assert_eq!(promise.see(20, &believes(&2, 5, 9, 21)), [same(2)]);
        assert_eq!(promise.see(30, &believes(&3, 5, 10, 31)), [same(3), lower(1, 5, 3, 10, 5)]);
    }

    #[test]
    fn a_fence_that_is_not_above_one_that_was_complete_is_found() {
        let mut promise = Fences::default();
        promise.see(10, &believes(&1, 9, 0, 11));
        promise.see(20, &believes(&2, 5, 0, 21));
        // The highest counts, not the last.
        assert_eq!(promise.see(30, &believes(&3, 8, 20, 31)), [lower(1, 9, 3, 20, 8)]);
        assert_eq!(promise.see(40, &believes(&4, 10, 20, 41)), []);
    }
}
