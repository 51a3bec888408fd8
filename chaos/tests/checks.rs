//! Each judge refuses the history it is there to refuse, and only that.

use leasehold_chaos::check::{self, Outcome};
use leasehold_chaos::history::{
    At, Ballot, Event, History, Life, Meta, ServerEvent, StoreLine, UnfencedLine, Vote,
};

const MS: u64 = 1_000_000;

const EXCLUSION: &str = "two holders are never valid at once";
const MUTEX: &str = "the history is that of a fenced mutex";
const UNIQUE: &str = "F1: fences are unique";
const GROW: &str = "F2: fences grow in real time";
const LOST: &str = "a lost lease stays lost";
const STORE: &str = "the fenced store took no late write";
const LATE: &str = "late writes were refused by the fence";
const WORK: &str = "work goes on";
/// Of callers, where there are some.
const DEADLINES: &str = "no caller is told a later end than the votes allow";
const OVER: &str = "what was told to be over is over";
const LOOKS: &str = "nobody is told to hold what another holds";
const DENIALS: &str = "nobody is told to have lost what a quorum has";
const LIES: &str = "a lie changes nothing";
/// There are no servers in these histories; `lives.rs` has some.
const OF_SERVERS: [&str; 4] = [
    "no server that forgot is admitted early",
    "no vote is counted of a server that forgot",
    "no server is counted twice",
    "a life is of one server",
];
const CALM: &str = "after the last fault everybody gets a lock";

/// An acquisition: asked, granted, believed until, given back; in milliseconds.
struct Hold {
    holder: usize,
    fence: u64,
    asked: u64,
    granted: u64,
    until: u64,
    gives_back: Option<u64>,
}

fn hold(holder: usize, fence: u64, times: [u64; 3], gives_back: Option<u64>) -> Hold {
    let [asked, granted, until] = times;
    Hold { holder, fence, asked, granted, until, gives_back }
}

fn at(ms: u64, what: Event) -> At<Event> {
    At { at: ms * MS, what }
}

fn believes(op: u64, until: Option<u64>) -> Event {
    Event::Believes { op, until: until.map(|ms| ms * MS), before: 0 }
}

fn history(holds: &[Hold]) -> History {
    let mut lives: Vec<Life> =
        (0..2).map(|holder| Life { holder, life: 1, events: Vec::new() }).collect();
    let mut store = Vec::new();
    let mut unfenced = Vec::new();
    for (number, hold) in (1..).zip(holds) {
        let (op, lock, value) = (number, "l".to_owned(), number);
        let holder = format!("h{}", hold.fence);
        let events = &mut lives[hold.holder].events;
        let until = Some(hold.until * MS);
        let granted = Event::Granted {
            op,
            lock: lock.clone(),
            fence: hold.fence,
            holder: holder.clone(),
            until,
        };
        events.push(at(hold.asked, Event::Asks { op, lock: lock.clone() }));
        events.push(at(hold.granted, granted));
        events.push(at(hold.granted, Event::Wrote { op, value, accepted: true }));
        if let Some(ms) = hold.gives_back {
            events.push(at(ms, Event::GivesBack { op, waits: true }));
            events.push(at(ms + 1, Event::GaveBack { op, outcome: "released".into() }));
        }
        store.push(line(hold.fence, Some(value), true));
        unfenced.push(UnfencedLine { lock, fence: hold.fence, value });
    }
    // The first holder comes back and is too late.
    if let Some(first) = holds.first() {
        store.push(line(first.fence, Some(99), false));
        unfenced.push(UnfencedLine { lock: "l".into(), fence: first.fence, value: 99 });
    }
    let meta = Meta {
        seed: 1,
        backend: "redis".into(),
        seconds: 1,
        nodes: 5,
        holders: 2,
        locks: 1,
        beyond: false,
        only: Vec::new(),
        versions: Vec::new(),
        started: 0,
        calm_from: 0,
        calm_within_seconds: 10,
        sections_floor: 1,
        last_lives: vec![1, 1],
        through_servers: false,
        hogs: 0,
        max_ttl: 2_000 * MS,
        max_skew: 200 * MS,
        quarantine: 2_422 * MS,
        names: Vec::new(),
    };
    History { meta, lives, store, unfenced, faults: Vec::new(), servers: Vec::new() }
}

