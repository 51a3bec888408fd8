//! Asking for a lock: what the caller may say about it, and the ways to get it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::Refusal;
use leasehold_core::{Backoff, Holder, LockName, Owner, RetryPolicy, Ttl};
use tracing::{Instrument, debug, info_span};

use crate::chance;
use crate::driver::{Attempt, Cluster, Refused, Won};
use crate::error::{AcquireError, NodeReports, OptionsError, RunError, ValidityError};
use crate::guard::{Guard, Keeping};
use crate::queue::{Place, Turn};
use crate::waiter::{Timers, Waiter};

/// How long the nodes keep a lease that nobody extends, if the caller does not say. Leases are
/// extended in the background at a third of it: longer survives longer outages of the nodes, shorter
/// frees the lock of a crashed holder sooner.
pub const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How long [`LockRequest::acquire`] waits, if the caller does not say: nobody hangs for ever by
/// default.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// Nothing else on the way to a lock may ever have to wait, with nodes in memory or in a file: whoever
/// takes locks in a loop would keep the thread to itself.
async fn lets_others_run() {
    tokio::task::coop::consume_budget().await;
}

/// A lock about to be asked for. Made by [`crate::Locks::lock`].
#[derive(Debug, Clone)]
#[must_use = "nothing is asked before `try_acquire`, `acquire` or `run`"]
pub struct LockRequest {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) name: Result<LockName, OptionsError>,
    label: Arc<str>,
    nonce: Option<u128>,
    mark: Option<u64>,
    ttl: Duration,
    wait: Option<Duration>,
    retry: RetryPolicy,
    min_validity: Duration,
    keeping: Keeping,
    watcher: Option<Watcher>,
}

