//! What came of the cases, for people.

use crate::case::{Case, Expected, Outcome, Verdict};

/// One line: name, bounds, states, depth, time, result.
pub fn line(outcome: &Outcome) -> String {
    let mark = if outcome.is_as_expected() { "ok    " } else { "FAILED" };
    let bounds = format!("{} {}", outcome.case.setup.bounds(), checks(&outcome.case));
    format!(
        "{mark} {:<28} {:<52} {:>11} states, depth {:>2}, {:>7.1} s: {}",
        outcome.case.name,
        bounds,
        grouped(outcome.states),
        outcome.depth,
        outcome.took.as_secs_f64(),
        result(outcome)
    )
}

/// The tables of the README.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let head = "| case | what | bounds | checked | states | depth | result |\n\
                |---|---|---|---|---:|---:|---|\n";
    let rows = outcomes.iter().map(|outcome| {
        let case = &outcome.case;
        format!(
            "| `{}` | {} | {} | {} | {} | {} | {} |\n",
            case.name,
            case.what,
            case.setup.bounds(),
            checks(case),
            grouped(outcome.states),
            outcome.depth,
            result(outcome)
        )
    });
    head.to_owned() + &rows.collect::<String>()
}

/// What `--list` says of a case.
pub fn listed(case: &Case) -> String {
    let expected = match case.expected {
        Expected::Holds { .. } => "holds".to_owned(),
        Expected::Breaks { promise, .. } => format!("breaks {promise}"),
    };
    let size = if case.large { "large" } else { "small" };
    format!("{:<28} {size} {expected:<10} {:<40} {}", case.name, case.setup.bounds(), case.what)
}

fn result(outcome: &Outcome) -> String {
    let found = match &outcome.verdict {
        Verdict::Holds => "holds, exhaustive".to_owned(),
        Verdict::Bounded => "no violation, stopped by time (bounded)".to_owned(),
        Verdict::Broken { promises, trace } => {
            let promises: Vec<_> = promises.iter().map(ToString::to_string).collect();
            format!("{} broken, {} steps", promises.join(", "), trace.len())
        }
    };
    match (&outcome.verdict, outcome.case.expected) {
        (Verdict::Holds, Expected::Holds { states }) if !outcome.is_as_expected() => {
            format!("{found}, but {} states were expected", grouped(states))
        }
        (Verdict::Broken { .. }, Expected::Breaks { steps, .. }) if !outcome.is_as_expected() => {
            format!("{found}, but {steps} were expected")
        }
        (Verdict::Broken { .. }, Expected::Holds { .. }) => format!("{found}, but it should hold"),
        (_, Expected::Breaks { promise, .. }) if !outcome.is_as_expected() => {
            format!("{found}, but {promise} should break")
        }
        _ => found,
    }
}

fn checks(case: &Case) -> String {
    let checks: Vec<_> = case.setup.checks.iter().map(ToString::to_string).collect();
    checks.join(" ")
}

/// `1 234 567`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
