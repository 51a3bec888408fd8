//! What this instance remembers and counts: metrics, rates, events, known leases, idempotency keys. All of
//! it may be forgotten: it decides nothing about a lock.
//!
//! One method per fact. Whoever learns a fact calls its method, once, and the ledger alone knows who has to
//! be told: which counter, which event, which key. So a route cannot count a loss and forget its event.
//! A method returns something only if its caller must act on it.

mod answers;
mod audit;
mod events;
mod idempotency;
mod known;
mod metrics;
mod nonces;
mod readers;
mod record;
mod sightings;
mod stats;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Drift, Holder, LeaseToken, LockName, Locks, ReleaseOutcome};
use serde_json::json;
use tracing::warn;

use crate::problem::Problem;
use crate::view;
pub(crate) use answers::Answer;
use answers::Answers;
use audit::Refusals;
pub(crate) use events::{Ear, Event, Listener};
use events::{Events, More};
use idempotency::Idempotency;
pub(crate) use idempotency::{Key, UnderWay};
use known::Known;
pub(crate) use known::{Granted, Owned};
use metrics::Metrics;
pub(crate) use metrics::{AttemptOutcome, CONTENT_TYPE};
use nonces::Nonces;
pub(crate) use record::Forced;
pub(crate) use sightings::ended_early;
use stats::{Ended, Stats};

/// What this instance remembers and counts.
pub(crate) struct Ledger {
    metrics: Metrics,
    stats: Stats,
    events: Arc<Events>,
    known: Known,
    keys: Arc<Idempotency>,
    answers: Arc<Answers>,
    nonces: Nonces,
    refusals: Refusals,
    /// How far clocks may come apart: by so much the nodes keep a lease for longer than was told.
    drift: Drift,
    started: Instant,
}

/// A lease that was granted here, as its caller is told of it.
pub(crate) struct Grant {
    pub(crate) waited: Duration,
    pub(crate) until: Instant,
    /// What its holder wants it for.
    pub(crate) reason: Option<String>,
    /// The idempotency key that it was asked for with.
    pub(crate) key: Option<UnderWay>,
}

/// A release under way: what was known of its lease before.
#[must_use = "say what became of it"]
pub(crate) struct Releasing {
    known: Option<Owned>,
    /// It was granted or seen here, if only before it ended.
    was_known: bool,
}

impl Ledger {
    pub(crate) fn new(backend: &str, listed: &[String], locks: &Locks) -> Self {
        let mut instance = [0; 4];
        // Only to tell instances apart.
        let _ = getrandom::fill(&mut instance);
        let metrics = Metrics::new(backend, locks.nodes().len(), locks.quorum());
        metrics.leases.list(listed);
        Self {
            metrics,
            stats: Stats::new(),
            events: Arc::new(Events::new(view::hex(&instance))),
            known: Known::default(),
            keys: Arc::default(),
            answers: Arc::default(),
            nonces: Nonces::default(),
            refusals: Refusals::new(Instant::now()),
            drift: locks.drift(),
            started: Instant::now(),
        }
    }

    /// An attempt to acquire ended, however it did.
    pub(crate) fn attempted(
        &self,
        lock: &LockName,
        outcome: AttemptOutcome,
        met_holder: bool,
        took: Duration,
    ) {
        use AttemptOutcome::{Acquired, Contended, Error, NoQuorum, Timeout};
        let is_contended = met_holder || matches!(outcome, Contended | Timeout);
        self.metrics.leases.attempt(lock.as_str(), outcome, is_contended, took);
        let ended = match outcome {
            Acquired => Ended::Acquired,
            NoQuorum | Error => Ended::Failed,
            _ => Ended::Refused,
        };
        self.stats.attempt(ended, is_contended, took);
    }

    /// A caller that waits met a holder; so many wait for the lock here.
    pub(crate) fn waits(&self, lock: &LockName, waiters: usize) {
        self.events.tell("waiting", Some(lock.clone()), json!({"waiters": waiters}));
    }