fn line(fence: u64, value: Option<u64>, accepted: bool) -> StoreLine {
    let holder = format!("h{fence}");
    StoreLine { at: 0, lock: "l".into(), fence, holder, value, accepted }
}

/// A history with nothing wrong: three holds, one of them lost and overtaken.
fn good() -> Vec<Hold> {
    vec![
        hold(0, 10, [0, 5, 100], Some(50)),
        hold(1, 20, [1, 52, 150], None),
        hold(0, 30, [60, 151, 250], Some(160)),
    ]
}

fn of(history: &History, outcome: Outcome) -> Vec<String> {
    let findings = check::all(history).into_iter().filter(|finding| finding.outcome == outcome);
    let promises = findings.map(|finding| finding.promise);
    promises.filter(|promise| !OF_SERVERS.contains(&promise.as_str())).collect()
}

#[track_caller]
fn assert_broken(history: &History, expected: &[&str]) {
    assert_eq!(of(history, Outcome::Broken), expected, "{:#?}", check::all(history));
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let history = history(&good());
    assert_broken(&history, &[]);
    assert_eq!(of(&history, Outcome::NotJudged), [""; 0]);
}

#[test]
fn two_valid_holders_are_found() {
    let mut holds = good();
    holds[1].granted = 49;
    assert_broken(&history(&holds), &[EXCLUSION, MUTEX]);
}

#[test]
fn an_extension_that_reaches_into_the_next_hold_is_found() {
    let mut history = history(&good());
    history.lives[1].events.push(at(140, believes(2, Some(170))));
    assert_broken(&history, &[EXCLUSION, MUTEX]);
}

#[test]
fn what_no_pair_of_holds_shows_is_found_by_the_order_of_all() {
    // One held it from start to end while the acquire of the other was under way: no two were
    // valid at once, and fences of overlapping acquires may come in any order.
    let holds = |fence| [hold(0, fence, [0, 40, 100], None), hold(1, 20, [5, 20, 90], Some(30))];
    let mut right = history(&holds(30));
    right.store.clear();
    right.lives.iter_mut().for_each(|life| {
        life.events.retain(|line| !matches!(line.what, Event::Wrote { .. }));
    });
    assert_broken(&right, &[WORK]);
    // But with the lower fence it was first, and had it still when the other got it.
    assert_broken(&history(&holds(10)), &[MUTEX]);
}

#[test]
fn a_fence_given_twice_is_found() {
    let mut holds = good();
    holds[1].fence = 10;
    let mut history = history(&holds);
    // The store cannot tell two holders of one name apart; this is about the fence alone.
    history.store.truncate(1);
    history.store.push(line(10, Some(2), true));
    history.store.push(line(30, Some(3), true));
    assert_broken(&history, &[MUTEX, UNIQUE]);
}

#[test]
fn a_fence_that_goes_down_in_real_time_is_found() {
    let mut holds = good();
    holds[2].fence = 15;
    let mut history = history(&holds);
    history.store[2].accepted = false;
    history.lives[0].events.retain(|line| !matches!(line.what, Event::Wrote { op: 3, .. }));
    assert_broken(&history, &[MUTEX, GROW]);
}

#[test]
fn overlapping_acquires_may_have_their_fences_in_any_order() {
    // Both asked at the same time; the later fence was granted and lost unseen.
    let holds = [hold(0, 10, [0, 80, 60], None), hold(1, 20, [0, 70, 150], None)];
    assert_broken(&history(&holds), &[]);
}

#[test]
fn a_lease_that_comes_back_is_found() {
    let mut history = history(&good());
    history.lives[1].events.push(at(151, believes(2, None)));
    history.lives[1].events.push(at(152, believes(2, Some(150))));
    assert_broken(&history, &[LOST]);
}

