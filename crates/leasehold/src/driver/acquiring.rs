//! Asking for a lock until it is acquired or the waiting ends: takes the process's turn, then a
//! lease that was handed over in it, then attempts, and between them what the waiter wants.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::Refusal;
use leasehold_core::wait::{RetryPolicy, WaitEnd, Waiting};
use leasehold_core::{NextWaiter, Ttl};
use tracing::debug;

use super::queue::Place;
use super::waiter::Waiter;
use super::{Attempt, Cluster, Refused, Turn, Won};
use crate::error::{AcquireError, NodeReports, OptionsError};

/// Nothing else on the way to a lock may ever have to wait, with nodes in memory or in a file: a loop
/// of uncontended acquires must yield to other tasks.
pub(crate) async fn yield_if_over_budget() {
    tokio::task::coop::consume_budget().await;
}

/// Is told of each refusal while its lock is waited for.
#[derive(Clone)]
pub(crate) struct Watcher(pub(crate) Arc<dyn Fn(&AcquireError) + Send + Sync>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// What is asked for, and for how long.
pub(crate) struct Acquiring<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) attempt: Attempt,
    /// At most so long; `None` for as long as it takes.
    pub(crate) wait: Option<Duration>,
    pub(crate) retry: RetryPolicy,
    /// Whether the lease will be extended.
    pub(crate) extends: bool,
    pub(crate) watcher: Option<&'a Watcher>,
}

impl Acquiring<'_> {
    /// The lease, with the turn that is kept as long as it is held.
    pub(crate) async fn run(self) -> Result<(Won, Turn), AcquireError> {
        let Self { cluster, attempt, wait, retry, extends, watcher } = self;
        let start = cluster.now();
        let mut turn = match cluster.queues.join(&attempt.lock).turn_now() {
            Ok(turn) => {
                yield_if_over_budget().await;
                turn
            }
            Err(place) => {
                // A fork would wait for holders of its parent.
                cluster.check_home()?;
                match Box::pin(turn_within(cluster, place, wait)).await {
                    Some(turn) => turn,
                    None => {
                        let end = WaitEnd { attempts: 0, waited: cluster.now().since(start) };
                        return Err(attempt.timed_out(end, None));
                    }
                }
            }
        };
        // Made for those who have to wait.
        let mut waiter = None;
        let fresh = || {
            let waiting = Waiting::new(start, wait, retry, cluster.quorum);
            Waiter::new(cluster, &attempt.lock, waiting)
        };
        let mut ask_as = None;
        if let Some(handoff) = turn.inherit(&attempt.label) {
            cluster.check_home()?;
            let Attempt { ttl, min_validity, .. } = attempt;
            let next = NextWaiter { turn: turn.number(), ttl, min_validity, extends };
            match Box::pin(handoff.take(&next)).await {
                Ok(won) => return Ok((won, turn)),
                Err(ask) => ask_as = Some(ask),
            }
        }
        if ask_as.is_none()
            && retry.takes_hints()
            && cluster.queues.contended.has(&attempt.lock)
            && let Err(end) = Box::pin(waiter.get_or_insert_with(fresh).stand_first()).await
        {
            return Err(attempt.timed_out(end, None));
        }
        for attempts in 1.. {
            // Registered before asking: a release that comes in between must not be missed.
            let freed = turn.freed();
            let refused = match attempt.run_as(cluster, ask_as.take()).await {
                Ok(lease) => {
                    drop(freed);
                    if waiter.as_ref().is_some_and(Waiter::met_others) {
                        turn.stood_in_line();
                    }
                    return Ok((lease, turn));
                }
                Err(refused) => refused,
            };
            cluster.check_home()?;
            let refusal = refused.refusal.clone();
            let error = refused.into_error(cluster, &attempt);
            debug!(attempts, "refused: {error}");
            if let Some(Watcher(tell)) = watcher {
                tell(&error);
            }
            if error.is_denied() {
                return Err(error);
            }
            // Nodes that are known by now may not allow what was asked for.
            cluster.check_ttl(attempt.ttl)?;
            let waiter = waiter.get_or_insert_with(fresh);
            if let Err(end) = Box::pin(waiter.refused(&refusal, freed)).await {
                return Err(attempt.timed_out(end, Some(error)));
            }
        }
        unreachable!("the loop ends by returning")
    }
}

async fn turn_within(cluster: &Cluster, place: Place, wait: Option<Duration>) -> Option<Turn> {
    tokio::select! {
        biased;
        turn = place.turn() => Some(turn),
        () = cluster.sleep(wait.unwrap_or(Duration::MAX)) => None,
    }
}

impl Cluster {
    /// Whether the nodes, as far as they are known, allow so long a lease.
    pub(crate) fn check_ttl(&self, ttl: Ttl) -> Result<(), OptionsError> {
        let asked = ttl.get();
        match self.max_ttl() {
            Some(max) if asked > max => Err(OptionsError::TtlAboveMax { asked, max }),
            _ => Ok(()),
        }
    }
}

impl Attempt {
    fn timed_out(&self, end: WaitEnd, last: Option<AcquireError>) -> AcquireError {
        match last {
            // Nobody can tell whether the lock is free: that is the news, not the waiting.
            Some(error @ (AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. })) => error,
            last => AcquireError::TimedOut {
                lock: self.lock.clone(),
                waited: end.waited,
                attempts: end.attempts,
                last: last.map(Box::new),
            },
        }
    }
}

impl Refused {
    /// What the caller is told, with what each node said.
    pub(crate) fn into_error(self, cluster: &Cluster, attempt: &Attempt) -> AcquireError {
        if let Err(forked) = cluster.check_home() {
            return forked.into();
        }
        let lock = attempt.lock.clone();
        let nodes = NodeReports::of(cluster.node_ids(), &self.ballot);
        match self.refusal {
            Refusal::Held { owner, expires_in } => {
                AcquireError::Held { lock, owner, expires_in, nodes }
            }
            Refusal::NoQuorum => AcquireError::NoQuorum { lock, nodes },
            Refusal::TooLate { validity } => {
                AcquireError::TooLate { lock, validity, ttl: attempt.ttl.get(), nodes }
            }
        }
    }
}