    /// A caller did not get a lock because another holds it.
    pub(crate) fn refused(&self, lock: &LockName, waited: bool) {
        let why = if waited { "waited in vain" } else { "held by another" };
        self.events.tell("refused", Some(lock.clone()), json!({"why": why}));
    }

    /// What a caller's idempotency key stands for; `request` is what it is used for.
    pub(crate) fn look_up_key(
        &self,
        caller: &Arc<str>,
        key: &str,
        request: &[u8],
    ) -> Result<Key, Problem> {
        loop {
            match self.keys.look_up(caller, key, request)? {
                // Nobody heard of that one, and nobody will.
                Key::Granted(token) if !self.claimed(&token) => self.keys.ended(&token.holder),
                found => return Ok(found),
            }
        }
    }

    /// Whether this nonce, which a caller says is fresh, was not used here a moment ago.
    pub(crate) fn is_fresh(&self, nonce: u128) -> bool {
        self.nonces.note(nonce)
    }

    /// Somebody hands in a lease id: it is not given back any more because an answer did not arrive.
    /// False if it is being given back already.
    pub(crate) fn claimed(&self, token: &LeaseToken) -> bool {
        self.answers.claim(token)
    }

    /// The lease that a key stands for is over on the nodes.
    pub(crate) fn key_outlived(&self, holder: &Holder) {
        self.keys.ended(holder);
    }

    /// A lease was granted here, and the answer that tells of it goes out.
    pub(crate) fn granted(&self, token: &LeaseToken, grant: Grant) -> Answer {
        let answer = self.answers.begin(token);
        let Grant { waited, until, reason, key } = grant;
        let now = Instant::now();
        self.metrics.leases.granted(until.saturating_duration_since(now), token.ttl);
        let (holder, fence, expires) = (token.holder.clone(), token.fence.get(), Some(until));
        let more = More::Lease {
            holder: holder.clone(),
            fence,
            waited: Some(waited),
            reason: reason.clone(),
        };
        let granted = Some(Granted::new(token.ttl, reason, until));
        self.began(&token.name, Owned { holder, fence, at: now, expires, granted }, more);
        if let Some(key) = key {
            key.granted(token, until);
        }
        answer
    }

    #[cfg(test)]
    pub(crate) fn answer(&self, token: &LeaseToken) -> Answer {
        self.answers.begin(token)
    }

    /// The answer that told of a grant did not arrive. Whether the lease may be given back: not if
    /// somebody else was told of it.
    pub(crate) fn undelivered(&self, token: &LeaseToken, answer: &Answer) -> bool {
        let is_untold = answer.take_back();
        if is_untold {
            self.keys.ended(&token.holder);
        }
        is_untold
    }

    /// A lock has a new owner. The owner before, who did not give it back here, has it no more.
    fn began(&self, lock: &LockName, owned: Owned, more: impl Into<More>) {
        if let Some(before) = self.known.began(lock, owned) {
            self.gone(lock, &before, None);
        }
        self.events.tell("acquired", Some(lock.clone()), more);
    }

    /// A caller renewed its lease.
    pub(crate) fn renewed(&self, token: &LeaseToken, until: Instant) {
        self.metrics.leases.renewed("ok");
        self.repeated(token, until);
    }

    /// An acquire was repeated with its idempotency key, which extended the lease.
    pub(crate) fn repeated(&self, token: &LeaseToken, until: Instant) {
        self.known.renewed(&token.name, &token.holder, token.ttl, until);
        self.keys.renewed(&token.holder, until);
        self.events.tell("renewed", Some(token.name.clone()), More::lease(token));
    }

    /// A renewal came to nothing, and nobody knows what became of the lease.
    pub(crate) fn renewal_failed(&self, token: &LeaseToken) {
        self.known.wanted(&token.name, &token.holder);
        self.metrics.leases.renewed("failed");
    }

    /// A renewal found no such lease. What an id says may be made up: one that was never seen here is
    /// counted apart.
    pub(crate) fn renewal_lost(&self, token: &LeaseToken) {
        let is_known = self.known.is_known(&token.name, &token.holder);
        self.metrics.leases.renewed(if is_known { "lost" } else { "not_known" });
    }

