//! A lease in the hands of the caller: how long it is good, how to hear that it is lost, how to
//! give it back. What keeps it in the background is in the driver's `keeping`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fence, Holder, LeaseState, LockName, Moment};
use tokio_util::sync::CancellationToken;

use crate::driver::{Cluster, Held, Keeping, Turn, Won};
use crate::error::{ExtendError, Loss, ReleaseOutcome, ValidityError};
use crate::token::LeaseToken;

/// Stands for a held lock.
///
/// Kept in the background unless it was acquired with `manual()`. Dropping it gives the lock back
/// without waiting; [`Guard::release`] also tells what became of it. Not `Clone`: there is one
/// holder.
///
/// What it does *not* promise: while the process is paused, nobody can tell it anything. Check
/// [`Guard::ensure_valid`] before what must not happen twice, and hand [`Guard::fence`] to the
/// storage, which can refuse a holder that is too late.
#[must_use = "a guard that is dropped gives the lock back at once"]
pub struct Guard {
    held: Arc<Held>,
}

impl Guard {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        won: Won,
        turn: Option<Turn>,
        keeping: Keeping,
    ) -> Self {
        Self { held: Held::start(cluster, won, turn, keeping) }
    }

    /// Which lock.
    pub fn name(&self) -> &LockName {
        &self.held.lock
    }

    /// The value that stands for this lease on the nodes. After a hand-off inside this process it is
    /// that of the holder before.
    pub fn holder(&self) -> &Holder {
        &self.held.holder
    }

    /// The fencing token: larger than that of every acquisition that completed before this one
    /// started. Storage keeps the highest it has seen and refuses lower ones.
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// How long the lease is still good, without asking anybody; zero if it is lost.
    pub fn validity(&self) -> Duration {
        self.held.validity()
    }

    /// What may be believed now.
    pub fn state(&self) -> LeaseState {
        self.held.lease_state()
    }

    /// Until when the lease is good, or was if it is lost. What happened before that happened under
    /// the lock.
    pub fn deadline(&self) -> Moment {
        if self.held.is_elsewhere() {
            return Moment::default();
        }
        self.held.deadline()
    }

    /// Succeeds if the lease is good for at least `margin` more, and says for how long. No I/O: call
    /// it before each step that must not happen after the loss.
    pub fn ensure_valid(&self, margin: Duration) -> Result<Duration, ValidityError> {
        let held = &self.held;
        held.check_home()?;
        let left = held.left()?;
        if left < margin {
            return Err(ValidityError::TooShort { lock: held.lock.clone(), left, margin });
        }
        Ok(left)
    }

    /// Completes when the lease is lost, at the latest at its deadline, which is before any node
    /// gives the lock away.
    pub async fn lost(&self) -> Loss {
        if let Err(loss) = self.held.check_home() {
            return loss;
        }
        self.held.lost().cancelled().await;
        self.held.loss()
    }

    /// A token that is cancelled when the lease is lost.
    pub fn cancellation_token(&self) -> CancellationToken {
        if self.held.is_elsewhere() {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            return cancelled;
        }
        self.held.lost().child_token()
    }

    /// Extends the lease now and says for how long it is good. A failure changes nothing: the old
    /// deadline stands, and it may be tried again.
    pub async fn extend(&self) -> Result<Duration, ExtendError> {
        self.held.extend().await?;
        Ok(self.validity())
    }

    /// Lets go of the lease without giving it back: nobody keeps it any more, and everybody who has
    /// the token can extend and release it. See [`crate::Locks::extend`].
    pub fn detach(self) -> LeaseToken {
        LeaseToken::of(&self.held.detach())
    }

    /// Gives the lock back and tells what became of it. Asks each node once and waits for a quorum;
    /// dropping the future does not take the release back.
    ///
    /// Where somebody else of this process waits for the lock, the lease is handed to them instead, and
    /// no node is asked: [`ReleaseOutcome::HandedOver`].
    pub async fn release(self) -> ReleaseOutcome {
        let held = self.held.clone();
        if held.is_elsewhere() {
            return ReleaseOutcome::Unknown { nodes: held.refusals() };
        }
        if held.hand_off() {
            return ReleaseOutcome::HandedOver;
        }
        let (op, limit) = held.begin_release();
        // The guard's drop finds it released already.
        drop(self);
        held.released(&op, limit).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let held = &self.held;
        if held.is_released() {
            return;
        }
        if held.is_elsewhere() {
            // The lease is the parent's.
            return std::mem::forget(held.clone());
        }
        if !held.hand_off() {
            held.give_back();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.held.lock)
            .field("fence", &self.held.fence)
            .field("state", &self.state())
            .finish()
    }
}