#[test]
fn a_late_write_that_was_taken_is_found() {
    let mut history = history(&good());
    history.store.last_mut().unwrap().accepted = true;
    history.store.last_mut().unwrap().value = Some(4);
    assert_broken(&history, &[STORE]);
}

#[test]
fn a_write_in_time_that_was_refused_is_found() {
    let mut history = history(&good());
    history.store[2].accepted = false;
    history.lives[0].events.retain(|line| !matches!(line.what, Event::Wrote { op: 3, .. }));
    assert_broken(&history, &[STORE]);
}

#[test]
fn a_lost_update_is_found() {
    let mut overwritten = history(&good());
    overwritten.store[2].value = Some(2);
    overwritten.lives[0].events.retain(|line| !matches!(line.what, Event::Wrote { op: 3, .. }));
    assert_broken(&overwritten, &[STORE]);
    let mut forgotten = history(&good());
    forgotten.store.remove(2);
    assert_broken(&forgotten, &[STORE]);
}

#[test]
fn a_run_without_late_writes_says_that_it_proved_less() {
    let mut history = history(&good());
    history.store.pop();
    assert_eq!(of(&history, Outcome::NotJudged), [LATE]);
}

#[test]
fn standing_still_is_found() {
    let mut history = history(&good());
    history.meta.sections_floor = 4;
    assert_broken(&history, &[WORK]);
}

#[test]
fn a_holder_that_gets_nothing_after_the_last_fault_is_found() {
    let mut late = history(&good());
    late.meta.calm_from = 60 * MS;
    assert_broken(&late, &[CALM]);
    let mut dead = history(&good());
    dead.meta.last_lives[1] = 2;
    assert_broken(&dead, &[CALM]);
}

#[test]
fn beyond_the_assumptions_exclusion_is_told_and_the_rest_is_judged() {
    let mut holds = good();
    holds[1].granted = 49;
    let mut overlap = history(&holds);
    overlap.meta.beyond = true;
    assert_broken(&overlap, &[]);
    assert_eq!(of(&overlap, Outcome::NotJudged), [EXCLUSION, MUTEX]);
    let told = check::all(&overlap).into_iter().find(|finding| finding.promise == EXCLUSION);
    assert!(told.unwrap().story.starts_with("not promised here, and broken 1 time(s)"));
    overlap.store[2].accepted = false;
    assert_broken(&overlap, &[STORE]);
}

/// A ballot by the lock server, whose life is the third.
fn ballot(kind: &str, asked: u64, fence: u64) -> At<Event> {
    let ballot = Ballot {
        kind: kind.into(),
        lock: "l".into(),
        holder: format!("h{fence}"),
        fence,
        asked_at: asked * MS,
        votes: Vec::<Vote>::new(),
    };
    at(asked, Event::Ballot(ballot))
}

/// Told at a time, of a lease of a second, until when.
fn told(ms: u64, op: u64, fence: u64, until: u64) -> At<Event> {
    let until = until * MS;
    at(ms, Event::Told { op, lock: "l".into(), fence, ttl_ms: 1000, until })
}

/// The first holder is a caller. Its lease of a second is good for 988 ms from when the votes were asked
/// for; it renews it at 500, and gives it back.
fn callers() -> History {
    let mut history =
        history(&[hold(0, 10, [0, 5, 990], Some(1_000)), hold(1, 20, [1, 1_052, 1_150], None)]);
    history.meta.through_servers = true;
    history.lives[0].events.extend([
        told(5, 1, 10, 990),
        told(502, 1, 10, 1_489),
        at(502, believes(1, Some(1_489))),
    ]);
    history.lives[0].events.sort_by_key(|line| line.at);
    let events = vec![ballot("acquire", 2, 10), ballot("extend", 501, 10)];
    history.lives.push(Life { holder: 3, life: 1, events });
    history
}

/// Of the promises to callers, those that are broken.
#[track_caller]
fn assert_told(history: &History, expected: &[&str]) {
    let promises = [EXCLUSION, DEADLINES, OVER, LOOKS, DENIALS, LIES, LOST];
    let mut broken = of(history, Outcome::Broken);
    broken.retain(|promise| promises.contains(&promise.as_str()));
    assert_eq!(broken, expected, "{:#?}", check::all(history));
}

