//! States are saved by steps that are taken at once or not at all because they cannot matter. Here
//! they are taken one by one, and the same must come of it.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use leasehold_model::case::{Case, Effort, Expected};
use leasehold_model::cases;
use leasehold_model::protocol::Protocol;
use leasehold_model::setup::Setup;
use leasehold_model::state::State;
use stateright::Model;

/// The fence that an attempt was given, its token, and whether it holds.
type Standing = (u8, u8, bool);

/// How many states there are, and how the attempts stand in any of them.
fn outcomes(setup: Setup) -> (usize, BTreeSet<Vec<Standing>>) {
    let hash = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let agents = setup.agents;
    let protocol = Protocol::new(setup);
    let mut queue = VecDeque::from(protocol.init_states());
    let mut known: HashSet<u64> = queue.iter().map(hash).collect();
    let mut seen = BTreeSet::new();
    while let Some(state) = queue.pop_front() {
        let attempts = &state.agents[..agents];
        seen.insert(attempts.iter().map(|one| (one.fence, one.token, one.holds())).collect());
        let next = protocol.next_states(&state);
        queue.extend(next.into_iter().filter(|state| known.insert(hash(state))));
    }
    (known.len(), seen)
}

#[test]
fn the_same_comes_of_it_with_every_step_taken_by_itself() {
    let base = Setup::BASE;
    let setups = [
        Setup { more_rounds: 1, ..base.clone() },
        Setup { extends: 1, ..base.clone() },
        Setup { wipes: 1, ..base.clone() },
        Setup { drops: 1, ..base.clone() },
        Setup { proposals: 3, refreshes: 1, keepers: 1, ..base.clone() },
        Setup { expiry: false, releases: true, ..base.clone() },
        Setup { extends: 1, keepers: 1, handovers: 1, ..base.clone() },
        Setup { proposals: 3, refreshes: 1, keepers: 1, handovers: 1, ..base },
    ];
    for setup in setups {
        let (few, reduced) = outcomes(setup.clone());
        let (many, plain) = outcomes(Setup { plain: true, ..setup.clone() });
        println!("{}: {few} states stand for {many}", setup.bounds());
        assert!(few < many && plain.len() > 3, "{}", setup.bounds());
        assert_eq!(reduced, plain, "{}", setup.bounds());
    }
}

#[test]
fn every_mutation_is_found_with_every_step_taken_by_itself() {
    let is_quick = |case: &Case| {
        let setup = &case.setup;
        let is_broken = matches!(case.expected, Expected::Breaks { .. });
        let is_lean = setup.agents == 2 && setup.more_rounds == 0 && setup.refreshes == 0;
        is_broken && is_lean && setup.clock.is_none()
    };
    for case in cases::all().into_iter().filter(|case| !case.large && is_quick(case)) {
        let outcome = case.in_plain().run(Effort { threads: 1, limit: None }, |_, _| {});
        assert!(outcome.is_as_expected(), "{}: {:?}", outcome.case.name, outcome.verdict);
    }
}
