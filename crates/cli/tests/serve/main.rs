//! `leasehold serve` as a process.

mod life;
mod process;
mod reload;
#[path = "../support/mod.rs"]
mod support;
