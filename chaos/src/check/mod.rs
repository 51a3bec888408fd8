//! What is judged, one file each, by the history and nothing else. Exclusion, fences and losses are
//! judged by [`leasehold_judge`], to which the history is replayed.

mod callers;
mod denials;
mod exclusion;
mod excuse;
mod fences;
mod linear;
mod lives;
mod lost;
mod progress;
mod replay;
mod section;
mod store;
mod strangers;

use serde::{Deserialize, Serialize};

use crate::history::History;

pub use callers::MADE_UP;
pub use exclusion::{Overlap, overlaps, unexcused};
pub use excuse::Excuse;
pub(crate) use lives::word;
pub use lives::{Won, ballots};
pub(crate) use progress::whole_sections;
pub use section::{Section, sections};
pub(crate) use store::{late_in_log, refused};

/// What a judge found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which promise.
    pub promise: String,
    /// Whether it was kept.
    pub outcome: Outcome,
    /// The figures, or the evidence.
    pub story: String,
}

/// Whether a promise was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was.
    Kept,
    /// It was not.
    Broken,
    /// Nobody may ask for it here, or too little happened to tell.
    NotJudged,
}

impl Finding {
    fn new(promise: &str, outcome: Outcome, story: String) -> Self {
        Self { promise: promise.into(), outcome, story }
    }

    /// Kept, with the figures, unless there is evidence against it.
    fn of(promise: &str, evidence: &[String], figures: String) -> Self {
        if evidence.is_empty() {
            return Self::new(promise, Outcome::Kept, figures);
        }
        let mut story = format!("{} time(s)", evidence.len());
        for line in evidence.iter().take(SHOWN) {
            story.push_str("\n    ");
            story.push_str(line);
        }
        Self::new(promise, Outcome::Broken, story)
    }

    /// The same; evidence comes with its time, and the earliest is told first.
    fn in_time(promise: &str, mut evidence: Vec<(u64, String)>, figures: String) -> Self {
        evidence.sort();
        let evidence: Vec<_> = evidence.into_iter().map(|(_, line)| line).collect();
        Self::of(promise, &evidence, figures)
    }

    /// The same, where the promise is not made.
    fn without_promise(mut self) -> Self {
        if self.outcome == Outcome::Broken {
            self.story = format!("not promised here, and broken {}", self.story);
        }
        self.outcome = Outcome::NotJudged;
        self
    }
}

/// Pieces of evidence that are told; the first ones tell the most.
const SHOWN: usize = 5;

/// All judges.
pub fn all(history: &History) -> Vec<Finding> {
    let sections = sections(history);
    let judged = exclusion::without_excused(history, &sections);
    let mut findings = vec![
        exclusion::judge(history, &sections),
        linear::judge(&judged),
        lives::remembered(history),
    ];
    if history.meta.beyond {
        findings = findings.into_iter().map(Finding::without_promise).collect();
    }
    findings.extend([
        lives::waited(history),
        lives::counted_once(history),
        lives::of_one_server(history),
        fences::unique(&sections),
        fences::grow(&sections),
        strangers::judge(history),
        lost::judge(history),
        store::judge(history),
        store::late_writes(history),
        progress::enough(history),
        progress::calm(history),
    ]);
    if callers::took_part(history) {
        findings.extend([
            callers::deadlines(history),
            callers::over(history),
            callers::looks(history, &judged),
            denials::judge(history, &judged),
            callers::lies(history, &sections),
        ]);
    }
    findings
}

/// Whether no promise was broken.
pub fn is_kept(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.outcome != Outcome::Broken)
}
