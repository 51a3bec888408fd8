//! What may happen next.

use super::state::{Bits, Phase, Process, State};
use super::{Rule, Setup};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A process wants the lock.
    Want(u8),
    /// Its entry reaches the line.
    Enter(u8),
    /// Its leaving does.
    Leave(u8),
    /// It hears that it is first.
    Turn(u8),
    /// It hears that somebody waits for what it holds.
    Nudge(u8),
    /// Its watch is set up at a node.
    Watch(u8, u8),
    /// It hears from a node that the lock is free.
    Freed(u8, u8),
    /// It asks, because a quorum told it to.
    Ask(u8),
    /// It asks, because it has heard nothing for long.
    Timer(u8),
    /// It tells the line that it is still there, and hears where it stands.
    Beat(u8),
    /// Its question reaches a node, and the answer comes back.
    Answer(u8, u8),
    /// Its release reaches a node.
    Release(u8, u8),
    /// It gives the lock back.
    GiveBack(u8),
    /// It ends without a word.
    Die(u8),
    /// What a dead one owned at a node runs out.
    Expire(u8),
    /// The entry of a dead one runs out.
    Drop(u8),
    /// A word that it is first gets lost.
    LoseTurn(u8),
    /// A word from a node that the lock is free gets lost.
    LoseFreed(u8, u8),
}

impl Step {
    /// Whether it happens in the end if it is possible again and again: what goes by the clock
    /// does not care what else happens meanwhile.
    pub(super) fn goes_by_the_clock(self) -> bool {
        matches!(self, Self::Timer(_) | Self::Beat(_))
    }

    /// Whether it happens in the end, if nothing makes it impossible. Nobody has to want a lock, and
    /// nothing has to break.
    pub(super) fn is_due(self) -> bool {
        !matches!(self, Self::Want(_) | Self::Die(_) | Self::LoseTurn(_) | Self::LoseFreed(..))
    }
}

fn bit(number: u8) -> Bits {
    1 << number
}

/// All that may happen, and what comes of it.
pub(super) fn steps(setup: &Setup, state: &State) -> Vec<(Step, State)> {
    let mut all = Vec::new();
    for process in 0..setup.processes as u8 {
        own_steps(setup, state, process, &mut all);
        for node in 0..setup.nodes as u8 {
            node_steps(setup, state, process, node, &mut all);
        }
    }
    for node in 0..setup.nodes as u8 {
        let owner = state.owners[node as usize];
        if owner.is_some_and(|p| state.processes[p as usize].phase == Phase::Dead) {
            all.push((Step::Expire(node), then(state, |next| free(next, node))));
        }
    }
    all
}

fn then(state: &State, change: impl FnOnce(&mut State)) -> State {
    let mut next = state.clone();
    change(&mut next);
    next
}

