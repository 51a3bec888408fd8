//! How the nodes are.

use leasehold::{NodeHealth, NodeState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Float, register};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Instance {
    instance: String,
}

/// What is told of nodes.
pub(crate) struct Nodes {
    available: Gauge,
    up: Family<Instance, Gauge>,
    round_trip: Family<Instance, Histogram>,
    clock_offset: Family<Instance, Float>,
    quarantined: Family<Instance, Gauge>,
    quarantine_left: Family<Instance, Float>,
}

/// A tenth of a millisecond to most of a second, doubled each time.
fn round_trips() -> Histogram {
    Histogram::new((0..14).map(|step| 0.0001 * 2f64.powi(step)))
}

impl Nodes {
    pub(super) fn register(registry: &mut Registry, nodes: usize, quorum: usize) -> Self {
        let mut gauge = |name, help| register(registry, name, help, Gauge::<i64>::default());
        let available = gauge("redis_instances_available", "Nodes that vote");
        gauge("redis_instances_configured", "Nodes of the member list").set(nodes as i64);
        gauge("redlock_quorum_size", "Nodes that must agree").set(quorum as i64);
        let up =
            register(registry, "redis_instance_up", "Whether the node votes", Family::default());
        let round_trip = register(
            registry,
            "redis_instance_request_duration_seconds",
            "How long the node took to answer probes",
            Family::new_with_constructor(round_trips as fn() -> Histogram),
        );
        let clock_offset = register(
            registry,
            "redis_instance_clock_offset_seconds",
            "The node's wall clock minus ours",
            Family::default(),
        );
        let quarantined = register(
            registry,
            "redis_instance_quarantined",
            "Whether the node sits out because it lost its memory or its clock jumped",
            Family::default(),
        );
        let quarantine_left = register(
            registry,
            "redis_instance_quarantine_remaining_seconds",
            "For how long the node still sits out",
            Family::default(),
        );
        Self { available, up, round_trip, clock_offset, quarantined, quarantine_left }
    }

    /// Brings the figures up to date.
    pub(crate) fn note(&self, nodes: &[NodeHealth]) {
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
}
