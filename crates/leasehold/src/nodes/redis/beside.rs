//! Whom a node's second connection met. Several servers may answer at one address, each with a memory
//! of its own; two connections that met different ones show it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Shared by the two connections of a node.
#[derive(Debug, Default)]
pub(super) struct Beside {
    run_id: Mutex<Option<String>>,
    /// Told when the second connection is to be opened anew.
    pub(super) stale: Notify,
}

impl Beside {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.run_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The second connection met this server, or is closed.
    pub(super) fn meet(&self, run_id: Option<String>) {
        *self.lock() = run_id;
    }

    /// Whom it met, if that is not the server with `run_id`. It is opened anew then: that server may
    /// be gone, and a proxy may hide it.
    pub(super) fn other_than(&self, run_id: &str) -> Option<String> {
        let other = self.lock().take_if(|met| met != run_id);
        if other.is_some() {
            self.stale.notify_one();
        }
        other
    }
}
