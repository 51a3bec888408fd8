//! What all requests share. Nothing here decides about a lock: the nodes do, so any instance can answer
//! any request, and one that dies takes nothing along.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use leasehold::{DEFAULT_TTL, LeaseToken, LockName, LockStatus, Locks, ReleaseOutcome};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::connections::Connections;
use crate::delivery::Delivery;
use crate::events::{Events, More};
use crate::idempotency::Idempotency;
use crate::known::{Granted, Known, Owned};
use crate::metrics::Metrics;
use crate::settings::{Limits, Settings};
use crate::stats::Stats;
use crate::tokens::Tokens;
use crate::view;
use crate::waiting::Waiting;

/// What all requests share.
pub(crate) struct App {
    pub(crate) locks: Locks,
    /// What the backend is called.
    pub(crate) backend: String,
    limits: RwLock<Limits>,
    pub(crate) metrics: Metrics,
    pub(crate) events: Arc<Events>,
    pub(crate) stats: Stats,
    pub(crate) known: Known,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) keys: Arc<Idempotency>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) started: Instant,
    /// Everything under way: the server does not end before it does.
    pub(crate) tasks: TaskTracker,
    /// Set when the server is to end.
    pub(crate) draining: CancellationToken,
    /// The last look at all locks.
    pub(crate) listing: Mutex<Arc<Listing>>,
    /// The overview as text, while somebody listens.
    pub(crate) overview: watch::Sender<Arc<str>>,
    access: RwLock<Arc<Access>>,
    /// Requests under way, by whom.
    pub(crate) under_way: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// All locks that were held at a moment.
pub(crate) struct Listing {
    pub(crate) at: Instant,
    pub(crate) wall: SystemTime,
    pub(crate) locks: Vec<LockStatus>,
}

/// Who may call; replaced as a whole.
pub(crate) struct Access {
    pub(crate) tokens: Option<Tokens>,
    /// Cancelled when it is replaced: streams end, so that whoever was let in has to ask again.
    pub(crate) replaced: CancellationToken,
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
        let mut instance = [0; 4];
        // Only to tell instances apart.
        let _ = getrandom::fill(&mut instance);
        let metrics = Metrics::new(&settings.backend, locks.nodes().len(), locks.quorum());
        metrics.leases.list(&settings.metrics_locks);
        let listing = Listing { at: Instant::now(), wall: SystemTime::now(), locks: Vec::new() };
        Self {
            locks,
            backend: settings.backend,
            limits: RwLock::new(settings.limits),
            metrics,
            events: Arc::new(Events::new(view::hex(&instance))),
            stats: Stats::new(),
            known: Known::default(),
            waiting: Arc::default(),
            keys: Arc::default(),
            connections: Arc::default(),
            started: Instant::now(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            listing: Mutex::new(Arc::new(listing)),
            overview: watch::Sender::new(Arc::from("")),
            access: RwLock::new(Arc::new(Access { tokens, replaced: CancellationToken::new() })),
            under_way: Arc::default(),
        }
    }

