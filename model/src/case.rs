//! One case: bounds, what is expected, and what came of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::promise::Promise;
use crate::protocol::Protocol;
use crate::setup::Setup;
use crate::trace;

/// What is tried, and what should come of it.
#[derive(Debug, Clone)]
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
    /// Every promise that is checked holds in every state, and there are so many states.
    Holds {
        /// How many; 0 if nobody counted them yet.
        states: usize,
    },
    /// The promise is broken, first after so many steps.
    Breaks {
        /// Which.
        promise: Promise,
        /// The length of the shortest way there; 0 if nobody counted it yet.
        steps: usize,
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
    /// The longest shortest way to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every state was seen, and each promise holds in all of them.
    Holds,
    /// Time was up: no violation so far.
    Bounded,
    /// A promise is broken.
    Broken {
        /// Which.
        promises: Vec<Promise>,
        /// How, step by step.
        trace: Vec<String>,
    },
}

/// How to run a case.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How many threads. With more than one a trace need not be the shortest.
    pub threads: usize,
    /// When to stop.
    pub limit: Option<Duration>,
}

impl Case {
    /// The same case with every step taken by itself, and so with other numbers.
    #[must_use]
    pub fn in_plain(self) -> Self {
        let expected = match self.expected {
            Expected::Holds { .. } => Expected::Holds { states: 0 },
            Expected::Breaks { promise, .. } => Expected::Breaks { promise, steps: 0 },
        };
        Self { setup: Setup { plain: true, ..self.setup }, expected, ..self }
    }

    /// Explores it; `progress` is told now and then how many states there are so far.
    pub fn run(&self, effort: Effort, progress: impl Fn(usize, usize)) -> Outcome {
        let start = Instant::now();
        let mut checker = Protocol::new(self.setup.clone())
            .checker()
            .threads(effort.threads)
            .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([trace::PROPERTY])));
        if let Some(limit) = effort.limit {
            checker = checker.timeout(limit);
        }
        let checker = checker.spawn_bfs();
        // The checker can be asked, but it does not tell.
        while !checker.is_done() {
            std::thread::sleep(Duration::from_millis(5));
            progress(checker.unique_state_count(), checker.max_depth());
        }
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        let took = start.elapsed();
        let verdict = match checker.discovery(trace::PROPERTY) {
            Some(path) => {
                let (promises, trace) = trace::tell(checker.model(), path);
                Verdict::Broken { promises, trace }
            }
            None if effort.limit.is_some_and(|limit| took >= limit) => Verdict::Bounded,
            None => Verdict::Holds,
        };
        Outcome { case: self.clone(), verdict, states, depth, took }
    }
}

impl Outcome {
    /// Whether it is what was expected.
    pub fn is_as_expected(&self) -> bool {
        match (&self.verdict, self.case.expected) {
            (Verdict::Holds, Expected::Holds { states }) => states == 0 || states == self.states,
            (Verdict::Broken { promises, trace }, Expected::Breaks { promise, steps }) => {
                promises.contains(&promise) && (steps == 0 || steps == trace.len())
            }
            _ => false,
        }
    }
}
