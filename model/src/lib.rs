//! Leasehold's protocol, explored to the last state within small bounds, with the code that runs in
//! production: `core::LockTable` is the node, `core::rounds` and `core::Admission` decide. This crate
//! only says what may happen (`protocol`), what is promised (`promise`), and what is tried (`cases`).

mod attempt;
pub mod case;
pub mod cases;
mod change;
mod claims;
mod clocks;
mod fault;
mod handoff;
mod handover;
pub mod happening;
pub mod holders;
pub mod line;
pub mod lists;
pub mod memo;
pub mod mutation;
pub mod nodes;
pub mod promise;
pub mod protocol;
pub mod report;
pub mod setup;
pub mod state;
pub mod trace;
pub mod voters;
