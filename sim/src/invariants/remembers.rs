//! A vote that is counted was given by a server that had forgotten nothing for as long as the
//! longest lease lasts: whatever it forgot before is over.
//!
//! How long a server has waited is told by clocks. If those of a quorum are set ahead together by what
//! is missing, a process that never saw the server wait before has nothing else to go by.

use std::collections::{HashMap, HashSet};

use super::readings::Process;
use crate::clock::Time;
use crate::history::{Given, Happening, Invariant, Shown, short};

#[derive(Debug)]
pub(super) struct Remembers {
    quorum: usize,
    /// How long the longest lease lasts.
    memory: Time,
    /// How much longer than that a server waits.
    longer: Time,
    /// By server: when its clock was set ahead, and by how much.
    steps: HashMap<usize, Vec<(Time, Time)>>,
    /// When a process first saw a server that had forgotten, by when that had.
    seen: HashMap<(Process, usize, Time), Time>,
    /// Servers that were let in by clocks that all were set ahead, by when they had forgotten.
    excused: HashSet<(usize, Time)>,
}

impl Remembers {
    pub(super) fn new(quorum: usize, memory: Time, max_skew: Time) -> Self {
        let (steps, seen, excused) = (HashMap::new(), HashMap::new(), HashSet::new());
        Self { quorum, memory, longer: 2 * max_skew, steps, seen, excused }
    }

    /// Whether a quorum of clocks was set ahead by what is missing, since the server forgot and before
    /// the process saw it wait.
    fn is_misled(&self, now: Time, server: usize, forgot: Time, by: Process) -> bool {
        if forgot + self.memory <= now {
            return false;
        }
        let missing = forgot + self.memory + self.longer - now;
        let until = self.seen.get(&(by, server, forgot)).copied().unwrap_or(now);
        let ahead = |steps: &Vec<(Time, Time)>| {
            let since = steps.iter().filter(|(at, _)| (forgot..=until).contains(at));
            since.map(|(_, by)| by).sum::<Time>()
        };
        self.steps.values().filter(|steps| ahead(steps) >= missing).count() >= self.quorum
    }
}

impl Invariant for Remembers {
    fn promise(&self) -> &'static str {
        "remembers"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Stepped { server, by } if *by > 0 => {
                self.steps.entry(*server).or_default().push((now, by.unsigned_abs()));
                Ok(())
            }
            Happening::Read { client, life, given, is_probe: true, .. } => {
                let key = ((*client, *life), given.server, given.forgot);
                self.seen.entry(key).or_insert(given.at);
                Ok(())
            }
            Happening::Admitted { server, by: Some(by), forgot, .. } => {
                if self.is_misled(now, *server, *forgot, *by) {
                    self.excused.insert((*server, *forgot));
                }
                Ok(())
            }
            // Whatever it forgot, it had given no vote.
            Happening::Admitted { server, by: None, forgot, is_first: true, .. } => {
                self.excused.insert((*server, *forgot));
                Ok(())
            }
            Happening::Acquired { who, votes, .. } | Happening::Extended { who, votes, .. } => {
                // A server that never forgot anything may have been set up by a person.
                let forgot = |vote: &&Given| {
                    let is_excused = self.excused.contains(&(vote.server, vote.forgot));
                    vote.forgot > 0 && vote.at < vote.forgot + self.memory && !is_excused
                };
                match votes.iter().find(forgot) {
                    None => Ok(()),
                    Some(vote) => Err(format!(
                        "{} counted what server {} said at {}, though it had forgotten at {}",
                        short(who),
                        vote.server,
                        Shown(vote.at),
                        Shown(vote.forgot)
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}
