//! Everything under way, and the two signals with which a server ends: first it says that it will, then it
//! does.

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// Everything under way: the server does not end before it does.
#[derive(Clone, Default)]
pub(crate) struct Tasks {
    running: TaskTracker,
    leaving: CancellationToken,
    draining: CancellationToken,
}

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    /// The server is about to end: load balancers are told, and everything is served on.
    pub(crate) fn announce_end(&self) {
        self.leaving.cancel();
    }

    /// Whether the server is about to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// The server ends: nothing new begins.
    pub(crate) fn end(&self) {
        self.leaving.cancel();
        self.draining.cancel();
        self.running.close();
    }

    /// Whether the server ends.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Ready when the server ends.
    pub(crate) fn draining(&self) -> WaitForCancellationFuture<'_> {
        self.draining.cancelled()
    }

    /// Ready when everything under way has ended.
    pub(crate) async fn ended(&self) {
        self.running.wait().await;
    }
}
