//! What a run came to, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::{self, Finding, Outcome, Section, sections, unexcused};
use crate::history::{Event, History};
use crate::picture::DRAWN;
use crate::timeline::Scene;

/// The figures of a run and what the judges found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Whether no promise was broken.
    pub kept: bool,
    /// The seed of the schedule.
    pub seed: u64,
    /// The command that makes the same trouble again.
    pub again: String,
    /// What took part.
    pub versions: Vec<String>,
    /// The faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Acquisitions that their holders knew of.
    pub acquisitions: u64,
    /// Critical sections all of whose writes were taken.
    pub critical_sections: u64,
    /// Acquires that were refused, by kind.
    pub refusals: BTreeMap<String, u64>,
    /// Acquires that nobody waited for to the end.
    pub abandoned: u64,
    /// From asking to holding: half of the acquisitions took at most this long.
    pub wait_p50_ms: f64,
    /// All but one in a hundred did.
    pub wait_p99_ms: f64,
    /// Losses that their holders noticed before a write, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Leases that were seen to be over before they were given back, noticed by whatever means.
    pub leases_over: u64,
    /// Late writes that the fenced store refused.
    pub late_writes_refused: u64,
    /// Late writes that stand in the log that nobody checks.
    pub late_writes_unfenced: u64,
    /// What the judges found.
    pub findings: Vec<Finding>,
    /// The stories of the first overlaps, if exclusion was promised.
    pub overlaps: Vec<String>,
    /// Where the history is, and the pictures of the overlaps.
    pub history: String,
}

impl Report {
    /// Judges the history that was read from `folder`, and counts.
    pub fn of(history: &History, folder: &Path) -> Self {
        let findings = check::all(history);
        let sections = sections(history);
        let mut waits: Vec<u64> =
            sections.iter().map(|section| section.granted - section.asked).collect();
        waits.sort_unstable();
        let events = || history.lives.iter().flat_map(|life| &life.events).map(|line| &line.what);
        let count = |read: fn(&Event) -> Option<&String>| tally(events().filter_map(read));
        let meta = &history.meta;
        Self {
            kept: check::is_kept(&findings),
            seed: meta.seed,
            again: format!(
                "cargo run --release -p leasehold-chaos -- --backend {}{} --holders {} --locks {} \
                 --seconds {} --seed {}{}{}{}{}",
                meta.backend,
                // A file is one node, and there is nothing to say about that.
                if meta.backend == "sqlite" {
                    String::new()
                } else {
                    format!(" --nodes {}", meta.nodes)
                },
                meta.holders,
                meta.locks,
                meta.seconds,
                meta.seed,
                if meta.beyond { " --beyond" } else { "" },
                if meta.through_servers { " --through-servers" } else { "" },
                if meta.hogs > 0 { format!(" --hogs {}", meta.hogs) } else { String::new() },
                meta.only.iter().map(|kind| format!(" --only '{kind}'")).collect::<String>(),
            ),
            versions: meta.versions.clone(),
            faults: tally(history.faults.iter().map(|line| &line.what.kind)),
            acquisitions: sections.len() as u64,
            critical_sections: history.lives.iter().map(check::whole_sections).sum(),
            refusals: count(|event| match event {
                Event::Refused { why, .. } => Some(why),
                _ => None,
            }),
            abandoned: events().filter(|event| matches!(event, Event::Abandons { .. })).count()
                as u64,
            wait_p50_ms: quantile(&waits, 0.5),
            wait_p99_ms: quantile(&waits, 0.99),
            losses: count(|event| match event {
                Event::Lost { why, .. } => Some(why),
                _ => None,
            }),
            leases_over: events()
                .filter(|event| matches!(event, Event::Believes { until: None, .. }))
                .count() as u64,
            late_writes_refused: check::refused(history) as u64,
            late_writes_unfenced: check::late_in_log(history) as u64,
            findings,
            overlaps: stories(history, &sections),
            history: folder.display().to_string(),
        }
    }

    /// Writes `report.md` and `report.json`.
    pub fn save(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("report.md"), self.text())?;
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        std::fs::write(folder.join("report.json"), json + "\n")
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let verdict = if self.kept { "every promise was kept" } else { "BROKEN" };
        let sum: u64 = self.faults.values().sum();
        // Writing to a string cannot fail.
        let mut line = |line: String| _ = writeln!(text, "{line}");
        line(format!("# Chaos, seed {}: {verdict}\n", self.seed));
        line(format!("{}\n", self.versions.join(", ")));
        line("| what | how often |\n|---|---|".into());
        line(format!("| acquisitions | {} |", self.acquisitions));
        line(format!("| critical sections, whole | {} |", self.critical_sections));
        let waits = format!("{:.1} ms, {:.1} ms", self.wait_p50_ms, self.wait_p99_ms);
        line(format!("| wait for a lock, p50 and p99 | {waits} |"));
        line(format!("| acquires refused | {} |", shown(&self.refusals)));
        line(format!("| acquires abandoned | {} |", self.abandoned));
        line(format!("| losses noticed before a write | {} |", shown(&self.losses)));
        line(format!("| leases over before they were given back | {} |", self.leases_over));
        line(format!("| late writes refused by the fence | {} |", self.late_writes_refused));
        line(format!("| late writes in the unfenced log | {} |", self.late_writes_unfenced));
        line(format!("| faults | {sum}: {} |", shown(&self.faults)));
        line("\n| promise | verdict | figures |\n|---|---|---|".into());
        for finding in &self.findings {
            let verdict = match finding.outcome {
                Outcome::Kept => "kept",
                Outcome::Broken => "BROKEN",
                Outcome::NotJudged => "not judged",
            };
            let first = finding.story.lines().next().unwrap_or_default();
            line(format!("| {} | {verdict} | {first} |", finding.promise));
        }
        for finding in self.findings.iter().filter(|finding| finding.story.contains('\n')) {
            line(format!("\n{}: {}", finding.promise, finding.story));
        }
        for story in &self.overlaps {
            line(format!("\n{story}"));
        }
        line(format!("\nThe same trouble again: `{}`", self.again));
        let drawn = if self.overlaps.is_empty() { "" } else { ", with a picture of each overlap" };
        line(format!("The history: {}{drawn}", self.history));
        text
    }
}

/// The stories of the first overlaps, where they break a promise.
fn stories(history: &History, sections: &[Section]) -> Vec<String> {
    if history.meta.beyond {
        return Vec::new();
    }
    let first = unexcused(history, sections).0.into_iter().take(DRAWN);
    first.map(|overlap| Scene::new(history, overlap).text()).collect()
}

fn tally<'a>(words: impl Iterator<Item = &'a String>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    words.for_each(|word| *tally.entry(word.clone()).or_insert(0) += 1);
    tally
}

fn shown(tally: &BTreeMap<String, u64>) -> String {
    let parts: Vec<_> = tally.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if parts.is_empty() { "0".into() } else { parts.join(", ") }
}

fn quantile(sorted: &[u64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(0.0, |nanos| *nanos as f64 / 1e6)
}
