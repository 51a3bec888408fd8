//! F1: no fence is given twice. F2: if one acquire completed before another began, its fence is
//! lower.

use std::collections::{HashMap, HashSet};

use super::{Finding, Section};

pub(super) fn unique(sections: &[Section]) -> Finding {
    let mut seen = HashSet::new();
    let twice = sections.iter().filter(|section| !seen.insert((&section.lock, section.fence)));
    let evidence: Vec<_> =
        twice.map(|section| format!("{section} has a fence of another")).collect();
    Finding::of("F1: fences are unique", &evidence, format!("{} fences", sections.len()))
}

pub(super) fn grow(sections: &[Section]) -> Finding {
    let mut by_lock: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in sections {
        by_lock.entry(&section.lock).or_default().push(section);
    }
    let mut evidence = Vec::new();
    for mut by_ask in by_lock.into_values() {
        let mut by_grant = by_ask.clone();
        by_grant.sort_by_key(|section| section.granted);
        by_ask.sort_by_key(|section| section.asked);
        let mut granted = by_grant.into_iter().peekable();
        let mut highest: Option<&Section> = None;
        for section in by_ask {
            while let Some(before) = granted.next_if(|before| before.granted < section.asked) {
                if highest.is_none_or(|known| before.fence > known.fence) {
                    highest = Some(before);
                }
            }
            if let Some(before) = highest.filter(|before| before.fence >= section.fence) {
                let line = format!("{before} was granted before {section} was asked for");
                evidence.push((section.asked, line));
            }
        }
    }
    Finding::in_time("F2: fences grow in real time", evidence, format!("{} fences", sections.len()))
}
