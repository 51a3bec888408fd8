//! Asking for a lock: what the caller may say about it, and the ways to get it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rounds::Refusal;
use leasehold_core::{Holder, LockName, RetryPolicy, Ttl};
use tracing::{Instrument, debug, info_span};

use crate::driver::{
    Acquiring, Attempt, Cluster, Keeping, Refused, Turn, Watcher, Won, yield_if_over_budget,
};
use crate::error::{AcquireError, OptionsError, RunError, ValidityError};
use crate::guard::Guard;

/// How long the nodes keep a lease that nobody extends, if the caller does not say. Leases are
/// extended in the background at a third of it: longer survives longer outages of the nodes, shorter
/// frees the lock of a crashed holder sooner.
pub const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How long [`LockRequest::acquire`] waits, if the caller does not say: nobody hangs for ever by
/// default.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);

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
    /// [`Self::try_acquire`] and [`Self::try_acquire_or_tell`]: a waiter draws afresh each time.
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
            Err(refused) => Err(refused.into_error(&self.cluster, &attempt)),
        }
    }

    /// Asks once, as [`Self::try_acquire`] does, but tells who holds the lock: by
    /// [`AcquireError::Held`].
    pub async fn try_acquire_or_tell(self) -> Result<Guard, AcquireError> {
        let attempt = self.attempt()?;
        match self.try_once(&attempt).await {
            Ok(lease) => Ok(self.guard(lease, None)),
            Err(refused) => Err(refused.into_error(&self.cluster, &attempt)),
        }
    }

    async fn try_once(&self, attempt: &Attempt) -> Result<Won, Refused> {
        yield_if_over_budget().await;
        let span = info_span!("lock.acquire", lock = %attempt.lock);
        match self.nonce {
            Some(nonce) => attempt.run_with(&self.cluster, nonce).instrument(span).await,
            None => attempt.run(&self.cluster).instrument(span).await,
        }
    }

    /// Asks until the lock is acquired or the waiting time is over, behind all waiters of this process
    /// for the same lock.
    ///
    /// If too few nodes answer it waits as for a holder: they may come back. Nodes that deny us will
    /// not, so without a quorum of others this fails at once. Dropping the future at any point
    /// leaves nothing behind.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        let attempt = self.attempt()?;
        let span = info_span!("lock.acquire", lock = %attempt.lock);
        let acquiring = Acquiring {
            cluster: &self.cluster,
            attempt,
            wait: self.wait,
            retry: self.retry,
            extends: self.keeping.extends,
            watcher: self.watcher.as_ref(),
        };
        let (lease, turn) = acquiring.run().instrument(span).await?;
        Ok(self.guard(lease, Some(turn)))
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
        self.cluster.check_ttl(ttl)?;
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
}
