//! What callers hand in: ids of leases, made up or not, and what is given back once it was confirmed.

use super::{breaks, holds, large};
use crate::case::Case;
use crate::mutation::Mutation;
use crate::promise::Promise::{C, F1, F2, F5, F7, M, R};
use crate::setup::{Claims, Setup};

const CLAIMS: Setup =
    Setup { claims: Claims::Held, extends: 1, checks: &[F1, F2, F5, F7, C], ..Setup::BASE };
const EXCLUSION: Setup =
    Setup { expiry: false, releases: true, checks: &[F1, F2, F5, M, C], ..CLAIMS };
/// A caller that was told of its release makes use of the id once more.
const REPLAYED: Setup = Setup { claims: Claims::Replayed, ..EXCLUSION };
/// Alone, so that everything between nodes and one lease is seen.
const ENDS: Setup = Setup {
    agents: 1,
    extends: 2,
    claims: Claims::Replayed,
    releases: true,
    checks: &[F5, C, R],
    ..Setup::BASE
};

pub(super) fn sound() -> Vec<Case> {
    vec![
        holds("claims", "ids with any fences, late heals", CLAIMS, 56_624),
        holds(
            "claims-twice",
            "the same, the first lease twice",
            Setup { extends: 2, keepers: 1, ..CLAIMS },
            167_569,
        ),
        holds(
            "claims-wipe",
            "the same, and a node comes back with a floor",
            Setup { wipes: 1, keepers: 1, ..CLAIMS },
            41_524,
        ),
        holds("claims-exclusion", "no expiry: one holder, ids with any fences", EXCLUSION, 127_460),
        holds(
            "claims-exclusion-twice",
            "the same, the first lease twice",
            Setup { extends: 2, keepers: 1, ..EXCLUSION },
            981_593,
        ),
        holds(
            "claims-replayed",
            "no expiry: one holder, an id is used again after its release",
            REPLAYED,
            1_220_186,
        ),
        holds(
            "claims-forced",
            "a lease is ended by force, and its id is used on",
            Setup { forces: true, proposals: 3, releases: false, claims: Claims::Held, ..ENDS },
            343_709,
        ),
        holds(
            "claims-forced-k2",
            "the same with the first of two leases",
            Setup {
                agents: 2,
                keepers: 1,
                forces: true,
                releases: false,
                claims: Claims::Held,
                checks: &[F1, F2, F5, F7, C],
                extends: 1,
                ..ENDS
            },
            64_218,
        ),
        holds(
            "claims-released",
            "one late heal revives no released lease",
            Setup { extends: 1, ..ENDS },
            1_470,
        ),
    ]
}

pub(super) fn broken() -> Vec<Case> {
    let mutated = |mutation, setup| Setup { mutation: Some(mutation), ..setup };
    let only_c = Setup { checks: &[C], ..CLAIMS };
    vec![
        breaks(
            "claims-two-late-heals",
            "two late heals on two nodes revive a released lease until its TTL",
            R,
            Setup { claims: Claims::Held, checks: &[R], ..ENDS },
            18,
        ),
        large(breaks(
            "claims-after-release",
            "an id is used again after its release, which is late on one node, as is a heal on another",
            M,
            Setup { extends: 2, keepers: 1, checks: &[M], ..REPLAYED },
            18,
        )),
        breaks(
            "claim-heals",
            "a claim heals a node without an owner",
            C,
            mutated(Mutation::ClaimHeals, only_c.clone()),
            5,
        ),
        breaks(
            "claim-raises",
            "a claim raises the fence of a node that confirms it",
            C,
            mutated(Mutation::ClaimRaises, only_c.clone()),
            5,
        ),
        breaks(
            "claim-from-anyone",
            "a claim is confirmed without a look at the owner",
            F5,
            mutated(Mutation::ClaimFromAnyone, Setup { checks: &[F5], ..CLAIMS }),
            9,
        ),
        breaks(
            "heal-highest",
            "a lease is given back with the highest fence claimed",
            C,
            mutated(Mutation::HealHighest, only_c),
            8,
        ),
        breaks(
            "heal-highest-forced",
            "the same, after a forced release",
            R,
            mutated(
                Mutation::HealHighest,
                Setup { forces: true, proposals: 3, releases: false, checks: &[R], ..ENDS },
            ),
            10,
        ),
        breaks(
            "heal-unconfirmed",
            "a lease is given back that no quorum has confirmed",
            R,
            mutated(Mutation::HealUnconfirmed, Setup { extends: 1, checks: &[R], ..ENDS }),
            11,
        ),
    ]
}