    pub(crate) fn access(&self) -> Arc<Access> {
        self.access.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other tokens from now on.
    pub(crate) fn replace_access(&self, tokens: Option<Tokens>) {
        let access = Arc::new(Access { tokens, replaced: CancellationToken::new() });
        let mut current = self.access.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, access).replaced.cancel();
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

    pub(crate) fn listing(&self) -> Arc<Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For the record: what somebody did, or was kept from doing.
    pub(crate) fn audit(&self, what: &'static str, by: &str, lock: Option<&LockName>, why: &str) {
        let name = lock.map(LockName::as_str);
        warn!(target: "leasehold::audit", what, by, lock = name, why, "audit");
        let members = json!({"what": what, "by": by, "reason": why});
        self.events.tell("audit", lock.cloned(), members);
    }

    /// A lease was granted here.
    pub(crate) fn granted(
        &self,
        token: &LeaseToken,
        waited: Duration,
        left: Duration,
        reason: Option<String>,
    ) {
        let now = Instant::now();
        let (holder, fence, expires) = (token.holder.clone(), token.fence.get(), Some(now + left));
        let more = More::Lease {
            holder: holder.clone(),
            fence,
            waited: Some(waited),
            reason: reason.clone(),
        };
        let granted = Some(Granted { ttl: token.ttl, reason });
        self.began(&token.name, Owned { holder, fence, at: now, expires, granted }, more);
    }

    /// A lock has a new owner. Whoever had it before, and did not give it back, has it no more.
    pub(crate) fn began(&self, lock: &LockName, owned: Owned, more: impl Into<More>) {
        if let Some(before) = self.known.began(lock, owned) {
            self.expired(lock, &before);
        }
        self.events.tell("acquired", Some(lock.clone()), more);
    }

    /// A lease ran out, which is a loss for whoever got it here.
    pub(crate) fn expired(&self, lock: &LockName, owned: &Owned) {
        if owned.granted.is_some() {
            self.metrics.leases.lost("expired");
            self.stats.lost();
            let (holder, fence) = (owned.holder.label(), owned.fence);
            warn!(%lock, holder, fence, "a lease ran out before its holder gave it back");
        }
        let members = json!({"holder": owned.holder.label(), "fence": owned.fence, "seen": true});
        self.events.tell("expired", Some(lock.clone()), members);
    }

    /// Gives a lease back and tells of it.
    pub(crate) async fn release(&self, token: &LeaseToken) -> ReleaseOutcome {
        // A short lease leaves the nodes little time to answer; a release has as much as any.
        let mut patient = token.clone();
        patient.ttl = patient.ttl.max(DEFAULT_TTL);
        // Whoever gets the lock next may be told of it before we are: that is no loss.
        let was_known = self.known.ended(&token.name, &token.holder);
        let outcome = self.locks.release(&patient).await;
        let (word, event, lost) = match &outcome {
            ReleaseOutcome::Released => ("released", "released", None),
            ReleaseOutcome::AlreadyExpired => ("expired", "expired", Some("expired")),
            ReleaseOutcome::TakenOver { .. } => ("taken_over", "lost", Some("stolen")),
            _ => ("unknown", "", None),
        };
        let held_for = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH + Duration::from_micros(token.fence.get()))
            .ok()
            .filter(|_| word == "released");
        self.metrics.leases.released(word, held_for);
        if event.is_empty() {
            return outcome;
        }
        if word == "released" {
            self.known.gave_back(&token.holder);
            self.stats.released();
        }
        if let Some(reason) = lost.filter(|_| was_known.is_some()) {
            self.metrics.leases.lost(reason);
            self.stats.lost();
        }
        if word == "released" || was_known.is_some() {
            self.events.tell(event, Some(token.name.clone()), More::lease(token));
        }
        outcome
    }

    /// Gives back what nobody heard of. Not waited for: whoever asked is gone.
    pub(crate) fn give_back(self: &Arc<Self>, token: LeaseToken) {
        let app = self.clone();
        self.tasks.spawn(async move {
            let outcome = app.release(&token).await;
            info!(lock = %token.name, fence = %token.fence, ?outcome, "granted, but nobody to tell");
        });
    }

    /// A lease is no more, though its holder did not give it back.
    pub(crate) fn lost(&self, token: &LeaseToken, reason: &'static str, why: &str) {
        self.metrics.leases.lost(reason);
        self.stats.lost();
        self.known.ended(&token.name, &token.holder);
        let (holder, fence) = (token.holder.label(), token.fence.get());
        warn!(lock = %token.name, holder, fence, reason, why, "a lease is lost");
        let members = json!({"holder": holder, "fence": fence, "why": why});
        self.events.tell("lost", Some(token.name.clone()), members);
    }
}
