//! What came of a run, in figures and sentences, or as an error that says what was wrong.

use std::time::Duration;

use super::tally::{Moment, Phase, Tally};
use super::{NODES, Run};
use crate::rounds::Latency;
use crate::row::Row;
use crate::scenarios::Findings;
use crate::stats::median;

/// Sentences of one kind are many when something is wrong; the first tell enough.
const TOLD: usize = 10;

/// What there is to tell.
pub(super) struct Told<'a> {
    pub(super) run: &'a Run,
    /// How long each part lasted.
    pub(super) spans: &'a [(Moment, Duration)],
    /// How many locks had an owner somewhere when everybody had left, and for how long.
    pub(super) left: (usize, Duration),
}

impl Told<'_> {
    /// Figures and facts, unless something was wrong.
    pub(super) fn findings(&self) -> Result<Findings, String> {
        let facts = self.facts();
        let wrong = self.wrong();
        if wrong.is_empty() {
            return Ok(Findings { rows: self.rows(), facts });
        }
        let more = match wrong.len() - wrong.len().min(TOLD) {
            0 => String::new(),
            more => format!("\n… and {more} more"),
        };
        let first = wrong[..wrong.len().min(TOLD)].join("\n");
        Err(format!("server-killed: {first}{more}\nwhat was seen:\n{}", facts.join("\n")))
    }

    fn wrong(&self) -> Vec<String> {
        let (_, mut wrong) = self.run.witness.report();
        let tally = self.run.tally();
        wrong.extend(tally.wrong.iter().cloned());
        if tally.renewed_elsewhere == 0 && !self.spans.is_empty() {
            wrong.push("no lease was renewed that outlived its server: nothing was shown".into());
        }
        wrong
    }

    fn rows(&self) -> Vec<Row> {
        let tally = self.run.tally();
        [(Phase::Before, "before"), (Phase::Dead, "dead"), (Phase::Back, "back")]
            .map(|(phase, name)| self.row(&tally, phase, name))
            .into()
    }

    /// Medians of the rounds.
    fn row(&self, tally: &Tally, phase: Phase, name: &str) -> Row {
        let spans = self.spans.iter().filter(|(moment, _)| moment.phase == phase);
        let parts: Vec<(f64, Latency)> = spans
            .map(|(moment, span)| {
                let mut waits = tally.waits.get(moment).cloned().unwrap_or_default();
                (waits.len() as f64 / span.as_secs_f64(), Latency::of(&mut waits))
            })
            .collect();
        let middle = |figure: fn(&(f64, Latency)) -> f64| {
            median(&parts.iter().map(figure).collect::<Vec<_>>())
        };
        Row {
            scenario: format!("server-killed/{name}"),
            contestant: "leasehold-http".to_owned(),
            nodes: NODES,
            concurrency: self.run.clients,
            cycles_per_s: middle(|(speed, _)| *speed),
            p50_us: middle(|(_, wait)| wait.p50),
            p99_us: middle(|(_, wait)| wait.p99),
            p999_us: middle(|(_, wait)| wait.p999),
            ..Row::default()
        }
    }

    fn facts(&self) -> Vec<String> {
        let (entries, wrong) = self.run.witness.report();
        let tally = self.run.tally();
        let pause = |phase| {
            tally
                .pauses
                .get(&phase)
                .map_or("–".to_owned(), |it| format!("{:.2} s", it.as_secs_f64()))
        };
        vec![
            format!(
                "{} clients of two servers behind HAProxy: {} take turns at {} locks, {} keep one each",
                self.run.clients,
                self.run.clients - self.run.kept.len(),
                self.run.shared.len(),
                self.run.kept.len(),
            ),
            format!(
                "a server was killed {} time(s); longest pause of a client: {} while both were well, \
                 {} while one was dead, {} when it was back",
                self.spans.iter().filter(|(moment, _)| moment.phase == Phase::Dead).count(),
                pause(Phase::Before),
                pause(Phase::Dead),
                pause(Phase::Back),
            ),
            format!("no answer of use: {}", failures(&tally)),
            format!(
                "{} leases were granted and nobody heard of it, so that they lasted for their TTL; {} \
                 releases were found to be done when they were repeated; {} leases ran out",
                tally.unheard, tally.released_before, tally.ran_out
            ),
            format!(
                "leases of a killed server: {} times renewed and {} released by the other",
                tally.renewed_elsewhere, tally.released_elsewhere
            ),
            format!(
                "somebody came in {entries} times, {} of them wrongly; {} times a lock was refused",
                wrong.len(),
                tally.refused
            ),
            format!(
                "{} locks had a vote of somebody left when everybody had gone; all were free after {:.1} s",
                self.left.0,
                self.left.1.as_secs_f64()
            ),
        ]
    }
}

/// `acquire 12 × connection cut, 3 × 502; …`
fn failures(tally: &Tally) -> String {
    let failed = tally.failed.iter().map(|((what, why), count)| format!("{what}: {count} × {why}"));
    let list: Vec<_> = failed.collect();
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}
