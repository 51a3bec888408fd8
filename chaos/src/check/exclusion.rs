//! Two holders never both have validity left.

use std::collections::HashMap;

use super::{Finding, Section};

pub(super) fn judge(sections: &[Section]) -> Finding {
    let mut by_lock: HashMap<&str, Vec<&Section>> = HashMap::new();
    for section in sections.iter().filter(|section| section.granted < section.end()) {
        by_lock.entry(&section.lock).or_default().push(section);
    }
    let mut evidence = Vec::new();
    let mut judged = 0;
    for sections in by_lock.values_mut() {
        judged += sections.len();
        sections.sort_by_key(|section| section.granted);
        let mut longest: Option<&Section> = None;
        for section in sections.iter() {
            if let Some(before) = longest.filter(|before| section.granted < before.end()) {
                let both = before.end().min(section.end()) - section.granted;
                let ms = both as f64 / 1e6;
                let line = format!("{before} and {section} both held it for {ms:.3} ms");
                evidence.push((section.granted, line));
            }
            if longest.is_none_or(|before| section.end() > before.end()) {
                longest = Some(section);
            }
        }
    }
    Finding::in_time("two holders are never valid at once", evidence, format!("{judged} holds"))
}
