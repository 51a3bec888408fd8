//! Who hands in what it knows of a lease gets nothing that it does not have: it may have made it up.

use std::collections::{HashMap, HashSet};

use leasehold_core::{Fence, Holder, Reply, Request};

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

/// Which fences nodes gave to whom.
#[derive(Debug, Default)]
pub(super) struct Claims {
    given: HashMap<Holder, HashSet<Fence>>,
}

impl Invariant for Claims {
    fn promise(&self) -> &'static str {
        "claims"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        let Happening::Applied { node, request, reply, before, after } = happening else {
            return Ok(());
        };
        match (&**request, reply) {
            (Request::Acquire { holder, proposal, .. }, Reply::Granted) => {
                self.given.entry(holder.clone()).or_default().insert(*proposal);
                Ok(())
            }
            (Request::Extend { holder, token, next, unbroken: true, .. }, reply) => {
                let is_refused = !matches!(reply, Reply::Extended { .. } | Reply::Healed { .. });
                let is_given = |fences: &HashSet<Fence>| {
                    fences.iter().any(|fence| (token..=next).contains(&fence))
                };
                let is_its_own = before.as_ref() == Some(holder)
                    && matches!(reply, Reply::Extended { .. })
                    && self.given.get(holder).is_some_and(is_given);
                if before == after && (is_refused || is_its_own) {
                    return Ok(());
                }
                let who = short(holder);
                Err(format!("node {node} answered a claim of {who} for {token} to {next}: {reply}"))
            }
            _ => Ok(()),
        }
    }
}
