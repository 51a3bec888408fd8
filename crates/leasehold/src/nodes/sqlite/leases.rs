//! What this process holds by its node, as far as the node can tell. As long as there is any, the
//! file is looked at ten times a second: a holder whose file is gone must be told.

use std::collections::HashMap;
use std::time::Instant;

use leasehold_core::{LockName, Reply, Request};

/// Until when each lease stands in the file, at least.
#[derive(Debug, Default)]
pub(super) struct Leases(HashMap<LockName, Instant>);

impl Leases {
    /// Takes in what `request`, made at `now`, was answered with.
    pub(super) fn note(&mut self, now: Instant, request: &Request, reply: &Reply) {
        match (request, reply) {
            (
                Request::Acquire { lock, ttl, .. } | Request::Extend { lock, ttl, .. },
                Reply::Granted | Reply::Extended { .. } | Reply::Healed { .. },
            ) => {
                let Some(until) = now.checked_add(ttl.get()) else { return };
                let known = self.0.entry(lock.clone()).or_insert(until);
                *known = until.max(*known);
            }
            (Request::Release { lock, .. }, Reply::Released) => {
                self.0.remove(lock);
            }
            _ => {}
        }
    }

    /// Some of them may be over.
    pub(super) fn are_any(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn forget_ended(&mut self, now: Instant) {
        self.0.retain(|_, until| *until > now);
    }
}
