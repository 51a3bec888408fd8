//! Requests and connections.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{register, seconds};

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

/// What is counted of requests and connections.
pub(crate) struct Http {
    requests: Family<Answered, Counter>,
    request_time: Family<Route, Histogram>,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) refusals_left_out: Counter,
}

impl Http {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let requests = Family::default();
        let request_time = Family::new_with_constructor(seconds as fn() -> Histogram);
        let help = "How long requests took, waiting for a lock included";
        let request_time = register(registry, "http_request_duration_seconds", help, request_time);
        let help = "Refusals that are not on record, because there were too many";
        let refusals_left_out =
            register(registry, "audit_refusals_left_out", help, Counter::default());
        let mut gauge = |name, help| register(registry, name, help, Gauge::default());
        Self {
            in_flight: gauge("http_requests_in_flight", "Requests under way"),
            connections: gauge("http_connections", "Open connections"),
            requests: register(registry, "http_requests", "Requests, by answer", requests),
            request_time,
            refusals_left_out,
        }
    }

    /// A request was answered.
    pub(crate) fn answered(
        &self,
        route: &'static str,
        method: &'static str,
        code: u16,
        took: Duration,
    ) {
        self.requests.get_or_create(&Answered { route, method, code }).inc();
        self.request_time.get_or_create(&Route { route, method }).observe(took.as_secs_f64());
    }
}
