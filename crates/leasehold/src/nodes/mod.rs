//! The backends. Each knows [`crate::node`] and the messages of the core, and nothing of rounds,
//! guards or each other.

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
