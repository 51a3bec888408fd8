//! Votes are judged by the lives that gave them, and an overlap is told and drawn.

use leasehold_chaos::check::{self, Outcome, overlaps, sections};
use leasehold_chaos::history::{
    At, Ballot, Event, FaultLine, History, Life, Meta, ServerEvent, Vote,
};
use leasehold_chaos::picture;
use leasehold_chaos::timeline::Scene;

const MS: u64 = 1_000_000;

const EXCLUSION: &str = "two holders are never valid at once";
const REMEMBERED: &str = "no vote is counted of a server that forgot";
const WAITED: &str = "no server that forgot is admitted early";
const ONCE: &str = "no server is counted twice";
const ONE_SERVER: &str = "a life is of one server";

/// Three servers that were started at 0, of which nobody forgot anything.
fn history() -> History {
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
    let lives = (0..2).map(|holder| Life { holder, life: 1, events: Vec::new() }).collect();
    let servers = (0..3).map(|server| started(server, &format!("run{server}"), 0, 1)).collect();
    let (store, unfenced, faults) = (Vec::new(), Vec::new(), Vec::new());
    History { meta, lives, store, unfenced, faults, servers }
}

fn started(server: usize, run: &str, from: u64, at: u64) -> At<ServerEvent> {
    let what = ServerEvent::Started { server, run: run.into(), from: from * MS };
    At { at: at * MS, what }
}

fn ended(server: usize, run: &str, from: u64, at: u64) -> At<ServerEvent> {
    let what = ServerEvent::Ended { server, run: run.into(), from: from * MS };
    At { at: at * MS, what }
}

fn forgot(server: usize, run: &str, from: u64, at: u64) -> At<ServerEvent> {
    let why = "FLUSHALL".into();
    let what = ServerEvent::Forgot { server, run: run.into(), from: from * MS, why };
    At { at: at * MS, what }
}

/// A vote of node `node`, life `l<life>` and process `run<run>`.
fn vote(node: usize, life: usize, run: usize) -> Vote {
    let [node, life, run] = [format!("n{node}"), format!("l{life}"), format!("run{run}")];
    Vote { node, life, run, word: "granted".into() }
}

fn ballot(asked: u64, won: u64, fence: u64, votes: &[Vote]) -> At<Event> {
    let ballot = Ballot {
        kind: "acquire".into(),
        lock: "l".into(),
        holder: format!("h{fence}"),
        fence,
        asked_at: asked * MS,
        votes: votes.to_vec(),
    };
    At { at: won * MS, what: Event::Ballot(ballot) }
}

fn record(at: u64, node: usize, life: usize, run: usize, state: &str) -> At<Event> {
    let record = format!("leasehold2 member=n{node} life=l{life} run=run{run} state={state}");
    let what =
        Event::Record { node: format!("n{node}"), record, expected: "".into(), replaced: true };
    At { at: at * MS, what }
}

fn with(events: Vec<At<Event>>) -> History {
    let mut history = history();
    history.lives[0].events = events;
    history
}

fn broken(history: &History) -> Vec<String> {
    let findings = check::all(history).into_iter();
    findings.filter(|finding| finding.outcome == Outcome::Broken).map(|f| f.promise).collect()
}

fn story(history: &History, promise: &str) -> String {
    let mut findings = check::all(history).into_iter();
    findings.find(|finding| finding.promise == promise).unwrap().story
}

#[test]
fn votes_of_servers_that_remember_are_right() {
    let history = with(vec![
        ballot(100, 110, 1, &[vote(0, 0, 0), vote(1, 1, 1)]),
        ballot(200, 210, 2, &[vote(1, 1, 1), vote(2, 2, 2)]),
    ]);
    assert_eq!(broken(&history), [""; 0], "{:#?}", check::all(&history));
    assert_eq!(story(&history, REMEMBERED), "4 votes of 2 ballots; 0 times forgot");
}

#[test]
fn a_vote_within_a_quarantine_of_forgetting_is_found_and_no_other() {
    let with_vote = |asked, won| {
        let mut history = with(vec![ballot(asked, won, 1, &[vote(0, 0, 0), vote(1, 1, 1)])]);
        history.servers.push(forgot(1, "run1", 500, 510));
        broken(&history)
    };
    assert_eq!(with_vote(510, 600), [REMEMBERED]);
    assert_eq!(with_vote(2_400, 2_499), [REMEMBERED]);
    // A quarantine is 2 422 ms, of which drift may take 26.
    assert_eq!(with_vote(2_800, 2_895), [REMEMBERED]);
    // It may have been given before the server forgot.
    assert_eq!(with_vote(509, 600), [""; 0]);
    // It may have been given when everything that was forgotten was over.
    assert_eq!(with_vote(600, 2_896), [""; 0]);
    assert_eq!(with_vote(100, 499), [""; 0]);
}

