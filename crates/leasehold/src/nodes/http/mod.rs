//! A lock server, `leasehold serve`, as a node: the only one of its list, a quorum of one. Whether its
//! own nodes have a quorum is the server's to judge; it says so, and its words are passed on.
//!
//! `call` turns requests into calls of its interface, `answer` turns answers into replies, `order`
//! keeps the order in which they are asked, `pool` keeps the connections, `watch` follows the events
//! of locks that somebody waits for, `made_up` tells what a proxy answered in the server's place.
//!
//! The server makes the fences, so a lease cannot be raised to a higher number, and the proposals of
//! the core are not used.

mod answer;
mod call;
mod events;
#[cfg(test)]
mod fuzz;
mod made_up;
mod order;
mod pool;
mod url;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Answer, Facts, Fence, Holder, LockName, NO_REPLICATION, NodeError, Reply, Request, Role,
    ServerFacts, Ttl,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::answer::{Asked, RUN_ID, Response};
use self::call::{Call, lease_id};
use self::order::{Order, Place as InOrder};
use self::pool::{Patience, Pool};
pub use self::url::{Parsed, ServerConfig, TokenFileError, UrlError, parse_url};
use self::watch::Watches;
use crate::clock::Clock;
use crate::node::{Ask, InLine, Node, NodeId, OnPlace, OnWatched, Place, Ticket, Watch};
#[cfg(feature = "tls")]
use crate::nodes::tls::{Tls, TlsError};

/// An answer that comes this long after its limit is still waited for: an extension may count, and a
/// release must not overtake what it takes back.
const LATE: Duration = Duration::from_secs(2);
/// A release is tried for at least this long, whatever its limit: what it does not reach stays for a
/// whole Ttl.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);
/// How long a release waits for a proxy to find its server again.
const RELEASE_AGAIN: Duration = Duration::from_millis(100);
/// A list has at most so many pages, of a thousand locks each.
const PAGES_MAX: usize = 1000;

/// One lock server, or several behind one address.
pub struct ServerNode {
    id: NodeId,
    runtime: Handle,
    desk: Arc<Desk>,
    order: Arc<Order>,
    watches: Arc<Watches>,
    generation: tokio::sync::watch::Sender<u64>,
}

/// What carries requests out.
struct Desk {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    label: Arc<str>,
    max_ttl_default: Duration,
    /// Its name and version, once known.
    version: Mutex<Option<String>>,
}

/// Why a node cannot even be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A certificate or a key is not what it should be.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// `https://` in a build without the feature `tls`.
    #[error("https:// needs the feature `tls`, which this build lacks")]
    NoTls,
    /// The file with the token is not what it should be.
    #[error(transparent)]
    Token(#[from] TokenFileError),
}

/// What a node needs to know beside its address.
pub(crate) struct Surroundings {
    pub(crate) clock: Arc<dyn Clock>,
    /// Where connections and requests live.
    pub(crate) runtime: Handle,
    /// Who forces releases, for the server's audit.
    pub(crate) label: Arc<str>,
    /// Where the server does not tell.
    pub(crate) max_ttl_default: Duration,
}

impl ServerNode {
    /// A node that connects when it is asked. Whether the server is there does not matter: until it
    /// is, requests are answered with the reason.
    pub(crate) fn new(config: ServerConfig, around: Surroundings) -> Result<Self, SetupError> {
        #[cfg(not(feature = "tls"))]
        if config.tls.is_some() {
            return Err(SetupError::NoTls);
        }
        #[cfg(feature = "tls")]
        let tls = match &config.tls {
            Some(paths) => Some(Tls::new(paths, &config.host)?),
            None => None,
        };
        let authorization = config.authorization()?;
        let id = config.id();
        if authorization.is_some() && config.tls.is_none() && !config.is_loopback() {
            tracing::warn!(node = %id, "the token goes over the network in clear: use https://");
        }
        let pool = Arc::new(Pool::new(
            config,
            authorization,
            #[cfg(feature = "tls")]
            tls,
        ));
        let Surroundings { clock, runtime, label, max_ttl_default } = around;
        let watches = Watches::new(pool.clone(), runtime.clone());
        let version = Mutex::default();
        Ok(Self {
            id,
            runtime,
            desk: Arc::new(Desk { pool, clock, label, max_ttl_default, version }),
            order: Arc::default(),
            watches,
            generation: tokio::sync::watch::Sender::new(GENERATION),
        })
    }
}

