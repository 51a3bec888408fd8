//! Only a quorum grants: whoever acquired was granted this very fence by that many nodes.

use std::collections::{HashMap, HashSet};

use leasehold_core::{Fence, Holder, Reply, Request};

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

/// Which nodes granted what.
#[derive(Debug)]
pub(super) struct QuorumGrants {
    quorum: usize,
    grants: HashMap<(Holder, Fence), HashSet<usize>>,
}

impl QuorumGrants {
    pub(super) fn new(quorum: usize) -> Self {
        Self { quorum, grants: HashMap::new() }
    }
}

impl Invariant for QuorumGrants {
    fn promise(&self) -> &'static str {
        "quorum grants"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Applied { node, request, reply: Reply::Granted, .. } => {
                if let Request::Acquire { holder, proposal, .. } = &**request {
                    let grants = self.grants.entry((holder.clone(), *proposal)).or_default();
                    grants.insert(*node);
                }
                Ok(())
            }
            Happening::Acquired { who, value, fence, .. } => {
                let grants = self.grants.get(&(value.clone(), *fence)).map_or(0, HashSet::len);
                self.grants.retain(|(holder, _), _| holder != value);
                if grants >= self.quorum {
                    return Ok(());
                }
                Err(format!(
                    "{} acquired with fence {fence}, which {grants} node(s) granted: {} needed",
                    short(who),
                    self.quorum
                ))
            }
            Happening::GaveUp { who } => {
                self.grants.retain(|(holder, _), _| holder != who);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
