//! What Prometheus sees. Lock names are labels only if somebody asked for them by name: there may be
//! millions.

mod listed;

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{NodeHealth, NodeState};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use listed::List;

/// What may be a label, those first that are asked for most. A test holds it against the router.
pub(crate) const ROUTES: [&str; 17] = [
    "/v1/locks/{name}/leases",
    "/v1/leases/{lease_id}",
    "/v1/leases/{lease_id}/renew",
    "/v1/locks/{name}",
    "/v1/locks",
    "/v1/locks/{name}/events",
    "/v1/locks/{name}/force-release",
    "/v1/events",
    "/v1/cluster",
    "/v1/overview",
    "/v1/version",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/",
    "/assets/{file}",
];

/// The type of what is served.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Float = Gauge<f64, AtomicU64>;

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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Instance {
    instance: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    route: &'static str,
    method: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    method: &'static str,
    code: u16,
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

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    backend: String,
    contention_rate: Float,
    available: Gauge,
    held: Family<Backend, Gauge>,
    waiters: Family<Backend, Gauge>,
    attempts: [(Counter, Histogram); 6],
    wait: Histogram,
    hold: Histogram,
    validity: Histogram,
    renewals: Family<Outcome, Counter>,
    lost: Family<Reason, Counter>,
    releases: Family<Outcome, Counter>,
    pub(crate) force_releases: Counter,
    pub(crate) fencing_rejections: Counter,
    up: Family<Instance, Gauge>,
    round_trip: Family<Instance, Histogram>,
    clock_offset: Family<Instance, Float>,
    quarantined: Family<Instance, Gauge>,
    quarantine_left: Family<Instance, Float>,
    requests: Family<Answered, Counter>,
    request_time: Family<Route, Histogram>,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    listed: List,
    process: Process,
}

#[derive(Default)]
struct Process {
    memory: Gauge,
    files: Gauge,
    cpu: Counter<f64, AtomicU64>,
}

/// Half a millisecond to half a minute, doubled each time.
fn seconds() -> Histogram {
    Histogram::new((0..17).map(|step| 0.0005 * 2f64.powi(step)))
}

/// Up to days.
fn long_seconds() -> Histogram {
    Histogram::new((0..14).map(|step| 0.001 * 4f64.powi(step)))
}

