//! The locks whose names are labels. The list may change while the server runs.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Lock {
    lock: String,
}

/// All locks on the list.
#[derive(Default)]
pub(super) struct List {
    held: Family<Lock, Gauge>,
    acquired: Family<Lock, Counter>,
    contended: Family<Lock, Counter>,
    waiters: Family<Lock, Gauge>,
    by_name: RwLock<HashMap<String, Listed>>,
}

/// The metrics of one lock on the list.
pub(super) struct Listed {
    pub(super) held: Gauge,
    pub(super) acquired: Counter,
    pub(super) contended: Counter,
    pub(super) waiters: Gauge,
}

impl List {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let list = Self::default();
        registry.register("redlock_lock_held", "Whether this lock is held", list.held.clone());
        registry.register("redlock_lock_waiters", "Requests that wait here", list.waiters.clone());
        registry.register("redlock_lock_acquired", "Times acquired here", list.acquired.clone());
        let help = "Attempts that met a holder";
        registry.register("redlock_lock_contended", help, list.contended.clone());
        list
    }

    /// From now on these: what was counted of a lock that stays goes on, of one that goes is gone.
    pub(super) fn replace(&self, names: &[String]) {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        by_name.retain(|name, _| {
            let stays = names.contains(name);
            if !stays {
                self.remove(name);
            }
            stays
        });
        for name in names {
            by_name.entry(name.clone()).or_insert_with(|| self.add(name));
        }
    }

    pub(super) fn by_name(&self) -> RwLockReadGuard<'_, HashMap<String, Listed>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &str) -> Listed {
        let labels = Lock { lock: name.to_owned() };
        Listed {
            held: self.held.get_or_create_owned(&labels),
            acquired: self.acquired.get_or_create_owned(&labels),
            contended: self.contended.get_or_create_owned(&labels),
            waiters: self.waiters.get_or_create_owned(&labels),
        }
    }

    fn remove(&self, name: &str) {
        let labels = Lock { lock: name.to_owned() };
        self.held.remove(&labels);
        self.acquired.remove(&labels);
        self.contended.remove(&labels);
        self.waiters.remove(&labels);
    }
}
