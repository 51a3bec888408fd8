//! The line of waiters, as a model of its own: it is about nobody waiting for ever, and so about
//! whole runs, which the search for broken promises does not see.
//!
//! Processes want one lock again and again. Each asks at once, or stands in line first if it knows
//! that others wait; then the production `Line` says what it does. Everything that is on its way arrives at
//! any later moment. A hint may get lost and a process may die, as often as the case says. Timers
//! fire only when nothing is on its way: a second is long against a message. Only the beats by which
//! a waiter hears again where it stands go on however much is on its way between others.

mod cases;
mod graph;
pub mod report;
mod state;
mod steps;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use leasehold_core::Quorum;
use leasehold_core::wait::Line;

pub use cases::all;

/// The bounds of a case, and which rule it leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How many processes.
    pub processes: usize,
    /// How many nodes.
    pub nodes: usize,
    /// Whether waiters ask when nothing was heard for long.
    pub timers: bool,
    /// How many hints may get lost.
    pub losses: u8,
    /// How many processes may die.
    pub deaths: u8,
    /// What is checked.
    pub promise: Promise,
    /// The rule that is left out.
    pub without: Option<Rule>,
}

/// What is promised, provided that everything that is due happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Whoever wants the lock gets it.
    EachIsServed,
    /// Somebody who wants the lock gets it.
    OneIsServed,
    /// Nobody in line is served before another who came earlier.
    InTurn,
}

/// A rule that waiters or nodes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A refused waiter keeps its place.
    KeepsTicket,
    /// A refused waiter gives back what it was granted.
    GivesBack,
    /// The entry of a dead waiter runs out.
    EntriesExpire,
    /// A watch tells at once that the lock is free already.
    WatchLooks,
    /// Whoever leaves the line tells the next.
    LeavingTells,
    /// A waiter lets the holder know.
    Nudges,
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
    /// Whether the promise holds.
    pub serves: bool,
    /// Whether it is too long for every test run.
    pub large: bool,
    /// How many states there are; 0 if nobody counted them yet.
    pub states: usize,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept, in every run.
    Served,
    /// Somebody can wait for ever.
    Starves {
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
    /// Explores it; `progress` is told now and then how many states there are so far.
    pub fn run(&self, progress: impl Fn(usize)) -> Outcome {
        let start = Instant::now();
        let (states, verdict) = graph::explore(&self.setup, progress);
        Outcome { case: *self, verdict, states, took: start.elapsed() }
    }
}

impl Outcome {
    /// Whether it is what was expected.
    pub fn is_as_expected(&self) -> bool {
        let serves = self.verdict == Verdict::Served;
        serves == self.case.serves && [0, self.states].contains(&self.case.states)
    }
}

impl Setup {
    fn quorum(&self) -> Quorum {
        Quorum::majority_of(NonZeroUsize::new(self.nodes).expect("some nodes"))
    }

    /// Of a process that stands nowhere yet.
    fn line(&self) -> Line {
        Line::new(self.quorum())
    }

    /// In short.
    pub fn bounds(&self) -> String {
        let timers = if self.timers { "timers" } else { "no timers" };
        let mut bounds = format!("N={} K={} {timers}", self.nodes, self.processes);
        if self.losses > 0 {
            bounds += &format!(" lost {}", self.losses);
        }
        if self.deaths > 0 {
            bounds += &format!(" dead {}", self.deaths);
        }
        let promise = match self.promise {
            Promise::EachIsServed => "each is served",
            Promise::OneIsServed => "one is served",
            Promise::InTurn => "in turn",
        };
        format!("{bounds}: {promise}")
    }
}
