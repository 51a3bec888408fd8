//! No server is counted twice in one ballot, under whatever names a process knows it.

use crate::clock::Time;
use crate::history::{Happening, Invariant, short};

#[derive(Debug)]
pub(super) struct CountedOnce;

impl Invariant for CountedOnce {
    fn promise(&self) -> &'static str {
        "counted once"
    }

    fn watch(&mut self, _: Time, happening: &Happening) -> Result<(), String> {
        let (Happening::Acquired { who, votes, .. } | Happening::Extended { who, votes, .. }) =
            happening
        else {
            return Ok(());
        };
        let is_counted_before = |place: usize| {
            let server = votes[place].server;
            votes[..place].iter().any(|vote| vote.server == server).then_some(server)
        };
        match (0..votes.len()).find_map(is_counted_before) {
            None => Ok(()),
            Some(server) => Err(format!("{} counted server {server} twice", short(who))),
        }
    }
}
