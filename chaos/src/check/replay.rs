//! The sections of a history as the judge hears of them: in the order of time, each with the end of
//! what its holder believed.

use leasehold_core::Fence;
use leasehold_judge::{Event, Promise, Violation};

use super::Section;

/// How a promise was broken, the earliest first. Holders are named by their places in `sections`.
pub(super) fn violations(
    mut promise: impl Promise<usize>,
    sections: &[Section],
) -> Vec<Violation<usize>> {
    let all = sections.iter().enumerate();
    let mut events: Vec<(u64, Event<'_, usize>)> = Vec::new();
    let places: Vec<usize> = (0..sections.len()).collect();
    for (section, who) in all.map(|(place, section)| (section, &places[place])) {
        // A history with a number beyond the largest fence is not from these nodes.
        let fence = Fence::new(section.fence).unwrap_or(Fence::MAX);
        let (lock, asked, until) = (section.lock.as_str(), section.asked, section.end());
        let believes = Event::Believes { who, lock, fence, asked, until };
        events.push((section.granted, believes));
        events.push((until.max(section.granted), Event::Ended { who }));
    }
    // What begins and ends at one time begins first.
    events.sort_by_key(|(at, event)| (*at, matches!(event, Event::Ended { .. })));
    events.iter().flat_map(|(at, event)| promise.see(*at, event)).collect()
}
