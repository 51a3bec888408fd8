//! What excuses a holder that was not told of its loss before another one has the lock: it stood
//! still.

use std::collections::HashMap;

use leasehold_core::Holder;
use leasehold_judge::Violation;

use super::judged::Excuse;
use super::readings::process_of;
use crate::clock::Time;
use crate::history::Happening;

/// Who stands still.
#[derive(Debug, Default)]
pub(super) struct Excused {
    pauses: HashMap<usize, (Time, Time)>,
}

impl Excused {
    /// Whether it stood still at any time from `since` to `now`.
    fn stood_still(&self, who: &Holder, since: Time, now: Time) -> bool {
        let pause = self.pauses.get(&process_of(who).0);
        pause.is_some_and(|(from, until)| *from <= now && *until >= since)
    }
}

impl Excuse for Excused {
    fn watch(&mut self, now: Time, happening: &Happening) {
        if let Happening::Paused { client, until } | Happening::StoodStill { client, until, .. } =
            happening
        {
            self.pauses.insert(*client, (now, *until));
        }
    }

    fn covers(&mut self, now: Time, violation: &Violation<Holder>) -> bool {
        match violation {
            Violation::NotTold { first, end, .. } => self.stood_still(first, *end, now),
            _ => false,
        }
    }
}
