//! A caller is not told that a lease is over which a quorum still has. "Nobody can tell" is an answer; a wrong
//! "lost" is none: it makes a caller stop that holds the lock.
//!
//! Leases do end before the end that a caller was told: a server forgets, or its clock is set ahead.
//! So only a look is judged before which nothing happened to a quorum of the servers that voted for
//! that end, whatever happened to others.

use std::collections::{HashMap, HashSet};

use super::callers::{SLACK, events, lasts};
use super::{Finding, Section, Won, ballots};
use crate::history::{Event, History, ServerEvent};

/// What happened to servers that may have ended a lease there early, or led a question elsewhere.
struct Fates<'a> {
    /// From when to when, by process. A lease that was granted within it is touched as well.
    of_process: HashMap<&'a str, Vec<(u64, u64)>>,
    /// Since when the address of a node led, or still leads, to other servers.
    diverted: HashMap<usize, u64>,
}

impl<'a> Fates<'a> {
    fn of(history: &'a History) -> Self {
        let mut runs: HashMap<usize, Vec<&str>> = HashMap::new();
        for line in &history.servers {
            if let ServerEvent::Started { server, run, .. } = &line.what {
                runs.entry(*server).or_default().push(run);
            }
        }
        let mut fates = Self { of_process: HashMap::new(), diverted: HashMap::new() };
        for line in &history.servers {
            let (touched, from): (Vec<&str>, u64) = match &line.what {
                ServerEvent::Started { .. } => continue,
                ServerEvent::Ended { run, from, .. } | ServerEvent::Forgot { run, from, .. } => {
                    (vec![run], *from)
                }
                ServerEvent::Clock { server, from, .. } => {
                    (runs.get(server).cloned().unwrap_or_default(), *from)
                }
                ServerEvent::Leads { node, servers } => {
                    if *servers != [*node] {
                        fates.diverted.entry(*node).or_insert(line.at);
                    }
                    continue;
                }
            };
            for run in touched {
                fates.of_process.entry(run).or_default().push((from, line.at));
            }
        }
        fates
    }

    /// Whether so many servers of a ballot as a quorum has kept what they voted for until `told`.
    fn is_kept(&self, history: &History, won: &Won<'_>, told: u64) -> bool {
        let is_kept = |run: &str, node: &str| {
            let place = history.meta.names.iter().position(|name| name == node);
            let is_led =
                place.and_then(|place| self.diverted.get(&place)).is_none_or(|at| *at > told);
            let fates = self.of_process.get(run).map_or(&[][..], Vec::as_slice);
            is_led && !fates.iter().any(|(from, to)| *to >= won.ballot.asked_at && *from <= told)
        };
        let votes = won.ballot.votes.iter().filter(|vote| is_kept(&vote.run, &vote.node));
        let servers: HashSet<_> = votes.map(|vote| &vote.run).collect();
        servers.len() > history.meta.nodes / 2
    }
}

/// An end that a lease was told to have: when that was told, and for how long such a lease lasts.
struct End {
    told: u64,
    until: u64,
    lasts: u64,
}

/// Judges each look that was answered with "lost".
pub(super) fn judge(history: &History, sections: &[Section]) -> Finding {
    let (won, fates) = (ballots(history), Fates::of(history));
    // The latest end that a lease was told to have, and by which answer.
    let mut ends: HashMap<(&str, u64), Vec<End>> = HashMap::new();
    for (_, at, event) in events(history) {
        if let Event::Told { lock, fence, ttl_ms, until, .. } = event {
            let end = End { told: at, until: *until, lasts: lasts(*ttl_ms) };
            ends.entry((lock, *fence)).or_default().push(end);
        }
    }
    let (mut judged, mut looks, mut evidence) = (0, 0, Vec::new());
    for (life, at, event) in events(history) {
        let Event::Looked { op, lock, fence, sent, held: false, .. } = event else { continue };
        looks += 1;
        let start = history.meta.started;
        let believes = sections.iter().any(|section| {
            (section.holder, section.life, section.op) == (life.holder, life.life, *op)
                && section.end() > (at + SLACK).saturating_sub(start)
        });
        let told = ends.get(&(lock.as_str(), *fence)).map_or(&[][..], Vec::as_slice);
        let told = told.iter().filter(|end| end.told <= *sent && end.until > at);
        let Some(End { told: answered, until, lasts }) = told.max_by_key(|end| end.until) else {
            continue;
        };
        let counts = |won: &&Won<'_>| {
            let ballot = won.ballot;
            ballot.lock == *lock
                && ballot.fence == *fence
                && ballot.asked_at <= *answered
                && ballot.asked_at + lasts + SLACK >= *until
        };
        let mut ballots = won.iter().filter(counts).peekable();
        let is_kept =
            ballots.peek().is_some() && ballots.all(|won| fates.is_kept(history, won, at));
        if !believes || !is_kept {
            continue;
        }
        judged += 1;
        let line = format!(
            "caller {}.{} op {op} was told at {:.4} s that {lock}, fence {fence}, is lost, which a \
             quorum keeps until {:.4} s",
            life.holder,
            life.life,
            at.saturating_sub(start) as f64 / 1e9,
            until.saturating_sub(start) as f64 / 1e9,
        );
        evidence.push((at, line));
    }
    let promise = "nobody is told to have lost what a quorum has";
    Finding::in_time(promise, evidence, format!("{looks} looks told of a loss, {judged} too early"))
}
