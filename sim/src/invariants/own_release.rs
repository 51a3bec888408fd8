//! Nobody ends another's ownership: what a release takes away was the releaser's own, and what a
//! refused request meets stays as it was.

use leasehold_core::{Reply, Request};

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

#[derive(Debug)]
pub(super) struct OwnRelease;

impl Invariant for OwnRelease {
    fn promise(&self) -> &'static str {
        "own release"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        let Happening::Applied { node, request, reply, before: Some(owner), after } = happening
        else {
            return Ok(());
        };
        let asker = match &**request {
            Request::Acquire { holder, .. }
            | Request::Extend { holder, .. }
            | Request::Release { holder, .. } => holder,
            _ => return Ok(()),
        };
        let is_stranger = matches!(reply, Reply::Stranger { .. });
        if asker == owner || after.as_ref() == Some(owner) || is_stranger {
            return Ok(());
        }
        Err(format!(
            "node {node} took the lock from {} upon a request of {}: {reply}",
            short(owner),
            short(asker),
        ))
    }
}
