//! The history is that of a fenced mutex: there is an order of all acquires and ends, which keeps
//! the order in real time, in which each acquire finds the lock free and brings a fence above all
//! before. Found by porcupine-rs, which knows nothing of leases.

use std::collections::BTreeMap;
use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

use super::{Finding, Outcome, Section};

/// Sections per search, and how many of them the next search sees again. What the search keeps in
/// memory grows with the square. A history is right only if each part of it is, because an acquire
/// and its end can be left out of any right order; and what a cut may miss lies a thousand
/// sections apart, where the other judges look.
const WINDOW: usize = 2_000;
const SHARED: usize = 200;

/// A right history takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// One lock, by itself.
#[derive(Debug, Clone)]
struct FencedMutex;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Mutex {
    owner: Option<u64>,
    highest: u64,
}

#[derive(Debug, Clone)]
enum Op {
    Acquire {
        fence: u64,
    },
    /// By release or by expiry.
    End {
        fence: u64,
    },
}

impl Model for FencedMutex {
    type State = Mutex;
    type Op = Op;
    type Metadata = ();

    fn init() -> Mutex {
        Mutex { owner: None, highest: 0 }
    }

    fn step(state: &Mutex, op: &Op) -> (bool, Mutex) {
        match op {
            Op::Acquire { fence } => (
                state.owner.is_none() && *fence > state.highest,
                Mutex { owner: Some(*fence), highest: *fence },
            ),
            Op::End { fence } => {
                (state.owner == Some(*fence), Mutex { owner: None, ..state.clone() })
            }
        }
    }
}

fn operations(sections: &[&Section]) -> Vec<Operation<FencedMutex>> {
    let operation = |call: u64, until: Option<u64>, op| Operation {
        client_id: None,
        call_time: call as i64,
        return_time: until.map_or(i64::MAX, |until| until as i64),
        op,
        metadata: None,
    };
    let both = |section: &&Section| {
        let fence = section.fence;
        // A hold may end no sooner than its holder gave it back or its deadline passed. Whether and
        // when the nodes ended it is known only if a release said so.
        let ends = section.gave_back.filter(|_| section.gives_back == Some(section.end()));
        [
            operation(section.asked, Some(section.granted), Op::Acquire { fence }),
            operation(section.end(), ends, Op::End { fence }),
        ]
    };
    sections.iter().flat_map(both).collect()
}

pub(super) fn judge(sections: &[Section]) -> Finding {
    const PROMISE: &str = "the history is that of a fenced mutex";
    let mut by_lock: BTreeMap<&str, Vec<&Section>> = BTreeMap::new();
    for section in sections {
        by_lock.entry(&section.lock).or_default().push(section);
    }
    let mut evidence = Vec::new();
    let mut undecided = 0;
    for (lock, sections) in by_lock {
        for from in (0..sections.len()).step_by(WINDOW - SHARED) {
            let window = &sections[from..sections.len().min(from + WINDOW)];
            match check_operations_timeout(&operations(window), PATIENCE) {
                CheckResult::Ok => {}
                CheckResult::Illegal => evidence.push(format!(
                    "{lock}: no order of the {} sections from fence {} on is right",
                    window.len(),
                    window[0].fence
                )),
                CheckResult::Unknown => undecided += 1,
            }
        }
    }
    if evidence.is_empty() && undecided > 0 {
        let story = format!("{undecided} search(es) did not end within {PATIENCE:?}");
        return Finding::new(PROMISE, Outcome::NotJudged, story);
    }
    Finding::of(PROMISE, &evidence, format!("{} operations", 2 * sections.len()))
}
