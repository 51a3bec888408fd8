//! The end of a broken run, as a person would tell it: what concerns the lock in question, and what
//! was done to the world meanwhile.

use std::collections::HashMap;

use leasehold_core::{Holder, LockName};

use crate::clock::Time;
use crate::history::{Happening, Shown};

/// More than this nobody reads.
const LINES: usize = 60;

/// The last lines that matter to whatever happened last.
pub fn relevant(timeline: &[(Time, Happening)]) -> Vec<String> {
    let mut locks = HashMap::new();
    for (_, happening) in timeline {
        if let Happening::Started { who, lock } = happening {
            locks.insert(who.clone(), lock.clone());
        }
    }
    let lock = timeline.last().and_then(|(_, last)| lock_of(last, &locks));
    let matters = |happening: &Happening| match happening {
        Happening::Fault(_)
        | Happening::Paused { .. }
        | Happening::StoodStill { .. }
        | Happening::Stepped { .. }
        | Happening::ClocksAreWrong
        | Happening::Admitted { .. }
        | Happening::Crashed { .. }
        | Happening::NoList
        | Happening::FaultsOver
        | Happening::Rest { .. } => true,
        other => lock_of(other, &locks).is_some_and(|of| lock.is_none_or(|lock| lock == of)),
    };
    let mut lines: Vec<_> = timeline
        .iter()
        .rev()
        .filter(|(_, happening)| matters(happening))
        .take(LINES)
        .map(|(at, happening)| format!("{} {happening}", Shown(*at)))
        .collect();
    lines.reverse();
    lines
}

fn lock_of<'a>(
    happening: &'a Happening,
    locks: &'a HashMap<Holder, LockName>,
) -> Option<&'a LockName> {
    match happening {
        Happening::Applied { request, .. } => request.lock(),
        Happening::Started { who, .. }
        | Happening::Acquired { who, .. }
        | Happening::Extended { who, .. }
        | Happening::Moved { who, .. }
        | Happening::Lost { who }
        | Happening::Done { who }
        | Happening::GaveUp { who } => locks.get(who),
        _ => None,
    }
}