#[test]
fn a_quarantine_may_be_shorter_by_what_a_quorum_of_clocks_was_set_ahead() {
    let stepped = |steps: &[(usize, i64)]| {
        let mut history = with(vec![ballot(600, 2_850, 1, &[vote(0, 0, 0), vote(1, 1, 1)])]);
        history.servers.push(forgot(1, "run1", 500, 510));
        for (server, millis) in steps {
            let (micros, from) = (millis * 1_000, 700 * MS);
            let what = ServerEvent::Clock { server: *server, from, micros, ahead: micros };
            history.servers.push(At { at: 710 * MS, what });
        }
        broken(&history)
    };
    assert_eq!(stepped(&[]), [REMEMBERED]);
    assert_eq!(stepped(&[(0, 50)]), [REMEMBERED], "the others know better");
    assert_eq!(stepped(&[(0, -50), (2, -50)]), [REMEMBERED]);
    assert_eq!(stepped(&[(0, 50), (2, 50)]), [""; 0]);
}

#[test]
fn only_the_process_that_forgot_is_meant() {
    let mut history = with(vec![ballot(600, 700, 1, &[vote(0, 0, 0), vote(1, 1, 1)])]);
    history.servers.push(forgot(2, "run2", 500, 510));
    assert_eq!(broken(&history), [""; 0]);
}

#[test]
fn a_vote_in_the_name_of_a_dead_process_is_found() {
    // The server restarted, and its record still names the process before.
    let mut history = with(vec![ballot(600, 700, 1, &[vote(0, 0, 0), vote(1, 1, 1)])]);
    history.servers.extend([ended(1, "run1", 500, 510), started(1, "run9", 520, 560)]);
    assert_eq!(broken(&history), [REMEMBERED]);
    assert!(story(&history, REMEMBERED).contains("server 1 was gone at 0.5100 s"));
    // It may have been given before the process was killed.
    let mut early = with(vec![ballot(505, 700, 1, &[vote(0, 0, 0), vote(1, 1, 1)])]);
    early.servers.extend([ended(1, "run1", 500, 510), started(1, "run9", 520, 560)]);
    assert_eq!(broken(&early), [""; 0]);
}

#[test]
fn a_vote_of_a_process_that_nobody_started_is_found() {
    let history = with(vec![ballot(600, 700, 1, &[vote(0, 0, 0), vote(1, 1, 7)])]);
    assert_eq!(broken(&history), [REMEMBERED]);
}

#[test]
fn a_server_that_is_counted_twice_is_found() {
    let by_run = with(vec![ballot(1, 2, 1, &[vote(0, 0, 0), vote(1, 1, 0)])]);
    assert_eq!(broken(&by_run), [ONCE]);
    let by_life = with(vec![ballot(1, 2, 1, &[vote(0, 0, 0), vote(1, 0, 1)])]);
    assert_eq!(broken(&by_life), [ONCE, ONE_SERVER]);
    let by_name = with(vec![ballot(1, 2, 1, &[vote(0, 0, 0), vote(0, 1, 1)])]);
    assert_eq!(broken(&by_name), [ONCE]);
}

#[test]
fn a_server_that_is_admitted_before_it_waited_is_found() {
    let admitted_at = |ms| {
        let votes = [vote(0, 0, 0), vote(1, 1, 1)];
        let waits = record(1_050, 2, 7, 2, "quarantined");
        let mut history =
            with(vec![ballot(1, 2, 1, &votes), waits, record(ms, 2, 7, 2, "admitted")]);
        history.servers.push(forgot(2, "run2", 1_000, 1_010));
        history
    };
    assert_eq!(broken(&admitted_at(3_395)), [WAITED]);
    assert_eq!(broken(&admitted_at(3_396)), [""; 0]);
    // What was admitted before it forgot, and told of after.
    let mut before = admitted_at(1_500);
    before.lives[0].events.retain(|line| line.at != 1_050 * MS);
    assert_eq!(broken(&before), [""; 0]);
}

#[test]
fn a_ballot_without_a_majority_is_found() {
    let history = with(vec![ballot(1, 2, 1, &[vote(0, 0, 0)])]);
    assert_eq!(broken(&history), [ONCE]);
}

