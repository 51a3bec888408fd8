//! Holding a lease: when to extend it, and when it is lost.

mod ends;
mod keeper;

pub use ends::Ends;
pub use keeper::{Keeper, KeeperStep, LossReason};
