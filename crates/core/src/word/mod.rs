//! The words: values that know only their own bounds.

mod fence;
mod holder;
mod lease;
mod name;
mod time;

pub use fence::Fence;
pub use holder::{Holder, HolderError, LABEL_BYTES_MAX};
pub use lease::{Lease, LeaseState};
pub use name::{LockName, NAME_BYTES_MAX, NameError};
pub use time::{Drift, Moment, TTL_MIN, Ttl, TtlError, WallMicros};
