//! Small helpers for the cases.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use leasehold::{Locks, Owner};

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Waits until `is_true`, at most for five seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, is_true: impl Fn() -> F) {
    let start = Instant::now();
    while !is_true().await {
        assert!(start.elapsed() < secs(5), "not within 5 s: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}

/// Whether no node knows an owner of `name`. A lock server leaves out an owner that can be gone when its
/// answer is read, a little before it is: so this looks twice.
pub(crate) async fn is_free(locks: &Locks, name: &str) -> bool {
    if !owners(locks, name).await.is_empty() {
        return false;
    }
    tokio::time::sleep(ms(50)).await;
    owners(locks, name).await.is_empty()
}

/// The owners of `name`, node by node.
pub(crate) async fn owners(locks: &Locks, name: &str) -> Vec<Owner> {
    let status = locks.inspect_as_answered(name).await.expect("inspect");
    let sightings = status
        .nodes
        .into_iter()
        .map(|(node, sighting)| sighting.unwrap_or_else(|error| panic!("{node}: {error}")));
    sightings.filter_map(|sighting| sighting.owner).collect()
}

/// Polls a future at most `polls` times, then drops it: a caller that lost interest.
pub(crate) struct CutOff<F> {
    future: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> CutOff<F> {
    pub(crate) fn after(polls: usize, future: F) -> Self {
        Self { future: Box::pin(future), polls }
    }
}

impl<F: Future> Future for CutOff<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
