//! What must hold in every state.

use super::{clock, holds, large};
use crate::case::Case;
use crate::mutation::Mutation;
use crate::promise::Promise::{F1, F2, F5, F6, F7, M};
use crate::setup::{Change, Identity, Lists, Rejoin, Setup};

const BASE: Setup = Setup::BASE;
const EXCLUSION: Setup =
    Setup { expiry: false, releases: true, checks: &[F1, F2, M], ..Setup::BASE };
const EXTEND: Setup = Setup { extends: 1, checks: &[F1, F2, F5, F6, F7], ..Setup::BASE };
const REFRESH: Setup =
    Setup { proposals: 3, refreshes: 1, checks: &[F1, F2, F5, F7], ..Setup::BASE };
const WIPE: Setup = Setup {
    wipes: 1,
    rejoin: Rejoin::Admitted,
    identity: Identity::Unchecked,
    clock: clock(5, 2),
    checks: &[F1, F2, F7],
    ..Setup::BASE
};
const QUARANTINE: Setup =
    Setup { wipes: 1, rejoin: Rejoin::AfterAttempts, checks: &[M], ..EXCLUSION };
const IDLE: Setup = Setup { drops: 2, checks: &[F1, F2, F7], ..Setup::BASE };

pub(super) fn acquire() -> Vec<Case> {
    vec![
        holds("acquire", "second rounds", Setup { proposals: 3, more_rounds: 1, ..BASE }, 11_997),
        holds("acquire-r2", "third rounds", Setup { more_rounds: 2, ..BASE }, 164_716),
        holds("acquire-k3", "three attempts", Setup { agents: 3, proposals: 3, ..BASE }, 10_678),
        large(holds(
            "acquire-k3-r1",
            "three attempts, second rounds",
            Setup { agents: 3, more_rounds: 1, ..BASE },
            7_599_316,
        )),
        holds("acquire-n5", "five nodes", Setup { nodes: 5, ..BASE }, 576),
        large(holds(
            "acquire-n5-r1",
            "five nodes, second rounds",
            Setup { nodes: 5, more_rounds: 1, ..BASE },
            358_164,
        )),
        large(holds(
            "acquire-n5-k3",
            "five nodes, three attempts",
            Setup { nodes: 5, agents: 3, proposals: 3, checks: &[F1, F2, F7], ..BASE },
            199_295,
        )),
        holds("acquire-releases", "expiry and releases", Setup { releases: true, ..BASE }, 12_910),
        large(holds(
            "acquire-releases-r1",
            "expiry and releases, second rounds",
            Setup { more_rounds: 1, releases: true, ..BASE },
            693_151,
        )),
        holds("exclusion", "no expiry: one holder", Setup { more_rounds: 1, ..EXCLUSION }, 14_694),
        holds(
            "exclusion-k3",
            "no expiry: one holder of three",
            Setup { agents: 3, ..EXCLUSION },
            371_346,
        ),
        large(holds(
            "exclusion-k3-r1",
            "no expiry: one holder of three, second rounds",
            Setup { agents: 3, more_rounds: 1, ..EXCLUSION },
            14_245_727,
        )),
        holds(
            "grant-again",
            "a resent acquire may be granted again to its owner",
            Setup { more_rounds: 1, mutation: Some(Mutation::GrantAgain), ..BASE },
            6_350,
        ),
    ]
}

pub(super) fn extend() -> Vec<Case> {
    vec![
        holds("extend", "extends with healing", Setup { more_rounds: 1, ..EXTEND }, 146_806),
        holds("extend-twice", "two extends each", Setup { extends: 2, ..EXTEND }, 253_195),
        large(holds(
            "extend-twice-r1",
            "two extends each, second rounds",
            Setup { extends: 2, more_rounds: 1, ..EXTEND },
            0,
        )),
        large(holds(
            "extend-k3",
            "three attempts with extends",
            Setup { agents: 3, proposals: 3, checks: &[F1, F2, F5, F7], ..EXTEND },
            853_445,
        )),
        large(holds("extend-n5", "five nodes with extends", Setup { nodes: 5, ..EXTEND }, 44_663)),
        holds(
            "extend-owner-only",
            "extends need not look at the fence where the holder still owns",
            Setup { more_rounds: 1, mutation: Some(Mutation::ExtendOwnerOnly), ..EXTEND },
            146_806,
        ),
        holds(
            "extend-exclusion",
            "no expiry: one holder, with extends",
            Setup { extends: 1, checks: &[F1, F2, F5, M], ..EXCLUSION },
            13_679,
        ),
    ]
}