impl Metrics {
    pub(crate) fn new(backend: &str, nodes: usize, quorum: usize) -> Self {
        let mut registry = Registry::default();
        let labels = || Backend { backend: backend.to_owned() };
        let gauge = |registry: &mut Registry, name: &str, help: &str| {
            let gauge = Gauge::<i64>::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let contention_rate = Float::default();
        registry.register(
            "redlock_contention_rate",
            "Share of the attempts of the last five minutes that met a holder",
            contention_rate.clone(),
        );
        let available = gauge(&mut registry, "redis_instances_available", "Nodes that vote");
        gauge(&mut registry, "redis_instances_configured", "Nodes of the member list")
            .set(nodes as i64);
        gauge(&mut registry, "redlock_quorum_size", "Nodes that must agree").set(quorum as i64);
        let attempts = Family::<Attempt, Counter>::default();
        let durations = Family::<Attempt, Histogram>::new_with_constructor(seconds);
        registry.register(
            "redlock_acquire_attempts",
            "Attempts to acquire a lock, by how they ended",
            attempts.clone(),
        );
        registry.register(
            "redlock_acquire_duration_seconds",
            "How long attempts took, waiting included",
            durations.clone(),
        );
        // Kept at hand, because they are counted with each request; and a series that is there from
        // the start can be alerted on.
        let attempts = AttemptOutcome::ALL.map(|outcome| {
            let labels = Attempt { backend: backend.to_owned(), outcome: outcome.word() };
            (attempts.get_or_create_owned(&labels), durations.get_or_create_owned(&labels))
        });
        let held = Family::<Backend, Gauge>::default();
        registry.register("redlock_locks_held", "Locks that are held, by whomever", held.clone());
        held.get_or_create_owned(&labels());
        let waiters = Family::<Backend, Gauge>::default();
        registry.register("redlock_waiters", "Requests that wait for a lock here", waiters.clone());
        waiters.get_or_create_owned(&labels());
        let wait = seconds();
        registry.register(
            "redlock_wait_duration_seconds",
            "How long those waited who had to, whatever came of it",
            wait.clone(),
        );
        let hold = long_seconds();
        registry.register(
            "redlock_hold_duration_seconds",
            "How long locks were held that were released here",
            hold.clone(),
        );
        let validity = Histogram::new((1..20).map(|step| f64::from(step) / 20.0));
        registry.register(
            "redlock_validity_remaining_ratio",
            "What was left of the TTL when a lock was granted",
            validity.clone(),
        );
        let renewals = Family::<Outcome, Counter>::default();
        registry.register("redlock_renewals", "Renewals, by how they ended", renewals.clone());
        for outcome in ["ok", "lost", "failed"] {
            renewals.get_or_create_owned(&Outcome { outcome });
        }
        let lost = Family::<Reason, Counter>::default();
        registry.register(
            "redlock_leases_lost",
            "Leases that ended before their holder",
            lost.clone(),
        );
        for reason in ["expired", "quorum", "stolen", "forced"] {
            lost.get_or_create_owned(&Reason { reason });
        }
        let releases = Family::<Outcome, Counter>::default();
        registry.register("redlock_releases", "Releases, by what became of them", releases.clone());
        for outcome in ["released", "expired", "taken_over", "unknown"] {
            releases.get_or_create_owned(&Outcome { outcome });
        }
        let force_releases = Counter::default();
        registry.register(
            "redlock_force_releases",
            "Locks that were taken away from their holders here",
            force_releases.clone(),
        );
        let fencing_rejections = Counter::default();
        registry.register(
            "redlock_fencing_rejections",
            "Requests that came with a fence of the past",
            fencing_rejections.clone(),
        );
        let up = Family::<Instance, Gauge>::default();
        registry.register("redis_instance_up", "Whether the node votes", up.clone());
        let round_trip = Family::<Instance, Histogram>::new_with_constructor(|| {
            Histogram::new((0..14).map(|step| 0.0001 * 2f64.powi(step)))
        });
        registry.register(
            "redis_instance_request_duration_seconds",
            "How long the node took to answer probes",
            round_trip.clone(),
        );
        let clock_offset = Family::<Instance, Float>::default();
        registry.register(
            "redis_instance_clock_offset_seconds",
            "The node's wall clock minus ours",
            clock_offset.clone(),
        );
        let quarantined = Family::<Instance, Gauge>::default();
        registry.register(
            "redis_instance_quarantined",
            "Whether the node sits out because it lost its memory or its clock jumped",
            quarantined.clone(),
        );
        let quarantine_left = Family::<Instance, Float>::default();
        registry.register(
            "redis_instance_quarantine_remaining_seconds",
            "For how long the node still sits out",
            quarantine_left.clone(),
        );
        let requests = Family::<Answered, Counter>::default();
        registry.register("http_requests", "Requests, by answer", requests.clone());
        let request_time = Family::<Route, Histogram>::new_with_constructor(seconds);
        registry.register(
            "http_request_duration_seconds",
            "How long requests took, waiting for a lock included",
            request_time.clone(),
        );
        let in_flight = gauge(&mut registry, "http_requests_in_flight", "Requests under way");
        let connections = gauge(&mut registry, "http_connections", "Open connections");
        registry.register(
            "redlock_build",
            "The program",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        let start = Float::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        start.set(now.as_secs_f64());
        registry.register("process_start_time_seconds", "When the process started", start);
        let process = Process::default();
        registry.register(
            "process_resident_memory_bytes",
            "Resident memory",
            process.memory.clone(),
        );
        registry.register("process_open_fds", "Open file descriptors", process.files.clone());
        registry.register("process_cpu_seconds", "Processor time", process.cpu.clone());
        let listed = List::register(&mut registry);
        Self {
            registry,
            backend: backend.to_owned(),
            contention_rate,
            available,
            held,
            waiters,
            attempts,
            wait,
            hold,
            validity,
            renewals,
            lost,
            releases,
            force_releases,
            fencing_rejections,
            up,
            round_trip,
            clock_offset,
            quarantined,
            quarantine_left,
            requests,
            request_time,
            in_flight,
            connections,
            listed,
            process,
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

    /// A request was answered.
    pub(crate) fn answered(&self, route: &str, method: &'static str, code: u16, took: Duration) {
        let route = ROUTES.iter().copied().find(|known| *known == route).unwrap_or("none");
        self.requests.get_or_create(&Answered { route, method, code }).inc();
        self.request_time.get_or_create(&Route { route, method }).observe(took.as_secs_f64());
    }

    /// How the nodes are.
    pub(crate) fn nodes(&self, nodes: &[NodeHealth]) {
        self.available.set(crate::view::available(nodes) as i64);
        for health in nodes {
            let labels = Instance { instance: health.node.as_str().to_owned() };
            self.up.get_or_create(&labels).set((health.state == NodeState::Up).into());
            let left = match &health.state {
                NodeState::Quarantined { left, .. } => Some(left.as_secs_f64()),
                _ => None,
            };
            self.quarantined.get_or_create(&labels).set(left.is_some().into());
            self.quarantine_left.get_or_create(&labels).set(left.unwrap_or(0.0));
            if let Some(micros) = health.clock_offset_micros {
                self.clock_offset.get_or_create(&labels).set(micros as f64 / 1e6);
            }
            let times = self.round_trip.get_or_create(&labels);
            if let (NodeState::Up, Some(time)) = (&health.state, health.round_trip) {
                times.observe(time.as_secs_f64());
            }
        }
    }

    /// Who holds and who waits.
    pub(crate) fn locks(
        &self,
        held: Option<usize>,
        waiters: usize,
        rate: f64,
        of: impl Fn(&str) -> (bool, usize),
    ) {
        let labels = Backend { backend: self.backend.clone() };
        if let Some(held) = held {
            self.held.get_or_create(&labels).set(held as i64);
        }
        self.waiters.get_or_create(&labels).set(waiters as i64);
        self.contention_rate.set(rate);
        for (name, listed) in self.listed.by_name().iter() {
            let (is_held, waiters) = of(name);
            if held.is_some() {
                listed.held.set(is_held.into());
            }
            listed.waiters.set(waiters as i64);
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        self.process.look();
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a text cannot fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

impl Process {
    fn look(&self) {
        if let Ok(statm) = std::fs::read_to_string("/proc/self/statm")
            && let Some(pages) = statm.split_whitespace().nth(1).and_then(|n| n.parse::<i64>().ok())
        {
            self.memory.set(pages * rustix::param::page_size() as i64);
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.files.set(files.count() as i64);
        }
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        let more = used - self.cpu.get();
        if more > 0.0 {
            self.cpu.inc_by(more);
        }
    }
}
