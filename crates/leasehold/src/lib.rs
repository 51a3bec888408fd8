//! Leasehold: distributed locks for people who cannot afford two holders.

mod chance;
pub mod clock;
pub mod node;
pub mod nodes;
