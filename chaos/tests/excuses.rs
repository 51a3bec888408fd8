//! Two holders at once are excused by a clock that nobody had read yet, and by nothing more.

use leasehold_chaos::check::{self, Outcome};
use leasehold_chaos::history::{At, Ballot, Event, History, Life, Meta, ServerEvent, Vote};

const MS: u64 = 1_000_000;

const EXCLUSION: &str = "two holders are never valid at once";
const MUTEX: &str = "the history is that of a fenced mutex";

fn at<T>(ms: u64, what: T) -> At<T> {
    At { at: ms * MS, what }
}

/// A holder of `l` with its votes, and what it read before: three nodes, each in a millisecond.
fn hold(fence: u64, asked: u64, until: u64, votes: [usize; 2]) -> Vec<At<Event>> {
    let vote = |node: usize| Vote {
        node: format!("n{node}"),
        life: format!("l{node}"),
        run: format!("run{node}"),
        word: "granted".into(),
    };
    let (lock, holder) = ("l".to_owned(), format!("h{fence}"));
    let ballot = Ballot {
        kind: "acquire".into(),
        lock: lock.clone(),
        holder: holder.clone(),
        fence,
        asked_at: asked * MS,
        votes: votes.map(vote).to_vec(),
    };
    vec![
        at(asked, Event::Asks { op: 1, lock: lock.clone() }),
        at(asked + 1, Event::Ballot(ballot)),
        at(asked + 2, Event::Granted { op: 1, lock, fence, holder, until: Some(until * MS) }),
    ]
}

/// The holder reads the clocks of these nodes.
fn reads(ms: u64, nodes: &[usize]) -> Vec<At<Event>> {
    let reading = |node: &usize| {
        let node = format!("n{node}");
        at(ms + 1, Event::Reading { node, sent: ms * MS, took: MS })
    };
    nodes.iter().map(reading).collect()
}

/// The clock of a server is stepped.
fn step(ms: u64, server: usize, by: i64, ahead: i64) -> At<ServerEvent> {
    let (micros, ahead) = (by * 1000, ahead * 1000);
    at(ms, ServerEvent::Clock { server, from: (ms - 1) * MS, micros, ahead })
}

/// The first holds from 1000 to 3000 by the votes of n0 and n1, both have read all clocks before. The
/// clock of n1 goes ahead by 1500 ms at 1200, and the second holder is granted it at 2000.
fn history(first: Vec<At<Event>>, second: Vec<At<Event>>, steps: Vec<At<ServerEvent>>) -> History {
    let meta = Meta {
        seed: 1,
        backend: "redis".into(),
        seconds: 10,
        nodes: 3,
        holders: 2,
        locks: 1,
        beyond: false,
        only: Vec::new(),
        versions: Vec::new(),
        started: 0,
        calm_from: 0,
        calm_within_seconds: 10,
        sections_floor: 0,
        last_lives: Vec::new(),
        through_servers: false,
        hogs: 0,
        max_ttl: 2_000 * MS,
        max_skew: 200 * MS,
        quarantine: 2_422 * MS,
        names: (0..3).map(|node| format!("n{node}")).collect(),
    };
    let life = |holder, mut events: Vec<At<Event>>| {
        events.sort_by_key(|line| line.at);
        Life { holder, life: 1, events }
    };
    let started = |server: usize| {
        at(1, ServerEvent::Started { server, run: format!("run{server}"), from: 0 })
    };
    let servers = (0..3).map(started).chain(steps).collect();
    let (store, unfenced, faults) = (Vec::new(), Vec::new(), Vec::new());
    let lives = vec![life(0, first), life(1, second)];
    History { meta, lives, store, unfenced, faults, servers }
}

fn of(history: &History, outcome: Outcome) -> Vec<String> {
    let findings = check::all(history).into_iter().filter(|finding| finding.outcome == outcome);
    let promises = findings.map(|finding| finding.promise);
    promises.filter(|promise| [EXCLUSION, MUTEX].contains(&promise.as_str())).collect()
}

fn story(history: &History) -> String {
    let mut findings = check::all(history).into_iter();
    findings.find(|finding| finding.promise == EXCLUSION).unwrap().story
}

#[track_caller]
fn assert_excused(history: &History, why: &str) {
    assert_eq!(of(history, Outcome::Broken), [""; 0], "{:#?}", check::all(history));
    assert!(story(history).contains(why), "{}", story(history));
}

#[track_caller]
fn assert_broken(history: &History) {
    assert_eq!(of(history, Outcome::Broken), [EXCLUSION, MUTEX], "{}", story(history));
}

