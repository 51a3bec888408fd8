//! Holding a lease: when to extend it, when it is lost, and who of the same process gets it next.

mod ends;
mod handoff;
mod keeper;

pub use ends::Ends;
pub use handoff::{AskAs, Chain, Handoff, Inherited, LocalQueue, NextWaiter, Reserved, TurnNumber};
pub use keeper::{Keeper, KeeperStep, LossReason};
