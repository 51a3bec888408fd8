//! Distributed locks for people who cannot afford two holders.
//!
//! Leasehold gives programs on many machines one lock, tells the holder when it no longer holds it,
//! and gives the storage a number, the [`Fence`], with which to refuse a holder that is too late.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::Locks;
//!
//! // also "sqlite:locks.db", "redis://10.0.0.1,10.0.0.2,10.0.0.3" and "https://locks.example"
//! let locks = Locks::open("memory:").await?;
//!
//! let Some(guard) = locks.lock("nightly-backup").try_acquire().await? else {
//!     return Ok(()); // somebody else does it
//! };
//! println!("held with fence {} for {:?}", guard.fence(), guard.validity());
//! guard.ensure_valid(std::time::Duration::from_millis(50))?;
//! let outcome = guard.release().await;
//! # assert_eq!(outcome, leasehold::ReleaseOutcome::Released);
//! # Ok(()) }
//! ```
//!
//! # What it does not promise
//!
//! * Mutual exclusion through a pause of the process, without a check of the fence by the storage.
//! * That fences are in the order in which overlapping acquires complete; they are in the order of
//!   acquires that do not overlap.
//! * Anything about nodes whose clocks run apart by more than the drift allowance. Fences hold even
//!   then.
//!
//! # How it is built
//!
//! ```text
//!  Locks ──►  driver ──►  core: rounds, tally, lease     (pure: values in, values out)
//!               │  ▲
//!       Request │  │ Reply
//!               ▼  │
//!             nodes: memory · sqlite · redis · lock server
//! ```

mod background;
mod chance;
pub mod clock;
mod detached;
mod driver;
mod error;
#[cfg(test)]
mod fuzz;
mod guard;
mod home;
mod lock;
mod locks;
mod members;
pub mod node;
pub mod nodes;
mod options;
mod redaction;
mod rehearsal;
#[cfg(all(test, feature = "redis"))]
mod simulation;
mod status;
mod token;

pub use background::Background;
pub use error::{
    AcquireError, ExtendError, ForceReleaseError, InitError, InspectError, Loss, NodeReport,
    NodeReports, OpenError, OptionsError, ReleaseOutcome, RunError, ValidityError,
};
pub use guard::Guard;
pub use leasehold_core::{
    Answer, Cause, ClockJump, Drift, Fence, Holder, LeaseState, LockName, LossReason, NameError,
    NodeError, Owner, Reply, RetryPolicy, Sighting, TtlError, quarantine,
};
pub use lock::{DEFAULT_TTL, DEFAULT_WAIT, LockRequest};
pub use locks::Locks;
pub use options::{Builder, MAX_CLOCK_SKEW, default_holder};
pub use redaction::without_password;
pub use status::{LockState, LockStatus, NodeHealth, NodeState};
pub use token::LeaseToken;
pub use tokio_util::sync::CancellationToken;
