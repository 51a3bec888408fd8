//! Enough happened to mean anything, and after the last fault everybody gets a lock.

use std::collections::HashMap;

use super::Finding;
use crate::history::{Event, History, Life};

/// Sections all of whose writes were taken.
pub(crate) fn whole_sections(life: &Life) -> u64 {
    let mut whole: HashMap<u64, bool> = HashMap::new();
    for line in &life.events {
        if let Event::Wrote { op, accepted, .. } = &line.what {
            let all = whole.entry(*op).or_insert(true);
            *all &= accepted;
        }
    }
    whole.values().filter(|all| **all).count() as u64
}

pub(super) fn enough(history: &History) -> Finding {
    let sections: u64 = history.lives.iter().map(whole_sections).sum();
    let floor = history.meta.sections_floor;
    let mut evidence = Vec::new();
    if sections < floor {
        evidence.push(format!("{sections} critical sections, and {floor} would be few"));
    }
    Finding::of("work goes on", &evidence, format!("{sections} critical sections"))
}

pub(super) fn calm(history: &History) -> Finding {
    let meta = &history.meta;
    let end = meta.calm_from + meta.calm_within_seconds * 1_000_000_000;
    let mut evidence = Vec::new();
    let mut latest = 0;
    for (holder, last_life) in meta.last_lives.iter().enumerate() {
        let grants = history
            .lives
            .iter()
            .filter(|life| life.holder == holder && life.life == *last_life)
            .flat_map(|life| &life.events)
            .filter(|line| matches!(line.what, Event::Granted { .. }) && line.at > meta.calm_from);
        match grants.map(|line| line.at).min() {
            Some(at) if at <= end => latest = latest.max(at),
            _ => evidence.push(format!(
                "holder {holder} got no lock within {} s after the last fault",
                meta.calm_within_seconds
            )),
        }
    }
    let took = latest.saturating_sub(meta.calm_from) as f64 / 1e9;
    Finding::of(
        "after the last fault everybody gets a lock",
        &evidence,
        format!("{} holders within {took:.1} s", meta.last_lives.len()),
    )
}
