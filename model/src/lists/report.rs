//! What came of the cases, for people.

use super::{Case, Expected, Outcome, Verdict};
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
    let expected = match case.expected {
        Expected::Holds(_) => "holds".to_owned(),
        Expected::Breaks(promise, _) => format!("breaks {promise:?}"),
    };
    let size = if case.large { "large" } else { "small" };
    format!("{:<28} {size} {expected:<10} {:<40} {}", case.name, case.setup.bounds(), case.what)
}

fn result(outcome: &Outcome) -> String {
    let found = match &outcome.verdict {
        Verdict::Holds => "holds, exhaustive".to_owned(),
        Verdict::Bounded => "no violation, stopped by time (bounded)".to_owned(),
        Verdict::Broken { promise, trace } => format!("{promise:?} broken, {} steps", trace.len()),
    };
    match outcome.case.expected {
        Expected::Holds(states) if ![0, outcome.states].contains(&states) => {
            format!("{found}, but {} states were expected", grouped(states))
        }
        _ => found,
    }
}
