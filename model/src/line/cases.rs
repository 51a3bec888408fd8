//! What must hold, and what must be found.

use super::{Case, Promise, Rule, Setup};

const fn hints(nodes: usize, processes: usize) -> Setup {
    Setup {
        processes,
        nodes,
        timers: false,
        losses: 0,
        deaths: 0,
        promise: Promise::EachIsServed,
        without: None,
    }
}

const fn timers(nodes: usize, processes: usize, losses: u8, deaths: u8) -> Setup {
    Setup { timers: true, losses, deaths, ..hints(nodes, processes) }
}

const fn serves(name: &'static str, what: &'static str, setup: Setup, states: usize) -> Case {
    Case { name, what, setup, serves: true, large: false, states }
}

const fn starves(
    name: &'static str,
    what: &'static str,
    setup: Setup,
    without: Rule,
    states: usize,
) -> Case {
    let setup = Setup { without: Some(without), ..setup };
    Case { name, what, setup, serves: false, large: false, states }
}

const fn large(case: Case) -> Case {
    Case { large: true, ..case }
}

/// All of them.
pub fn all() -> Vec<Case> {
    let one = |setup| Setup { promise: Promise::OneIsServed, ..setup };
    let in_turn = |setup| Setup { promise: Promise::InTurn, ..setup };
    vec![
        serves("line", "hints alone serve both", hints(2, 2), 39_372),
        serves("line-k3", "hints alone serve three", hints(1, 3), 212_967),
        serves("line-in-turn", "hints alone serve three in turn", in_turn(hints(1, 3)), 212_967),
        large(serves("line-n3", "hints alone serve both, three nodes", hints(3, 2), 1_536_686)),
        serves("line-lost", "a lost hint, with timers", timers(1, 2, 1, 0), 15_591),
        serves("line-dead", "a dead process, with timers", timers(1, 2, 0, 1), 6_181),
        large(serves("line-lost-n3", "a lost hint, three nodes", timers(3, 2, 1, 0), 5_216_048)),
        large(serves("line-dead-n3", "a dead process, three nodes", timers(3, 2, 0, 1), 1_864_402)),
        large(serves(
            "line-lost-dead",
            "three, of which one dies, and a lost hint",
            one(timers(1, 3, 1, 1)),
            1_636_248,
        )),
        starves(
            "line-drops-ticket",
            "a refused waiter goes to the end of the line",
            in_turn(hints(1, 2)),
            Rule::KeepsTicket,
            11_134,
        ),
        starves(
            "line-keeps-grants",
            "a refused waiter keeps what it was granted",
            one(hints(2, 2)),
            Rule::GivesBack,
            34_991,
        ),
        starves(
            "line-no-ttl",
            "the entry of a dead waiter stays",
            one(Setup { deaths: 1, ..hints(1, 3) }),
            Rule::EntriesExpire,
            319_173,
        ),
        starves(
            "line-no-look",
            "a watch does not tell that the lock is free already",
            one(hints(1, 2)),
            Rule::WatchLooks,
            4_839,
        ),
        starves(
            "line-silent-leave",
            "whoever leaves the line tells nobody",
            one(hints(1, 3)),
            Rule::LeavingTells,
            178_251,
        ),
        starves(
            "line-no-nudge",
            "a holder does not hear of waiters",
            hints(1, 2),
            Rule::Nudges,
            608,
        ),
    ]
}
