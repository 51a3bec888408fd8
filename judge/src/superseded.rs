//! An extension that was sent after a later acquisition was complete fails (F5).

use std::collections::HashMap;

use leasehold_core::Fence;

use crate::holds::Holds;
use crate::rules::supersedes;
use crate::{Event, Promise, Violation};

/// Remembers when each acquisition was complete.
#[derive(Debug)]
pub struct Superseded<W> {
    holds: Holds<W>,
    /// In the order of time.
    complete: HashMap<String, Vec<(u64, Fence)>>,
}

impl<W> Default for Superseded<W> {
    fn default() -> Self {
        Self { holds: Holds::default(), complete: HashMap::new() }
    }
}

impl<W: Clone + Eq> Superseded<W> {
    fn late(&self, who: &W, asked: u64) -> Option<Violation<W>> {
        let (lock, holds) = self.holds.beside(who)?;
        let own = holds.iter().find(|hold| hold.who == *who)?;
        let all = &self.complete.get(lock)?[..];
        let from = all.partition_point(|(complete, _)| *complete <= own.since);
        let until = all.partition_point(|(complete, _)| *complete <= asked);
        let mut between = all.get(from..until)?.iter();
        let (complete, later) = *between.find(|(_, fence)| supersedes(*fence, own.fence))?;
        let (who, fence) = (who.clone(), own.fence);
        Some(Violation::LateExtension { who, fence, asked, later, complete })
    }
}

impl<W: Clone + Eq> Promise<W> for Superseded<W> {
    fn name(&self) -> &'static str {
        "superseded"
    }

    fn see(&mut self, at: u64, event: &Event<'_, W>) -> Vec<Violation<W>> {
        self.holds.see(at, event);
        match event {
            Event::Believes { lock, fence, .. } => {
                match self.complete.get_mut(*lock) {
                    Some(complete) => complete.push((at, *fence)),
                    None => _ = self.complete.insert((*lock).to_owned(), vec![(at, *fence)]),
                }
                Vec::new()
            }
            Event::Extended { who, asked, .. } => self.late(who, *asked).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{believes, extended, fence};

    #[test]
    fn an_extension_that_was_sent_before_a_later_holder_came_is_right() {
        let mut promise = Superseded::default();
        promise.see(10, &believes(&1, 5, 0, 50));
        assert_eq!(promise.see(20, &extended(&1, 15, 60)), []);
        promise.see(60, &believes(&2, 6, 0, 90));
        assert_eq!(promise.see(61, &extended(&1, 59, 95)), []);
        assert_eq!(promise.see(62, &extended(&2, 62, 95)), [], "the later one may");
    }

    #[test]
    fn an_extension_that_was_sent_after_a_later_holder_came_is_found() {
        let mut promise = Superseded::default();
        promise.see(10, &believes(&1, 5, 0, 50));
        promise.see(60, &believes(&2, 6, 0, 90));
        let late = Violation::LateExtension {
            who: 1,
            fence: fence(5),
            asked: 60,
            later: fence(6),
            complete: 60,
        };
        assert_eq!(promise.see(61, &extended(&1, 60, 95)), [late]);
        promise.see(62, &Event::Lost { who: &1 });
        assert_eq!(promise.see(63, &extended(&1, 63, 95)), [], "it has no lease any more");
    }
}
