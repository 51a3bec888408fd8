//! Handing over inside a process: what must hold, and what must be found.

use super::{breaks, clock, holds, large};
use crate::case::Case;
use crate::mutation::Mutation;
use crate::promise::Promise::{F1, F2, F5, F6, F7, H, M};
use crate::setup::{Identity, Rejoin, Setup};

const BASE: Setup =
    Setup { agents: 3, proposals: 3, handovers: 1, checks: &[F1, F2, F6, F7, H], ..Setup::BASE };
const EXTEND: Setup = Setup { extends: 1, checks: &[F1, F2, F5, F6, F7, H], ..BASE };
const REFRESH: Setup = Setup { refreshes: 1, checks: &[F1, F2, F5, F7, H], ..BASE };
const EXCLUSION: Setup = Setup { expiry: false, releases: true, checks: &[F1, F2, M, H], ..BASE };

/// The token is raised before, and the next waiter takes a reserved fence up to it.
const RESERVE: Setup = Setup { reserves: true, keepers: 1, ..REFRESH };

pub(super) fn sound() -> Vec<Case> {
    let cases = [acquire(), extend(), refresh(), exclusion(), wipe(), reserve()];
    cases.into_iter().flatten().collect()
}

fn reserve() -> Vec<Case> {
    let exclusion = Setup { expiry: false, releases: true, ..RESERVE };
    vec![
        holds("reserve", "one of three takes a reserved fence", RESERVE, 159_736),
        large(holds(
            "reserve-chain",
            "two of four take reserved fences",
            Setup { agents: 4, handovers: 2, ..RESERVE },
            6_154_512,
        )),
        large(holds(
            "reserve-wipe",
            "one of three takes a reserved fence, and a node comes back with a floor",
            Setup { wipes: 1, ..RESERVE },
            1_909_481,
        )),
        large(holds(
            "reserve-p4",
            "one of three takes a reserved fence, more numbers",
            Setup { proposals: 4, ..RESERVE },
            635_034,
        )),
        large(holds(
            "reserve-n5",
            "five nodes, one of three takes a reserved fence",
            Setup { nodes: 5, ..RESERVE },
            10_660_744,
        )),
        large(holds(
            "reserve-extend",
            "one of three takes a reserved fence, the first two may refresh and extend",
            Setup { extends: 1, keepers: 2, ..RESERVE },
            0,
        )),
        large(holds(
            "reserve-exclusion",
            "no expiry: one holder, one of three takes a reserved fence",
            Setup { checks: &[F1, F2, F5, M, H], ..exclusion },
            7_213_228,
        )),
    ]
}

fn acquire() -> Vec<Case> {
    let chain = Setup { agents: 4, handovers: 2, ..BASE };
    vec![
        holds("handover", "one of three attempts has its holder value from another", BASE, 15_109),
        holds(
            "handover-r1",
            "handed over, second rounds",
            Setup { more_rounds: 1, agents: 2, ..BASE },
            12_069,
        ),
        large(holds(
            "handover-k3-r1",
            "one of three is handed over, second rounds",
            Setup { more_rounds: 1, proposals: 2, ..BASE },
            0,
        )),
        large(holds("handover-chain", "two of four are handed over", chain.clone(), 639_908)),
        large(holds(
            "handover-chain-extend",
            "two of four are handed over, the first two may extend",
            Setup { extends: 1, keepers: 2, checks: &[F1, F2, F5, F7, H], ..chain },
            0,
        )),
        large(holds(
            "handover-n5",
            "five nodes, one of three is handed over",
            Setup { nodes: 5, ..BASE },
            268_706,
        )),
    ]
}

fn extend() -> Vec<Case> {
    vec![
        holds(
            "handover-extend",
            "one of three is handed over, the first two may extend",
            Setup { keepers: 2, ..EXTEND },
            606_793,
        ),
        large(holds(
            "handover-extend-all",
            "one of three is handed over, all may extend",
            EXTEND,
            1_611_496,
        )),
        large(holds(
            "handover-extend-n5",
            "five nodes, one of three is handed over, the first two may extend",
            Setup { nodes: 5, keepers: 2, ..EXTEND },
            0,
        )),
    ]
}

fn refresh() -> Vec<Case> {
    let any = Setup {
        mutation: Some(Mutation::HandOverAnyProposal),
        checks: &[F1, F2, F5, F7],
        ..REFRESH
    };
    vec![
        holds(
            "handover-refresh",
            "one of three is handed over, the first two may refresh",
            Setup { keepers: 2, ..REFRESH },
            549_948,
        ),
        large(holds(
            "handover-refresh-p4",
            "one of three is handed over, the first may refresh, more numbers",
            Setup { keepers: 1, proposals: 4, ..REFRESH },
            623_734,
        )),
        large(holds(
            "handover-refresh-extend",
            "one of three is handed over, the first two may refresh and extend",
            Setup { extends: 1, keepers: 2, ..REFRESH },
            0,
        )),
        large(holds(
            "handover-any-proposal",
            "the proposal need not be above a late refresh, but for H",
            Setup { keepers: 1, ..any.clone() },
            293_030,
        )),
        large(holds(
            "handover-any-proposal-two",
            "the proposal need not be above a late refresh, but for H, two may refresh",
            Setup { keepers: 2, ..any },
            1_084_958,
        )),
    ]
}

