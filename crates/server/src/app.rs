//! What all requests share. Nothing here decides about a lock: the nodes do, so any instance can answer
//! any request, and one that dies takes nothing along.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use leasehold::{
    DEFAULT_TTL, Holder, InspectError, LeaseToken, LockName, LockStatus, Locks, ReleaseOutcome,
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::audit::Refusals;
use crate::connections::Connections;
use crate::delivery::Delivery;
use crate::events::{Events, More};
use crate::idempotency::Idempotency;
use crate::known::{Granted, Known, Owned};
use crate::metrics::Metrics;
use crate::settings::{Limits, Settings};
use crate::shared::{Looks, Shared};
use crate::stats::Stats;
use crate::tokens::Tokens;
use crate::view;
use crate::waiting::Waiting;

/// Why most leases are lost.
pub(crate) const RAN_OUT: &str = "it ran out before its holder gave it back";

/// How far from its last known end a lease may vanish and still have expired.
const NEAR_ITS_END: Duration = Duration::from_millis(750);

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
    refusals: Refusals,
    /// Everything under way: the server does not end before it does.
    pub(crate) tasks: TaskTracker,
    /// Set when it is about to: load balancers are told.
    pub(crate) leaving: CancellationToken,
    /// Set when the server is to end.
    pub(crate) draining: CancellationToken,
    /// The last look at all locks.
    pub(crate) listing: Mutex<Arc<Listing>>,
    /// Lists under way, by prefix, and looks at everything: one for all who ask at once.
    pub(crate) lists: Shared<Result<Arc<Vec<LockStatus>>, InspectError>>,
    pub(crate) overviews: Shared<()>,
    /// When locks were looked at for those who listen to them.
    pub(crate) looks: Looks,
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
            refusals: Refusals::new(Instant::now()),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
            draining: CancellationToken::new(),
            listing: Mutex::new(Arc::new(listing)),
            lists: Shared::default(),
            overviews: Shared::default(),
            looks: Looks::default(),
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
    pub(crate) fn audit(
        &self,
        what: &'static str,
        (by, from): (&str, &str),
        lock: Option<&LockName>,
        why: &str,
    ) {
        let name = lock.map(LockName::as_str);
        warn!(target: "leasehold::audit", what, by, from, lock = name, why, "audit");
        let members = json!({"what": what, "by": by, "from": from, "reason": why});
        self.events.tell("audit", lock.cloned(), members);
    }

    /// For the record, unless there are too many: somebody was kept from doing something.
    pub(crate) fn refused(&self, who: (&str, &str), lock: Option<&LockName>, why: &str) {
        match self.refusals.admit(Instant::now()) {
            Some(0) => self.audit("refused", who, lock, why),
            Some(more) => {
                let why = format!("{why}; {more} refusals before this one are not on record");
                self.audit("refused", who, lock, &why);
            }
            None => _ = self.metrics.http.refusals_left_out.inc(),
        }
    }

    /// A lease was granted here.
    pub(crate) fn granted(
        &self,
        token: &LeaseToken,
        waited: Duration,
        until: Instant,
        reason: Option<String>,
    ) {
        let now = Instant::now();
        let (holder, fence, expires) = (token.holder.clone(), token.fence.get(), Some(until));
        let more = More::Lease {
            holder: holder.clone(),
            fence,
            waited: Some(waited),
            reason: reason.clone(),
        };
        let granted = Some(Granted::new(token.ttl, reason, until));
        self.began(&token.name, Owned { holder, fence, at: now, expires, granted }, more);
    }

    /// A lease goes on.
    pub(crate) fn renewed(&self, token: &LeaseToken, until: Instant) {
        self.known.renewed(&token.name, &token.holder, token.ttl, until);
        self.keys.renewed(&token.holder, until);
        self.events.tell("renewed", Some(token.name.clone()), More::lease(token));
    }

    /// A lock has a new owner. The owner before, who did not give it back here, has it no more.
    pub(crate) fn began(&self, lock: &LockName, owned: Owned, more: impl Into<More>) {
        if let Some(before) = self.known.began(lock, owned) {
            self.gone(lock, &before);
        }
        self.events.tell("acquired", Some(lock.clone()), more);
    }

    /// A holder was seen to have a lease no more, and nobody told us how that came.
    pub(crate) fn gone(&self, lock: &LockName, owned: &Owned) {
        let word = match &owned.granted {
            Some(granted) if self.is_early(granted) => "elsewhere",
            Some(granted) if granted.was_seen_near_its_end() => "",
            Some(_) => "unknown",
            // Seen only; the instance that granted it counts.
            None => "",
        };
        if owned.granted.is_some() {
            self.keys.ended(&owned.holder);
        }
        if !word.is_empty() {
            self.metrics.leases.released(word, None);
        } else if owned.granted.is_some() {
            self.count_loss(owned, "expired");
            let (holder, fence) = (owned.holder.label(), owned.fence);
            warn!(%lock, holder, fence, reason = "expired", why = RAN_OUT, "a lease is lost");
        }
        let has_run_out = match (&owned.granted, owned.expires) {
            (None, Some(expires)) => expires <= Instant::now() + NEAR_ITS_END,
            (None, None) => false,
            _ => word != "elsewhere",
        };
        let event = if has_run_out { "expired" } else { "released" };
        let members = json!({"holder": owned.holder.label(), "fence": owned.fence, "seen": true});
        self.events.tell(event, Some(lock.clone()), members);
    }

    /// A lease that was granted here is over, and its holder had not given it back. Nothing if that was
    /// told before, or is for another instance to tell.
    pub(crate) fn lost(&self, lock: &LockName, holder: &Holder, reason: &'static str, why: &str) {
        self.keys.ended(holder);
        let Some(owned) = self.known.ended(lock, holder) else { return };
        if owned.granted.is_some() {
            // Taken away by force: that is counted where it was done.
            if reason != "forced" {
                self.count_loss(&owned, reason);
            }
            let fence = owned.fence;
            warn!(%lock, holder = holder.label(), fence, reason, why, "a lease is lost");
        }
        let event = if reason == "expired" { "expired" } else { "lost" };
        let members = json!({"holder": holder.label(), "fence": owned.fence, "why": why});
        self.events.tell(event, Some(lock.clone()), members);
    }

    /// Whether the nodes would keep a lease for longer than until now, had nobody ended it.
    pub(crate) fn would_last(&self, lock: &LockName, holder: &Holder) -> bool {
        self.known.granted(lock, holder).is_some_and(|granted| self.is_early(&granted))
    }

    fn is_early(&self, granted: &Granted) -> bool {
        Instant::now() < granted.until + self.locks.drift().allowance(granted.ttl) / 2
    }

    fn count_loss(&self, owned: &Owned, reason: &'static str) {
        if owned.granted.is_some() {
            self.metrics.leases.lost(reason);
            self.stats.lost();
        }
    }

    /// Gives a lease back and tells of it.
    pub(crate) async fn release(&self, token: &LeaseToken) -> ReleaseOutcome {
        // A short lease leaves the nodes little time to answer; a release has as much as any.
        let mut patient = token.clone();
        patient.ttl = patient.ttl.max(DEFAULT_TTL);
        let (lock, holder) = (&token.name, &token.holder);
        // Whoever gets the lock next may be told of it before we are: that is no loss.
        let known = self.known.ended(lock, holder);
        self.keys.ended(holder);
        let outcome = self.locks.release(&patient).await;
        let granted = known.as_ref().and_then(|owned| owned.granted.as_ref());
        // Then it ended by force, or by a release at another instance, which is counted there.
        let lost =
            |reason| (!granted.is_some_and(|granted| self.is_early(granted))).then_some(reason);
        let (word, event, lost) = match &outcome {
            ReleaseOutcome::Released => ("released", "released", None),
            ReleaseOutcome::AlreadyExpired => ("expired", "expired", lost("expired")),
            ReleaseOutcome::TakenOver { .. } | ReleaseOutcome::Superseded { .. } => {
                ("taken_over", "lost", lost("stolen"))
            }
            _ => ("unknown", "", None),
        };
        // How long others had theirs, the id that they hand in does not prove.
        let granted_at = known.as_ref().filter(|owned| owned.granted.is_some()).map(|it| it.at);
        let held_for = granted_at.filter(|_| word == "released").map(|at| at.elapsed());
        self.metrics.leases.released(word, held_for);
        if word == "released" {
            self.known.gave_back(lock, holder);
            self.stats.released();
        }
        if let (Some(reason), Some(owned)) = (lost, &known) {
            self.count_loss(owned, reason);
        }
        if !event.is_empty() && (word == "released" || known.is_some()) {
            self.events.tell(event, Some(lock.clone()), More::lease(token));
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
}
