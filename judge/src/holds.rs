//! Who believes to hold what, as far as holders were told.

use std::collections::HashMap;

use leasehold_core::Fence;

use crate::Event;

/// What one holder believes.
#[derive(Debug)]
pub(crate) struct Hold<W> {
    pub(crate) who: W,
    pub(crate) fence: Fence,
    /// When it was told.
    pub(crate) since: u64,
    pub(crate) until: u64,
}

/// All holders that were neither told of a loss nor are done, by lock, in the order of their coming.
/// A deadline that passed ends nothing: its holder may not know.
#[derive(Debug)]
pub(crate) struct Holds<W>(HashMap<String, Vec<Hold<W>>>);

impl<W> Default for Holds<W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<W: Clone + Eq> Holds<W> {
    /// Takes in what a holder was told.
    pub(crate) fn see(&mut self, at: u64, event: &Event<'_, W>) {
        match event {
            Event::Believes { who, lock, fence, until, .. } => {
                self.forget(|gone| gone == *who);
                let hold = Hold { who: (*who).clone(), fence: *fence, since: at, until: *until };
                match self.0.get_mut(*lock) {
                    Some(holds) => holds.push(hold),
                    None => _ = self.0.insert((*lock).to_owned(), vec![hold]),
                }
            }
            Event::Extended { who, until, .. } | Event::Moved { who, until } => {
                let mut all = self.0.values_mut().flatten();
                if let Some(hold) = all.find(|hold| hold.who == **who) {
                    hold.until = *until;
                }
            }
            Event::Lost { who } | Event::Ended { who } => self.forget(|gone| gone == *who),
            Event::Vanished { is_gone } => self.forget(is_gone),
            Event::Looked => {}
        }
    }

    fn forget(&mut self, is_gone: impl Fn(&W) -> bool) {
        self.0.values_mut().for_each(|holds| holds.retain(|hold| !is_gone(&hold.who)));
    }

    /// Who believes to hold this lock.
    pub(crate) fn of(&self, lock: &str) -> &[Hold<W>] {
        self.0.get(lock).map_or(&[], Vec::as_slice)
    }

    /// The lock that this holder has, and everybody who believes to have it.
    pub(crate) fn beside(&self, who: &W) -> Option<(&str, &[Hold<W>])> {
        self.all().find(|(_, holds)| holds.iter().any(|hold| hold.who == *who))
    }

    /// All locks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &[Hold<W>])> {
        self.0.iter().map(|(lock, holds)| (lock.as_str(), holds.as_slice()))
    }
}
