//! What is said while a lock is waited for that no quorum of nodes speaks of: once, after a second.
//! Who waits for nodes that are down would otherwise look as if it waited for a holder.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::AcquireError;
use tokio::sync::Notify;

use super::line;
use crate::child::report::Reporter;
use crate::exit::Failure;

/// Nodes that restart, or a connection that is being made, are not worth a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the nodes said to the last attempt, if they were too few.
#[derive(Debug, Default)]
pub(super) struct Outage {
    last: Mutex<Option<AcquireError>>,
    came: Notify,
}

impl Outage {
    /// An attempt was refused.
    pub(super) fn note(&self, error: &AcquireError) {
        let is_outage = matches!(error, AcquireError::NoQuorum { .. });
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = is_outage.then(|| error.clone());
        if is_outage {
            self.came.notify_one();
        }
    }

    fn take(&self) -> Option<AcquireError> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Says it when it is time, and never comes back.
    pub(super) async fn tell(&self, report: &Reporter) -> Infallible {
        tokio::time::sleep(PATIENCE).await;
        loop {
            if let Some(error @ AcquireError::NoQuorum { .. }) = self.take() {
                line::erase();
                report.no_quorum(&Failure::Acquire(error));
                return std::future::pending().await;
            }
            self.came.notified().await;
        }
    }
}
