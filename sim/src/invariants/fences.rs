//! No two acquisitions of a name have the same fence, and one that began after another was complete
//! has the larger one.

use std::collections::HashMap;

use leasehold_core::{Fence, LockName};

use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// What was given out.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// By name: when each acquisition was complete, and the highest fence up to then.
    given: HashMap<LockName, Vec<(Time, Fence)>>,
    all: HashMap<(LockName, Fence), Time>,
}

impl Invariant for Fences {
    fn promise(&self) -> &'static str {
        "fences"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        let Happening::Acquired { who, lock, fence, started, .. } = happening else {
            return Ok(());
        };
        if let Some(before) = self.all.insert((lock.clone(), *fence), now) {
            return Err(format!(
                "{} got fence {fence} of {lock}, which was given at {} already",
                short(who),
                Shown(before)
            ));
        }
        let given = self.given.entry(lock.clone()).or_default();
        let before = given.partition_point(|(complete, _)| complete <= started);
        let highest = before.checked_sub(1).map_or(Fence::ZERO, |last| given[last].1);
        if *fence <= highest {
            return Err(format!(
                "{} began at {} and got fence {fence} of {lock}, but {highest} was given before",
                short(who),
                Shown(*started)
            ));
        }
        let so_far = given.last().map_or(Fence::ZERO, |(_, highest)| *highest);
        given.push((now, so_far.max(*fence)));
        Ok(())
    }
}
