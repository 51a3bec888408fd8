//! The backends. Each knows [`crate::node`] and the messages of the core, and nothing of rounds,
//! guards or each other.

#[cfg(any(feature = "redis", feature = "http"))]
mod dial;
#[cfg(feature = "http")]
pub mod http;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "http")))]
mod tls;