pub(super) fn refresh() -> Vec<Case> {
    let extend = Setup { extends: 1, ..REFRESH };
    let twice = Setup { proposals: 4, refreshes: 2, ..REFRESH };
    vec![
        holds("refresh", "a refresh each", REFRESH, 7_645),
        holds(
            "refresh-r1",
            "a refresh each, second rounds",
            Setup { more_rounds: 1, ..REFRESH },
            94_607,
        ),
        holds(
            "refresh-extend-one",
            "the first of two attempts refreshes and extends",
            Setup { keepers: 1, ..extend.clone() },
            52_390,
        ),
        large(holds("refresh-extend", "a refresh and an extend each", extend.clone(), 2_001_487)),
        large(holds(
            "refresh-extend-r1",
            "a refresh and an extend each, second rounds",
            Setup { more_rounds: 1, ..extend.clone() },
            20_646_347,
        )),
        holds(
            "refresh-twice-one",
            "the first of two attempts refreshes twice",
            Setup { keepers: 1, ..twice.clone() },
            124_214,
        ),
        large(holds(
            "refresh-extend-one-r1",
            "the first of two attempts refreshes and extends, second rounds",
            Setup { keepers: 1, more_rounds: 1, ..extend.clone() },
            825_198,
        )),
        large(holds(
            "refresh-wipe-extend-one",
            "the first of two attempts refreshes and extends, a node comes back with a floor",
            Setup { keepers: 1, wipes: 1, ..extend.clone() },
            637_269,
        )),
        large(holds(
            "refresh-twice-extend-one",
            "the first of two attempts refreshes twice and extends",
            Setup { keepers: 1, extends: 1, ..twice.clone() },
            2_373_475,
        )),
        large(holds("refresh-twice", "two refreshes each", twice.clone(), 4_011_151)),
        large(holds(
            "refresh-twice-extend",
            "two refreshes and an extend each",
            Setup { extends: 1, ..twice },
            0,
        )),
        large(holds(
            "refresh-k3",
            "three attempts with a refresh each",
            Setup { agents: 3, ..REFRESH },
            569_481,
        )),
        large(holds(
            "refresh-k3-extend",
            "three attempts with a refresh and an extend each",
            Setup { agents: 3, ..extend.clone() },
            0,
        )),
        large(holds(
            "refresh-n5",
            "five nodes, a refresh each",
            Setup { nodes: 5, ..REFRESH },
            324_477,
        )),
        large(holds(
            "refresh-n5-extend",
            "five nodes, a refresh and an extend each",
            Setup { nodes: 5, ..extend.clone() },
            0,
        )),
        large(holds(
            "refresh-n5-wipe",
            "five nodes, a refresh each, and a node that comes back with a floor",
            Setup { nodes: 5, wipes: 1, ..REFRESH },
            5_994_352,
        )),
        holds(
            "refresh-wipe",
            "a refresh each, and a node that comes back with a floor",
            Setup { wipes: 1, ..REFRESH },
            83_763,
        ),
        large(holds(
            "refresh-wipe-extend",
            "a refresh and an extend each, and a node that comes back with a floor",
            Setup { wipes: 1, ..extend },
            0,
        )),
        large(holds(
            "refresh-wipe-twice",
            "a refresh each, two nodes (or one twice) come back with a floor",
            Setup { wipes: 2, ..REFRESH },
            561_657,
        )),
        holds(
            "refresh-exclusion",
            "no expiry: one holder, with refreshes",
            Setup { proposals: 3, refreshes: 1, checks: &[F1, F2, F5, M], ..EXCLUSION },
            87_607,
        ),
    ]
}