#[test]
fn callers_that_are_told_what_is_true_break_nothing() {
    assert_told(&callers(), &[]);
    let findings = check::all(&callers());
    let kept = |promise| {
        findings
            .iter()
            .any(|finding| finding.promise == promise && finding.outcome == Outcome::Kept)
    };
    assert!([DEADLINES, OVER, LOOKS, DENIALS, LIES].into_iter().all(kept), "{findings:#?}");
    // Where nobody called, nothing is said of callers.
    let without = check::all(&history(&good()));
    assert!(without.iter().all(|finding| finding.promise != LIES));
}

#[test]
fn an_end_that_the_votes_do_not_allow_is_found() {
    // 988 ms from when the votes were asked for, and what is rounded.
    for (until, expected) in [(1_490, &[][..]), (1_492, &[DEADLINES])] {
        let mut history = callers();
        history.lives[0].events.push(told(503, 1, 10, until));
        assert_told(&history, expected);
    }
    // Nobody believes in an end that is past.
    let mut past = callers();
    past.lives[0].events.push(told(1_600, 1, 10, 1_599));
    past.lives[0].events.retain(|line| !matches!(line.what, Event::GaveBack { .. }));
    assert_told(&past, &[]);
    // The votes that come later are not those that it rests on.
    let mut early = callers();
    early.lives[0].events.push(told(400, 1, 10, 1_300));
    assert_told(&early, &[DEADLINES]);
    let mut of_nobody = callers();
    of_nobody.lives[0].events.push(told(503, 1, 11, 600));
    assert_told(&of_nobody, &[DEADLINES]);
}

#[test]
fn a_caller_that_is_told_of_what_another_holds_is_found() {
    let mut history = callers();
    history.lives[0].events.push(told(1_060, 1, 10, 1_100));
    history.lives[0].events.push(at(1_060, believes(1, Some(1_100))));
    history.lives[0]
        .events
        .retain(|line| !matches!(line.what, Event::GivesBack { .. } | Event::GaveBack { .. }));
    assert_told(&history, &[EXCLUSION]);
}

#[test]
fn what_is_held_after_it_was_told_to_be_released_is_found() {
    let mut told_again = callers();
    told_again.lives[0].events.extend([told(1_100, 1, 10, 1_101), told(1_101, 1, 10, 1_102)]);
    assert_told(&told_again, &[OVER]);
    let mut extended = callers();
    extended.lives[2].events.push(ballot("extend", 1_002, 10));
    assert_told(&extended, &[OVER]);
    // Asked for before, an extension may still come.
    let mut late = callers();
    late.lives[2].events.push(ballot("extend", 999, 10));
    assert_told(&late, &[]);
    // A release of which nobody knows what came of it is none.
    let mut unknown = extended.clone();
    for line in &mut unknown.lives[0].events {
        if let Event::GaveBack { outcome, .. } = &mut line.what {
            *outcome = "unknown".into();
        }
    }
    assert_told(&unknown, &[]);
}

#[test]
fn what_is_held_after_it_was_told_to_be_lost_is_found() {
    let lost = |asked| {
        let mut history = callers();
        history.lives[0].events.retain(|line| line.at < 1_000 * MS);
        history.lives[0].events.push(at(600, believes(1, None)));
        history.lives[2].events.push(ballot("extend", asked, 10));
        history
    };
    assert_told(&lost(599), &[]);
    assert_told(&lost(601), &[OVER]);
}

fn look(sent: u64, ms: u64, held: bool) -> At<Event> {
    look_until(sent, ms, held.then_some(2_000))
}

fn look_until(sent: u64, ms: u64, until: Option<u64>) -> At<Event> {
    let (lock, fence, sent, until) = ("l".into(), 10, sent * MS, until.map(|ms| ms * MS));
    at(ms, Event::Looked { op: 1, lock, fence, sent, held: until.is_some(), until })
}

