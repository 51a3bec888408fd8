//! What was done to clocks, and which process can know of it: who has read a clock since it was set,
//! unless it was also set back between the same two readings, or by less than these are sharp. A
//! reading shows only what is left of both, and a slow one does not show much.

use std::collections::HashMap;

use leasehold_core::Holder;

use crate::clock::{MILLIS, Time};
use crate::history::Happening;

/// A life of a process.
pub(super) type Process = (usize, u64);

/// What was done to clocks, and who knows.
#[derive(Debug)]
pub(super) struct Readings {
    max_skew: Time,
    /// By server: when its clock was set, and by how much.
    steps: HashMap<usize, Vec<(Time, i64)>>,
    /// By process: when its clock went on after it had stood still, and for how long it had.
    still: HashMap<usize, Vec<(Time, Time)>>,
    read: HashMap<(Process, usize), Read>,
}

/// What a process knows of the clock of a server.
#[derive(Debug)]
struct Read {
    first: Time,
    last: Time,
    /// How sharp that is.
    blur: Time,
    /// Spans between two readings that do not show what was done to the clock.
    hidden: Vec<(Time, Time)>,
}

impl Read {
    /// Whether what was done to a clock at `at` shows in what was read.
    fn shows(&self, at: Time) -> bool {
        self.last >= at && !self.hidden.iter().any(|(from, to)| (*from..=*to).contains(&at))
    }
}

/// How a server's clock was set ahead in a span of time.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// How far it was ahead at most of where it would have been, steps back included.
    pub(super) ahead: Time,
    /// When it was set ahead, and by how much.
    steps: Vec<(Time, Time)>,
}

/// How the clock of a process stood still.
#[derive(Debug, Default)]
pub(super) struct Still {
    /// For how long in all.
    pub(super) by: Time,
    /// For how long by pauses that the server's clock has not shown to the process yet.
    pub(super) unread: Time,
}

/// The process that a holder lives in.
pub(super) fn process_of(who: &Holder) -> Process {
    let mut words = who.label()[1..].split('.').map(|word| word.parse().unwrap_or(u64::MAX));
    let mut next = || words.next().unwrap_or(u64::MAX);
    (next() as usize, next())
}

impl Readings {
    pub(super) fn new(max_skew: Time) -> Self {
        Self { max_skew, steps: HashMap::new(), still: HashMap::new(), read: HashMap::new() }
    }

    pub(super) fn watch(&mut self, now: Time, happening: &Happening) {
        match happening {
            Happening::Stepped { server, by } => {
                self.steps.entry(*server).or_default().push((now, *by));
            }
            Happening::StoodStill { client, until, by } => {
                self.still.entry(*client).or_default().push((*until, *by));
            }
            Happening::Read { client, life, given, blur, .. } => {
                let key = ((*client, *life), given.server);
                let (first, last) = (given.at, given.at);
                let fresh = || Read { first, last, blur: *blur, hidden: Vec::new() };
                let read = self.read.entry(key).or_insert_with(fresh);
                let span = read.last..=given.at;
                let since = read.last;
                let steps = self.steps.get(&given.server).into_iter().flatten().rev();
                let steps = steps.take_while(|(at, _)| *at >= since);
                let (mut ahead, mut is_set_back) = (0, false);
                for (_, by) in steps.filter(|(at, _)| span.contains(at)) {
                    ahead += u64::try_from(*by).unwrap_or(0);
                    is_set_back |= *by < 0;
                }
                let still = self.still.get(client).into_iter().flatten().rev();
                let still = still.take_while(|(until, _)| *until >= since);
                ahead += still.filter(|(at, _)| span.contains(at)).map(|(_, by)| by).sum::<Time>();
                // What clocks drift meanwhile makes it less sharp.
                let known = read.blur + (given.at.max(since) - since) / 50 + 4 * MILLIS;
                if is_set_back || (ahead > 0 && ahead <= known + blur) {
                    read.hidden.push((since, given.at));
                }
                read.blur = if is_set_back || ahead > 0 { *blur } else { known.min(*blur) };
                read.last = given.at.max(read.last);
            }
            _ => {}
        }
    }

    /// How the clock of `server` was set ahead after `from` and until `to`.
    pub(super) fn steps(&self, server: usize, from: Time, to: Time) -> Steps {
        let all = self.steps.get(&server).into_iter().flatten();
        let (mut steps, mut now) = (Steps::default(), 0);
        for (at, by) in all.filter(|(at, _)| (from..=to).contains(at)) {
            now += by;
            steps.ahead = steps.ahead.max(u64::try_from(now).unwrap_or(0));
            if *by > 0 {
                steps.steps.push((*at, by.unsigned_abs()));
            }
        }
        steps
    }

    /// By how much the clock was set ahead by those of `steps` that no reading has shown to `process`.
    pub(super) fn unread(&self, process: Process, server: usize, steps: &Steps) -> Time {
        let read = self.read.get(&(process, server));
        let is_unread = |at: Time| read.is_none_or(|read| !read.shows(at));
        steps.steps.iter().filter(|(at, _)| is_unread(*at)).map(|(_, by)| by).sum()
    }

    /// Whether `process` first read the clock after the first of `steps`, and cannot have seen them by
    /// comparing clocks: this one was not set ahead by more than the largest skew, or a quorum of them
    /// were together.
    pub(super) fn is_too_late_to_see(
        &self,
        process: Process,
        server: usize,
        steps: &Steps,
        quorum: usize,
    ) -> bool {
        let Some((first, _)) = steps.steps.first() else { return false };
        let is_late = self.read.get(&(process, server)).is_some_and(|read| read.first >= *first);
        let gain = |of: &usize| {
            let all = self.steps.get(of).into_iter().flatten();
            all.filter(|(at, _)| at >= first).map(|(_, by)| by).sum::<i64>()
        };
        let by = gain(&server);
        let together = self.steps.keys().filter(|of| gain(of).abs_diff(by) <= self.max_skew);
        is_late
            && (steps.steps.iter().map(|(_, by)| by).sum::<Time>() <= self.max_skew
                || together.count() >= quorum)
    }

    /// How the clock of `process` stood still since `since`.
    pub(super) fn stood_still(&self, process: Process, server: usize, since: Time) -> Still {
        let read = self.read.get(&(process, server));
        let mut still = Still::default();
        for (until, by) in self.still.get(&process.0).into_iter().flatten() {
            if *until >= since {
                still.by += by;
                if read.is_none_or(|read| !read.shows(*until)) {
                    still.unread += by;
                }
            }
        }
        still
    }
}
