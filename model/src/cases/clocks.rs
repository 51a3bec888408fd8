//! Clocks that are wrong: floors that need none, and quarantines that no step of a clock ends.

use super::{breaks, holds, large};
use crate::case::Case;
use crate::mutation::Mutation;
use crate::promise::Promise::{F1, F2, F5, F7, M};
use crate::setup::{Identity, Rejoin, Setup};

/// All clocks show nothing, from the start and for ever; fences are any numbers.
const FLOORS: Setup = Setup {
    proposals: 3,
    wipes: 1,
    rejoin: Rejoin::AboveOthers,
    identity: Identity::Unchecked,
    checks: &[F1, F2, F7],
    ..Setup::BASE
};
const STEPS: Setup = Setup {
    wipes: 1,
    rejoin: Rejoin::ByWitnesses,
    expiry: false,
    releases: true,
    checks: &[M],
    ..Setup::BASE
};

pub(super) fn sound() -> Vec<Case> {
    let extend = Setup { extends: 1, checks: &[F1, F2, F5, F7], ..FLOORS };
    vec![
        holds(
            "floors",
            "memory lost, no clock is right, the floor is above the others",
            FLOORS,
            3_215,
        ),
        holds("floors-r1", "the same, second rounds", Setup { more_rounds: 1, ..FLOORS }, 164_503),
        holds("floors-extend", "the same, with extends", extend.clone(), 48_539),
        holds(
            "floors-refresh",
            "the same, with refreshes",
            Setup { refreshes: 1, extends: 0, ..extend },
            86_367,
        ),
        holds("floors-twice", "the same, memory lost twice", Setup { wipes: 2, ..FLOORS }, 14_623),
        holds("floors-k3", "the same, three attempts", Setup { agents: 3, ..FLOORS }, 111_293),
        holds(
            "floors-n5",
            "five nodes, the floor is above the three others that know the least",
            Setup { nodes: 5, ..FLOORS },
            16_804,
        ),
        holds(
            "floors-n4",
            "four nodes, the floor is above the two others that know the least",
            Setup { nodes: 4, ..FLOORS },
            6_673,
        ),
        holds(
            "steps",
            "no expiry: one holder, a node forgets, and clocks step, but never all of them",
            STEPS,
            240_647,
        ),
        large(holds(
            "steps-extend",
            "the same, with extends",
            Setup { extends: 1, ..STEPS },
            957_826,
        )),
        large(holds("steps-twice", "the same, two nodes forget", Setup { wipes: 2, ..STEPS }, 0)),
    ]
}

pub(super) fn broken() -> Vec<Case> {
    let mutated = |mutation, setup| Setup { mutation: Some(mutation), ..setup };
    vec![
        breaks(
            "floors-own-clock",
            "a node that forgot comes back with its own clock as floor, and the clock is wrong",
            F1,
            mutated(Mutation::FloorByOwnClock, Setup { checks: &[F1], ..FLOORS }),
            9,
        ),
        breaks(
            "floors-one-fewer",
            "a node that forgot comes back above what too few others remember",
            F1,
            mutated(Mutation::OneOtherFewer, Setup { checks: &[F1], ..FLOORS }),
            9,
        ),
        breaks(
            "steps-own-clock",
            "a node has waited for long enough when its own clock says so",
            M,
            mutated(Mutation::OwnClockDecides, STEPS),
            9,
        ),
    ]
}