const ALL: &[usize] = &[0, 1, 2];

/// Gives up its lease when it reads the clock at 2100.
fn first() -> Vec<At<Event>> {
    let mut events = [reads(900, ALL), hold(10, 1_000, 3_000, [0, 1]), reads(2_100, ALL)].concat();
    events.push(at(2_102, Event::Believes { op: 1, until: None, before: 2_098 * MS }));
    events
}

/// Starts right before it asks.
fn second() -> Vec<At<Event>> {
    [reads(1_150, ALL), hold(20, 2_000, 2_900, [1, 2])].concat()
}

fn ahead() -> Vec<At<ServerEvent>> {
    vec![step(1_200, 1, 1_500, 1_500)]
}

#[test]
fn two_holders_are_excused_until_the_first_reads_the_clock_that_went_ahead() {
    let why = "1 overlap(s) excused, up to 0.10 s, until the holder read a clock";
    assert_excused(&history(first(), second(), ahead()), why);
}

#[test]
fn a_holder_that_believes_beyond_its_reading_is_not_excused() {
    let mut believes = first();
    believes.retain(|line| !matches!(line.what, Event::Believes { .. }));
    assert_broken(&history(believes, second(), ahead()));
}

#[test]
fn two_holders_are_not_excused_without_a_step_or_for_longer_than_it() {
    assert_broken(&history(first(), second(), Vec::new()));
    assert_broken(&history(first(), second(), vec![step(1_200, 1, 40, 40)]));
    assert_broken(&history(first(), second(), vec![step(1_200, 1, -1_500, -1_500)]));
    assert_broken(&history(first(), second(), vec![step(990, 1, 1_500, 1_500)]));
    assert_broken(&history(first(), second(), vec![step(1_200, 0, 1_500, 1_500)]));
}

#[test]
fn the_second_is_not_excused_if_it_noticed_the_step() {
    let noticed = [second(), reads(1_500, &[1])].concat();
    assert_broken(&history(first(), noticed, vec![step(1_200, 1, 150, 150)]));
}

#[test]
fn a_late_holder_is_excused_for_a_step_within_the_skew_and_not_beyond() {
    let late = || [hold(20, 2_000, 2_900, [1, 2]), reads(1_500, ALL)].concat();
    let why = "1 overlap(s) excused";
    assert_excused(&history(first(), late(), vec![step(1_200, 1, 150, 150)]), why);
    assert_broken(&history(first(), late(), ahead()));
}

#[test]
fn a_step_that_is_undone_unread_is_counted_apart() {
    let undone = vec![step(1_200, 1, 1_500, 1_500), step(1_800, 1, -1_500, 0)];
    let mut believes = first();
    believes.retain(|line| !matches!(line.what, Event::Believes { .. }));
    let why = "by a step that was undone before the holder read the clock";
    assert_excused(&history(believes, second(), undone), why);
}

/// Stood still from 1100 to 2300, and believes for as much longer.
fn stood() -> Vec<At<Event>> {
    let missed = Event::Missed { nanos: 1_200 * MS, from: 1_100 * MS, to: 2_300 * MS };
    let events = [reads(900, ALL), hold(10, 1_000, 1_900, [0, 1]), reads(2_500, ALL)];
    let longer = Event::Believes { op: 1, until: Some(3_100 * MS), before: 1_090 * MS };
    [events.concat(), vec![at(2_300, missed), at(2_301, longer)]].concat()
}

#[test]
fn a_holder_that_stood_still_is_excused_until_it_reads_a_clock() {
    let told = Event::Believes { op: 1, until: None, before: 2_498 * MS };
    let told = [stood(), vec![at(2_502, told)]].concat();
    let why = "1 overlap(s) excused, up to 0.50 s, until a holder that had stood still";
    assert_excused(&history(told, second(), Vec::new()), why);
    assert_broken(&history(stood(), second(), Vec::new()));
}

/// The first is extended at 1300, after the step, by the votes of these nodes.
fn extended(votes: [usize; 2]) -> Vec<At<Event>> {
    let mut extension = hold(10, 1_300, 3_000, votes);
    extension.retain_mut(|line| match &mut line.what {
        Event::Ballot(ballot) => {
            ballot.kind = "extend".into();
            true
        }
        _ => false,
    });
    [first(), extension].concat()
}

#[test]
fn a_server_that_extended_the_lease_after_its_step_excuses_nothing() {
    assert_broken(&history(extended([0, 1]), second(), ahead()));
    assert_excused(&history(extended([0, 2]), second(), ahead()), "1 overlap(s) excused");
}
