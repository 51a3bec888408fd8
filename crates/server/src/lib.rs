//! The lock server: Leasehold's locks over HTTP, for every language.
//!
//! Stateless: what decides about a lock stands on the nodes, and a lease id carries what any instance
//! needs to renew or release it. So several instances serve the same nodes behind a load balancer, and one
//! that dies takes nothing along.
//!
//! ```text
//!  serve: connections, limits, TLS ──►  routes: parse, one call, answer ──►  leasehold::Locks
//!                                         │
//!                                         └──►  ledger: one method per fact  (may be forgotten)
//! ```

mod access;
mod app;
mod ask;
mod body;
mod caller;
mod connections;
mod dashboard;
mod delivery;
mod lease_id;
mod ledger;
mod observer;
mod problem;
mod proxies;
mod routes;
mod serve;
mod settings;
mod shared;
mod table;
mod tasks;
mod tls;
mod tokens;
mod trace;
mod view;
mod waiting;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use leasehold::Locks;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use app::App;
pub use proxies::Network;
use proxies::Proxies;
use serve::Front;
pub use settings::{Limits, Settings, TlsFiles};
pub use tokens::{Scope, Token, Tokens};

/// Why a server cannot start, or cannot take other settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The file of tokens cannot be used.
    #[error("the tokens {path}: {reason}")]
    Tokens {
        /// Which file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The certificates cannot be used.
    #[error("{0}")]
    Tls(String),
    /// There is nowhere to listen.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// A server that accepts requests.
pub struct Server {
    front: Arc<Front>,
    address: SocketAddr,
    scheme: &'static str,
}

impl Server {
    /// Starts to serve `locks` at `listener`, on the current runtime.
    pub fn start(
        locks: Locks,
        settings: Settings,
        listener: std::net::TcpListener,
    ) -> Result<Self, ServerError> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let (tokens, tls) = read(&settings)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let files = settings.tls.clone();
        let proxies = RwLock::new(Arc::new(Proxies(settings.trusted_proxies.clone())));
        let app = Arc::new(App::new(locks, settings, tokens));
        let tls = tls::Current::new(files, tls);
        let front = Arc::new(Front { tls, proxies, told_of_shortage: Mutex::default(), app });
        front.app.tasks.spawn(tls::watch(front.clone()));
        front.app.tasks.spawn(observer::run(front.app.clone()));
        front.app.tasks.spawn(observer::watch_ends(front.app.clone()));
        front.app.tasks.spawn(front.clone().accept(listener));
        Ok(Self { front, address, scheme })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Takes other settings, and reads tokens and certificates again. If one cannot be used nothing
    /// changes. Requests under way go on as they were let in; the name of the backend stays.
    pub fn reload(&self, settings: &Settings) -> Result<(), ServerError> {
        let (tokens, tls) = read(settings)?;
        let app = &self.front.app;
        let (before, none) = (app.access.rules(), Tokens::default());
        let (old, new) = (before.tokens.as_ref(), tokens.as_ref());
        let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
        let (added, removed) = (new.missing_in(old), old.missing_in(new));
        self.front.tls.replace(settings.tls.clone(), tls);
        let proxies = Arc::new(Proxies(settings.trusted_proxies.clone()));
        *self.front.proxies.write().unwrap_or_else(PoisonError::into_inner) = proxies;
        app.access.replace(tokens);
        app.replace_limits(settings.limits);
        app.ledger.list(&settings.metrics_locks);
        info!(
            tokens_added = added,
            tokens_removed = removed,
            "settings, tokens and certificates were read again"
        );
        Ok(())
    }

    /// Tells those who ask `/readyz` that this server is about to end, and everybody else to open the
    /// next connection anew. Everything is served on, so that a load balancer has time to notice.
    pub fn announce_end(&self) {
        self.front.app.tasks.announce_end();
    }

    /// Ends: no new connections; who waits is told to ask elsewhere; what is under way is answered.
    /// Says whether all of it ended in time.
    pub async fn stop(self) -> bool {
        let front = self.front;
        front.app.tasks.end();
        let drain = front.app.limits().drain;
        let in_time = tokio::time::timeout(drain, front.app.tasks.ended()).await.is_ok();
        if !in_time {
            warn!(connections = front.app.connections.count(), "not all ended within {drain:?}");
        }
        // What was granted and could not be told is given back before the process ends.
        front.app.locks.settle().await;
        in_time
    }
}

/// What the settings name, read from its files.
fn read(settings: &Settings) -> Result<(Option<Tokens>, Option<TlsAcceptor>), ServerError> {
    let tokens = settings.tokens.as_deref().map(Tokens::read).transpose()?;
    let tls = settings.tls.as_ref().map(tls::acceptor).transpose().map_err(ServerError::Tls)?;
    Ok((tokens, tls))
}
