//! What must hold, and what must be found.

use super::{Case, Expected, Promise, Rule, Setup};

const PLAIN: Setup = Setup {
    lists: &["abc", "ade"],
    changes: &[(0, 1)],
    clients: &[0, 1],
    early: &[],
    again: 0,
    restarts: 0,
    empties: false,
    renews: false,
    fences: false,
    in_turn: false,
    without: None,
};

const fn holds(name: &'static str, what: &'static str, setup: Setup, states: usize) -> Case {
    Case { name, what, setup, expected: Expected::Holds(states), large: false }
}

const fn breaks(
    name: &'static str,
    what: &'static str,
    setup: Setup,
    without: Rule,
    steps: usize,
) -> Case {
    let setup = Setup { without: Some(without), ..setup };
    let promise = match without {
        Rule::FloorOfAll => Promise::F,
        _ => Promise::M,
    };
    Case { name, what, setup, expected: Expected::Breaks(promise, steps), large: false }
}

const fn large(case: Case) -> Case {
    Case { large: true, ..case }
}

/// Two of three are replaced, and lose everything at any time.
const EMPTIES: Setup = Setup { restarts: 2, empties: true, in_turn: true, ..PLAIN };
/// Two of three are replaced; a client of the new list met one of those that join before.
const TWO: Setup = Setup { early: &[('d', 1)], ..PLAIN };
const ONE: Setup = Setup { lists: &["abc", "abd"], ..TWO };
const ONE_LATE: Setup = Setup { early: &[], ..ONE };
const DOWN: Setup = Setup { lists: &["abc", "a"], ..PLAIN };
const UP: Setup = Setup { lists: &["ab", "abc"], early: &[('c', 1)], ..PLAIN };
const MOVES: Setup = Setup { lists: &["a", "b"], ..PLAIN };
/// One node more, twice; each of them waited before, where nobody else was met.
const UP_TWICE: Setup = Setup {
    lists: &["a", "ab", "abc"],
    changes: &[(0, 1), (1, 2)],
    clients: &[0, 1, 2],
    early: &[('b', 1), ('c', 2)],
    in_turn: true,
    ..PLAIN
};
/// Each of two adds a node of their own to a list of two.
const RIVALS_UP: Setup = Setup {
    lists: &["ab", "abc", "abd"],
    changes: &[(0, 1), (0, 2)],
    clients: &[0, 1, 2],
    early: &[('c', 1), ('d', 2)],
    in_turn: true,
    ..PLAIN
};
/// The same, where nobody uses the list of two any more.
const NEW_RIVALS_UP: Setup = Setup { clients: &[1, 2], ..RIVALS_UP };
/// The same, and nobody met the nodes that are added before.
const LATE_RIVALS_UP: Setup = Setup { early: &[], ..NEW_RIVALS_UP };
/// Two want different lists.
const RIVALS: Setup = Setup {
    lists: &["abc", "abd", "ade"],
    changes: &[(0, 1), (0, 2)],
    clients: &[0, 1, 2],
    in_turn: true,
    ..PLAIN
};
const SAME: Setup = Setup { changes: &[(0, 1), (0, 1)], in_turn: true, ..TWO };
const SAME_UP: Setup = Setup { changes: &[(0, 1), (0, 1)], in_turn: true, ..UP };

/// All of them.
pub fn all() -> Vec<Case> {
    let mut all = hold();
    all.extend(large_ones());
    all.extend(broken());
    all
}

fn hold() -> Vec<Case> {
    let again = |setup| Setup { again: 1, in_turn: true, ..setup };
    let restarts = |setup| Setup { restarts: 1, in_turn: true, ..setup };
    let fences = |setup| Setup { fences: true, in_turn: true, ..setup };
    let renews = |setup| Setup { renews: true, ..setup };
    vec![
        holds("members-two", "two of three are replaced", renews(TWO), 23_601),
        holds("members-one", "one of three is replaced", renews(ONE), 24_973),
        holds("members-fences", "the same, and fences only grow", fences(ONE_LATE), 19_315),
        holds("members-down", "three become one", again(restarts(DOWN)), 19_058),
        holds("members-up", "one node more", again(renews(UP)), 10_563),
        holds("members-up-restart", "the same, and a server restarts", restarts(UP), 32_485),
        holds("members-up-fences", "the same, and fences only grow", fences(UP), 15_565),
        holds("members-moves", "one node becomes another", again(restarts(MOVES)), 1_168),
        holds("members-rivals-up", "two add different nodes at once", LATE_RIVALS_UP, 10_832),
    ]
}

fn large_ones() -> Vec<Case> {
    let again = |setup| Setup { again: 1, in_turn: true, ..setup };
    let restarts = |setup| Setup { restarts: 1, in_turn: true, ..setup };
    let fences = |setup| Setup { fences: true, in_turn: true, ..setup };
    let cases = [
        holds("members-two-again", "two of three are replaced, begun anew", again(TWO), 64_053),
        holds("members-two-restart", "the same, and a server restarts", restarts(TWO), 174_476),
        holds("members-two-fences", "the same, and fences only grow", fences(TWO), 66_737),
        holds("members-up-twice", "one node more, twice, also at once", UP_TWICE, 168_086),
        holds("members-empty", "two of three join, and lose everything", EMPTIES, 1_221_737),
        holds("members-same", "two replace the same nodes at once", SAME, 0),
        holds("members-same-up", "two add the same node at once", SAME_UP, 765_859),
        holds("members-rivals", "two want different lists at once", RIVALS, 293_955),
        holds(
            "members-rivals-up-old",
            "two add nodes, and the old list is in use",
            RIVALS_UP,
            1_022_351,
        ),
        holds(
            "members-one-fences",
            "one of three is replaced, and fences only grow",
            fences(ONE),
            74_734,
        ),
    ];
    cases.map(large).to_vec()
}

fn broken() -> Vec<Case> {
    let restarts = |setup| Setup { restarts: 1, ..setup };
    vec![
        breaks(
            "members-no-look",
            "a changer is told that all are barred, though those that leave are not",
            TWO,
            Rule::LooksAtTheBarrier,
            35,
        ),
        breaks(
            "members-joining-last",
            "those of the old list are barred before those that join",
            TWO,
            Rule::JoiningFirst,
            15,
        ),
        breaks(
            "members-believes",
            "a changer believes that a record was written, though it was not",
            restarts(MOVES),
            Rule::LooksAgain,
            16,
        ),
        breaks(
            "members-added-early",
            "a node that is added keeps an earlier quarantine",
            Setup { clients: &[0, 2], ..UP_TWICE },
            Rule::AddedWaits,
            28,
        ),
        breaks(
            "members-added-not-barred",
            "a node that is added is not barred before the others follow",
            NEW_RIVALS_UP,
            Rule::JoiningFirst,
            21,
        ),
        breaks(
            "members-added-too-soon",
            "a node that is added begins to wait before all others follow",
            LATE_RIVALS_UP,
            Rule::AllFollow,
            44,
        ),
        breaks(
            "members-barred-votes",
            "a barred node that restarts votes after its quarantine",
            restarts(DOWN),
            Rule::BarredStays,
            11,
        ),
        breaks(
            "members-beside-barred",
            "a node without a record gets one beside a barred member",
            EMPTIES,
            Rule::NoneBesideBarred,
            25,
        ),
        breaks(
            "members-floor-of-new",
            "what the old list remembers is no floor",
            Setup { fences: true, ..PLAIN },
            Rule::FloorOfAll,
            37,
        ),
    ]
}
