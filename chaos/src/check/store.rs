//! The fenced store took nothing from a holder that was too late, and lost nothing it took.

use std::collections::{HashMap, HashSet};

use super::{Finding, Outcome};
use crate::history::{Event, History, StoreLine};

#[derive(Debug, Default)]
struct Cell<'a> {
    fence: u64,
    holder: &'a str,
    value: u64,
}

pub(super) fn judge(history: &History) -> Finding {
    let mut evidence = replay(&history.store);
    evidence.extend(forgotten(history));
    let taken = history.store.iter().filter(|line| line.accepted && line.value.is_some()).count();
    Finding::of("the fenced store took no late write", &evidence, format!("{taken} writes taken"))
}

fn replay(journal: &[StoreLine]) -> Vec<String> {
    let mut cells: HashMap<&str, Cell> = HashMap::new();
    let mut evidence = Vec::new();
    for line in journal {
        let StoreLine { lock, fence, holder, .. } = line;
        let cell = cells.entry(lock).or_default();
        let is_same = *fence == cell.fence && holder == cell.holder;
        let in_time = *fence > cell.fence || is_same;
        if line.accepted != in_time {
            let did = if line.accepted { "took" } else { "refused" };
            evidence.push(format!("{lock}: it {did} fence {fence} after fence {}", cell.fence));
        }
        if !line.accepted {
            continue;
        }
        // Each holder shows its fence, reads, and writes one more each time: a number that is not
        // the next one stands on another's write that its writer never saw.
        if let Some(value) = line.value {
            if value != cell.value + 1 {
                evidence.push(format!(
                    "{lock}: fence {fence} wrote {value} over {}: an update is lost",
                    cell.value
                ));
            }
            cell.value = value;
        }
        cell.fence = *fence;
        cell.holder = holder;
    }
    evidence
}

/// Writes that a holder was told were taken, and of which the journal knows nothing.
fn forgotten(history: &History) -> Vec<String> {
    let taken: HashSet<_> = history
        .store
        .iter()
        .filter(|line| line.accepted)
        .filter_map(|line| Some((line.lock.as_str(), line.fence, line.value?)))
        .collect();
    let mut evidence = Vec::new();
    for life in &history.lives {
        let mut fences = HashMap::new();
        for line in &life.events {
            match &line.what {
                Event::Granted { op, lock, fence, .. } => {
                    fences.insert(*op, (lock.as_str(), *fence));
                }
                Event::Wrote { op, value, accepted: true } => {
                    let known = fences.get(op).map(|(lock, fence)| (*lock, *fence, *value));
                    if !known.is_some_and(|write| taken.contains(&write)) {
                        evidence.push(format!(
                            "holder {}.{} op {op} was told that {value} was taken; the journal \
                             has no such write: it is lost",
                            life.holder, life.life
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    evidence
}

/// Late writes that the store refused, and that stand in the log that nobody checks.
pub(super) fn late_writes(history: &History) -> Finding {
    const PROMISE: &str = "late writes were refused by the fence";
    let (refused, unfenced) = (refused(history), late_in_log(history));
    let story = format!("{refused} refused by the store; {unfenced} stand in the unfenced log");
    if refused == 0 {
        let story = format!("{story}: no holder was late, so this run proved less");
        return Finding::new(PROMISE, Outcome::NotJudged, story);
    }
    Finding::new(PROMISE, Outcome::Kept, story)
}

/// Writes that the store refused.
pub(crate) fn refused(history: &History) -> usize {
    history.store.iter().filter(|line| !line.accepted && line.value.is_some()).count()
}

/// Lines of the unfenced log that came after a higher fence.
pub(crate) fn late_in_log(history: &History) -> usize {
    let mut highest: HashMap<&str, u64> = HashMap::new();
    let mut late = 0;
    for line in &history.unfenced {
        let highest = highest.entry(&line.lock).or_default();
        late += usize::from(line.fence < *highest);
        *highest = line.fence.max(*highest);
    }
    late
}
