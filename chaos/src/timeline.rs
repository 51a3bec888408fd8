//! The story of one overlap: the two holders, the votes that each of them counted, and whatever
//! happened to servers and ways around it, in the order of time.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::check::{Overlap, Section, Won, ballots, word};
use crate::history::{Event, History, ServerEvent};

/// What happened this long before the first of the two asked may be the cause. In leases, because a
/// lost memory matters for as long.
const LEASES_BEFORE: u64 = 2;

/// What happened right after shows how it ended.
const AFTER: u64 = 300_000_000;

/// An overlap with everything around it. Times are nanoseconds from the start of the run.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The two holders.
    pub overlap: Overlap<'a>,
    /// Where the story begins.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// The history that it is part of.
    pub history: &'a History,
    servers: HashMap<&'a str, usize>,
}

/// What became of a node's record.
#[derive(Debug, Clone, Copy)]
pub struct RecordChange<'a> {
    /// When.
    pub at: u64,
    /// The server whose process it names.
    pub server: usize,
    /// The life.
    pub life: &'a str,
    /// `admitted`, `quarantined` or `barred`.
    pub state: &'a str,
}

impl<'a> Scene<'a> {
    /// The scene of one overlap.
    pub fn new(history: &'a History, overlap: Overlap<'a>) -> Self {
        let before = history.meta.max_ttl.saturating_mul(LEASES_BEFORE);
        let asked = overlap.first.asked.min(overlap.second.asked);
        // Who waited for long tells nothing by that.
        let asked = asked.max(overlap.from().saturating_sub(2 * before));
        let started = history.servers.iter().filter_map(|line| match &line.what {
            ServerEvent::Started { server, run, .. } => Some((run.as_str(), *server)),
            _ => None,
        });
        Self {
            overlap,
            from: asked.saturating_sub(before),
            to: overlap.to().saturating_add(AFTER),
            history,
            servers: started.collect(),
        }
    }

    /// Nanoseconds from the start of the run.
    pub fn since_start(&self, at: u64) -> u64 {
        at.saturating_sub(self.history.meta.started)
    }

    /// Whether a time is part of the story.
    pub fn has(&self, at: u64) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// The server that a process belongs to.
    pub fn server_of(&self, run: &str) -> Option<usize> {
        self.servers.get(run).copied()
    }

    /// The ballots that made and kept a section.
    pub fn ballots_of(&self, section: &Section) -> Vec<Won<'a>> {
        let is_its =
            |won: &Won<'_>| won.ballot.lock == section.lock && won.ballot.fence == section.fence;
        ballots(self.history).into_iter().filter(is_its).collect()
    }

    /// All changes of records, from the start of the run on.
    pub fn records(&self) -> Vec<RecordChange<'a>> {
        let mut all = Vec::new();
        for line in self.history.lives.iter().flat_map(|life| &life.events) {
            let Event::Record { record, replaced: true, .. } = &line.what else { continue };
            let server = word(record, "run").and_then(|run| self.server_of(run));
            if let (Some(server), Some(life), Some(state)) =
                (server, word(record, "life"), word(record, "state"))
            {
                all.push(RecordChange { at: self.since_start(line.at), server, life, state });
            }
        }
        all.sort_by_key(|change| change.at);
        all
    }

    /// The story as text.
    pub fn text(&self) -> String {
        let Overlap { first, second } = self.overlap;
        let mut text = format!(
            "{} had two holders from {} to {}:\n",
            first.lock,
            seconds(self.overlap.from()),
            seconds(self.overlap.to())
        );
        for section in [first, second] {
            // Writing to a string cannot fail.
            _ = writeln!(text, "  {section}");
            for won in self.ballots_of(section) {
                self.tell_ballot(&mut text, &won);
            }
        }
        text.push_str("  around it:\n");
        for (at, line) in self.events() {
            _ = writeln!(text, "    {}  {line}", seconds(at));
        }
        text
    }

    fn tell_ballot(&self, text: &mut String, won: &Won<'_>) {
        let (asked, at) = (self.since_start(won.ballot.asked_at), self.since_start(won.at));
        let kind = &won.ballot.kind;
        _ = writeln!(text, "    {kind}, asked at {}, won at {}", seconds(asked), seconds(at));
        for vote in &won.ballot.votes {
            let server = match self.server_of(&vote.run) {
                Some(server) => format!("server {server}"),
                None => "an unknown server".into(),
            };
            _ = writeln!(
                text,
                "      {} by {}: life {:.8}, process {:.8} of {server}",
                vote.word, vote.node, vote.life, vote.run
            );
        }
    }

    /// What happened around it, in the order of time.
    pub fn events(&self) -> Vec<(u64, String)> {
        let mut events: Vec<(u64, String)> = Vec::new();
        for line in &self.history.faults {
            events.push((self.since_start(line.at), format!("fault: {}", line.what.story)));
        }
        for line in &self.history.servers {
            events.push((self.since_start(line.at), told(&line.what)));
        }
        for change in self.records() {
            let RecordChange { at, server, life, state } = change;
            events.push((at, format!("server {server}: its record says {state}, life {life:.8}")));
        }
        for section in [self.overlap.first, self.overlap.second] {
            let who = format!("holder {}.{}", section.holder, section.life);
            events.push((section.asked, format!("{who} asks for {}", section.lock)));
            events.push((section.granted, format!("{who} is granted fence {}", section.fence)));
            events.push((section.end(), format!("{who} is at the end of what it believed")));
        }
        events.retain(|(at, _)| self.has(*at));
        events.sort();
        events
    }
}

fn told(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Started { server, run, .. } => {
            format!("server {server}: process {run:.8} answers")
        }
        ServerEvent::Ended { server, run, .. } => {
            format!("server {server}: process {run:.8} ended")
        }
        ServerEvent::Forgot { server, why, .. } => format!("server {server} forgot: {why}"),
        ServerEvent::Clock { server, micros, ahead, .. } => {
            let [by, ahead] = [micros, ahead].map(|micros| *micros as f64 / 1e3);
            format!("server {server}: its clock is stepped by {by:+} ms, to {ahead:+} ms")
        }
        ServerEvent::Leads { node, servers } => {
            format!("new connections to node {node} lead to servers {servers:?}")
        }
    }
}

/// As times are told everywhere.
pub fn seconds(nanos: u64) -> String {
    format!("{:.4} s", nanos as f64 / 1e9)
}
