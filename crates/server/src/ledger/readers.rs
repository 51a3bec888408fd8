//! What of the ledger others read: Prometheus, those who listen to events, the dashboard. And the facts about
//! requests, which only Prometheus reads.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Holder, LockName};
use serde_json::Value;

use super::{Ear, Event, Granted, Ledger, Listener};

impl Ledger {
    /// A request came in.
    pub(crate) fn request_began(&self) {
        self.metrics.http.in_flight.inc();
    }

    /// A request was answered, or dropped.
    pub(crate) fn request_ended(&self) {
        self.metrics.http.in_flight.dec();
    }

    /// A request was answered so.
    pub(crate) fn answered(
        &self,
        route: &'static str,
        method: &'static str,
        code: u16,
        took: Duration,
    ) {
        self.metrics.http.answered(route, method, code, took);
    }

    /// From now on the names of these locks are labels.
    pub(crate) fn list(&self, locks: &[String]) {
        self.metrics.leases.list(locks);
    }

    /// The text that Prometheus reads.
    pub(crate) fn prometheus(&self, connections: usize) -> String {
        self.metrics.http.connections.set(connections as i64);
        self.metrics.text()
    }

    /// Tells instances, and lives of one, apart.
    pub(crate) fn instance(&self) -> &str {
        &self.events.instance
    }

    /// For how long this instance has been there.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The events after `last`, if all of them are still known, and those from now on.
    pub(crate) fn listen(&self, last: Option<&str>) -> (Option<Vec<Arc<Event>>>, Ear) {
        self.events.listen(last)
    }

    /// Counts somebody who listens to everything, until it is dropped.
    pub(crate) fn counted(&self) -> Listener {
        self.events.counted()
    }

    /// Whether somebody listens to everything.
    pub(crate) fn has_listeners(&self) -> bool {
        self.events.has_listeners()
    }

    /// The last events of one lock, newest first; those for the record only if they may be seen.
    pub(crate) fn history(&self, lock: &LockName, most: usize, with_audit: bool) -> Vec<Value> {
        self.events.of(lock, most, with_audit)
    }

    /// What came with the request of a lease that was granted here.
    pub(crate) fn grant_of(&self, lock: &LockName, holder: &Holder) -> Option<Granted> {
        self.known.granted(lock, holder)
    }

    /// Rates and latencies of the last minute.
    pub(crate) fn rates(&self) -> Value {
        self.stats.rates()
    }

    /// One row per second that is over, oldest first.
    pub(crate) fn series(&self) -> Vec<Value> {
        self.stats.series()
    }

    /// The last second that is over.
    pub(crate) fn point(&self) -> Option<Value> {
        self.stats.point()
    }
}
