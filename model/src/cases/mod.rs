//! The cases: what must hold within which bounds (`sound`), and what must be found
//! (`broken`); both for handing over (`handover`), for lives of servers (`lives`),
//! for clocks that are wrong (`clocks`) and for what callers hand in (`claims`).

mod broken;
mod claims;
mod clocks;
mod handover;
mod lives;
mod sound;

use crate::case::{Case, Expected};
use crate::promise::Promise;
use crate::setup::{Clock, Setup};

/// All cases, small and large.
pub fn all() -> Vec<Case> {
    let sound =
        [sound::acquire(), sound::extend(), sound::refresh(), sound::wipe(), sound::lists()];
    sound
        .into_iter()
        .flatten()
        .chain(handover::sound())
        .chain(lives::sound())
        .chain(clocks::sound())
        .chain(claims::sound())
        .chain(broken::all())
        .chain(handover::broken())
        .chain(lives::broken())
        .chain(clocks::broken())
        .chain(claims::broken())
        .collect()
}

fn holds(name: &'static str, what: &'static str, setup: Setup, states: usize) -> Case {
    Case { name, what, setup, expected: Expected::Holds { states }, large: false }
}

fn breaks(
    name: &'static str,
    what: &'static str,
    promise: Promise,
    setup: Setup,
    steps: usize,
) -> Case {
    Case { name, what, setup, expected: Expected::Breaks { promise, steps }, large: false }
}

/// Too long for every test run.
fn large(case: Case) -> Case {
    Case { large: true, ..case }
}

/// Clocks within one tick of real time, which goes from 2 to `to`.
const fn clock(to: u8, quarantine: u8) -> Option<Clock> {
    Some(Clock { skew: 1, from: 2, to, quarantine })
}
