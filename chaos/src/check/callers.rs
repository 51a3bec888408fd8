//! What callers of lock servers and of the command line are told: no more than the votes allow, nothing of
//! what is over, and nothing that a lie brought about.

use std::collections::HashMap;

use super::{Finding, Section, ballots};
use crate::history::{Event, History, Life};

/// A made-up fence is higher than any other by at least this: eleven days.
pub const MADE_UP: u64 = 1_000_000_000_000;

/// Both times of a deadline are told in whole milliseconds, and are rounded down; the clocks of two
/// processes are one.
pub(super) const SLACK: u64 = 1_000_000;

/// What drift may do, as the library allows for it.
fn drift(nanos: u64) -> u64 {
    nanos / 100 + 2_000_000
}

/// For how long the holder of such a lease may believe in it, from when its votes were asked for.
pub(super) fn lasts(ttl_ms: u64) -> u64 {
    let ttl = ttl_ms * 1_000_000;
    ttl - drift(ttl).min(ttl)
}

/// Whether there were callers at all.
pub(super) fn took_part(history: &History) -> bool {
    let is_of_caller = |event: &Event| {
        matches!(event, Event::Told { .. } | Event::Looked { .. } | Event::Lied { .. })
    };
    events(history).any(|(_, _, event)| is_of_caller(event))
}

pub(super) fn events(history: &History) -> impl Iterator<Item = (&Life, u64, &Event)> {
    history
        .lives
        .iter()
        .flat_map(|life| life.events.iter().map(move |line| (life, line.at, &line.what)))
}

/// A deadline counts from when the votes were asked for that it rests on.
pub(super) fn deadlines(history: &History) -> Finding {
    const PROMISE: &str = "no caller is told a later end than the votes allow";
    let mut asked: HashMap<(&str, u64), Vec<u64>> = HashMap::new();
    for won in ballots(history) {
        let lease = (won.ballot.lock.as_str(), won.ballot.fence);
        asked.entry(lease).or_default().push(won.ballot.asked_at);
    }
    if asked.is_empty() {
        let story = "the library told of no ballot".into();
        return Finding::new(PROMISE, super::Outcome::NotJudged, story);
    }
    let (mut told, mut evidence) = (0, Vec::new());
    for (life, at, event) in events(history) {
        let Event::Told { op, lock, fence, ttl_ms, until } = event else { continue };
        told += 1;
        // An answer that comes after the end that it tells of misleads nobody.
        if *until <= at {
            continue;
        }
        let lasts = lasts(*ttl_ms);
        let asked = asked.get(&(lock.as_str(), *fence)).map_or(&[][..], Vec::as_slice);
        let latest = asked.iter().filter(|asked| **asked <= at).max();
        let who = format!("caller {}.{} op {op} ({lock}, fence {fence})", life.holder, life.life);
        match latest.map(|asked| until.saturating_sub(asked + lasts)) {
            None => evidence.push((at, format!("{who} was told of a lease that no ballot made"))),
            Some(late) if late > SLACK => {
                let ms = late as f64 / 1e6;
                evidence.push((at, format!("{who} was told an end that is {ms:.3} ms too late")));
            }
            Some(_) => {}
        }
    }
    Finding::in_time(PROMISE, evidence, format!("{told} times a lease was told of"))
}

