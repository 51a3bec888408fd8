//! A change of the member list, as a model of its own: `core::Succession` is the changer, and what it
//! reads and writes are the records of the nodes, to the letter.
//!
//! A changer asks node by node and writes by compare-and-set; it takes any time for each, and may
//! stop for ever or begin anew. Clients of each list want the one lock, and ask node by node, too. Time
//! has no clock: when a quarantine is over, every lease is that was last renewed before it began.

mod cases;
mod changer;
mod leases;
pub mod report;
mod state;
mod steps;
mod world;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

pub use cases::all;
use world::{PROPERTY, World};

/// The bounds of a case, and which rule it leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The member lists, a letter for each node; the first is the one at the beginning.
    pub lists: &'static [&'static str],
    /// Who changes which list to which.
    pub changes: &'static [(usize, usize)],
    /// The clients, by the number of their list.
    pub clients: &'static [usize],
    /// Nodes that a client of a list may meet before the change, and nobody else with them.
    pub early: &'static [(char, usize)],
    /// How often a changer may begin anew.
    pub again: u8,
    /// How many servers may restart.
    pub restarts: u8,
    /// Whether those that join may lose everything when they restart.
    pub empties: bool,
    /// Whether holders renew.
    pub renews: bool,
    /// Whether fences are looked at. Then each client wants the lock once.
    pub fences: bool,
    /// Whether the members of a list answer in turn.
    pub in_turn: bool,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// A rule that changers or nodes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The nodes of the old list are looked at before the quarantine begins.
    LooksAtTheBarrier,
    /// The nodes that join are barred before the others.
    JoiningFirst,
    /// A record that was not written is looked at again.
    LooksAgain,
    /// A node that is added is barred, and then begins to wait, also where it waited before.
    AddedWaits,
    /// A node that is added begins to wait when all others were seen to serve the new list.
    AllFollow,
    /// A node that is barred stays so when it restarts.
    BarredStays,
    /// A node without a record gets none while another member is barred.
    NoneBesideBarred,
    /// What the nodes that leave remember counts.
    FloorOfAll,
}

/// What is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Two never hold at once.
    M,
    /// Whoever completes later has the larger fence.
    F,
}

/// A case: bounds, and what should come of it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Short and without spaces.
    pub name: &'static str,
    /// In words.
    pub what: &'static str,
    /// The bounds.
    pub setup: Setup,
    /// What should come of it.
    pub expected: Expected,
    /// Whether it is too long for every test run.
    pub large: bool,
}

/// What should come of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The promises hold in every state, and there are so many; 0 if nobody counted them yet.
    Holds(usize),
    /// This one is broken, first after so many steps; 0 if nobody counted them yet.
    Breaks(Promise, usize),
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every state was seen, and the promises hold in all of them.
    Holds,
    /// Time was up: no violation so far.
    Bounded,
    /// A promise is broken.
    Broken {
        /// Which.
        promise: Promise,
        /// How, step by step.
        trace: Vec<String>,
    },
}

/// What came of a case.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Which.
    pub case: Case,
    /// How it ended.
    pub verdict: Verdict,
    /// Different states.
    pub states: usize,
    /// How long it took.
    pub took: Duration,
}

impl Case {
    /// Whether the promises must hold.
    pub fn must_hold(&self) -> bool {
        matches!(self.expected, Expected::Holds(_))
    }

    /// Explores it for as long as `limit` says; `progress` is told now and then how many states there
    /// are so far.
    pub fn run(&self, limit: Option<Duration>, progress: impl Fn(usize)) -> Outcome {
        let start = Instant::now();
        let wanted = HasDiscoveries::AnyOf(BTreeSet::from([PROPERTY]));
        let mut checker = World::new(self.setup).checker().finish_when(wanted);
        if let Some(limit) = limit {
            checker = checker.timeout(limit);
        }
        let checker = checker.spawn_bfs();
        while !checker.is_done() {
            std::thread::sleep(Duration::from_millis(5));
            progress(checker.unique_state_count());
        }
        let (states, took) = (checker.unique_state_count(), start.elapsed());
        let verdict = match checker.discovery(PROPERTY) {
            Some(path) => {
                let promise = path.last_state().broken().unwrap_or(Promise::M);
                Verdict::Broken { promise, trace: steps::tell(checker.model(), path) }
            }
            None if limit.is_some_and(|limit| took >= limit) => Verdict::Bounded,
            None => Verdict::Holds,
        };
        Outcome { case: *self, verdict, states, took }
    }
}

impl Outcome {
    /// Whether it is what was expected.
    pub fn is_as_expected(&self) -> bool {
        match (&self.verdict, self.case.expected) {
            (Verdict::Holds, Expected::Holds(states)) => [0, self.states].contains(&states),
            (Verdict::Broken { promise, trace }, Expected::Breaks(expected, steps)) => {
                *promise == expected && [0, trace.len()].contains(&steps)
            }
            _ => false,
        }
    }
}

impl Setup {
    /// In short.
    pub fn bounds(&self) -> String {
        let changes = self.changes.iter().map(|(from, to)| {
            let (from, to) = (self.lists[*from], self.lists[*to]);
            format!("{from}→{to}")
        });
        let mut bounds = changes.collect::<Vec<_>>().join(", ");
        bounds += &format!(" K={}", self.clients.len());
        if !self.early.is_empty() {
            let early: String = self.early.iter().map(|(node, _)| *node).collect();
            bounds += &format!(" early {early}");
        }
        let counted = [(self.again, " again"), (self.restarts, " restarts")];
        for (count, what) in counted.iter().filter(|(count, _)| *count > 0) {
            bounds += &format!("{what} {count}");
        }
        let said =
            [(self.renews, ", renewals"), (self.fences, ", fences"), (self.in_turn, ", in turn")];
        said.iter().filter(|(is_so, _)| *is_so).for_each(|(_, what)| bounds += what);
        bounds
    }
}
