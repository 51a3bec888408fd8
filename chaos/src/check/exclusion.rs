//! Two holders never both have validity left.

use std::collections::BTreeMap;

use leasehold_judge::{Exclusion, Violation};

use super::excuse::{Clocks, Excuse};
use super::{Finding, Section, replay};
use crate::history::History;

/// Two holders of one lock at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Overlap<'a> {
    /// Who had it.
    pub first: &'a Section,
    /// Who got it nevertheless.
    pub second: &'a Section,
}

impl Overlap<'_> {
    /// From when on both were valid.
    pub fn from(&self) -> u64 {
        self.second.granted
    }

    /// Until when both were.
    pub fn to(&self) -> u64 {
        self.first.end().min(self.second.end())
    }
}

/// All of them, the earliest first.
pub fn overlaps(sections: &[Section]) -> Vec<Overlap<'_>> {
    let found = replay::violations(Exclusion::default(), sections);
    let overlap = |violation: &Violation<usize>| match violation {
        Violation::Overlap { first, second, .. } => {
            Some(Overlap { first: &sections[*first], second: &sections[*second] })
        }
        _ => None,
    };
    found.iter().filter_map(overlap).collect()
}

/// Those that break the promise, and what excuses the others.
pub fn unexcused<'a>(
    history: &History,
    sections: &'a [Section],
) -> (Vec<Overlap<'a>>, Vec<(Overlap<'a>, Excuse)>) {
    let clocks = Clocks::of(history);
    let (mut broken, mut excused) = (Vec::new(), Vec::new());
    for overlap in overlaps(sections) {
        match clocks.excuse(&overlap) {
            Some(excuse) => excused.push((overlap, excuse)),
            None => broken.push(overlap),
        }
    }
    (broken, excused)
}

pub(super) fn judge(history: &History, sections: &[Section]) -> Finding {
    let (broken, excused) = unexcused(history, sections);
    let told = |overlap: &Overlap<'_>| {
        let ms = (overlap.to() - overlap.from()) as f64 / 1e6;
        format!("{} and {} both held it for {ms:.3} ms", overlap.first, overlap.second)
    };
    let evidence: Vec<_> = broken.iter().map(told).collect();
    let judged = sections.iter().filter(|section| section.granted < section.end()).count();
    let mut figures = format!("{judged} holds");
    let mut excuses: BTreeMap<Excuse, Vec<u64>> = BTreeMap::new();
    for (overlap, excuse) in &excused {
        excuses.entry(*excuse).or_default().push(overlap.to() - overlap.from());
    }
    for (excuse, times) in excuses {
        let longest = times.iter().max().map_or(0.0, |nanos| *nanos as f64 / 1e9);
        let (count, why) = (times.len(), excuse.name());
        figures += &format!("; {count} overlap(s) excused, up to {longest:.2} s, {why}");
    }
    Finding::of("two holders are never valid at once", &evidence, figures)
}

/// The sections that somebody believed in. Of two that are excused the one with the lower fence
/// believed for too long, and nobody knows when the nodes ended it: at any time since it asked.
pub(super) fn without_excused(history: &History, sections: &[Section]) -> Vec<Section> {
    let (_, excused) = unexcused(history, sections);
    let mut rest = sections.to_vec();
    rest.retain(|section| section.granted < section.end());
    for (Overlap { first, second }, _) in excused {
        let before = if first.fence < second.fence { first } else { second };
        if let Some(section) = rest.iter_mut().find(|section| **section == *before) {
            section.until = section.asked;
            (section.gives_back, section.gave_back) = (None, None);
        }
    }
    rest
}
