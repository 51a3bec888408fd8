//! What Prometheus sees. Lock names are labels only if somebody asked for them by name: there may be
//! millions.

mod http;
mod leases;
mod listed;
mod nodes;
mod process;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use http::Http;
pub(crate) use leases::AttemptOutcome;
use leases::Leases;
use nodes::Nodes;
use process::Process;

/// The type of what is served.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Float = Gauge<f64, AtomicU64>;

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) leases: Leases,
    pub(crate) nodes: Nodes,
    pub(crate) http: Http,
    process: Process,
}

impl Metrics {
    pub(crate) fn new(backend: &str, nodes: usize, quorum: usize) -> Self {
        let mut registry = Registry::default();
        let leases = Leases::register(&mut registry, backend);
        let nodes = Nodes::register(&mut registry, nodes, quorum);
        let http = Http::register(&mut registry);
        let process = Process::register(&mut registry);
        Self { registry, leases, nodes, http, process }
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

/// Has `metric` served, and gives it back to be counted with.
fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Half a millisecond to half a minute, doubled each time.
fn seconds() -> Histogram {
    Histogram::new((0..17).map(|step| 0.0005 * 2f64.powi(step)))
}
