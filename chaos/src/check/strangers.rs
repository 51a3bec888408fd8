//! Clients with another `max_ttl` than the cluster's get nothing, and nobody takes a cluster with a
//! wrong clock for a new one.

use super::Finding;
use crate::history::{Event, History, MISLED};

pub(super) fn judge(history: &History) -> Finding {
    let mut evidence = Vec::new();
    let (mut strangers, mut refused) = (0, 0);
    // The first life of the number after the holders' introduced the nodes; the others came later.
    let guests = history.lives.iter().filter(|life| life.holder == history.meta.holders);
    for guest in guests.filter(|life| life.life > 0) {
        strangers += 1;
        for line in &guest.events {
            match &line.what {
                Event::Granted { lock, fence, .. } => {
                    evidence.push(format!("stranger {} was granted {lock}, {fence}", guest.life));
                }
                Event::Refused { .. } => refused += 1,
                _ => {}
            }
        }
    }
    let misled = history.faults.iter().filter(|line| line.what.kind == MISLED);
    evidence.extend(misled.map(|line| line.what.story.clone()));
    let figures = format!("{strangers} came, and were refused {refused} times");
    Finding::of("strangers get nothing", &evidence, figures)
}
