//! What must be found: each leaves out a rule, and names the promise that breaks without it.

use super::{breaks, clock, large};
use crate::case::Case;
use crate::mutation::Mutation;
use crate::promise::Promise::{self, F1, F5, M};
use crate::setup::{Change, Identity, Lists, Rejoin, Setup};

const F1_ONLY: Setup = Setup { checks: &[F1], ..Setup::BASE };
const F5_ONLY: Setup = Setup { extends: 1, checks: &[F5], ..Setup::BASE };
const M_ONLY: Setup = Setup { expiry: false, releases: true, checks: &[M], ..Setup::BASE };
const WIPE: Setup = Setup {
    wipes: 1,
    rejoin: Rejoin::Admitted,
    identity: Identity::Unchecked,
    clock: clock(5, 2),
    ..F1_ONLY
};

fn mutated(mutation: Mutation, setup: Setup) -> Setup {
    Setup { mutation: Some(mutation), ..setup }
}

pub(super) fn all() -> Vec<Case> {
    [rules(), refreshes(), wipes(), lists()].into_iter().flatten().collect()
}

fn rules() -> Vec<Case> {
    let three = Setup { agents: 3, ..M_ONLY };
    let rounds = Setup { more_rounds: 1, ..F1_ONLY };
    let rounds_and_extends = Setup { proposals: 3, more_rounds: 1, ..F5_ONLY };
    let rules: [(_, _, Promise, _, _, _); 10] = [
        (
            "accept-equal",
            "a proposal equal to the fence is granted",
            F1,
            Mutation::AcceptEqual,
            F1_ONLY,
            6,
        ),
        ("count-behind", "BEHIND counts as GRANTED", F1, Mutation::CountBehind, F1_ONLY, 6),
        ("count-busy", "BUSY counts as GRANTED", F1, Mutation::CountBusy, F1_ONLY, 6),
        (
            "busy-raises",
            "a node that another owns raises its fence and says GRANTED",
            M,
            Mutation::BusyRaises,
            M_ONLY,
            6,
        ),
        (
            "acquire-from-anyone",
            "acquire without a look at the owner",
            M,
            Mutation::AcquireFromAnyone,
            M_ONLY,
            6,
        ),
        (
            "release-anyone",
            "release without a look at the owner",
            M,
            Mutation::ReleaseAnyone,
            three,
            9,
        ),
        (
            "add-up-rounds",
            "GRANTED of different rounds added up",
            F1,
            Mutation::AddUpRounds,
            rounds,
            10,
        ),
        (
            "extend-anyone",
            "extend without a look at owner and fence",
            F5,
            Mutation::ExtendAnyone,
            F5_ONLY,
            9,
        ),
        ("heal-any-fence", "healing whatever the fence", F5, Mutation::HealAnyFence, F5_ONLY, 9),
        (
            "old-round-completes",
            "the old round completes after a newer was sent, extend looks at the owner only",
            F5,
            Mutation::OldRoundCompletes,
            rounds_and_extends,
            12,
        ),
    ];
    let case = |(name, what, promise, mutation, setup, steps)| {
        breaks(name, what, promise, mutated(mutation, setup), steps)
    };
    rules.into_iter().map(case).collect()
}

fn refreshes() -> Vec<Case> {
    let refresh = Setup { proposals: 3, refreshes: 1, extends: 0, ..F5_ONLY };
    vec![
        breaks(
            "refresh-is-acquire",
            "refresh as one more acquire round",
            F5,
            mutated(Mutation::RefreshIsAcquire, refresh.clone()),
            9,
        ),
        breaks(
            "refresh-is-extend",
            "refresh as an extend with a larger token, EXTENDED alone counts, tried again",
            F5,
            mutated(
                Mutation::RefreshIsExtend,
                Setup { proposals: 4, refreshes: 2, ..refresh.clone() },
            ),
            12,
        ),
        breaks(
            "refresh-counts-forgotten",
            "refresh counts a node that forgot",
            F5,
            mutated(Mutation::RefreshCountsForgotten, Setup { wipes: 1, ..refresh }),
            10,
        ),
    ]
}

fn wipes() -> Vec<Case> {
    let empty = Setup { wipes: 1, rejoin: Rejoin::Empty, ..M_ONLY };
    vec![
        breaks("wipe-no-quarantine", "a node that forgot votes at once", M, empty, 7),
        breaks(
            "wipe-no-floor",
            "quarantine until old attempts are over, but no floor",
            F1,
            Setup { wipes: 1, rejoin: Rejoin::AfterAttempts, releases: true, ..F1_ONLY },
            9,
        ),
        breaks(
            "wipe-late-message",
            "quarantine of 4 > 2s, but no floor and no identity: a late message",
            F1,
            mutated(Mutation::NoFloor, Setup { clock: clock(7, 4), ..WIPE }),
            13,
        ),
        breaks(
            "wipe-short-quarantine",
            "quarantine shorter than 2s",
            F1,
            Setup { clock: clock(4, 1), ..WIPE },
            10,
        ),
        large(breaks(
            "wipe-short-quarantine-r1",
            "quarantine of 2s, but second rounds run one ahead of the clocks",
            F1,
            Setup { more_rounds: 1, clock: clock(4, 2), ..WIPE },
            17,
        )),
        breaks(
            "identity-no-floor",
            "records pinned, quarantine of 2s, but no floor",
            F1,
            mutated(Mutation::NoFloor, Setup { identity: Identity::Pinned, ..WIPE }),
            11,
        ),
        breaks(
            "identity-reread-no-floor",
            "extends read the record again, and there is no floor",
            F5,
            Setup {
                wipes: 1,
                rejoin: Rejoin::Empty,
                identity: Identity::RereadByExtends,
                ..F5_ONLY
            },
            10,
        ),
    ]
}

fn lists() -> Vec<Case> {
    let lists = |served, change| Setup {
        nodes: 5,
        lists: Some(Lists { shorter: 3, served, change }),
        ..F1_ONLY
    };
    let idle = Setup { drops: 2, ..F1_ONLY };
    vec![
        breaks(
            "lists-unchecked",
            "lists of 3 and 5, and nodes do not look whose a request is",
            F1,
            mutated(Mutation::NoFingerprint, lists([2; 5], Change::Never)),
            7,
        ),
        breaks(
            "lists-mixed",
            "lists of 3 and 5, two nodes serve the shorter and three the longer",
            F1,
            lists([1, 1, 2, 2, 2], Change::Never),
            7,
        ),
        breaks(
            "lists-grow-by-two",
            "3 to 5, node by node",
            F1,
            lists([1, 1, 1, 2, 2], Change::Rolling),
            8,
        ),
        breaks(
            "lists-barrier-no-floor",
            "3 to 5 behind a barrier, without a floor",
            F1,
            lists([1, 1, 1, 0, 0], Change::Barrier { floor: false, waits: false }),
            11,
        ),
        breaks(
            "idle-no-floor",
            "idle fences forgotten, the floor stays",
            F1,
            mutated(Mutation::ForgetWithoutFloor, idle.clone()),
            7,
        ),
        breaks(
            "idle-floor-falls",
            "idle fences forgotten, the floor may fall",
            F1,
            mutated(Mutation::FloorMayFall, idle),
            9,
        ),
    ]
}
