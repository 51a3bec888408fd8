//! What a caller is told to be released is released: no quorum keeps it, and nobody is told to have it after
//! that.
//!
//! A node may have it again: what is given back after a claim may be carried out late, after the release.
//! DESIGN.md says what that costs. It is told apart from a release that did not take place.

use std::collections::{HashMap, HashSet};

use leasehold_core::{Holder, Reply, Request};

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

#[derive(Debug, Default)]
pub(super) struct Released {
    quorum: usize,
    leases: HashMap<Holder, Fate>,
}

/// What is known of one lease.
#[derive(Debug, Default)]
struct Fate {
    granted: Time,
    /// Whose votes counted last.
    voters: HashSet<usize>,
    /// The servers that carried the release out.
    released: HashSet<usize>,
    /// Whether one of them had it again.
    is_revived: bool,
    /// When a caller was told.
    told: Option<Time>,
}

impl Released {
    pub(super) fn new(quorum: usize) -> Self {
        Self { quorum, leases: HashMap::new() }
    }
}

impl Invariant for Released {
    fn promise(&self) -> &'static str {
        "released"
    }

    fn watch(&mut self, now: Time, happening: &Happening) -> Result<(), String> {
        match happening {
            Happening::Acquired { who, votes, .. } => {
                let fate = self.leases.entry(who.clone()).or_default();
                fate.granted = now;
                fate.voters = votes.iter().map(|vote| vote.server).collect();
            }
            Happening::Extended { who, votes, .. } => {
                if let Some(fate) = self.leases.get_mut(who) {
                    fate.voters = votes.iter().map(|vote| vote.server).collect();
                }
            }
            Happening::Applied { node, request, reply, after, .. } => {
                if let (Request::Release { holder, .. }, Reply::Released) = (&**request, reply) {
                    let fate = self.leases.entry(holder.clone()).or_default();
                    fate.released.insert(*node);
                } else if let Some(fate) = after.as_ref().and_then(|who| self.leases.get_mut(who)) {
                    fate.is_revived |= fate.released.contains(node);
                }
            }
            Happening::Released { who, kept } => {
                let fate = self.leases.entry(who.clone()).or_default();
                fate.told.get_or_insert(now);
                let is_kept = |(server, forgot): &&(usize, Time)| {
                    fate.voters.contains(server)
                        && !fate.released.contains(server)
                        && *forgot < fate.granted
                };
                let kept = kept.iter().filter(is_kept).count();
                if kept >= self.quorum {
                    let who = short(who);
                    return Err(format!(
                        "{who} is told that it is released, and {kept} servers keep it"
                    ));
                }
            }
            Happening::Confirmed { who, started } => {
                let Some(fate) = self.leases.get(who) else { return Ok(()) };
                if fate.told.is_some_and(|told| told < *started) && !fate.is_revived {
                    return Err(format!(
                        "{} was told to be released, and then to be held",
                        short(who)
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
