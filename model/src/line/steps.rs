//! What may happen next. What a waiter does about it, its `Line` says.

use leasehold_core::wait::{Heard, InLine, Move, Ticket, Watched};

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
    let process = state.processes[p as usize];
    let mut push = |step, next| all.push((step, next));
    match process.phase {
        Phase::Idle => push(
            Step::Want(p),
            then(state, |next| match process.contended {
                true => wait(setup, next, p),
                false => ask(setup, next, p),
            }),
        ),
        // Behind its own leaving, on the same connection.
        Phase::Waits if !state.line.contains(&p) => {
            push(Step::Enter(p), then(state, |next| enter(setup, next, p)));
        }
        Phase::Waits => {
            if process.is_about_to_ask() {
                push(Step::Ask(p), then(state, |next| ask(setup, next, p)));
            }
            // Seconds are long against messages.
            if setup.timers && !state.is_busy() {
                push(Step::Timer(p), then(state, |next| ask(setup, next, p)));
            }
            // Beats go on however much is on its way between others.
            let missed_its_turn = state.line.first() == Some(&p) && !process.line.is_first();
            let is_told = (state.turns | state.leaving) & bit(p) != 0;
            if setup.timers && missed_its_turn && !is_told {
                push(Step::Beat(p), then(state, |next| hear_place(setup, next, p)));
            }
        }
        Phase::Holds => push(
            Step::GiveBack(p),
            then(state, |next| {
                next.releases.iter_mut().for_each(|releases| *releases |= bit(p));
                next.processes[p as usize].phase = Phase::Idle;
            }),
        ),
        Phase::Asks { .. } => {}
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
                next.processes[p as usize].contended = true;
            }),
        );
    }
    if state.turns & bit(p) != 0 {
        push(
            Step::Turn(p),
            then(state, |next| {
                next.turns &= !bit(p);
                // A word about an earlier place is no news.
                if next.leaving & bit(p) == 0 {
                    hear_place(setup, next, p);
                }
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
    if state.deaths > 0 && matches!(process.phase, Phase::Waits | Phase::Holds) {
        push(Step::Die(p), then(state, |next| die(setup, next, p)));
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
                next.processes[p as usize].to_watch &= !bit(n);
                match is_free {
                    true => hear_free(next, p, n),
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
                hear_free(next, p, n);
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

fn ask(setup: &Setup, state: &mut State, p: u8) {
    unwatch(state, p);
    let open = (1 << setup.nodes) - 1;
    let process = &mut state.processes[p as usize];
    process.line.asks();
    process.phase = Phase::Asks { open, granted: 0, met: 0 };
}

/// Words about watches that are over are not heard.
fn unwatch(state: &mut State, p: u8) {
    for node in 0..state.owners.len() {
        state.watchers[node] &= !bit(p);
        state.freed[node] &= !bit(p);
    }
    state.processes[p as usize].to_watch = 0;
}

fn answer(setup: &Setup, state: &mut State, p: u8, n: u8) {
    let node = n as usize;
    let Phase::Asks { mut open, mut granted, mut met } = state.processes[p as usize].phase else {
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
    state.processes[p as usize].phase = Phase::Asks { open, granted, met };
    if granted.count_ones() as usize >= setup.quorum().needed() {
        acquired(setup, state, p);
    } else if open == 0 {
        refused(setup, state, p, (granted, met));
    }
}

fn acquired(setup: &Setup, state: &mut State, p: u8) {
    let process = &mut state.processes[p as usize];
    process.phase = Phase::Holds;
    // Then it stands in line again before it asks again.
    process.contended |= process.line.met_others();
    if std::mem::replace(&mut process.line, setup.line()).is_in_line() {
        state.overtook |= state.came.first() != Some(&p);
        state.came.retain(|other| *other != p);
        leave_soon(state, p);
    }
}

fn refused(setup: &Setup, state: &mut State, p: u8, (granted, met): (Bits, Bits)) {
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
    let process = &mut state.processes[p as usize];
    if setup.without == Some(Rule::KeepsTicket) {
        let before = std::mem::replace(&mut process.line, setup.line());
        process.line.refused();
        if before.is_in_line() {
            leave_soon(state, p);
        }
    } else {
        process.line.refused();
    }
    wait(setup, state, p);
}

/// Does what its `Line` says, until that is to wait for a word or to ask.
fn wait(setup: &Setup, state: &mut State, p: u8) {
    let process = &mut state.processes[p as usize];
    process.phase = Phase::Waits;
    loop {
        match process.line.next() {
            // The node draws the tickets: the entry is on its way.
            Move::Enter => drop(process.line.enter()),
            Move::Watch => {
                process.line.watch();
                process.to_watch = (1 << setup.nodes) - 1;
            }
            Move::Ask | Move::Rely | Move::Doubt => return,
        }
    }
}

fn enter(setup: &Setup, state: &mut State, p: u8) {
    state.line.push(p);
    if !state.came.contains(&p) {
        state.came.push(p);
    }
    hear_place(setup, state, p);
}

/// Tells a process that stands in line where. What its ticket is does not matter: nobody here comes
/// back with one.
fn hear_place(setup: &Setup, state: &mut State, p: u8) {
    let ticket = Ticket(0);
    let place = match state.line.first() == Some(&p) {
        true => InLine::First { ticket, others: state.line.len() - 1 },
        false => InLine::Behind(ticket),
    };
    let process = &mut state.processes[p as usize];
    process.line.hear(Heard::Place(place));
    // Alone there, it knows that nobody else waits.
    process.contended &= !process.line.is_first() || process.line.met_others();
    if process.phase == Phase::Waits {
        wait(setup, state, p);
    }
}

fn hear_free(state: &mut State, p: u8, n: u8) {
    let word = Heard::Watch { node: n as usize, word: Watched::Free };
    state.processes[p as usize].line.hear(word);
}

/// Its words about the place that it leaves are not heard.
fn leave_soon(state: &mut State, p: u8) {
    state.leaving |= bit(p);
    state.turns &= !bit(p);
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

fn die(setup: &Setup, state: &mut State, p: u8) {
    unwatch(state, p);
    let process = &mut state.processes[p as usize];
    *process = Process { phase: Phase::Dead, ..Process::idle(setup) };
    state.turns &= !bit(p);
    state.nudges &= !bit(p);
    state.leaving &= !bit(p);
    state.came.retain(|other| *other != p);
    state.deaths -= 1;
}
