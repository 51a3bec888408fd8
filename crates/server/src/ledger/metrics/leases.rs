//! Attempts to acquire, and what becomes of leases.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::listed::List;
use super::{Float, register, seconds};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Backend {
    backend: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Attempt {
    backend: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// How an attempt ended, in the words of its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    Acquired,
    Contended,
    Timeout,
    NoQuorum,
    Error,
    Cancelled,
}

impl AttemptOutcome {
    const ALL: [Self; 6] = [
        Self::Acquired,
        Self::Contended,
        Self::Timeout,
        Self::NoQuorum,
        Self::Error,
        Self::Cancelled,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Contended => "contended",
            Self::Timeout => "timeout",
            Self::NoQuorum => "no_quorum",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What is counted of leases.
pub(crate) struct Leases {
    contention_rate: Float,
    held: Gauge,
    waiters: Gauge,
    attempts: [(Counter, Histogram); 6],
    wait: Histogram,
    hold: Histogram,
    validity: Histogram,
    renewals: Family<Outcome, Counter>,
    lost: Family<Reason, Counter>,
    releases: Family<Outcome, Counter>,
    pub(crate) force_releases: Counter,
    pub(crate) fencing_rejections: Counter,
    listed: List,
}

/// Up to days.
fn long_seconds() -> Histogram {
    Histogram::new((0..14).map(|step| 0.001 * 4f64.powi(step)))
}

/// What has labels is made at once here: a series that is there from the start can be alerted on.
fn gauge_of(registry: &mut Registry, backend: &str, name: &str, help: &str) -> Gauge {
    let family = register(registry, name, help, Family::<Backend, Gauge>::default());
    family.get_or_create_owned(&Backend { backend: backend.to_owned() })
}

fn attempts(registry: &mut Registry, backend: &str) -> [(Counter, Histogram); 6] {
    let counts = register(
        registry,
        "redlock_acquire_attempts",
        "Attempts to acquire a lock, by how they ended",
        Family::<Attempt, Counter>::default(),
    );
    let times = register(
        registry,
        "redlock_acquire_duration_seconds",
        "How long attempts took, waiting included",
        Family::<Attempt, Histogram>::new_with_constructor(seconds),
    );
    // Kept at hand, because they are counted with each request.
    AttemptOutcome::ALL.map(|outcome| {
        let labels = Attempt { backend: backend.to_owned(), outcome: outcome.word() };
        (counts.get_or_create_owned(&labels), times.get_or_create_owned(&labels))
    })
}

fn by_outcome<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    outcomes: [&'static str; N],
) -> Family<Outcome, Counter> {
    let family = register(registry, name, help, Family::<Outcome, Counter>::default());
    for outcome in outcomes {
        family.get_or_create_owned(&Outcome { outcome });
    }
    family
}

fn by_reason(registry: &mut Registry) -> Family<Reason, Counter> {
    let help = "Leases granted here that ended before their holder gave them back, as far as that is known";
    let family = Family::<Reason, Counter>::default();
    let family = register(registry, "redlock_leases_lost", help, family);
    for reason in ["expired", "quorum", "stolen", "forced"] {
        family.get_or_create_owned(&Reason { reason });
    }
    family
}

impl Leases {
    pub(super) fn register(registry: &mut Registry, backend: &str) -> Self {
        let twentieths = Histogram::new((1..20).map(|step| f64::from(step) / 20.0));
        Self {
            contention_rate: register(
                registry,
                "redlock_contention_rate",
                "Share of the attempts of the last five minutes that met a holder",
                Float::default(),
            ),
            attempts: attempts(registry, backend),
            held: {
                let help = "Locks that are held, by whomever";
                gauge_of(registry, backend, "redlock_locks_held", help)
            },
            waiters: {
                let help = "Requests that wait for a lock here";
                gauge_of(registry, backend, "redlock_waiters", help)
            },
            wait: register(
                registry,
                "redlock_wait_duration_seconds",
                "How long those waited who had to, whatever came of it",
                seconds(),
            ),
            hold: register(
                registry,
                "redlock_hold_duration_seconds",
                "How long locks were held that were released here",
                long_seconds(),
            ),
            validity: register(
                registry,
                "redlock_validity_remaining_ratio",
                "What was left of the TTL when a lock was granted",
                twentieths,
            ),
            renewals: by_outcome(
                registry,
                "redlock_renewals",
                "Renewals, by how they ended",
                ["ok", "lost", "failed", "not_known"],
            ),
            lost: by_reason(registry),
            releases: by_outcome(
                registry,
                "redlock_releases",
                "Releases, by what became of them; and leases granted here of which only the end was seen",
                ["released", "expired", "taken_over", "unknown", "elsewhere", "not_known"],
            ),
            force_releases: register(
                registry,
                "redlock_force_releases",
                "Locks that were taken away from their holders here",
                Counter::default(),
            ),
            fencing_rejections: register(
                registry,
                "redlock_fencing_rejections",
                "Requests that came with a fence of the past",
                Counter::default(),
            ),
            listed: List::register(registry),
        }
    }

    /// From now on the names of these locks are labels.
    pub(crate) fn list(&self, locks: &[String]) {
        self.listed.replace(locks);
    }

    /// An attempt to acquire `lock` ended.
    pub(crate) fn attempt(
        &self,
        lock: &str,
        outcome: AttemptOutcome,
        is_contended: bool,
        took: Duration,
    ) {
        let (count, time) = &self.attempts[outcome as usize];
        count.inc();
        time.observe(took.as_secs_f64());
        if is_contended {
            self.wait.observe(took.as_secs_f64());
        }
        if let Some(listed) = self.listed.by_name().get(lock) {
            if outcome == AttemptOutcome::Acquired {
                listed.acquired.inc();
            }
            if is_contended {
                listed.contended.inc();
            }
        }
    }

    /// A lock was granted with so much of its Ttl left.
    pub(crate) fn granted(&self, left: Duration, ttl: Duration) {
        self.validity.observe(left.as_secs_f64() / ttl.as_secs_f64().max(1e-3));
    }

    pub(crate) fn renewed(&self, outcome: &'static str) {
        self.renewals.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn lost(&self, reason: &'static str) {
        self.lost.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn released(&self, outcome: &'static str, held_for: Option<Duration>) {
        self.releases.get_or_create(&Outcome { outcome }).inc();
        if let Some(held_for) = held_for {
            self.hold.observe(held_for.as_secs_f64());
        }
    }

    /// Who holds and who waits: all, and `of` each lock on the list.
    pub(crate) fn note(
        &self,
        held: usize,
        waiters: usize,
        rate: f64,
        of: impl Fn(&str) -> (bool, usize),
    ) {
        self.held.set(held as i64);
        self.waiters.set(waiters as i64);
        self.contention_rate.set(rate);
        for (name, listed) in self.listed.by_name().iter() {
            let (is_held, waiters) = of(name);
            listed.held.set(is_held.into());
            listed.waiters.set(waiters as i64);
        }
    }
}