fn own_steps(setup: &Setup, state: &State, p: u8, all: &mut Vec<(Step, State)>) {
    let Process { phase, memo, free, .. } = state.processes[p as usize];
    let mut push = |step, next| all.push((step, next));
    match phase {
        Phase::Idle => push(
            Step::Want(p),
            then(state, |next| match memo {
                true => next.processes[p as usize].phase = Phase::Entering { was_refused: false },
                false => ask(setup, next, p, false),
            }),
        ),
        // Behind its own leaving, on the same connection.
        Phase::Entering { was_refused } if state.leaving & bit(p) == 0 => {
            push(Step::Enter(p), then(state, |next| enter(setup, next, p, was_refused)));
        }
        Phase::Waits { .. } => {
            if free.count_ones() as usize >= setup.quorum() {
                push(Step::Ask(p), then(state, |next| ask(setup, next, p, true)));
            }
            // Seconds are long against messages.
            if setup.timers && !state.is_busy() {
                push(Step::Timer(p), then(state, |next| ask(setup, next, p, true)));
                if state.line.first() == Some(&p) && !state.processes[p as usize].is_first {
                    push(Step::Beat(p), then(state, |next| come_first(setup, next, p)));
                }
            }
        }
        Phase::Holds => push(
            Step::GiveBack(p),
            then(state, |next| {
                next.releases.iter_mut().for_each(|releases| *releases |= bit(p));
                next.processes[p as usize].phase = Phase::Idle;
            }),
        ),
        Phase::Entering { .. } | Phase::Asks { .. } => {}
        Phase::Dead => {
            if state.line.contains(&p) && setup.without != Some(Rule::EntriesExpire) {
                push(Step::Drop(p), then(state, |next| leave(setup, next, p)));
            }
            return;
        }
    }
    if state.leaving & bit(p) != 0 {
        push(
            Step::Leave(p),
            then(state, |next| {
                next.leaving &= !bit(p);
                leave(setup, next, p);
            }),
        );
    }
    if state.nudges & bit(p) != 0 {
        push(
            Step::Nudge(p),
            then(state, |next| {
                next.nudges &= !bit(p);
                next.processes[p as usize].memo = true;
            }),
        );
    }
    if state.turns & bit(p) != 0 {
        push(
            Step::Turn(p),
            then(state, |next| {
                next.turns &= !bit(p);
                come_first(setup, next, p);
            }),
        );
        if state.losses > 0 {
            push(
                Step::LoseTurn(p),
                then(state, |next| {
                    next.turns &= !bit(p);
                    next.losses -= 1;
                }),
            );
        }
    }
    if state.deaths > 0 && matches!(phase, Phase::Waits { .. } | Phase::Holds) {
        push(Step::Die(p), then(state, |next| die(next, p)));
    }
}

fn node_steps(setup: &Setup, state: &State, p: u8, n: u8, all: &mut Vec<(Step, State)>) {
    let (node, process) = (n as usize, state.processes[p as usize]);
    let mut push = |step, next| all.push((step, next));
    // On one connection nothing overtakes a release.
    if state.releases[node] & bit(p) != 0 {
        push(
            Step::Release(p, n),
            then(state, |next| {
                next.releases[node] &= !bit(p);
                if next.owners[node] == Some(p) {
                    free(next, n);
                }
            }),
        );
    } else if let Phase::Asks { open, .. } = process.phase
        && open & bit(n) != 0
    {
        push(Step::Answer(p, n), then(state, |next| answer(setup, next, p, n)));
    }
    if process.to_watch & bit(n) != 0 {
        push(
            Step::Watch(p, n),
            then(state, |next| {
                let is_free =
                    next.owners[node].is_none() && setup.without != Some(Rule::WatchLooks);
                let process = &mut next.processes[p as usize];
                process.to_watch &= !bit(n);
                match is_free {
                    true => process.free |= bit(n),
                    false => next.watchers[node] |= bit(p),
                }
            }),
        );
    }
    if state.freed[node] & bit(p) != 0 {
        push(
            Step::Freed(p, n),
            then(state, |next| {
                next.freed[node] &= !bit(p);
                let process = &mut next.processes[p as usize];
                if matches!(process.phase, Phase::Waits { .. }) {
                    process.free |= bit(n);
                }
            }),
        );
        if state.losses > 0 {
            push(
                Step::LoseFreed(p, n),
                then(state, |next| {
                    next.freed[node] &= !bit(p);
                    next.losses -= 1;
                }),
            );
        }
    }
}

/// The owner of a node is gone, and whoever watches is told.
fn free(state: &mut State, n: u8) {
    let node = n as usize;
    state.owners[node] = None;
    let told = std::mem::take(&mut state.watchers[node]);
    state.freed[node] |= told;
}

fn ask(setup: &Setup, state: &mut State, p: u8, in_line: bool) {
    unwatch(state, p);
    let open = (1 << setup.nodes) - 1;
    state.processes[p as usize].phase = Phase::Asks { open, granted: 0, met: 0, in_line };
}

/// Words about watches that are over are not heard.
fn unwatch(state: &mut State, p: u8) {
    for node in 0..state.owners.len() {
        state.watchers[node] &= !bit(p);
        state.freed[node] &= !bit(p);
    }
    let process = &mut state.processes[p as usize];
    (process.to_watch, process.free) = (0, 0);
}