#[test]
fn a_life_that_changes_its_server_is_found() {
    let votes = [vote(0, 0, 0), vote(1, 1, 1)];
    let renamed = with(vec![ballot(1, 2, 1, &votes), record(3, 1, 1, 2, "admitted")]);
    assert_eq!(broken(&renamed), [ONE_SERVER]);
    let mut refused = renamed.clone();
    let Event::Record { replaced, .. } = &mut refused.lives[0].events[1].what else { panic!() };
    *replaced = false;
    assert_eq!(broken(&refused), [""; 0]);
    let moved =
        with(vec![ballot(1, 2, 1, &votes), ballot(3, 4, 2, &[vote(2, 1, 1), vote(0, 0, 0)])]);
    assert_eq!(broken(&moved), [ONE_SERVER]);
}

#[test]
fn where_nobody_tells_of_ballots_nothing_is_judged() {
    for promise in [REMEMBERED, ONCE, ONE_SERVER] {
        assert_eq!(story(&history(), promise), "the library told of no ballot");
    }
}

/// Server 1 is emptied while the first holder has its vote, and votes for the second at once.
fn overlap() -> History {
    let mut history = history();
    let granted = |op, fence, at: u64, until: u64| {
        let (lock, holder) = ("l".to_owned(), format!("h{fence}"));
        At {
            at: at * MS,
            what: Event::Granted { op, lock, fence, holder, until: Some(until * MS) },
        }
    };
    let asks = |op, at: u64| At { at: at * MS, what: Event::Asks { op, lock: "l".into() } };
    history.lives[0].events = vec![
        record(10, 0, 0, 0, "admitted"),
        record(11, 1, 1, 1, "admitted"),
        record(12, 2, 2, 2, "admitted"),
        asks(1, 3_000),
        ballot(3_001, 3_010, 1, &[vote(0, 0, 0), vote(1, 1, 1)]),
        granted(1, 1, 3_011, 5_000),
    ];
    history.lives[1].events = vec![
        asks(1, 3_500),
        record(3_850, 1, 9, 9, "quarantined"),
        record(3_900, 1, 9, 9, "admitted"),
        ballot(4_000, 4_010, 2, &[vote(1, 9, 9), vote(2, 2, 2)]),
        granted(1, 2, 4_012, 5_900),
    ];
    history.servers.extend([
        ended(1, "run1", 3_590, 3_600),
        started(1, "run9", 3_700, 3_800),
        forgot(1, "run9", 3_700, 3_800),
    ]);
    let fault = |at: u64, story: &str| At {
        at: at * MS,
        what: FaultLine { kind: "k".into(), story: story.into() },
    };
    history.faults = vec![
        fault(2_400, "holder stopped, 1.2s: holder 7"),
        fault(3_590, "restart empty on nodes [1], 200ms"),
        fault(3_650, "delay of 80 ms on the way to nodes [0] for half of the holders, 900ms"),
        fault(4_800, "FLUSHALL on nodes <2> & more"),
    ];
    history
}

#[test]
fn an_overlap_is_told_with_its_votes_lives_and_faults() {
    let history = overlap();
    assert!(broken(&history).starts_with(&[EXCLUSION.to_owned()]));
    let sections = sections(&history);
    let scene = Scene::new(&history, overlaps(&sections)[0]);
    let text = scene.text();
    println!("{text}");
    for words in [
        "l had two holders from 4.0120 s to 5.0000 s",
        "granted by n1: life l9, process run9 of server 1",
        "granted by n1: life l1, process run1 of server 1",
        "3.5900 s  fault: restart empty on nodes [1]",
        "3.8000 s  server 1 forgot: FLUSHALL",
        "3.8500 s  server 1: its record says quarantined, life l9",
    ] {
        assert!(text.contains(words), "{words}");
    }
}

#[test]
fn an_overlap_is_drawn() {
    let history = overlap();
    let folder = tempfile::tempdir().unwrap();
    let drawn = picture::draw(&history, folder.path()).unwrap();
    assert_eq!(drawn, [folder.path().join("overlap-1.svg")]);
    let svg = std::fs::read_to_string(&drawn[0]).unwrap();
    if let Some(copy) = std::env::var_os("LEASEHOLD_CHAOS_PICTURE") {
        std::fs::write(copy, &svg).unwrap();
    }
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("FLUSHALL on nodes &lt;2&gt; &amp; more"), "what is written is escaped");
    assert_eq!(svg.matches("<circle").count(), 4 + 2, "a dot for each vote, and two in the legend");
    assert!(svg.contains("quarantined, life l9") && svg.contains("forgot: FLUSHALL"));
}
