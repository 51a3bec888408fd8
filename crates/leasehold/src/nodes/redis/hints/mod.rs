//! What a server tells those who wait, over a second connection that is there only while somebody
//! waits.
//!
//! * A watch is a `GET` with `CLIENT TRACKING`: the server tells when the key changes or goes,
//!   whoever changed it.
//! * A line is the sorted set `leasehold:line:<key>`, waiter to ticket, and `leasehold:seen:<key>`,
//!   waiter to the moment until which it counts as alive. Who comes to be first is told through the
//!   channel of its process.
//! * A nudge goes to the channel of the holder's label, to which processes listen on their first
//!   connection.
//!
//! `state` is what everybody shares, `task` moves the bytes.

mod nudge;
mod owners;
mod state;
mod task;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use leasehold_core::{Holder, LockName, NodeError};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub(super) use self::nudge::Nudges;
use self::state::{State, TellPlace, TellWatch};
use super::beside::Beside;
use super::handshake::{WAITING_NAME, log_in, meet};
use super::link::Link;
use super::script::Script;
use super::url::RedisConfig;
use crate::background::spawn_here;
use crate::node::{InLine, Place, Ticket, Watch, Watched};

/// Stands before a lock's key: its line.
pub(super) const LINE: &str = "leasehold:line:";
/// Stands before a lock's key: when those in its line were last heard of.
pub(super) const SEEN: &str = "leasehold:seen:";
/// Stands before the name of a process: where it hears that it is first. The scripts know it, too.
const TURN: &str = "leasehold:turn:";

static STAND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("stand.lua")));
static LEAVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("leave.lua")));

/// What a script does, by its text, for a simulated server.
#[cfg(test)]
pub(crate) fn script_name(text: &str) -> Option<&'static str> {
    [("stand", &STAND), ("leave", &LEAVE)]
        .into_iter()
        .find_map(|(name, known)| (known.text == text).then_some(name))
}

/// How long a connection may take that is opened to compare: somebody waits for it.
const MEET_WITHIN: Duration = Duration::from_secs(1);

/// How further connections are opened.
pub(super) struct Opener {
    pub(super) config: RedisConfig,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<crate::nodes::tls::Tls>,
    pub(super) runtime: Handle,
    pub(super) closing: CancellationToken,
    pub(super) beside: Arc<Beside>,
}

impl Opener {
    async fn open(&self) -> Result<Link, NodeError> {
        let config = &self.config;
        let mut link = Link::open(
            &config.address,
            #[cfg(feature = "tls")]
            self.tls.as_ref(),
        )
        .await?;
        log_in(&mut link, config, WAITING_NAME).await?;
        Ok(link)
    }

    /// Opens a connection only to see who answers. `None` if nobody does.
    pub(super) async fn meet(&self) -> Option<String> {
        let met = async { meet(&mut self.open().await?).await };
        match tokio::time::timeout(MEET_WITHIN, met).await {
            Ok(Ok(run_id)) => Some(run_id),
            Ok(Err(error)) => {
                tracing::debug!(node = %self.config.id(), %error, "no connection to compare");
                None
            }
            Err(_) => None,
        }
    }
}

/// One node's hints.
pub(super) struct Hints {
    opener: Arc<Opener>,
    prefix: Arc<str>,
    state: Arc<State>,
}

impl Hints {
    pub(super) fn new(opener: Arc<Opener>, prefix: Arc<str>) -> Self {
        let state = Arc::new(State::new(crate::chance::nonce()));
        Self { opener, prefix, state }
    }

    pub(super) fn watch(&self, lock: &LockName, told: Box<TellWatch>) -> Option<Watch> {
        self.ready()?;
        let key = self.key(lock);
        let number = self.state.watch(&key, told);
        Some(Box::new(RedisWatch { state: self.state.clone(), key, number }))
    }

    pub(super) fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: Box<TellPlace>,
    ) -> Option<Box<dyn Place>> {
        self.ready()?;
        let key = self.key(lock);
        let number = self.state.enter(&key, ticket, told.into());
        Some(Box::new(RedisPlace { state: self.state.clone(), key, number }))
    }

    /// Sees to it that there is a connection, unless there was none a moment ago.
    fn ready(&self) -> Option<()> {
        if self.state.is_to_be_opened()? {
            let serving = task::run(self.opener.clone(), self.state.clone());
            spawn_here(&self.opener.runtime, serving);
        }
        Some(())
    }

    fn key(&self, lock: &LockName) -> Arc<str> {
        format!("{}{lock}", self.prefix).into()
    }
}

struct RedisWatch {
    state: Arc<State>,
    key: Arc<str>,
    number: u64,
}

impl Drop for RedisWatch {
    fn drop(&mut self) {
        self.state.unwatch(&self.key, self.number);
    }
}

struct RedisPlace {
    state: Arc<State>,
    key: Arc<str>,
    number: u64,
}

impl Place for RedisPlace {
    fn nudge(&self, owner: &Holder) {
        self.state.nudge(self.number, owner.label());
    }
}

impl Drop for RedisPlace {
    fn drop(&mut self) {
        self.state.leave(&self.key, self.number);
    }
}

/// A word for somebody, to be said once the mutex is free.
enum Word {
    Watch(Box<TellWatch>, Watched),
    Place(Arc<TellPlace>, InLine),
}

fn say(words: Vec<Word>) {
    for word in words {
        match word {
            Word::Watch(told, word) => told(word),
            Word::Place(told, word) => told(word),
        }
    }
}