/// Behind every connection is a server that speaks for the same nodes, so none has to be examined
/// before it is used.
const GENERATION: u64 = 1;

impl Node for ServerNode {
    fn id(&self) -> &NodeId {
        &self.id
    }

    fn ask(&self, ask: Ask) {
        let (place, desk) = (self.order.enter(&ask.request), self.desk.clone());
        self.runtime.spawn(async move { desk.carry_out(ask, place).await });
    }

    fn generation(&self) -> tokio::sync::watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn raises(&self) -> bool {
        false
    }

    fn watch(&self, lock: &LockName, told: OnWatched) -> Option<Watch> {
        Some(self.watches.watch(lock, told))
    }

    /// The server keeps no line in which one could stand without waiting there: whoever waits is the
    /// first, and watches.
    fn stand_in_line(
        &self,
        _: &LockName,
        ticket: Option<Ticket>,
        told: OnPlace,
    ) -> Option<Box<dyn Place>> {
        told(InLine::First { ticket: ticket.unwrap_or(Ticket(0)), others: 0 });
        Some(Box::new(Alone))
    }
}

/// The place of one who stands alone.
struct Alone;

impl Place for Alone {
    fn nudge(&self, _: &Holder) {}
}

impl Desk {
    /// Carries a request out when it is its turn.
    async fn carry_out(&self, ask: Ask, place: InOrder) {
        let Ask { request, reply_to, asked, limit, .. } = ask;
        let due = asked + limit;
        let is_release = matches!(*request, Request::Release { .. });
        match *request {
            // Behind what ends by itself, so that this ends, too.
            Request::Release { .. } => place.is_next().await,
            // A look is no reason to wait for long.
            Request::Probe | Request::List { .. } | Request::Inspect { .. } => {
                _ = timeout_at(asked + limit / 2, place.is_next()).await;
            }
            _ => {
                if timeout_at(due, place.is_next()).await.is_err() {
                    let reason = "an earlier request about this lock is not answered yet";
                    let error = NodeError::Overloaded { reason: reason.to_owned() };
                    return reply_to.answer(Err(error));
                }
            }
        }
        if !is_release && !reply_to.is_wanted() {
            return;
        }
        let send_by = if is_release { due.max(Instant::now() + RELEASE_WITHIN) } else { due };
        let patience = Patience { send_by, answer_by: send_by + LATE, limit };
        let answer = self.answer(&request, patience).await;
        // What waits for this goes on before whoever asked does.
        drop(place);
        reply_to.answer(answer);
    }

    async fn answer(&self, request: &Request, patience: Patience) -> Answer {
        let call = |call: Call| async move { self.exchange(&call, patience).await };
        match request {
            Request::Acquire { lock, holder, ttl, .. } => {
                let response = call(Call::acquire(lock, holder, *ttl)).await?;
                answer::acquired(&Asked { lock, holder, ttl: *ttl }, &response, self.clock.wall())
            }
            Request::Extend { lock, holder, token, next, ttl, .. } => {
                self.extend(lock, holder, (*token, *next), *ttl, patience).await
            }
            Request::Release { lock, holder } => {
                answer::released(&self.give_back(Call::release(lock, holder), patience).await?)
            }
            Request::ForceRelease { lock, fence, reason, .. } => {
                let asked = Call::force_release(lock, *fence, &self.label, reason.as_deref());
                answer::force_released(&call(asked).await?)
            }
            Request::Inspect { lock } => {
                let response = call(Call::inspect(lock)).await?;
                answer::seen(lock, &response, self.clock.wall())
            }
            Request::List { prefix } => self.list(prefix, patience).await,
            Request::Probe => self.probe(patience).await,
            // The server looks after its nodes.
            Request::ReplaceRecord { .. } => Ok(Reply::Record { replaced: false }),
            Request::ForgetIdle { .. } => Ok(Reply::Forgot { fences: 0 }),
        }
    }

