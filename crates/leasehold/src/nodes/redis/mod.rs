//! One Redis or Valkey server as a node, over one pipelined connection of our own.
//!
//! * A lock is a string key `<prefix><name>` with the holder as its value and a TTL.
//! * The identity record is the string key `leasehold:node`.
//! * All fences stand in the sorted set `leasehold:fences:<SHA-1 of the identity record>`: member =
//!   the lock's key, score = the fence. It is renamed in the same step that changes the record, so
//!   a fence that is found there also tells that the record is still the one that the asker knows.
//!
//! `exchange` turns requests into commands, `answer` and `read` turn replies into answers, `queue`
//! keeps the order, `handshake` opens and `task` runs the connection, a `link`. `script` says how a
//! vote is bound to the server that was examined, `beside` compares two connections.

mod answer;
mod beside;
mod exchange;
#[cfg(test)]
mod fuzz;
mod handshake;
mod hints;
mod info;
mod link;
mod queue;
mod read;
mod resp;
mod script;
mod task;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LockName, NodeError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::beside::Beside;
#[cfg(test)]
pub(crate) use self::exchange::fences_of;
use self::exchange::{FENCES, IDENTITY};
#[cfg(test)]
pub(crate) use self::hints::script_name as hint_script_name;
use self::hints::{Hints, LINE, Nudges, Opener, SEEN};
#[cfg(test)]
pub(crate) use self::link::{Dial, Opening, Reader, Writer};
use self::queue::Queue;
#[cfg(test)]
pub(crate) use self::script::{name_of as script_name, sha1};
use self::task::Dialer;
pub use self::url::{Parsed, RedisConfig, UrlError, parse_url};
use crate::background::spawn_here;
use crate::node::{Ask, Meeting, Node, NodeId, OnNudge, OnPlace, OnWatched, Place, Ticket, Watch};
#[cfg(feature = "tls")]
use crate::nodes::tls::Tls;
#[cfg(feature = "tls")]
pub use crate::nodes::tls::TlsError;

/// What stands before a lock's name unless something else is set. `leasehold:` alone would let a
/// lock called `node` meet the identity record.
pub const DEFAULT_PREFIX: &str = "leasehold:lock:";

/// One Redis or Valkey server, standalone or the primary of a replicated pair.
pub struct RedisNode {
    id: NodeId,
    prefix: Arc<str>,
    /// Whether there are names that would make one of our own keys.
    may_meet_own_keys: bool,
    queue: Arc<Queue>,
    opener: Arc<Opener>,
    hints: Hints,
    nudges: Arc<Nudges>,
    closing: CancellationToken,
}

/// Why a node cannot even be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A certificate or a key is not what it should be.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// `rediss://` in a build without the feature `tls`.
    #[error("rediss:// needs the feature `tls`, which this build lacks")]
    NoTls,
}

impl RedisNode {
    /// A node that connects, and stays connected, in the background on `runtime`. Whether the
    /// network is there does not matter: until it is, requests are answered with the reason.
    ///
    /// `prefix` stands before each lock's name, as [`DEFAULT_PREFIX`] does. Requests wait up to
    /// `limit` for an attempt to connect; beyond that they are refused while it goes on.
    pub fn connect(
        config: RedisConfig,
        prefix: Arc<str>,
        limit: Duration,
        runtime: Handle,
    ) -> Result<Self, SetupError> {
        #[cfg(not(feature = "tls"))]
        if config.tls.is_some() {
            return Err(SetupError::NoTls);
        }
        #[cfg(feature = "tls")]
        let tls = match (&config.tls, &config.address) {
            (Some(paths), url::Address::Tcp { host, .. }) => Some(Tls::new(paths, host)?),
            _ => None,
        };
        let closing = CancellationToken::new();
        let beside = Arc::new(Beside::default());
        let opener = Arc::new(Opener {
            config: config.clone(),
            #[cfg(feature = "tls")]
            tls: tls.clone(),
            runtime: runtime.clone(),
            closing: closing.clone(),
            beside: Arc::clone(&beside),
        });
        let node = Self {
            id: config.id(),
            may_meet_own_keys: may_meet_own_keys(&prefix),
            prefix: Arc::clone(&prefix),
            queue: Arc::new(Queue::new()),
            hints: Hints::new(Arc::clone(&opener), Arc::clone(&prefix)),
            opener,
            nudges: Arc::new(Nudges::at(config.label.as_deref(), Arc::clone(&prefix))),
            closing,
        };
        let nudges = Arc::clone(&node.nudges);
        let dialer = Dialer {
            #[cfg(feature = "tls")]
            tls,
            config,
            prefix,
            limit,
            nudges,
            beside,
        };
        let serving = task::run(dialer, Arc::clone(&node.queue), node.closing.clone());
        spawn_here(&runtime, serving);
        Ok(node)
    }
}

impl Node for RedisNode {
    fn id(&self) -> &NodeId {
        &self.id
    }

    fn ask(&self, ask: Ask) {
        if self.may_meet_own_keys
            && let Some(lock) = ask.request.lock()
            && let Some(own) = own_key(&self.prefix, lock.as_str())
        {
            let reason = format!("the key `{own}` is leasehold's own: take another name or prefix");
            return ask.reply_to.answer(Err(NodeError::Rejected { reason }));
        }
        self.queue.ask(ask);
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.queue.generation.subscribe()
    }

    fn meet(&self, connections: usize) -> Meeting {
        let opener = Arc::clone(&self.opener);
        Box::pin(async move {
            let mut meetings = JoinSet::new();
            for _ in 0..connections {
                let met = Arc::clone(&opener);
                meetings.spawn_on(async move { met.meet().await }, &opener.runtime);
            }
            let mut met = Vec::new();
            while let Some(meeting) = meetings.join_next().await {
                met.push(meeting.ok().flatten());
            }
            met
        })
    }

    fn redial(&self) {
        self.queue.redial();
    }

    fn watch(&self, lock: &LockName, told: OnWatched) -> Option<Watch> {
        self.hints.watch(lock, told)
    }

    fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> Option<Box<dyn Place>> {
        self.hints.stand_in_line(lock, ticket, told)
    }

    fn on_nudge(&self, told: OnNudge) {
        self.nudges.tell(told);
    }
}

/// Whether any name at all could make one of our own keys.
fn may_meet_own_keys(prefix: &str) -> bool {
    let meets = |own: &str| own.starts_with(prefix) || prefix.starts_with(own);
    [IDENTITY, FENCES, LINE, SEEN].into_iter().any(meets)
}

/// Which of our own keys a lock's key would be, or lie under.
fn own_key(prefix: &str, name: &str) -> Option<&'static str> {
    if IDENTITY.strip_prefix(prefix) == Some(name) {
        return Some(IDENTITY);
    }
    let is_under = |own: &&str| match own.strip_prefix(prefix) {
        Some(rest) => name.starts_with(rest),
        None => prefix.starts_with(*own),
    };
    [FENCES, LINE, SEEN].into_iter().find(is_under)
}

impl Drop for RedisNode {
    /// Releases that were asked for are still sent, within a second.
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisNode({})", self.id)
    }
}