/// A lease that was released, or told to be lost, is over. A release that tells of an end before it is
/// no word of a vote: it also asks servers that have none, and one that takes turns at the address of a single
/// node has nothing to give back.
pub(super) fn over(history: &History) -> Finding {
    let mut over: HashMap<(&str, u64), (u64, &str)> = HashMap::new();
    let mut ends = 0;
    for life in history.lives.iter().filter(|life| is_caller(life)) {
        let mut leases: HashMap<u64, (&str, u64)> = HashMap::new();
        for line in &life.events {
            let (op, word) = match &line.what {
                Event::Granted { op, lock, fence, .. } => {
                    leases.insert(*op, (lock, *fence));
                    continue;
                }
                Event::GaveBack { op, outcome } if outcome == "released" => (op, "released"),
                Event::Believes { op, until: None, .. } => (op, "lost"),
                _ => continue,
            };
            if let Some(lease) = leases.get(op) {
                ends += 1;
                over.entry(*lease).or_insert((line.at, word));
            }
        }
    }
    let mut evidence = Vec::new();
    let mut judge = |at: u64, lock: &str, fence: u64, asked: Option<u64>, what: &str| {
        if let Some((ended, word)) = over.get(&(lock, fence))
            && asked.is_some_and(|asked| asked > *ended)
        {
            let seconds = (at - ended) as f64 / 1e9;
            let line = format!(
                "{lock}, fence {fence}: {seconds:.4} s after it was told to be {word}, {what}"
            );
            evidence.push((at, line));
        }
    };
    for life in &history.lives {
        // A caller asks one question after the other.
        let mut before = 0;
        for line in &life.events {
            match &line.what {
                Event::Told { lock, fence, .. } => {
                    judge(line.at, lock, *fence, Some(before), "it was told to be held");
                }
                Event::Looked { lock, fence, sent, held: true, .. } => {
                    judge(line.at, lock, *fence, Some(*sent), "a look told that it is held");
                }
                Event::Ballot(ballot) if ballot.kind == "extend" => {
                    let asked = Some(ballot.asked_at);
                    judge(line.at, &ballot.lock, ballot.fence, asked, "the nodes extended it");
                }
                _ => {}
            }
            before = line.at;
        }
    }
    let promise = "what was told to be over is over";
    Finding::in_time(promise, evidence, format!("{ends} ends told"))
}

fn is_caller(life: &Life) -> bool {
    life.events.iter().any(|line| matches!(line.what, Event::Told { .. }))
}

/// When a caller reads that it has the lock, and until when, nobody else believes so. What comes after
/// the end that it tells of misleads nobody.
pub(super) fn looks(history: &History, sections: &[Section]) -> Finding {
    let start = history.meta.started;
    let (mut looks, mut evidence) = (0, Vec::new());
    for (life, at, event) in events(history) {
        let Event::Looked { op, lock, fence, held: true, until, .. } = event else { continue };
        looks += 1;
        if until.is_some_and(|until| until <= at) {
            continue;
        }
        let told = at.saturating_sub(start);
        let is_beside = |section: &&Section| {
            section.lock == *lock
                && section.fence != *fence
                && section.granted < told
                && section.end() > told
        };
        if let Some(other) = sections.iter().find(is_beside) {
            let who = format!("caller {}.{} op {op}", life.holder, life.life);
            let line =
                format!("{who} was told that it holds {lock} with fence {fence}, beside {other}");
            evidence.push((at, line));
        }
    }
    let promise = "nobody is told to hold what another holds";
    Finding::in_time(promise, evidence, format!("{looks} looks at a lease that was held"))
}

/// Whoever makes up a lease is refused, and its fence is nobody's measure.
pub(super) fn lies(history: &History, sections: &[Section]) -> Finding {
    let mut lowest: HashMap<&str, u64> = HashMap::new();
    let (mut lies, mut evidence) = (0, Vec::new());
    let mut made_up: HashMap<&str, u64> = HashMap::new();
    for section in sections {
        let fence = lowest.entry(&section.lock).or_insert(section.fence);
        *fence = section.fence.min(*fence);
    }
    for (life, at, event) in events(history) {
        let Event::Lied { lie, lock, fence, answer, believed } = event else { continue };
        lies += 1;
        if *believed {
            let who = format!("caller {}.{}", life.holder, life.life);
            evidence
                .push((at, format!("{who} was believed: {lie}, {lock}, fence {fence}: {answer}")));
        }
        if *fence >= lowest.get(lock.as_str()).copied().unwrap_or(0) + MADE_UP {
            let least = made_up.entry(lock).or_insert(*fence);
            *least = (*least).min(*fence);
        }
    }
    for section in sections {
        if made_up.get(section.lock.as_str()).is_some_and(|fence| section.fence >= *fence) {
            let line = format!("{section} has a fence above one that was made up");
            evidence.push((history.meta.started + section.granted, line));
        }
    }
    Finding::in_time("a lie changes nothing", evidence, format!("{lies} lies"))
}
