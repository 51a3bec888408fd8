//! No two acquisitions of a name have the same fence, and one that began after another was complete
//! has the larger one.
//!
//! Clocks have no part in that while enough nodes remember. A node that forgot is above all that
//! others remember; where too few do, its clock stands in. So nothing is promised any more if a node
//! was given its vote back on the word of its clock, after fewer clocks than a quorum were right; but only
//! of names that had numbers above the floor which that clock gave it.

use std::collections::{HashMap, HashSet};

use leasehold_core::{Fence, LockName};

use super::readings::Process;
use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// What was given out.
#[derive(Debug)]
pub(super) struct Fences {
    /// So many other nodes remember each number that a node may have forgotten.
    enough: usize,
    /// How long a lease may last.
    memory: Time,
    /// By name: when each acquisition was complete, and the highest fence up to then.
    given: HashMap<LockName, Vec<(Time, Fence)>>,
    all: HashMap<(LockName, Fence), Time>,
    /// When a process was last told the highest fence of a server.
    told: HashMap<(Process, usize), Time>,
    were_wrong: bool,
    /// Names of which a node may have forgotten a number that is above its floor.
    forgotten: HashSet<LockName>,
}

impl Fences {
    pub(super) fn new(enough: usize, memory: Time) -> Self {
        Self {
            enough,
            memory,
            given: HashMap::new(),
            all: HashMap::new(),
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

    fn acquired(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
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

impl Invariant for Fences {
    fn promise(&self) -> &'static str {
        "fences"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::ClocksAreWrong => self.were_wrong = true,
            Happening::Read { client, life, given, is_probe: true, .. } => {
                self.told.insert(((*client, *life), given.server), given.at);
            }
            Happening::Admitted {
                by: Some(by), forgot, others, floor, is_carried: false, ..
            } if self.were_wrong && !self.is_remembered(*by, *forgot, others) => {
                let is_above = |given: &Vec<(Time, Fence)>| {
                    given.last().is_some_and(|(_, highest)| highest > floor)
                };
                let above = self.given.iter().filter(|(_, given)| is_above(given));
                self.forgotten.extend(above.map(|(lock, _)| lock.clone()));
            }
            Happening::Acquired { lock, .. } if !self.forgotten.contains(lock) => {
                return self.acquired(now, happening);
            }
            _ => {}
        }
        Ok(())
    }
}
