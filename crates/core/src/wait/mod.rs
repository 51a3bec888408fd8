//! Waiting for a lock: when to ask again.

mod backoff;

pub use backoff::{Backoff, RetryPolicy};
