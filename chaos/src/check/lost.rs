//! Lost is for ever, by the judge: no call and no answer turns a lost lease into a held one.

use std::collections::HashSet;

use leasehold_judge::{Event as Heard, Lost, Promise as _, Violation};

use super::Finding;
use crate::history::{Event, History};

pub(super) fn judge(history: &History) -> Finding {
    let mut evidence = Vec::new();
    let mut losses = 0;
    for life in &history.lives {
        let mut promise = Lost::default();
        let mut lost = HashSet::new();
        for line in &life.events {
            let heard = match &line.what {
                Event::Believes { op, until: None, .. } | Event::Lost { op, .. } => {
                    lost.insert(op);
                    Heard::Lost { who: op }
                }
                Event::Believes { op, until: Some(until), .. } => {
                    Heard::Moved { who: op, until: *until }
                }
                _ => continue,
            };
            for violation in promise.see(line.at, &heard) {
                let Violation::HeldAgain { who, until, .. } = violation else { continue };
                evidence.push(format!(
                    "holder {}.{} op {who} lost its lease and held it again until {until}",
                    life.holder, life.life
                ));
            }
        }
        losses += lost.len();
    }
    Finding::of("a lost lease stays lost", &evidence, format!("{losses} losses"))
}
