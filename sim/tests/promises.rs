//! Worlds that keep the protocol's assumptions keep its promises, and those that do not are found
//! out.

use leasehold_sim::scenario::{Assumption, Scenario, Wishes};
use leasehold_sim::world::{Outcome, World};

fn run(seed: u64, wishes: Wishes) -> Outcome {
    World::new(Scenario::new(seed, wishes), false).run()
}

#[test]
fn every_promise_is_kept_while_the_assumptions_hold() {
    let mut acquired = 0;
    for seed in 1..=60 {
        let outcome = run(seed, Wishes::default());
        assert_eq!(outcome.violation, None, "seed {seed}");
        acquired += outcome.figures.acquired;
    }
    assert!(acquired > 1000, "{acquired}");
}

#[test]
fn a_broken_assumption_breaks_a_promise() {
    for (broken, promise) in [
        (Assumption::Quarantine, "exclusion"),
        (Assumption::Jumps, "exclusion"),
        (Assumption::Fingerprint, "exclusion"),
        (Assumption::Drift, "exclusion"),
        (Assumption::Skew, "fences"),
    ] {
        let wishes = Wishes { broken: Some(broken), ..Wishes::default() };
        let is_found = |seed| {
            run(seed, wishes).violation.is_some_and(|(_, violation)| violation.promise == promise)
        };
        assert!((1..=600).any(is_found), "{broken:?}");
    }
}

#[test]
fn a_seed_is_one_world() {
    for seed in 1..=5 {
        let [one, other] = [(); 2].map(|()| run(seed, Wishes::default()).figures);
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}");
    }
}