    /// A lease that was granted here is over, and its holder had not given it back. Nothing if that was
    /// told before, or is for another instance to tell.
    pub(crate) fn lost(&self, lock: &LockName, holder: &Holder, reason: &'static str, why: &str) {
        // What an id says of a holder may be made up.
        if matches!(reason, "stolen" | "forced") && self.known.is_known(lock, holder) {
            self.metrics.leases.fencing_rejections.inc();
        }
        self.keys.ended(holder);
        let Some(owned) = self.known.ended(lock, holder) else { return };
        if let Some(granted) = &owned.granted {
            match reason {
                // It is gone before its end. That is no loss as far as anybody knows.
                "elsewhere" | "unknown" => self.metrics.leases.released(reason, None),
                // Taken away by force: that is counted where it was done.
                "forced" => {}
                "expired" if granted.is_wanted => self.count_loss(&owned, "quorum"),
                _ => self.count_loss(&owned, reason),
            }
            let fence = owned.fence;
            warn!(%lock, holder = holder.label(), fence, reason, why, "a lease is over");
        }
        let event = match reason {
            "expired" => "expired",
            "elsewhere" => "released",
            _ => "lost",
        };
        let members = json!({"holder": holder.label(), "fence": owned.fence, "why": why});
        self.events.tell(event, Some(lock.clone()), members);
    }

    fn count_loss(&self, owned: &Owned, reason: &'static str) {
        if owned.granted.is_some() {
            self.metrics.leases.lost(reason);
            self.stats.lost();
        }
    }

    /// A lease is about to be released. What becomes of that is told with [`Ledger::released`].
    pub(crate) fn releasing(&self, token: &LeaseToken) -> Releasing {
        // Whoever gets the lock next may be told of it before we are: that is no loss.
        let was_known = self.known.is_known(&token.name, &token.holder);
        let known = self.known.ended(&token.name, &token.holder);
        self.keys.ended(&token.holder);
        Releasing { known, was_known }
    }

    /// A release ended.
    pub(crate) fn released(
        &self,
        token: &LeaseToken,
        Releasing { known, was_known }: Releasing,
        outcome: &ReleaseOutcome,
    ) {
        let granted = known.as_ref().and_then(|owned| owned.granted.as_ref());
        // Then it ended by force, or by a release at another instance, which is counted there.
        let lost =
            |reason| (!granted.is_some_and(|granted| self.is_early(granted))).then_some(reason);
        let (word, event, lost) = match outcome {
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
        let is_proved = was_known || word == "released" || word == "unknown";
        self.metrics.leases.released(if is_proved { word } else { "not_known" }, held_for);
        if word == "released" {
            self.known.gave_back(&token.name, &token.holder);
            self.stats.released();
        }
        if let (Some(reason), Some(owned)) = (lost, &known) {
            self.count_loss(owned, reason);
        }
        if !event.is_empty() && (word == "released" || known.is_some()) {
            self.events.tell(event, Some(token.name.clone()), More::lease(token));
        }
    }

    /// A release was repeated, of a lease that had been given back here.
    pub(crate) fn released_again(&self, token: &LeaseToken) {
        self.known.gave_back(&token.name, &token.holder);
    }

    /// Whether a holder gave its lock back here a moment ago.
    pub(crate) fn was_released(&self, token: &LeaseToken) -> bool {
        self.known.was_released(&token.name, &token.holder)
    }

    /// Whether the nodes would keep a lease for longer than until now, had nobody ended it.
    pub(crate) fn would_last(&self, token: &LeaseToken) -> bool {
        let granted = self.known.granted(&token.name, &token.holder);
        granted.is_some_and(|granted| self.is_early(&granted))
    }

    fn is_early(&self, granted: &Granted) -> bool {
        Instant::now() < granted.until + self.drift.allowance(granted.ttl) / 2
    }
}
