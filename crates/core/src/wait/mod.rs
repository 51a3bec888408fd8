//! Waiting for a lock that another holds: when to ask for it again.

mod backoff;

pub use backoff::{Backoff, RetryPolicy};
