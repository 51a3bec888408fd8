//! A vote belongs to one life of one server: no server that forgot is counted before everything that
//! it may have forgotten is over, and no server is counted twice.
//!
//! The ballots are the library's words, the processes are the run's. What is found here is wrong even
//! where nobody else got the lock, because a second holder was possible.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use leasehold_core::Drift;

use super::{Finding, Outcome};
use crate::history::{Ballot, Event, History, Life, ServerEvent, Vote};

/// A ballot, when its winner wrote it down, and who that is.
#[derive(Debug, Clone)]
pub struct Won<'a> {
    /// Boot nanoseconds. Every vote was given before.
    pub at: u64,
    /// Which holder.
    pub holder: usize,
    /// Which of its lives.
    pub life: u64,
    /// The ballot.
    pub ballot: &'a Ballot,
}

/// All ballots that holders won, by holder.
pub fn ballots(history: &History) -> Vec<Won<'_>> {
    let mut all = Vec::new();
    for Life { holder, life, events } in &history.lives {
        for line in events {
            if let Event::Ballot(ballot) = &line.what {
                all.push(Won { at: line.at, holder: *holder, life: *life, ballot });
            }
        }
    }
    all
}

/// What is known of one process of a server.
#[derive(Debug, Default)]
struct Process<'a> {
    server: usize,
    /// When it was surely gone.
    ended: Option<u64>,
    /// From when to when, and why.
    forgot: Vec<(u64, u64, &'a str)>,
}

fn processes(history: &History) -> HashMap<&str, Process<'_>> {
    let mut all: HashMap<&str, Process<'_>> = HashMap::new();
    for line in &history.servers {
        match &line.what {
            ServerEvent::Started { server, run, .. } => {
                all.entry(run).or_default().server = *server;
            }
            ServerEvent::Ended { run, .. } => all.entry(run).or_default().ended = Some(line.at),
            ServerEvent::Forgot { run, from, why, .. } => {
                all.entry(run).or_default().forgot.push((*from, line.at, why));
            }
            ServerEvent::Leads { .. } | ServerEvent::Clock { .. } => {}
        }
    }
    all
}

/// Until when a server that forgot at `from` must not vote: a whole quarantine, less what drift may do in
/// it and less what a quorum of clocks was set ahead meanwhile, because no client can know better.
fn owes_until(history: &History, from: u64) -> u64 {
    let meta = &history.meta;
    let until = from.saturating_add(meta.quarantine);
    let mut ahead: HashMap<usize, u64> = HashMap::new();
    for line in &history.servers {
        if let ServerEvent::Clock { server, from: begun, micros, .. } = &line.what
            && line.at >= from
            && *begun < until
        {
            *ahead.entry(*server).or_default() += 1_000 * micros.max(&0).unsigned_abs();
        }
    }
    let mut ahead: Vec<_> = ahead.into_values().collect();
    ahead.sort_unstable_by(|a, b| b.cmp(a));
    let together = ahead.get(meta.nodes / 2).copied().unwrap_or(0);
    let drift = Drift::DEFAULT.allowance(Duration::from_nanos(meta.quarantine)).as_nanos() as u64;
    until.saturating_sub(drift + together).max(from.saturating_add(meta.max_ttl))
}

/// No vote is counted from a server within a quarantine after it forgot.
///
/// A vote was given at some time between the asking and the moment at which its winner wrote it
/// down; a server forgot at some time between two others. Only what is wrong for all of them is
/// evidence.
pub(super) fn remembered(history: &History) -> Finding {
    const PROMISE: &str = "no vote is counted of a server that forgot";
    let (won, processes) = (ballots(history), processes(history));
    if let Some(finding) = unjudged(PROMISE, history, &won) {
        return finding;
    }
    let mut evidence = Vec::new();
    for Won { at, holder, life, ballot } in &won {
        for vote in &ballot.votes {
            let complaint = match processes.get(vote.run.as_str()) {
                Some(process) => process.complaint(history, ballot.asked_at, *at),
                None => Some("nobody started such a process".into()),
            };
            let Some(complaint) = complaint else { continue };
            let line = format!(
                "holder {holder}.{life}: {} of {} (fence {}), asked at {}, won at {}, counts {}: \
                 {complaint}",
                ballot.kind,
                ballot.lock,
                ballot.fence,
                seconds(history, ballot.asked_at),
                seconds(history, *at),
                shown(vote),
            );
            evidence.push((*at, line));
        }
    }
    let votes: usize = won.iter().map(|won| won.ballot.votes.len()).sum();
    let forgot: usize = processes.values().map(|process| process.forgot.len()).sum();
    let figures = format!("{votes} votes of {} ballots; {forgot} times forgot", won.len());
    Finding::in_time(PROMISE, evidence, figures)
}

impl Process<'_> {
    /// Why it cannot have given a vote between `asked` and `won`, or must not have.
    fn complaint(&self, history: &History, asked: u64, won: u64) -> Option<String> {
        let server = self.server;
        if let Some(ended) = self.ended.filter(|ended| *ended <= asked) {
            let ended = seconds(history, ended);
            return Some(format!("that process of server {server} was gone at {ended}"));
        }
        let too_soon = self
            .forgot
            .iter()
            .find(|(from, to, _)| *to <= asked && won < owes_until(history, *from));
        let (_, to, why) = too_soon?;
        Some(format!("server {server} had forgotten at {} ({why})", seconds(history, *to)))
    }
}

