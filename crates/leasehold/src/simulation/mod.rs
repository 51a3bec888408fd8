//! The whole library in a simulated world: time is tokio's paused time, the network is made of
//! pipes with delays, stalls and cuts, and the nodes are the core's `LockTable`, once as the memory
//! node and once behind the Redis protocol. Everything from `Locks` down to the bytes is the real
//! code. One seed makes one run, and the same seed makes the same run.
//!
//! Not turmoil: it delays and holds whole segments, and we want to cut a reply in the middle and to
//! let a request arrive after its connection died; and it needs an unstable flag of tokio to repeat
//! a run, which we get by `biased` in every `select!`.
//!
//! `LEASEHOLD_SIM_SEEDS=5000 cargo test -p leasehold --lib simulation` runs that many seeds per test
//! instead of a few dozen; a failure prints its seed and the command that repeats it.

mod address;
mod ballots;
mod bystanders;
mod commands;
mod court;
mod memory;
mod run;
mod server;
mod site;
mod timepieces;
mod town;
mod world;

mod callers;
mod cancellation;
mod clocks;
mod crowd;
mod forced;
mod keeping;
mod late;
mod lists;
mod lives;
mod pause;
mod reconnect;
mod replay;
mod steady;
mod waiting;
