//! What DESIGN.md leaves over of two holders, under "By whose clock", and nothing else.
//!
//! X holds a lock, and Y is granted it. A server that voted for Y ended X's lease early, because
//! its clock had gone ahead since X last asked it for the lease; or X stood still since, and its clock
//! missed that. The overlap is excused
//!
//! * up to X's next reading of that server's clock, after which X knows: what X believes beyond it is
//!   not excused;
//! * and only for as long as the clock went ahead, or as X stood still;
//! * and not if Y had noticed that the clock went ahead when its votes were a quorum, or had read a
//!   clock that was off those of the others when it asked.
//!
//! A reading notices a step if the clock is further ahead than slow answers and drift can explain. A
//! step that is undone before X's next reading shows in no reading: such overlaps are counted apart.

use std::collections::HashMap;

use super::{Overlap, Section, Won, ballots};
use crate::history::{Ballot, Event, History, ServerEvent};

/// What drift may do to a clock, as the library allows for it: 1 %, and 2 ms.
const DRIFT: u64 = 100;
const DRIFT_FIXED: u64 = 2_000_000;

/// Clocks are slewed by up to 0.1 s either way, of which the steps tell nothing.
const SLEWED: u64 = 200_000_000;

/// Why an overlap is no broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// A clock had gone ahead, and the holder had not read it since.
    NotReadYet,
    /// A clock had gone ahead and was put right before the holder read it.
    UndoneUnread,
    /// The holder had stood still without knowing, and had not read the clock since.
    StoodStill,
}

impl Excuse {
    /// As it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotReadYet => "until the holder read a clock that had gone ahead",
            Self::UndoneUnread => "by a step that was undone before the holder read the clock",
            Self::StoodStill => {
                "until a holder that had stood still read a clock, its pause included"
            }
        }
    }
}

/// A step of a server's clock, or what a holder missed, in nanoseconds. It took place between two
/// moments.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: u64,
    to: u64,
    nanos: i64,
    /// How far ahead of true time the clock is afterwards.
    ahead: i64,
}

/// When a client read a clock: asked, how long it took, and when whatever follows was done.
#[derive(Debug, Clone, Copy)]
struct Reading {
    sent: u64,
    took: u64,
    done: u64,
}

/// What one client read and missed.
#[derive(Debug, Default)]
struct Client<'a> {
    readings: HashMap<&'a str, Vec<Reading>>,
    missed: Vec<Step>,
}

/// What is known of all clocks. Times are boot nanoseconds.
#[derive(Debug)]
pub(super) struct Clocks<'a> {
    history: &'a History,
    steps: HashMap<usize, Vec<Step>>,
    servers: HashMap<&'a str, usize>,
    clients: HashMap<(usize, u64), Client<'a>>,
}

impl<'a> Clocks<'a> {
    /// Reads them from a history.
    pub(super) fn of(history: &'a History) -> Self {
        let mut steps: HashMap<usize, Vec<Step>> = HashMap::new();
        let mut servers = HashMap::new();
        for line in &history.servers {
            match &line.what {
                ServerEvent::Started { server, run, .. } => {
                    servers.insert(run.as_str(), *server);
                }
                ServerEvent::Clock { server, from, micros, ahead } => {
                    let [nanos, ahead] = [micros, ahead].map(|micros| micros * 1000);
                    let step = Step { from: *from, to: line.at, nanos, ahead };
                    steps.entry(*server).or_default().push(step);
                }
                _ => {}
            }
        }
        let mut clients: HashMap<_, Client<'_>> = HashMap::new();
        for life in &history.lives {
            // A caller is told of no clock: what others read for it, it does not know.
            if life.events.iter().any(|line| matches!(line.what, Event::Told { .. })) {
                clients.entry((life.holder, life.life)).or_default();
                continue;
            }
            let client: &mut Client<'_> = clients.entry((life.holder, life.life)).or_default();
            for line in &life.events {
                match &line.what {
                    Event::Reading { node, sent, took } => {
                        let reading = Reading { sent: *sent, took: *took, done: line.at };
                        client.readings.entry(node).or_default().push(reading);
                    }
                    Event::Missed { nanos, from, to } => {
                        let step = Step { from: *from, to: *to, nanos: *nanos as i64, ahead: 0 };
                        client.missed.push(step);
                    }
                    _ => {}
                }
            }
        }
        Self { history, steps, servers, clients }
    }

    /// Why an overlap is no broken promise, if there is a reason.
    pub(super) fn excuse(&self, overlap: &Overlap<'_>) -> Option<Excuse> {
        let Overlap { first, second } = overlap;
        let roles = [(first, second), (second, first)];
        roles.into_iter().find_map(|(x, y)| self.excuse_of(x, y, overlap))
    }

