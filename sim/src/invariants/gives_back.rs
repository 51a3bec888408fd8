//! When everybody is gone no node is owned any more: whoever gives up or is done has told all nodes,
//! and what did not arrive has expired. Except on a node whose clock was set back meanwhile: there a
//! lease lasts that much longer.

use std::collections::HashSet;

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

#[derive(Debug, Default)]
pub(super) struct GivesBack {
    set_back: HashSet<usize>,
}

impl Invariant for GivesBack {
    fn promise(&self) -> &'static str {
        "gives back"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Stepped { server, by } if *by < 0 => _ = self.set_back.insert(*server),
            Happening::Rest { owners } => {
                let is_left = |(node, _): &&(usize, _)| !self.set_back.contains(node);
                if let Some((node, owner)) = owners.iter().find(is_left) {
                    return Err(format!("node {node} is still owned by {}", short(owner)));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
