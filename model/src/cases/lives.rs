//! Votes that belong to one life of one server: servers that are copied over one another, and a
//! server that an attempt meets under two names.

use super::{breaks, holds, large};
use crate::case::Case;
use crate::mutation::Mutation;
use crate::promise::Promise::{F1, F2, F5, F7, M};
use crate::setup::Setup;

const COPY: Setup = Setup { copies: 1, expiry: false, releases: true, checks: &[M], ..Setup::BASE };
const TWINS: Setup = Setup { misleads: 1, extends: 1, checks: &[F1, F2, F5, F7], ..Setup::BASE };

pub(super) fn sound() -> Vec<Case> {
    vec![
        holds(
            "copy",
            "no expiry: one holder, though a node copies another or its replica",
            COPY,
            321_890,
        ),
        large(holds(
            "copy-extend",
            "the same, with extends",
            Setup { extends: 1, ..COPY },
            1_519_933,
        )),
        holds(
            "twins",
            "two members, one table: for one attempt two names lead to one server",
            TWINS,
            21_771,
        ),
    ]
}

pub(super) fn broken() -> Vec<Case> {
    let mutated = |mutation, setup| Setup { mutation: Some(mutation), ..setup };
    vec![
        breaks(
            "copy-history-ignored",
            "the record's replication id is not compared: a node that copied its replica votes",
            M,
            mutated(Mutation::HistoryNotCompared, COPY),
            8,
        ),
        breaks(
            "copy-not-told",
            "who asked before a copy counts the answer that comes after it",
            M,
            mutated(Mutation::CopyNotTold, COPY),
            8,
        ),
        breaks(
            "twins-vote",
            "the roster is not consulted, and the member in the record not compared",
            F5,
            mutated(Mutation::TwinsVote, TWINS),
            10,
        ),
    ]
}