pub(super) fn wipe() -> Vec<Case> {
    let reread = Identity::Reread;
    vec![
        holds("wipe", "memory lost, quarantine and floor by the clock", WIPE, 202_150),
        large(holds("wipe-twice", "memory lost twice", Setup { wipes: 2, ..WIPE }, 13_134_992)),
        large(holds(
            "wipe-extend",
            "memory lost, extends",
            Setup { extends: 1, checks: &[F1, F2, F5, F7], ..WIPE },
            3_141_559,
        )),
        holds(
            "wipe-floor",
            "memory lost, the floor is the fence of before, extends read the record again",
            Setup { wipes: 1, ..EXTEND },
            18_488,
        ),
        large(holds(
            "wipe-identity",
            "memory lost, records checked and read again by extends",
            Setup {
                identity: reread,
                extends: 1,
                clock: clock(4, 2),
                checks: &[F1, F2, F5, F7],
                ..WIPE
            },
            1_674_831,
        )),
        large(holds(
            "wipe-r1",
            "memory lost, second rounds, quarantine one longer",
            Setup { more_rounds: 1, clock: clock(5, 3), ..WIPE },
            6_966_661,
        )),
        large(holds("wipe-k3", "memory lost, three attempts", Setup { agents: 3, ..WIPE }, 0)),
        holds(
            "quarantine",
            "no expiry: one holder, though a node forgets",
            Setup { more_rounds: 1, ..QUARANTINE },
            171_588,
        ),
        large(holds(
            "quarantine-twice",
            "no expiry: one holder, though nodes forget twice",
            Setup { wipes: 2, more_rounds: 1, ..QUARANTINE },
            1_156_138,
        )),
        large(holds(
            "quarantine-extend",
            "no expiry: one holder, though nodes forget twice, with extends",
            Setup { wipes: 2, extends: 1, ..QUARANTINE },
            1_662_495,
        )),
        large(holds(
            "quarantine-k3",
            "no expiry: one holder of three, though a node forgets",
            Setup { agents: 3, ..QUARANTINE },
            7_024_247,
        )),
    ]
}

pub(super) fn lists() -> Vec<Case> {
    let lists = |nodes, served, change| Setup {
        nodes,
        lists: Some(Lists { shorter: 3, served, change }),
        checks: &[F1, F2],
        ..BASE
    };
    let rolling = lists(4, [1, 1, 1, 2, 0], Change::Rolling);
    let barrier = |waits| lists(5, [1, 1, 1, 0, 0], Change::Barrier { floor: true, waits });
    let one_holder = |setup| Setup { expiry: false, releases: true, checks: &[F1, F2, M], ..setup };
    vec![
        holds(
            "lists-apart",
            "lists of 3 and 5, each node serves one: 3 and 2",
            lists(5, [1, 1, 1, 2, 2], Change::Never),
            272,
        ),
        holds(
            "lists-all-longer",
            "lists of 3 and 5, all nodes serve the longer one",
            lists(5, [2, 2, 2, 2, 2], Change::Never),
            2_512,
        ),
        holds("lists-grow-by-one", "3 to 4, node by node", rolling.clone(), 6_403),
        large(holds(
            "lists-grow-by-one-k3",
            "3 to 4, node by node, three attempts",
            Setup { agents: 3, ..rolling.clone() },
            309_237,
        )),
        holds(
            "lists-grow-by-one-exclusion",
            "3 to 4, node by node, no expiry: one holder",
            one_holder(rolling),
            159_474,
        ),
        holds("lists-barrier", "3 to 5 behind a barrier, with a floor", barrier(false), 4_972),
        large(holds(
            "lists-barrier-exclusion",
            "3 to 5 behind a barrier once all attempts are over, no expiry: one holder",
            one_holder(barrier(true)),
            255_385,
        )),
        holds("idle", "the floor rises, idle fences are forgotten", IDLE, 15_694),
        large(holds(
            "idle-extend",
            "the same, with extends",
            Setup { extends: 1, drops: 1, checks: &[F1, F2, F5, F7], ..IDLE },
            39_249,
        )),
        large(holds(
            "idle-r1",
            "the same, second rounds",
            Setup { more_rounds: 1, ..IDLE },
            2_223_831,
        )),
        large(holds(
            "idle-k3",
            "the same, three attempts",
            Setup { agents: 3, drops: 1, ..IDLE },
            59_748,
        )),
    ]
}
