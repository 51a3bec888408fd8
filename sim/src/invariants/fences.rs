//! What excuses fences that are given twice or do not grow.
//!
//! Clocks have no part in fences while enough nodes remember. A node that forgot is above all that
//! others remember; where too few do, its clock stands in. So nothing is promised any more if a node
//! was given its vote back on the word of its clock, after fewer clocks than a quorum were right; but only
//! of names that had numbers above the floor which that clock gave it.

use std::collections::{HashMap, HashSet};

use leasehold_core::{Fence, Holder, LockName};
use leasehold_judge::Violation;

use super::judged::Excuse;
use super::readings::Process;
use crate::clock::Time;
use crate::history::Happening;

/// What may have been forgotten.
#[derive(Debug)]
pub(super) struct Excused {
    /// So many other nodes remember each number that a node may have forgotten.
    enough: usize,
    /// How long a lease may last.
    memory: Time,
    /// The highest fence of each name.
    highest: HashMap<LockName, Fence>,
    /// When a process was last told the highest fence of a server.
    told: HashMap<(Process, usize), Time>,
    were_wrong: bool,
    /// Names of which a node may have forgotten a number that is above its floor.
    forgotten: HashSet<LockName>,
}

impl Excused {
    pub(super) fn new(enough: usize, memory: Time) -> Self {
        Self {
            enough,
            memory,
            highest: HashMap::new(),
            told: HashMap::new(),
            were_wrong: false,
            forgotten: HashSet::new(),
        }
    }

    /// Who may have forgotten a number was given a vote. Whether enough others told theirs.
    fn is_remembered(&self, by: Process, forgot: Time, others: &[usize]) -> bool {
        let told = |server: &&usize| self.told.get(&(by, **server)).copied().unwrap_or_default();
        let since = forgot + self.memory;
        others.iter().filter(|server| told(server) >= since).count() >= self.enough
    }
}

impl Excuse for Excused {
    fn watch(&mut self, _: Time, happening: &Happening) {
        match happening {
            Happening::ClocksAreWrong => self.were_wrong = true,
            Happening::Read { client, life, given, is_probe: true, .. } => {
                self.told.insert(((*client, *life), given.server), given.at);
            }
            Happening::Admitted {
                by: Some(by), forgot, others, floor, is_carried: false, ..
            } if self.were_wrong && !self.is_remembered(*by, *forgot, others) => {
                let above = self.highest.iter().filter(|(_, highest)| *highest > floor);
                self.forgotten.extend(above.map(|(lock, _)| lock.clone()));
            }
            Happening::Acquired { lock, fence, .. } => {
                let highest = self.highest.entry(lock.clone()).or_default();
                *highest = (*highest).max(*fence);
            }
            _ => {}
        }
    }

    fn covers(&mut self, _: Time, violation: &Violation<Holder>) -> bool {
        let (Violation::SameFence { lock, .. } | Violation::LowerFence { lock, .. }) = violation
        else {
            return false;
        };
        self.forgotten.iter().any(|forgotten| forgotten.as_str() == lock)
    }
}