/// No server is admitted within a quarantine after it forgot.
///
/// A record says what was written before it was told of. So a life that was told to wait after its
/// server forgot, and then to be admitted, was admitted after that.
pub(super) fn waited(history: &History) -> Finding {
    const PROMISE: &str = "no server that forgot is admitted early";
    let (won, processes) = (ballots(history), processes(history));
    if let Some(finding) = unjudged(PROMISE, history, &won) {
        return finding;
    }
    let mut records: Vec<_> = history
        .lives
        .iter()
        .flat_map(|life| &life.events)
        .filter_map(|line| match &line.what {
            Event::Record { record, replaced: true, .. } => Some((line.at, record)),
            _ => None,
        })
        .collect();
    records.sort();
    let mut waits: HashMap<&str, u64> = HashMap::new();
    let (mut admitted, mut evidence) = (0, Vec::new());
    for (at, record) in records {
        let (Some(life), Some(run)) = (word(record, "life"), word(record, "run")) else { continue };
        if word(record, "state") == Some("quarantined") {
            waits.entry(life).or_insert(at);
        }
        let (Some("admitted"), Some(since)) = (word(record, "state"), waits.get(life)) else {
            continue;
        };
        admitted += 1;
        let Some(process) = processes.get(run) else { continue };
        let early = process
            .forgot
            .iter()
            .find(|(from, to, _)| from < since && *to <= at && at < owes_until(history, *from));
        if let Some((_, to, why)) = early {
            let line = format!(
                "server {} had forgotten at {} ({why}), and its life {life:.8} was admitted at {}",
                process.server,
                seconds(history, *to),
                seconds(history, at)
            );
            evidence.push((at, line));
        }
    }
    Finding::in_time(PROMISE, evidence, format!("{admitted} admitted after they had waited"))
}

/// The votes of one ballot are of different members, lives and processes, and of a majority.
pub(super) fn counted_once(history: &History) -> Finding {
    const PROMISE: &str = "no server is counted twice";
    let won = ballots(history);
    if let Some(finding) = unjudged(PROMISE, history, &won) {
        return finding;
    }
    let majority = history.meta.nodes / 2 + 1;
    let mut evidence = Vec::new();
    for Won { at, holder, life, ballot } in &won {
        let different =
            |of: fn(&Vote) -> &str| ballot.votes.iter().map(of).collect::<HashSet<_>>().len();
        let fewest = different(|vote| &vote.node)
            .min(different(|vote| &vote.life))
            .min(different(|vote| &vote.run));
        if fewest == ballot.votes.len() && fewest >= majority {
            continue;
        }
        let votes: Vec<_> = ballot.votes.iter().map(shown).collect();
        let line = format!(
            "holder {holder}.{life}: {} of {} (fence {}) was won at {} by {fewest} server(s), of \
             {majority} needed: {}",
            ballot.kind,
            ballot.lock,
            ballot.fence,
            seconds(history, *at),
            votes.join(", ")
        );
        evidence.push((*at, line));
    }
    Finding::in_time(PROMISE, evidence, format!("{} ballots", won.len()))
}

/// A life is of one process and of one member, in every vote and in every record.
pub(super) fn of_one_server(history: &History) -> Finding {
    const PROMISE: &str = "a life is of one server";
    let won = ballots(history);
    if let Some(finding) = unjudged(PROMISE, history, &won) {
        return finding;
    }
    let mut owners: HashMap<String, (String, String)> = HashMap::new();
    let mut evidence = Vec::new();
    let mut look = |at: u64, life: &str, node: &str, run: &str| {
        let owner = owners.entry(life.to_owned()).or_insert_with(|| (node.into(), run.into()));
        if (owner.0.as_str(), owner.1.as_str()) != (node, run) {
            let line = format!(
                "life {life:.8} is of process {:.8} at {} and of process {run:.8} at {node}",
                owner.1, owner.0
            );
            evidence.push((at, line));
        }
    };
    for Won { at, ballot, .. } in &won {
        ballot.votes.iter().for_each(|vote| look(*at, &vote.life, &vote.node, &vote.run));
    }
    for line in history.lives.iter().flat_map(|life| &life.events) {
        if let Event::Record { node, record, replaced: true, .. } = &line.what
            && let (Some(life), Some(run)) = (word(record, "life"), word(record, "run"))
        {
            look(line.at, life, node, run);
        }
    }
    let figures = format!("{} lives", owners.len());
    Finding::in_time(PROMISE, evidence, figures)
}

/// The value of a field of a record.
pub(crate) fn word<'a>(record: &'a str, field: &str) -> Option<&'a str> {
    record.split(' ').find_map(|word| word.strip_prefix(field)?.strip_prefix('='))
}

fn unjudged(promise: &str, history: &History, won: &[Won<'_>]) -> Option<Finding> {
    let why = match (history.servers.is_empty(), won.is_empty()) {
        (true, _) => "there are no servers",
        (false, true) => "the library told of no ballot",
        _ => return None,
    };
    Some(Finding::new(promise, Outcome::NotJudged, why.into()))
}

fn shown(vote: &Vote) -> String {
    let Vote { node, life, run, word } = vote;
    format!("{word} by {node} (life {life:.8}, process {run:.8})")
}

fn seconds(history: &History, at: u64) -> String {
    format!("{:.4} s", at.saturating_sub(history.meta.started) as f64 / 1e9)
}
