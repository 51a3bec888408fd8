//! F1: no fence is given twice. F2: if one acquire completed before another began, its fence is
//! lower.

use leasehold_judge::{Fences, Violation};

use super::{Finding, Section, replay};

pub(super) fn unique(sections: &[Section]) -> Finding {
    let found = replay::violations(Fences::default(), sections);
    let twice = found.iter().filter_map(|violation| match violation {
        Violation::SameFence { second, .. } => Some(&sections[*second]),
        _ => None,
    });
    let evidence: Vec<_> =
        twice.map(|section| format!("{section} has a fence of another")).collect();
    Finding::of("F1: fences are unique", &evidence, format!("{} fences", sections.len()))
}

pub(super) fn grow(sections: &[Section]) -> Finding {
    let found = replay::violations(Fences::default(), sections);
    let lower = found.iter().filter_map(|violation| match violation {
        Violation::LowerFence { first, second, .. } => {
            Some((&sections[*first], &sections[*second]))
        }
        _ => None,
    });
    let evidence: Vec<_> = lower
        .map(|(before, section)| {
            (section.asked, format!("{before} was granted before {section} was asked for"))
        })
        .collect();
    Finding::in_time("F2: fences grow in real time", evidence, format!("{} fences", sections.len()))
}