fn answer(setup: &Setup, state: &mut State, p: u8, n: u8) {
    let node = n as usize;
    let Phase::Asks { mut open, mut granted, mut met, in_line } = state.processes[p as usize].phase
    else {
        return;
    };
    open &= !bit(n);
    match state.owners[node] {
        Some(owner) if owner != p => met |= bit(owner),
        // A partial grant that was kept counts again.
        _ => {
            state.owners[node] = Some(p);
            granted |= bit(n);
        }
    }
    state.processes[p as usize].phase = Phase::Asks { open, granted, met, in_line };
    if granted.count_ones() as usize >= setup.quorum() {
        acquired(state, p, in_line);
    } else if open == 0 {
        refused(setup, state, p, (granted, met), in_line);
    }
}

fn acquired(state: &mut State, p: u8, in_line: bool) {
    let process = &mut state.processes[p as usize];
    process.phase = Phase::Holds;
    process.is_first = false;
    if in_line {
        state.overtook |= state.came.first() != Some(&p);
        state.came.retain(|other| *other != p);
        state.leaving |= bit(p);
        // It stands in line again before it asks again.
        process.memo = true;
    }
}

fn refused(setup: &Setup, state: &mut State, p: u8, (granted, met): (Bits, Bits), in_line: bool) {
    if setup.without != Some(Rule::GivesBack) {
        for node in (0..setup.nodes).filter(|node| granted & bit(*node as u8) != 0) {
            state.releases[node] |= bit(p);
        }
    }
    if setup.without != Some(Rule::Nudges) {
        let lives = |other: &u8| state.processes[*other as usize].phase != Phase::Dead;
        let others = (0..setup.processes as u8).filter(|other| met & bit(*other) != 0);
        state.nudges |= others.filter(lives).fold(0, |all, other| all | bit(other));
    }
    if in_line && setup.without == Some(Rule::KeepsTicket) {
        state.leaving |= bit(p);
        state.processes[p as usize].is_first = false;
        state.processes[p as usize].phase = Phase::Entering { was_refused: true };
    } else if in_line {
        state.processes[p as usize].phase = Phase::Waits { was_refused: true };
        if state.processes[p as usize].is_first {
            state.processes[p as usize].to_watch = (1 << setup.nodes) - 1;
        }
    } else {
        state.processes[p as usize].phase = Phase::Entering { was_refused: true };
    }
}

fn enter(setup: &Setup, state: &mut State, p: u8, was_refused: bool) {
    state.line.push(p);
    if !state.came.contains(&p) {
        state.came.push(p);
    }
    let process = &mut state.processes[p as usize];
    process.phase = Phase::Waits { was_refused };
    // Alone there, it knows that nobody else waits.
    process.memo = state.line.len() > 1;
    if state.line[0] != p {
        return;
    }
    if was_refused {
        come_first(setup, state, p);
    } else {
        state.processes[p as usize].is_first = true;
        ask(setup, state, p, true);
    }
}

fn come_first(setup: &Setup, state: &mut State, p: u8) {
    let process = &mut state.processes[p as usize];
    let is_news = !std::mem::replace(&mut process.is_first, true);
    if is_news && matches!(process.phase, Phase::Waits { .. }) {
        process.to_watch = (1 << setup.nodes) - 1;
    }
}

fn leave(setup: &Setup, state: &mut State, p: u8) {
    let was_first = state.line.first() == Some(&p);
    state.line.retain(|other| *other != p);
    state.turns &= !bit(p);
    if let (true, Some(first)) = (was_first, state.line.first())
        && setup.without != Some(Rule::LeavingTells)
    {
        state.turns |= bit(*first);
    }
}

fn die(state: &mut State, p: u8) {
    unwatch(state, p);
    let process = &mut state.processes[p as usize];
    *process = Process { phase: Phase::Dead, ..Process::IDLE };
    state.turns &= !bit(p);
    state.nudges &= !bit(p);
    state.leaving &= !bit(p);
    state.came.retain(|other| *other != p);
    state.deaths -= 1;
}
