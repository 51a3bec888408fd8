//! What all requests share. Nothing here decides about a lock: the nodes do, so any instance can answer
//! any request, and one that dies takes nothing along.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use leasehold::{DEFAULT_TTL, LeaseToken, Locks, ReleaseOutcome};
use tracing::info;

use crate::access::Access;
use crate::connections::Connections;
use crate::delivery::Delivery;
use crate::ledger::{Answer, Ledger};
use crate::observer::Observed;
use crate::settings::{Limits, Settings};
use crate::tasks::Tasks;
use crate::tokens::Tokens;
use crate::waiting::Waiting;

/// What all requests share.
pub(crate) struct App {
    pub(crate) locks: Locks,
    /// What the backend is called.
    pub(crate) backend: String,
    /// What happened here.
    pub(crate) ledger: Ledger,
    /// Who may call.
    pub(crate) access: Access,
    limits: RwLock<Limits>,
    /// Who waits for a lock here.
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) tasks: Tasks,
    /// What was seen of the locks.
    pub(crate) observed: Observed,
}

/// Where a request came from.
pub(crate) struct Asked {
    pub(crate) at: Instant,
    /// The address it came from, without the port.
    pub(crate) from: Arc<str>,
    pub(crate) delivery: Arc<Delivery>,
}

impl App {
    pub(crate) fn new(locks: Locks, settings: Settings, tokens: Option<Tokens>) -> Self {
        Self {
            ledger: Ledger::new(&settings.backend, &settings.metrics_locks, &locks),
            locks,
            backend: settings.backend,
            access: Access::new(tokens),
            limits: RwLock::new(settings.limits),
            waiting: Arc::default(),
            connections: Arc::default(),
            tasks: Tasks::default(),
            observed: Observed::new(),
        }
    }

    /// What is refused.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other limits from now on. What was let in under the old ones goes on, except connections that do
    /// nothing.
    pub(crate) fn replace_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
        self.connections.shrink(limits.max_connections);
    }

    /// Gives a lease back and tells of it.
    pub(crate) async fn release(&self, token: &LeaseToken) -> ReleaseOutcome {
        // A short lease leaves the nodes little time to answer; a release has as much as any.
        let mut patient = token.clone();
        patient.ttl = patient.ttl.max(DEFAULT_TTL);
        let releasing = self.ledger.releasing(token);
        let outcome = self.locks.release(&patient).await;
        self.ledger.released(token, releasing, &outcome);
        outcome
    }

    /// Gives back what nobody heard of. Not waited for: whoever asked is gone.
    pub(crate) fn give_back(self: &Arc<Self>, token: LeaseToken, answer: Answer) {
        let app = self.clone();
        self.tasks.spawn(async move {
            let outcome = app.release(&token).await;
            // Until then nobody may be told of it.
            drop(answer);
            info!(lock = %token.name, fence = %token.fence, ?outcome, "granted, but nobody to tell");
        });
    }
}
