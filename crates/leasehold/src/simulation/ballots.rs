//! Judges each round that a client won, acquires and extensions alike, in the moment that it is won.
//! The library tells which votes it counted (`driver/trail`), the servers know what they carried out.

use std::fmt::Debug;
use std::sync::Arc;

use leasehold_core::{Moment, Reply, Request};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::court::sits_out;
use super::site::{Received, Site};
use super::world::World;

const TARGET: &str = "leasehold::ballot";

/// Hears what the clients of this thread tell.
pub(super) struct Ballots {
    world: Arc<World>,
    servers: Vec<Arc<Site>>,
    needed: usize,
}

/// A round that was won.
#[derive(Debug, Default)]
struct Won {
    lock: String,
    holder: String,
    fence: u64,
    asked_at: u64,
    /// Of each vote: the member, the life, the run id of the server, and the word.
    votes: String,
}

impl Ballots {
    pub(super) fn new(world: &Arc<World>, servers: &[Arc<Site>], needed: usize) -> Self {
        Self { world: world.clone(), servers: servers.to_vec(), needed }
    }

    /// A quorum of different servers must have said yes to this very round, each of them while it
    /// was allowed to vote.
    fn judge(&self, won: &Won) {
        let mut voters: Vec<_> =
            won.votes.split(' ').filter_map(|vote| self.voter(won, vote)).collect();
        voters.sort_unstable();
        voters.dedup();
        self.world.require(voters.len() >= self.needed, || {
            format!("{won:?} rests on {} server(s): {voters:?}", voters.len())
        });
    }

    /// The server that gave a vote, if it was allowed to.
    fn voter(&self, won: &Won, vote: &str) -> Option<&str> {
        let (name, _life) = vote.split('|').nth(2)?.rsplit_once('-')?;
        let server = self.servers.iter().find(|server| server.name.as_str() == name)?;
        let granted = server.received(|entry| won.is_granted_by(entry));
        let is_sound = |(index, entry): &(usize, Received)| {
            !sits_out(&self.servers, self.needed, server, (*index, entry))
        };
        granted.iter().any(is_sound).then_some(server.name.as_str())
    }
}

impl Won {
    /// Whether this is a server's yes to the round. Of two extensions that were both under way it may
    /// be the other.
    fn is_granted_by(&self, entry: &Received) -> bool {
        let (holder, fence) = match &entry.request {
            Request::Acquire { holder, proposal, .. } => (holder, proposal),
            Request::Extend { holder, next, .. } => (holder, next),
            _ => return false,
        };
        let is_yes =
            matches!(entry.reply, Reply::Granted | Reply::Extended { .. } | Reply::Healed { .. });
        let lock = entry.request.lock().map(|lock| lock.as_str());
        is_yes
            && lock == Some(&self.lock)
            && holder.as_str() == self.holder
            && fence.get() == self.fence
            // By the client's clock, which is behind where it missed a pause.
            && entry.at >= Moment::from_nanos(self.asked_at)
    }
}

impl Visit for Won {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "lock" => self.lock = value.to_owned(),
            "holder" => self.holder = value.to_owned(),
            "votes" => self.votes = value.to_owned(),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "fence" => self.fence = value,
            "asked_at_ns" => self.asked_at = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Ballots {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET
    }

    fn event(&self, event: &Event<'_>) {
        let mut won = Won::default();
        event.record(&mut won);
        self.judge(&won);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
