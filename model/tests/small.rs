//! The small bounds, in every test run. The number of states is compared, too: a space that shrinks
//! unnoticed proves less than it did.

use leasehold_model::case::{Case, Effort, Expected};
use leasehold_model::{cases, line, lists, report};

fn run_all(wanted: impl Fn(&Case) -> bool) {
    let effort = Effort { threads: 1, limit: None };
    let small = cases::all().into_iter().filter(|case| !case.large && wanted(case));
    let mut surprises = Vec::new();
    for case in small {
        let outcome = case.run(effort, |_, _| {});
        println!("{}", report::line(&outcome));
        if !outcome.is_as_expected() {
            surprises.push(report::line(&outcome));
        }
    }
    assert!(surprises.is_empty(), "not as expected:\n{}", surprises.join("\n"));
}

#[test]
fn every_promise_holds_in_each_state_within_the_small_bounds() {
    run_all(|case| matches!(case.expected, Expected::Holds { .. }));
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    run_all(|case| matches!(case.expected, Expected::Breaks { .. }));
}

#[test]
fn ten_ways_to_get_a_hand_off_wrong_are_found() {
    let is_broken = |case: &Case| matches!(case.expected, Expected::Breaks { .. });
    let mutations =
        || cases::all().into_iter().filter(is_broken).filter(|it| it.setup.handovers > 0);
    assert_eq!(mutations().count(), 10);
    run_all(|case| is_broken(case) && case.setup.handovers > 0);
}

#[test]
fn every_small_case_says_how_many_states_or_steps_it_has() {
    for case in cases::all().iter().filter(|case| !case.large) {
        let counted = match case.expected {
            Expected::Holds { states } => states,
            Expected::Breaks { steps, .. } => steps,
        };
        assert!(counted > 0, "{}", case.name);
    }
}

#[test]
fn nobody_in_line_waits_for_ever_unless_a_rule_is_left_out() {
    let small = line::all().into_iter().filter(|case| !case.large);
    let outcomes: Vec<_> = small.map(|case| case.run(|_| {})).collect();
    outcomes.iter().for_each(|outcome| println!("{}", line::report::line(outcome)));
    let surprises = outcomes.iter().filter(|outcome| !outcome.is_as_expected());
    let surprises: Vec<_> = surprises.map(line::report::line).collect();
    assert!(surprises.is_empty(), "not as expected:\n{}", surprises.join("\n"));
    assert!(outcomes.iter().all(|outcome| outcome.case.states > 0), "a case nobody counted");
}

#[test]
fn two_lists_never_decide_at_once_unless_a_rule_is_left_out() {
    let small = lists::all().into_iter().filter(|case| !case.large);
    let outcomes: Vec<_> = small.map(|case| case.run(None, |_| {})).collect();
    outcomes.iter().for_each(|outcome| println!("{}", lists::report::line(outcome)));
    let surprises = outcomes.iter().filter(|outcome| !outcome.is_as_expected());
    let surprises: Vec<_> = surprises.map(lists::report::line).collect();
    assert!(surprises.is_empty(), "not as expected:\n{}", surprises.join("\n"));
    let is_counted = |outcome: &lists::Outcome| {
        !matches!(outcome.case.expected, lists::Expected::Holds(0) | lists::Expected::Breaks(_, 0))
    };
    assert!(outcomes.iter().all(is_counted), "a case nobody counted");
}
