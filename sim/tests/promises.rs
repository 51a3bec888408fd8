//! Worlds that keep the protocol's assumptions keep its promises, and those that do not are found
//! out.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_sim::scenario::{Assumption, Scenario, Wishes};
use leasehold_sim::world::{Figures, Outcome, World};

fn run(seed: u64, wishes: Wishes) -> Outcome {
    World::new(Scenario::new(seed, wishes), false).run()
}

/// Runs seeds on two threads.
fn run_many(
    seeds: RangeInclusive<u64>,
    wishes: Wishes,
    look: impl Fn(u64, &Outcome) + Sync,
) -> Figures {
    let (next, sum) = (AtomicU64::new(*seeds.start()), Mutex::new(Figures::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let outcome = run(seed, wishes);
                    look(seed, &outcome);
                    *sum.lock().unwrap() += outcome.figures;
                }
            });
        }
    });
    sum.into_inner().unwrap()
}

#[test]
fn every_promise_is_kept_while_the_assumptions_hold() {
    let figures = run_many(1..=500, Wishes::default(), |seed, outcome| {
        let command = "cargo run --release -p leasehold-sim -- --replay";
        assert_eq!(outcome.violations, [], "{command} {seed}");
    });
    let Figures { acquired, handed_over, extended, refreshed, lost, faults, .. } = figures;
    let Figures { changes, clocks, frozen, inits, late, odd, successions, succeeded, .. } = figures;
    let Figures { told, renewed, lies, reserved, .. } = figures;
    let least = acquired.min(handed_over).min(extended).min(faults);
    assert!(
        least > 10_000
            && refreshed.min(lost).min(changes).min(clocks) > 500
            && told.min(renewed).min(lies).min(reserved) > 500
            && frozen > 300
            && inits.min(late).min(odd).min(successions).min(succeeded) > 10,
        "too little happened: {figures}"
    );
}

#[test]
fn a_broken_assumption_breaks_a_promise_and_the_fence_holds_where_it_does_not_rest_on_it() {
    use Assumption::*;
    for (broken, seeds, breaks, holds) in [
        (
            Drift,
            1..=200,
            "exclusion",
            &["fences", "superseded", "own release", "quorum grants"][..],
        ),
        (Eviction, 1..=40, "exclusion", &["fences", "superseded", "own release", "quorum grants"]),
        (Quarantine, 1..=100, "exclusion", &["own release", "quorum grants"]),
        (Fingerprint, 1..=30, "exclusion", &["own release"]),
        (Done, 1..=20, "exclusion", &["fences", "own release", "quorum grants"]),
        // Rare: a release must be late, and its node one of those that decide.
        (Fresh, 200..=300, "exclusion", &["fences", "own release", "quorum grants"]),
        (Pushes, 1..=60, "remembers", &["own release", "quorum grants", "counted once"]),
        (Restarts, 1..=60, "remembers", &["own release", "quorum grants", "counted once"]),
        (Turns, 1..=100, "remembers", &["own release", "quorum grants", "counted once"]),
        (Replaced, 201..=300, "exclusion", &["own release", "counted once"]),
    ] {
        let wishes = Wishes { broken: Some(broken), ..Wishes::default() };
        let found = AtomicU64::new(0);
        run_many(seeds, wishes, |seed, outcome| {
            for (_, violation) in &outcome.violations {
                let promise = violation.promise;
                assert!(!holds.contains(&promise), "{broken:?}, seed {seed}: {violation:?}");
                found.fetch_add(u64::from(promise == breaks), Ordering::Relaxed);
            }
        });
        assert!(found.into_inner() > 0, "{broken:?} was not missed");
    }
}

#[test]
fn a_day_of_ntp_costs_no_lease() {
    for (seed, nodes) in [(1, 3), (2, 5)] {
        let wishes = Wishes { nodes: Some(nodes), day_of_ntp: true, ..Wishes::default() };
        let outcome = run(seed, wishes);
        let Figures { acquired, extended, lost, clocks, .. } = outcome.figures;
        assert_eq!((outcome.violations, lost), (vec![], 0), "{nodes} nodes");
        // One for the day and one after it.
        assert_eq!(acquired, 2);
        assert!(extended > 80_000 && clocks > 100, "too little happened: {}", outcome.figures);
    }
}

#[test]
fn a_seed_is_one_world() {
    for seed in 1..=5 {
        let [one, other] = [(); 2].map(|()| run(seed, Wishes::default()).figures);
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}");
    }
}