/// Whoever wants to see refusals while waiting.
#[derive(Clone)]
struct Watcher(Arc<dyn Fn(&AcquireError) + Send + Sync>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

impl LockRequest {
    pub(crate) fn new(cluster: Arc<Cluster>, name: &str, label: Arc<str>) -> Self {
        Self {
            cluster,
            name: LockName::new(name).map_err(OptionsError::from),
            label,
            nonce: None,
            mark: None,
            ttl: DEFAULT_TTL,
            wait: Some(DEFAULT_WAIT),
            retry: RetryPolicy::DEFAULT,
            min_validity: Duration::ZERO,
            keeping: Keeping { extends: true, max_hold: None },
            watcher: None,
        }
    }

    /// How long the nodes keep the lease if nobody extends it: 100 ms up to the cluster's
    /// `max_ttl`. Default: [`DEFAULT_TTL`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`Self::acquire`] and [`Self::run`] wait at most. Default: [`DEFAULT_WAIT`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(mut self) -> Self {
        self.wait = None;
        self
    }

    /// How often and at which distance the nodes are asked while waiting. The classic five attempts
    /// are [`RetryPolicy::FIVE_ATTEMPTS`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Takes a lease only if at least this much of it is left when it is granted.
    pub fn min_validity(mut self, least: Duration) -> Self {
        self.min_validity = least;
        self
    }

    /// Who asks, for people: `user@host:pid` if nothing is said. Printable ASCII, at most 200 bytes.
    pub fn holder(mut self, label: impl AsRef<str>) -> Self {
        self.label = label.as_ref().into();
        self
    }

    /// The random part of the holder value, for one who must know it before the answer, to give back
    /// what it may never hear of. Must never have been used: 128 fresh random bits. Only for
    /// [`Self::try_acquire`] and [`Self::try_acquire_or_tell`]; whoever waits draws afresh each time.
    pub fn nonce(mut self, fresh: u128) -> Self {
        self.nonce = Some(fresh);
        self
    }

    /// The first half of the random part of the holder value, by which the asker recognizes its lease
    /// among those of others: [`Holder::mark`]. The second half is drawn afresh for each attempt.
    pub fn mark(mut self, mark: u64) -> Self {
        self.mark = Some(mark);
        self
    }

    /// The lease is lost after this time even if it could be kept: for work that may hang while its
    /// keeper lives on.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.keeping.max_hold = Some(limit);
        self
    }

    /// Does not extend the lease in the background: it is lost at its deadline unless the caller
    /// extends it.
    pub fn manual(mut self) -> Self {
        self.keeping.extends = false;
        self
    }

    /// Calls `watcher` with each refusal while [`Self::acquire`] waits: who holds the lock and for how
    /// long yet, or which nodes are missing. It must be quick.
    pub fn on_refusal(mut self, watcher: impl Fn(&AcquireError) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Watcher(Arc::new(watcher)));
        self
    }

    /// Asks once. `None` if somebody else holds the lock.
    ///
    /// Dropping the future at any point leaves nothing behind.
    pub async fn try_acquire(self) -> Result<Option<Guard>, AcquireError> {
        let attempt = self.attempt()?;
        match self.try_once(&attempt).await {
            Ok(lease) => Ok(Some(self.guard(lease, None))),
            Err(Refused { refusal: Refusal::Held { .. }, .. }) => Ok(None),
            Err(refused) => Err(self.error(&attempt, refused)),
        }
    }

    /// Asks once, as [`Self::try_acquire`] does, but tells who holds the lock: by
    /// [`AcquireError::Held`].
    pub async fn try_acquire_or_tell(self) -> Result<Guard, AcquireError> {
        let attempt = self.attempt()?;
        match self.try_once(&attempt).await {
            Ok(lease) => Ok(self.guard(lease, None)),
            Err(refused) => Err(self.error(&attempt, refused)),
        }
    }

    async fn try_once(&self, attempt: &Attempt) -> Result<Won, Refused> {
        lets_others_run().await;
        let span = info_span!("lock.acquire", lock = %attempt.lock);
        match self.nonce {
            Some(nonce) => attempt.run_with(&self.cluster, nonce).instrument(span).await,
            None => attempt.run(&self.cluster).instrument(span).await,
        }
    }

    /// Asks until the lock is acquired or the waiting time is over, behind everybody of this process
    /// who waits for the same lock.
    ///
    /// Too few answering nodes are waited for like a holder: they may come back. Those that deny us
    /// will not, so without a quorum of others this fails at once. Dropping the future at any point
    /// leaves nothing behind.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let attempt = self.attempt()?;
        let span = info_span!("lock.acquire", lock = %attempt.lock);
        self.wait_for(attempt).instrument(span).await
    }

    async fn wait_for(self, attempt: Attempt) -> Result<Guard, AcquireError> {
        let cluster = &self.cluster;
        let start = cluster.now();
        let left = || match self.wait {
            Some(wait) => wait.saturating_sub(cluster.now().since(start)),
            None => Duration::MAX,
        };
        let timed_out = |attempts, last: Option<AcquireError>| match last {
            // Nobody can tell whether the lock is free: that is the news, not the waiting.
            Some(error @ (AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. })) => error,
            last => AcquireError::TimedOut {
                lock: attempt.lock.clone(),
                waited: cluster.now().since(start),
                attempts,
                last: last.map(Box::new),
            },
        };
        let mut turn = match cluster.queues.join(&attempt.lock).turn_now() {
            Ok(turn) => {
                lets_others_run().await;
                turn
            }
            Err(place) => {
                // A fork would wait for holders of its parent.
                cluster.check_home()?;
                match Box::pin(self.turn(place, left())).await {
                    Some(turn) => turn,
                    None => return Err(timed_out(0, None)),
                }
            }
        };
        let mut backoff = Backoff::new(self.retry);
        // Made for those who have to wait.
        let mut waiter = None;
        let fresh = || Waiter::new(cluster, &attempt.lock);
        let mut heritage = None;
        if let Some(legacy) = turn.inherit(&attempt.label) {
            cluster.check_home()?;
            // One that is not extended wants its whole Ttl.
            let place = self.keeping.extends.then(|| turn.place());
            match Box::pin(legacy.take(&attempt, place)).await {
                Ok((lease, reserve)) => {
                    *turn.reserve() = Some(reserve);
                    return Ok(self.guard(lease, Some(turn)));
                }
                Err(left) => heritage = Some(left),
            }
        }
        if heritage.is_none() && self.takes_hints() && cluster.queues.contended.has(&attempt.lock) {
            Box::pin(waiter.get_or_insert_with(fresh).stand_first(left())).await;
        }
        for attempts in 1.. {
            // Registered before asking: a release that comes in between must not be missed.
            let freed = turn.freed();
            let refused = match attempt.run_as(cluster, heritage.take()).await {
                Ok(lease) => {
                    drop(freed);
                    if waiter.as_ref().is_some_and(Waiter::met_others) {
                        turn.stood_in_line();
                    }
                    return Ok(self.guard(lease, Some(turn)));
                }
                Err(refused) => refused,
            };
            cluster.check_home()?;
            let (expires_in, owner) = match &refused.refusal {
                Refusal::Held { expires_in, owner: Some(Owner::Holder(holder)) } => {
                    (*expires_in, Some(holder.clone()))
                }
                Refusal::Held { expires_in, .. } => (*expires_in, None),
                Refusal::NoQuorum | Refusal::TooLate { .. } => (None, None),
            };
            let takes_hints = self.takes_hints() && matches!(refused.refusal, Refusal::Held { .. });
            let error = self.error(&attempt, refused);
            debug!(attempts, "refused: {error}");
            if let Some(watcher) = &self.watcher {
                (watcher.0)(&error);
            }
            if error.is_denied() {
                return Err(error);
            }
            // Nodes that are known by now may not allow what was asked for.
            self.attempt()?;
            let left = left();
            let pause = backoff.after_refusal(chance::jitter(), expires_in);
            let Some(pause) = pause.filter(|_| !left.is_zero()) else {
                return Err(timed_out(attempts, Some(error)));
            };
            if takes_hints {
                let timers = Timers { backoff: pause, expires_in, left };
                let waiter = waiter.get_or_insert_with(fresh);
                Box::pin(waiter.stand(timers, owner.as_ref(), freed)).await;
                continue;
            }
            if let Some(waiter) = &mut waiter {
                waiter.step_aside();
            }
            let sleep = Box::pin(cluster.sleep(pause.min(left)));
            tokio::select! {
                biased;
                () = sleep => {}
                () = freed => {}
            }
        }
        unreachable!("the loop ends by returning")
    }

    async fn turn(&self, place: Place, left: Duration) -> Option<Turn> {
        tokio::select! {
            biased;
            turn = place.turn() => Some(turn),
            () = self.cluster.sleep(left) => None,
        }
    }

    /// Whoever counts its attempts makes them at its own times.
    fn takes_hints(&self) -> bool {
        self.retry.attempts.is_none()
    }

    /// Acquires the lock, runs `body`, and gives the lock back. If the lease is lost the body is
    /// cancelled at its next await.
    ///
    /// ```
    /// # #[derive(Debug)] struct Refused;
    /// # async fn pay(invoice: u32, fence: leasehold::Fence) -> Result<u32, Refused> { Ok(invoice) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = leasehold::Locks::open("memory:").await?;
    /// let receipt = locks.lock("invoice/42").run(async |lease| pay(42, lease.fence()).await).await;
    /// assert_eq!(receipt.unwrap(), 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F>(self, body: F) -> Result<T, RunError<T, E>>
    where
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        let guard = self.acquire().await.map_err(RunError::Acquire)?;
        let output = tokio::select! {
            biased;
            output = body(&guard) => output,
            loss = guard.lost() => return Err(RunError::Lost { loss, output: None }),
        };
        // The body may have run on past the deadline while nobody could stop it.
        let lost = match guard.ensure_valid(Duration::ZERO) {
            Err(ValidityError::Lost(loss)) => Some(loss),
            Ok(_) | Err(ValidityError::TooShort { .. }) => None,
        };
        let outcome = guard.release().await;
        debug!(?outcome, "given back");
        match lost {
            Some(loss) => Err(RunError::Lost { loss, output: Some(output) }),
            None => output.map_err(RunError::Body),
        }
    }

    fn attempt(&self) -> Result<Attempt, OptionsError> {
        Holder::check_label(&self.label)?;
        let ttl = Ttl::new(self.ttl)?;
        match self.cluster.max_ttl() {
            Some(max) if ttl.get() > max => {
                return Err(OptionsError::TtlAboveMax { asked: self.ttl, max });
            }
            _ => {}
        }
        Ok(Attempt {
            lock: self.name.clone()?,
            label: self.label.clone(),
            mark: self.mark,
            ttl,
            min_validity: self.min_validity,
        })
    }

    fn guard(&self, won: Won, turn: Option<Turn>) -> Guard {
        debug!(fence = %won.lease.fence, holder = won.lease.holder.label(), "acquired");
        Guard::new(self.cluster.clone(), won, turn, self.keeping)
    }

    fn error(&self, attempt: &Attempt, refused: Refused) -> AcquireError {
        if let Err(forked) = self.cluster.check_home() {
            return forked.into();
        }
        let lock = attempt.lock.clone();
        let nodes = NodeReports::of(self.cluster.node_ids(), &refused.ballot);
        match refused.refusal {
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