fn exclusion() -> Vec<Case> {
    let extend = Setup { extends: 1, keepers: 2, checks: &[F1, F2, F5, M, H], ..EXCLUSION };
    vec![
        holds("handover-exclusion", "no expiry: one holder, handed over", EXCLUSION, 1_532_187),
        large(holds(
            "handover-exclusion-extend",
            "no expiry: one holder, handed over, the first two may extend",
            extend,
            6_111_906,
        )),
        large(holds(
            "handover-exclusion-refresh",
            "no expiry: one holder, handed over, the first may refresh",
            Setup { refreshes: 1, keepers: 1, checks: &[F1, F2, F5, M, H], ..EXCLUSION },
            7_193_119,
        )),
        large(holds(
            "handover-exclusion-r1",
            "no expiry: one holder, handed over, second rounds",
            Setup { more_rounds: 1, proposals: 2, ..EXCLUSION },
            0,
        )),
    ]
}

fn wipe() -> Vec<Case> {
    vec![
        holds(
            "handover-wipe",
            "handed over, and a node comes back with a floor",
            Setup { wipes: 1, ..BASE },
            139_672,
        ),
        large(holds(
            "handover-wipe-extend",
            "handed over, a node comes back with a floor, the first two may extend",
            Setup { wipes: 1, keepers: 2, ..EXTEND },
            9_393_356,
        )),
        large(holds(
            "handover-wipe-refresh",
            "handed over, a node comes back with a floor, the first may refresh",
            Setup { wipes: 1, keepers: 1, ..REFRESH },
            1_879_359,
        )),
        large(holds(
            "handover-wipe-clock",
            "handed over, memory lost, quarantine and floor by the clock",
            Setup {
                wipes: 1,
                rejoin: Rejoin::Admitted,
                identity: Identity::Unchecked,
                clock: clock(4, 2),
                checks: &[F1, F2, F7, H],
                ..BASE
            },
            8_189_410,
        )),
        large(holds(
            "handover-quarantine",
            "no expiry: one holder, handed over, though a node forgets",
            Setup { wipes: 1, rejoin: Rejoin::AfterAttempts, checks: &[M, H], ..EXCLUSION },
            0,
        )),
    ]
}

pub(super) fn broken() -> Vec<Case> {
    let two = Setup { agents: 2, ..BASE };
    vec![
        broken_by(
            Mutation::HandOverAnyProposal,
            "handover-below-refresh",
            "a handed-over attempt proposes less than the late refresh of its former user",
            Setup { refreshes: 1, checks: &[H], ..two.clone() },
            8,
        ),
        broken_by(
            Mutation::HandOverGoesOn,
            "handover-goes-on",
            "a holder hands over and holds on",
            Setup { checks: &[M], agents: 2, ..EXCLUSION },
            6,
        ),
        broken_by(
            Mutation::HandOverGoesOn,
            "handover-refreshes-on",
            "a holder hands over and refreshes its lease",
            Setup { refreshes: 1, checks: &[F5], ..two.clone() },
            9,
        ),
        broken_by(
            Mutation::HandOverKeepsFence,
            "handover-keeps-fence",
            "a handed-over attempt is given the fence of its former user",
            Setup { checks: &[F1], ..two },
            6,
        ),
        broken_by(
            Mutation::HandOverAfterRelease,
            "handover-after-release",
            "a holder value is used again after its release was sent",
            Setup { checks: &[M], ..EXCLUSION },
            11,
        ),
        broken_by(
            Mutation::HandOverCountsExtends,
            "handover-counts-extends",
            "answers to the former user's extend count as GRANTED",
            Setup { extends: 2, keepers: 1, checks: &[F1], ..BASE },
            10,
        ),
        broken_by(
            Mutation::HandOverKeepsGrants,
            "handover-keeps-grants",
            "what was granted to a hand-over that failed counts for the next",
            Setup { agents: 4, handovers: 2, checks: &[F1], ..BASE },
            10,
        ),
        broken_by(
            Mutation::ReservedBeforeWon,
            "reserve-before-won",
            "a fence counts as reserved up to a token that no quorum has yet",
            Setup { checks: &[F1], ..RESERVE },
            8,
        ),
        broken_by(
            Mutation::ReservedBeyondToken,
            "reserve-beyond-token",
            "a fence above the token counts as reserved",
            Setup { checks: &[F1], ..RESERVE },
            7,
        ),
        broken_by(
            Mutation::ReservedForLateComer,
            "reserve-late-comer",
            "who came after the token was raised takes a reserved fence",
            Setup { checks: &[F2], ..RESERVE },
            10,
        ),
    ]
}

/// Breaks the one promise that is checked.
fn broken_by(
    mutation: Mutation,
    name: &'static str,
    what: &'static str,
    setup: Setup,
    steps: usize,
) -> Case {
    breaks(name, what, setup.checks[0], Setup { mutation: Some(mutation), ..setup }, steps)
}
