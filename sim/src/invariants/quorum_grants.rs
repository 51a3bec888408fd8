//! Only a quorum grants: whoever acquired was granted this very fence by that many nodes. A reserved
//! fence lies between two numbers of which so many nodes had the lower and took the higher.

use std::collections::{HashMap, HashSet};

use leasehold_core::{Fence, Holder, Reply, Request};

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

/// Which nodes granted what.
#[derive(Debug)]
pub(super) struct QuorumGrants {
    quorum: usize,
    grants: HashMap<(Holder, Fence), HashSet<usize>>,
    /// Which nodes raised the number of an owner from one to another.
    raised: HashMap<Holder, HashMap<(Fence, Fence), HashSet<usize>>>,
    /// The last reserved fence of each holder value.
    reserved: HashMap<Holder, Fence>,
}

impl QuorumGrants {
    pub(super) fn new(quorum: usize) -> Self {
        Self { quorum, grants: HashMap::new(), raised: HashMap::new(), reserved: HashMap::new() }
    }

    /// So many nodes at most raised a number below this one to it or beyond it, in one step.
    fn reserved_by(&self, value: &Holder, fence: Fence) -> usize {
        let raised = self.raised.get(value).into_iter().flatten();
        let covers =
            |((from, to), _): &(&(Fence, Fence), &HashSet<usize>)| *from < fence && fence <= *to;
        raised.filter(covers).map(|(_, nodes)| nodes.len()).max().unwrap_or(0)
    }
}

impl Invariant for QuorumGrants {
    fn promise(&self) -> &'static str {
        "quorum grants"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Applied { node, request, reply, .. } => {
                match (&**request, reply) {
                    (Request::Acquire { holder, proposal, .. }, Reply::Granted) => {
                        let grants = self.grants.entry((holder.clone(), *proposal)).or_default();
                        grants.insert(*node);
                    }
                    (
                        Request::Extend { holder, token, next, .. },
                        Reply::Extended { .. } | Reply::Healed { .. },
                    ) if next > token => {
                        let raised = self.raised.entry(holder.clone()).or_default();
                        raised.entry((*token, *next)).or_default().insert(*node);
                    }
                    _ => {}
                }
                Ok(())
            }
            Happening::Acquired { who, value, fence, reserved: true, .. } => {
                let raised = self.reserved_by(value, *fence);
                let before = self.reserved.insert(value.clone(), *fence);
                if raised >= self.quorum && before.is_none_or(|before| before < *fence) {
                    return Ok(());
                }
                Err(format!(
                    "{} took {fence} as reserved, which {raised} node(s) had raised its number to: {} \
                     needed; the one before was {before:?}",
                    short(who),
                    self.quorum
                ))
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