    fn excuse_of(&self, x: &Section, y: &Section, overlap: &Overlap<'_>) -> Option<Excuse> {
        let start = self.history.meta.started;
        let lasts = overlap.to() - overlap.from();
        let until = start + overlap.to();
        let won = self.ballot_of(y)?;
        let (ballot, won, of_y) = (won.ballot, won.at, self.clients.get(&(won.holder, won.life))?);
        let of_x = self.clients.get(&(x.holder, x.life))?;
        ballot.votes.iter().find_map(|vote| {
            let server = self.servers.get(vote.run.as_str())?;
            let steps = self.steps.get(server).map_or(&[][..], Vec::as_slice);
            let node = vote.node.as_str();
            let asked = self.last_asked(x, &vote.run, until).unwrap_or(start + x.asked);
            let is_unread = |step: &Step, steps: &[Step]| {
                step.to > asked
                    && of_x.noticed(node, step, steps).is_none_or(|noticed| noticed >= until)
            };
            let unread: Vec<_> = steps
                .iter()
                .filter(|step| step.nanos > 0 && step.from < won && is_unread(step, steps))
                .filter(|step| !self.is_known_to(of_y, node, step, steps, (ballot.asked_at, won)))
                .collect();
            let still = of_x.missed.iter().filter(|pause| {
                pause.from < until && is_unread(pause, std::slice::from_ref(pause))
            });
            let ahead: u64 = unread.iter().map(|step| step.nanos.unsigned_abs()).sum();
            let stood: u64 = still.map(|pause| pause.nanos.unsigned_abs()).sum();
            let enough = |time: u64| lasts <= time + 2 * (self.lease_drift() + time / DRIFT);
            let is_undone = |step: &&&Step| {
                let read = of_x.first_after(node, step).map_or(until, |reading| reading.done);
                let is_undo = |undo: &Step| undo.from >= step.to && undo.from < read;
                steps.iter().any(|undo| undo.nanos < 0 && is_undo(undo))
            };
            match () {
                () if ahead > 0 && enough(ahead) => match unread.iter().find(is_undone) {
                    Some(_) => Some(Excuse::UndoneUnread),
                    None => Some(Excuse::NotReadYet),
                },
                () if stood > 0 && enough(stood + ahead) => Some(Excuse::StoodStill),
                () => None,
            }
        })
    }

    /// What drift may do within the longest lease.
    fn lease_drift(&self) -> u64 {
        self.history.meta.max_ttl / DRIFT + DRIFT_FIXED
    }

    /// The ballot by which a lock was acquired, by the holder or by whomever it asked.
    fn ballot_of(&self, section: &Section) -> Option<Won<'a>> {
        let is_its = |ballot: &Ballot| {
            ballot.kind == "acquire" && ballot.lock == section.lock && ballot.fence == section.fence
        };
        ballots(self.history).into_iter().find(|won| is_its(won.ballot))
    }

    /// When a holder last asked this process of a server for its lease, of what it granted before
    /// `until`: what the clock did before that, ended no lease early.
    fn last_asked(&self, section: &Section, run: &str, until: u64) -> Option<u64> {
        let is_its = |won: &Won<'_>| {
            (won.ballot.lock == section.lock && won.ballot.fence == section.fence)
                && won.at < until
                && won.ballot.votes.iter().any(|vote| vote.run == run)
        };
        let all = ballots(self.history).into_iter();
        all.filter(is_its).map(|won| won.ballot.asked_at).max()
    }

    /// Whether a client that asked for votes at `asked` knew that this clock was off, or knew at `won`,
    /// when they were a quorum, that it had gone ahead.
    fn is_known_to(
        &self,
        client: &Client<'_>,
        node: &str,
        step: &Step,
        steps: &[Step],
        (asked, won): (u64, u64),
    ) -> bool {
        let is_noticed = client.noticed(node, step, steps).is_some_and(|noticed| noticed < won);
        is_noticed || self.is_off_for(client, node, asked)
    }

    /// Whether a client's last reading of a clock before `asked` showed that it is off: fewer than a
    /// majority can be within the skew of it.
    fn is_off_for(&self, client: &Client<'_>, node: &str, asked: u64) -> bool {
        let names = &self.history.meta.names;
        let seen: Vec<_> = names
            .iter()
            .enumerate()
            .filter_map(|(server, name)| {
                let reading = client.last_before(name, asked)?;
                Some((name, self.ahead(server, reading.sent), reading.took))
            })
            .collect();
        let majority = self.history.meta.nodes / 2 + 1;
        let Some((_, own, blur)) = seen.iter().find(|(name, ..)| *name == node) else {
            return false;
        };
        let agree = seen.iter().filter(|(_, ahead, took)| {
            ahead.abs_diff(*own) <= self.history.meta.max_skew + blur + took + SLEWED
        });
        seen.len() >= majority && agree.count() < majority
    }

    /// How far ahead of true time the clock of a server was, by its steps.
    fn ahead(&self, server: usize, at: u64) -> i64 {
        let steps = self.steps.get(&server).map_or(&[][..], Vec::as_slice);
        steps.iter().rev().find(|step| step.to <= at).map_or(0, |step| step.ahead)
    }
}

impl Client<'_> {
    fn of_node(&self, node: &str) -> &[Reading] {
        self.readings.get(node).map_or(&[][..], Vec::as_slice)
    }

    fn last_before(&self, node: &str, at: u64) -> Option<Reading> {
        self.of_node(node).iter().rev().find(|reading| reading.done < at).copied()
    }

    fn first_after(&self, node: &str, step: &Step) -> Option<Reading> {
        self.of_node(node).iter().find(|reading| reading.sent >= step.to).copied()
    }

    /// When a client must have noticed a step of a node's clock, if it has: it knew the clock before,
    /// and read it after.
    fn noticed(&self, node: &str, step: &Step, steps: &[Step]) -> Option<u64> {
        let readings = self.of_node(node);
        let known = readings.iter().rev().find(|reading| reading.sent < step.to)?;
        readings.iter().filter(|reading| reading.sent >= step.to).find_map(|reading| {
            let moved: i64 = steps
                .iter()
                .filter(|moved| moved.to > known.sent && moved.from <= reading.sent)
                .map(|moved| moved.nanos)
                .sum();
            let drift = (reading.done - known.done.min(reading.done)) / DRIFT + 2 * DRIFT_FIXED;
            let blur = (known.took + reading.took + drift) as i64;
            (moved > blur).then_some(reading.done)
        })
    }
}
