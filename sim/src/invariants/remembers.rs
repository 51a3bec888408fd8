//! A vote that is counted was given by a server that had forgotten nothing for as long as the
//! longest lease lasts: whatever it forgot before is over.

use crate::clock::Time;
use crate::history::{Happening, Invariant, Shown, short};

/// How long the longest lease lasts.
#[derive(Debug)]
pub(super) struct Remembers(pub(super) Time);

impl Invariant for Remembers {
    fn promise(&self) -> &'static str {
        "remembers"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        let (Happening::Acquired { who, votes, .. } | Happening::Extended { who, votes, .. }) =
            happening
        else {
            return Ok(());
        };
        match votes.iter().find(|vote| vote.at < vote.forgot + self.0) {
            None => Ok(()),
            Some(vote) => Err(format!(
                "{} counted what server {} said at {}, though it had forgotten at {}",
                short(who),
                vote.server,
                Shown(vote.at),
                Shown(vote.forgot)
            )),
        }
    }
}
