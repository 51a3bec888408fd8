//! What came of the cases, for people.

use super::{Case, Outcome, Verdict};
use crate::report::grouped;

/// One line: name, bounds, states, time, result.
pub fn line(outcome: &Outcome) -> String {
    let mark = if outcome.is_as_expected() { "ok    " } else { "FAILED" };
    format!(
        "{mark} {:<28} {:<52} {:>11} states, {:>7.1} s: {}",
        outcome.case.name,
        outcome.case.setup.bounds(),
        grouped(outcome.states),
        outcome.took.as_secs_f64(),
        result(outcome)
    )
}

/// The table of the README.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let head = "| case | what | bounds | states | result |\n|---|---|---|---:|---|\n";
    let rows = outcomes.iter().map(|outcome| {
        let case = &outcome.case;
        let (bounds, states) = (case.setup.bounds(), grouped(outcome.states));
        format!("| `{}` | {} | {bounds} | {states} | {} |\n", case.name, case.what, result(outcome))
    });
    head.to_owned() + &rows.collect::<String>()
}

/// What `--list` says of a case.
pub fn listed(case: &Case) -> String {
    let expected = if case.serves { "serves" } else { "starves" };
    let size = if case.large { "large" } else { "small" };
    format!("{:<28} {size} {expected:<10} {:<40} {}", case.name, case.setup.bounds(), case.what)
}

fn result(outcome: &Outcome) -> String {
    let found = match &outcome.verdict {
        Verdict::Served => "holds, exhaustive".to_owned(),
        Verdict::Starves { .. } => "found".to_owned(),
    };
    match outcome.case.states {
        0 => found,
        states if states == outcome.states => found,
        states => format!("{found}, but {} states were expected", grouped(states)),
    }
}
