//! Lost is for ever: no call and no answer turns a lost lease into a held one.

use std::collections::HashMap;
use std::hash::Hash;

use crate::{Event, Promise, Violation};

/// Remembers who was told of a loss, and when.
#[derive(Debug)]
pub struct Lost<W>(HashMap<W, u64>);

impl<W> Default for Lost<W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<W: Clone + Eq + Hash> Promise<W> for Lost<W> {
    fn name(&self) -> &'static str {
        "lost"
    }

    fn see(&mut self, at: u64, event: &Event<'_, W>) -> Vec<Violation<W>> {
        match event {
            Event::Lost { who } => {
                self.0.entry((*who).clone()).or_insert(at);
                Vec::new()
            }
            Event::Believes { who, until, .. }
            | Event::Extended { who, until, .. }
            | Event::Moved { who, until } => {
                let lost = self.0.get(*who).copied();
                let again =
                    |lost| Violation::HeldAgain { who: (*who).clone(), lost, until: *until };
                lost.map(again).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{believes, extended};

    #[test]
    fn a_loss_after_which_nothing_is_believed_is_right() {
        let mut promise = Lost::default();
        promise.see(10, &believes(&1, 1, 0, 50));
        promise.see(40, &Event::Lost { who: &1 });
        assert_eq!(promise.see(41, &Event::Lost { who: &1 }), []);
        assert_eq!(promise.see(41, &Event::Ended { who: &1 }), []);
        assert_eq!(promise.see(42, &believes(&2, 2, 0, 50)), []);
    }

    #[test]
    fn a_lease_that_comes_back_is_found_however_it_does() {
        let mut promise = Lost::default();
        promise.see(40, &Event::Lost { who: &1 });
        let again = Violation::HeldAgain { who: 1, lost: 40, until: 90 };
        for event in
            [believes(&1, 1, 0, 90), extended(&1, 39, 90), Event::Moved { who: &1, until: 90 }]
        {
            assert_eq!(promise.see(50, &event), std::slice::from_ref(&again));
        }
    }
}
