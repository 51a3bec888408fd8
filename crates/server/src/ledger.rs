//! What this instance remembers and counts. All of it may be forgotten: it decides nothing about a lock.

pub(crate) mod audit;
pub(crate) mod events;
pub(crate) mod idempotency;
pub(crate) mod known;
pub(crate) mod metrics;
pub(crate) mod stats;
