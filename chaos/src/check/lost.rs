//! Lost is for ever: no call and no answer turns a lost lease into a held one.

use std::collections::HashMap;

use super::Finding;
use crate::history::{Event, History};

pub(super) fn judge(history: &History) -> Finding {
    let mut evidence = Vec::new();
    let mut losses = 0;
    for life in &history.lives {
        let mut lost: HashMap<u64, u64> = HashMap::new();
        for line in &life.events {
            match &line.what {
                Event::Believes { op, until: None, .. } | Event::Lost { op, .. } => {
                    losses += u64::from(lost.insert(*op, line.at).is_none());
                }
                Event::Believes { op, until: Some(until), .. } if lost.contains_key(op) => {
                    evidence.push(format!(
                        "holder {}.{} op {op} lost its lease and held it again until {until}",
                        life.holder, life.life
                    ));
                }
                _ => {}
            }
        }
    }
    Finding::of("a lost lease stays lost", &evidence, format!("{losses} losses"))
}