#[test]
fn a_look_at_what_is_over_or_held_by_another_is_found() {
    let with = |line: At<Event>| {
        let mut history = callers();
        history.lives[0].events.push(line);
        history
    };
    assert_told(&with(look(700, 701, true)), &[]);
    assert_told(&with(look(1_003, 1_004, false)), &[]);
    assert_told(&with(look(999, 1_004, true)), &[]);
    assert_told(&with(look(1_003, 1_004, true)), &[OVER]);
    // Asked before another got the lock, told while it has it, of an end that is still to come.
    assert_told(&with(look(999, 1_061, true)), &[LOOKS]);
    assert_told(&with(look_until(999, 1_061, Some(1_060))), &[]);
    let mut beside = with(look(1_060, 1_061, true));
    beside.lives[0]
        .events
        .retain(|line| !matches!(line.what, Event::GivesBack { .. } | Event::GaveBack { .. }));
    beside.lives[0]
        .events
        .retain(|line| !matches!(line.what, Event::Believes { .. } | Event::Told { .. }));
    assert_told(&beside, &[LOOKS]);
}

#[test]
fn a_look_that_denies_what_a_quorum_keeps_is_found() {
    let vote = |server: usize| Vote {
        node: format!("n{server}"),
        life: format!("l{server}"),
        run: format!("run{server}"),
        word: "extended".into(),
    };
    let with = |sent, ms, event: Option<ServerEvent>| {
        let mut history = callers();
        history.meta.names = (0..5).map(|node| format!("n{node}")).collect();
        for line in history.lives.iter_mut().flat_map(|life| &mut life.events) {
            if let Event::Ballot(ballot) = &mut line.what {
                ballot.votes = (0..3).map(vote).collect();
            }
        }
        for server in 0..5 {
            let what = ServerEvent::Started { server, run: format!("run{server}"), from: 0 };
            history.servers.push(At { at: 0, what });
        }
        history.servers.extend(event.map(|what| At { at: 650 * MS, what }));
        history.lives[0].events.push(look(sent, ms, false));
        history.lives[0].events.sort_by_key(|line| line.at);
        history
    };
    assert_told(&with(700, 701, None), &[DENIALS]);
    // It asked before it was told of that end, or is answered when it gives the lease back.
    assert_told(&with(501, 701, None), &[DENIALS]);
    assert_told(&with(501, 995, None), &[]);
    assert_told(&with(998, 1_000, None), &[]);
    let forgot = |server: usize| {
        let (run, why) = (format!("run{server}"), "FLUSHALL".into());
        ServerEvent::Forgot { server, run, from: 640 * MS, why }
    };
    assert_told(&with(700, 701, Some(forgot(1))), &[]);
    assert_told(&with(700, 701, Some(forgot(4))), &[DENIALS]);
    assert_told(&with(600, 601, Some(forgot(1))), &[DENIALS]);
    let stepped = ServerEvent::Clock { server: 2, from: 640 * MS, micros: 9, ahead: 9 };
    assert_told(&with(700, 701, Some(stepped)), &[]);
    let leads = |servers: &[usize]| ServerEvent::Leads { node: 0, servers: servers.to_vec() };
    assert_told(&with(700, 701, Some(leads(&[3]))), &[]);
    assert_told(&with(700, 701, Some(leads(&[0]))), &[DENIALS]);
}

fn lied(fence: u64, believed: bool) -> At<Event> {
    let (lie, answer) = ("a high fence".into(), "POST 200".into());
    at(700, Event::Lied { lie, lock: "l".into(), fence, answer, believed })
}

#[test]
fn a_lie_that_is_believed_or_moves_the_fences_is_found() {
    let with = |line: At<Event>| {
        let mut history = callers();
        history.lives[0].events.push(line);
        history
    };
    assert_told(&with(lied(11, false)), &[]);
    assert_told(&with(lied(11, true)), &[LIES]);
    let far = 10 + check::MADE_UP;
    assert_told(&with(lied(far, false)), &[]);
    let mut moved = with(lied(far, false));
    for line in &mut moved.lives[1].events {
        if let Event::Granted { fence, .. } = &mut line.what {
            *fence = far + 1;
        }
    }
    assert_told(&moved, &[LIES]);
}
