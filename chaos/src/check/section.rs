//! A critical section as its holder's own words tell it.

use std::collections::HashMap;
use std::fmt;

use crate::history::{Event, History, Life};

/// One acquisition: from when until when its holder could believe to hold the lock. Times are
/// nanoseconds from the start of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Which holder.
    pub holder: usize,
    /// Which of its lives.
    pub life: u64,
    /// Which acquire of that life.
    pub op: u64,
    /// Which lock.
    pub lock: String,
    /// The fencing token.
    pub fence: u64,
    /// When it was asked for.
    pub asked: u64,
    /// When the holder knew that it was granted.
    pub granted: u64,
    /// The last deadline that the holder saw, or, if it was moved to an earlier time than that, when
    /// the holder last looked before. A keeper may have got a later one that nobody wrote down, so
    /// this is at least what was believed.
    pub until: u64,
    /// When the holder began to give it back, if it did.
    pub gives_back: Option<u64>,
    /// When it learned that it was the one who gave it back.
    pub gave_back: Option<u64>,
}

impl Section {
    /// The end of what the holder believed. Without a break: a lease that was lost is never held
    /// again, which is judged elsewhere.
    pub fn end(&self) -> u64 {
        self.gives_back.map_or(self.until, |at| at.min(self.until))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |at: u64| at as f64 / 1e9;
        write!(
            f,
            "holder {}.{} op {} ({}, fence {}, from {:.4} to {:.4} s)",
            self.holder,
            self.life,
            self.op,
            self.lock,
            self.fence,
            seconds(self.granted),
            seconds(self.end())
        )
    }
}

/// All acquisitions that their holders knew of, in the order of their fences.
///
/// An acquire whose outcome nobody learned (its holder was killed, or stopped waiting) is left out:
/// it cannot have been believed in, and a history that is right with it is right without it.
pub fn sections(history: &History) -> Vec<Section> {
    let start = history.meta.started;
    let mut all: Vec<_> = history.lives.iter().flat_map(|life| of_life(life, start)).collect();
    all.sort_by_key(|section| section.fence);
    all
}

fn of_life(life: &Life, start: u64) -> Vec<Section> {
    let from_start = |at: u64| at.saturating_sub(start);
    let mut asked = HashMap::new();
    let mut sections: Vec<Section> = Vec::new();
    for line in &life.events {
        let at = from_start(line.at);
        let mut change = |op: &u64, change: &dyn Fn(&mut Section)| {
            if let Some(section) = sections.iter_mut().rev().find(|section| section.op == *op) {
                change(section);
            }
        };
        match &line.what {
            Event::Asks { op, .. } => {
                asked.insert(*op, at);
            }
            Event::Granted { op, lock, fence, until, .. } => sections.push(Section {
                holder: life.holder,
                life: life.life,
                op: *op,
                lock: lock.clone(),
                fence: *fence,
                asked: asked.get(op).copied().unwrap_or(0),
                granted: at,
                until: until.map_or(at, from_start),
                gives_back: None,
                gave_back: None,
            }),
            Event::Believes { op, until, before } => change(op, &|section| {
                let until = until.map_or(0, from_start);
                let was_believed = until >= section.until || at >= section.until;
                let so_far = if was_believed { section.until } else { from_start(*before) };
                section.until = until.max(so_far);
            }),
            Event::GivesBack { op, .. } => change(op, &|section| section.gives_back = Some(at)),
            Event::GaveBack { op, outcome }
                if ["released", "handed over"].contains(&&**outcome) =>
            {
                change(op, &|section| section.gave_back = Some(at));
            }
            _ => {}
        }
    }
    sections
}
