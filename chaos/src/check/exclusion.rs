//! Two holders never both have validity left.

use std::collections::HashMap;

use super::{Finding, Section};

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
    let mut by_lock: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in sections.iter().filter(|section| section.granted < section.end()) {
        by_lock.entry(&section.lock).or_default().push(section);
    }
    let mut found = Vec::new();
    for sections in by_lock.values_mut() {
        sections.sort_by_key(|section| section.granted);
        let mut longest: Option<&Section> = None;
        for second in sections.iter().copied() {
            if let Some(first) = longest.filter(|first| second.granted < first.end()) {
                found.push(Overlap { first, second });
            }
            if longest.is_none_or(|before| second.end() > before.end()) {
                longest = Some(second);
            }
        }
    }
    found.sort_by_key(Overlap::from);
    found
}

pub(super) fn judge(sections: &[Section]) -> Finding {
    let evidence: Vec<_> = overlaps(sections)
        .iter()
        .map(|overlap| {
            let ms = (overlap.to() - overlap.from()) as f64 / 1e6;
            format!("{} and {} both held it for {ms:.3} ms", overlap.first, overlap.second)
        })
        .collect();
    let judged = sections.iter().filter(|section| section.granted < section.end()).count();
    Finding::of("two holders are never valid at once", &evidence, format!("{judged} holds"))
}
