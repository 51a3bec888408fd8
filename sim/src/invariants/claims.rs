//! Who hands in what it knows of a lease gets nothing that it does not have: it may have made it up.

use leasehold_core::{Reply, Request};

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

#[derive(Debug)]
pub(super) struct Claims;

impl Invariant for Claims {
    fn promise(&self) -> &'static str {
        "claims"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        let Happening::Applied { node, request, reply, before, after } = happening else {
            return Ok(());
        };
        let Request::Extend { holder, unbroken: true, .. } = &**request else { return Ok(()) };
        let is_confirmed = matches!(reply, Reply::Extended { .. });
        let is_owner = before.as_ref() == Some(holder);
        let is_healed = matches!(reply, Reply::Healed { .. });
        if before == after && !is_healed && (is_owner || !is_confirmed) {
            return Ok(());
        }
        Err(format!("node {node} answered a claim of {} with {reply}", short(holder)))
    }
}
