//! Holding a lease: who of the same process gets it next.

mod handoff;

pub use handoff::{AskAs, Chain, Handoff, Inherited, LocalQueue, NextWaiter, Reserved, TurnNumber};
