//! The floor: what a lock on N servers costs if it does nothing but ask them.
//!
//! RESP2 by hand, one connection per node, a command encoded once for all of them, one shared
//! [`Tally`] per question instead of a future per node, and an answer at the q-th yes. The plain mode
//! is `SET name value NX PX ttl` and a script that compares and deletes: no fence, no identity, no
//! lease that is kept, no time limits. The other modes ask other questions with the same client, to
//! tell the price of a question from the price of a client.

mod commands;
mod link;
mod reply;
mod tally;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use commands::Mode;
use commands::Question;
use link::Link;
use tally::Tally;

/// A bare client of N servers.
#[derive(Debug)]
pub(crate) struct Floor {
    links: Vec<Arc<Link>>,
    commands: commands::Commands,
    needed: usize,
    /// Questions somebody waits for.
    in_flight: AtomicUsize,
}

/// What was acquired.
#[derive(Debug)]
pub(crate) struct Held {
    key: String,
    value: String,
}

impl Floor {
    /// Connects to all of `addrs`. Its background work runs in the current runtime.
    pub(crate) async fn connect(addrs: &[String], mode: Mode) -> io::Result<Floor> {
        let commands = commands::Commands::new(mode);
        let mut links = Vec::new();
        for addr in addrs {
            links.push(Link::open(addr, commands.preparations()).await?);
        }
        let needed = links.len() / 2 + 1;
        Ok(Floor { links, commands, needed, in_flight: AtomicUsize::new(0) })
    }

    /// Asks once; `None` if a quorum cannot be had.
    pub(crate) async fn try_acquire(&self, key: &str, value: String) -> Option<Held> {
        let question = self.commands.acquire(key, &value);
        if self.ask(question).await {
            return Some(Held { key: key.to_owned(), value });
        }
        self.ask(self.commands.release(key, &value)).await;
        None
    }

    /// Gives back; false if no quorum knew of it.
    pub(crate) async fn release(&self, held: Held) -> bool {
        self.ask(self.commands.release(&held.key, &held.value)).await
    }

    async fn ask(&self, question: Question) -> bool {
        let alone = self.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        let tally = Tally::new(self.needed, self.links.len());
        for link in &self.links {
            link.send(&question, &tally, alone);
        }
        let won = tally.decided().await;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        won
    }
}