    /// Sends one request and reads the server's answer.
    async fn exchange(&self, call: &Call, patience: Patience) -> Result<Response, NodeError> {
        let response = self.pool.exchange(call, patience).await?;
        made_up::by_a_proxy(&response).map_or(Ok(response), Err)
    }

    /// A proxy that lost its server says so at once, and may find it again while there is time.
    async fn give_back(&self, call: Call, patience: Patience) -> Result<Response, NodeError> {
        loop {
            let response = self.pool.exchange(&call, patience).await?;
            let again = Instant::now() + RELEASE_AGAIN;
            if !made_up::lost_its_server(&response) || again >= patience.send_by {
                return made_up::by_a_proxy(&response).map_or(Ok(response), Err);
            }
            sleep_until(again).await;
        }
    }

    async fn extend(
        &self,
        lock: &LockName,
        holder: &Holder,
        (token, next): (Fence, Fence),
        ttl: Ttl,
        patience: Patience,
    ) -> Answer {
        let id = lease_id(lock, holder, token, next, ttl.get());
        let response = self.exchange(&Call::renew(&id), patience).await?;
        let asked = Asked { lock, holder, ttl };
        if let Some(answer) = answer::renewed(&asked, (token, next), &response, self.clock.wall()) {
            return answer;
        }
        let look = self.exchange(&Call::inspect(lock), patience).await;
        // That it is gone stands; who has it now is only of interest.
        let gone = look.and_then(|response| answer::gone(lock, next, &response, self.clock.wall()));
        Ok(gone.unwrap_or(Reply::NotHeld { owner: None }))
    }

    async fn list(&self, prefix: &str, patience: Patience) -> Answer {
        let (mut locks, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let call = Call::list(prefix, cursor.as_deref());
            let response = self.exchange(&call, patience).await?;
            let page = answer::listed(&response, self.clock.wall())?;
            locks.extend(page.locks);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Reply::Locks(locks));
            }
        }
        let reason = format!("a list of more than {PAGES_MAX} pages: ask for a longer prefix");
        Err(NodeError::Rejected { reason })
    }

    async fn probe(&self, patience: Patience) -> Answer {
        let facts = self.facts(patience).await;
        if facts.is_err() {
            // Whoever answers next may be another.
            *self.known_version() = None;
        }
        facts.map(|facts| Reply::Facts(Box::new(facts)))
    }

    async fn facts(&self, patience: Patience) -> Result<Facts, NodeError> {
        let response = self.exchange(&Call::get("/v1/cluster"), patience).await?;
        let cluster = answer::cluster(&response)?;
        let server = ServerFacts {
            version: format!("{} at {}", self.version(patience).await?, cluster.backend),
            run_id: RUN_ID.to_owned(),
            replication_id: NO_REPLICATION.to_owned(),
            role: Role::Primary,
            evicts: None,
            persists: cluster.persists,
            expires_by_wall: false,
        };
        let record = Some(answer::record(&cluster, self.max_ttl_default).to_string());
        let (generation, clock) = (GENERATION, self.clock.wall());
        let (others, unmet, addresses) = (Vec::new(), 0, 1);
        let (highest, has_spent) = (Fence::ZERO, false);
        Ok(Facts {
            generation,
            clock,
            record,
            highest,
            has_spent,
            server,
            others,
            unmet,
            addresses,
        })
    }

    fn known_version(&self) -> MutexGuard<'_, Option<String>> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn version(&self, patience: Patience) -> Result<String, NodeError> {
        if let Some(version) = self.known_version().clone() {
            return Ok(version);
        }
        let response = self.exchange(&Call::get("/v1/version"), patience).await?;
        let version = answer::version(&response)?;
        Ok(self.known_version().insert(version).clone())
    }
}

impl fmt::Debug for ServerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerNode({})", self.id)
    }
}
