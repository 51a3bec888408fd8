//! Leasehold on real servers that are killed, stopped and lied to, with its history checked.
//!
//! A run starts servers behind proxies, a fenced store, and holders, each a process of its own that
//! uses the library as anybody would. A schedule drawn from a seed says what goes wrong and when.
//! Everybody writes down what it did and when, by the machine's one boot clock; afterwards the
//! [`check`]s judge the history alone, so that a saved one can be judged again.
//!
//! The library tells every ballot that it wins, with the lives of the servers whose votes it
//! counted. The run knows what really became of each server process. So a vote of a server that had
//! forgotten is seen also where nobody else happened to get the lock.
//!
//! # What is judged, and when
//!
//! A run keeps the assumptions under which two holders never both have validity left: nodes lose
//! their memory only in ways that a quarantine covers, their clocks go back but never forward by
//! more than the drift allowance, and stay within the allowed skew. Everything is judged then. With
//! `--beyond` clocks jump forward and locks are evicted, on majorities at once: exclusion may
//! break and is only reported, but fences and the fenced store are still judged. No node forgets or
//! restarts in such a run, because the floor of a node that forgets is its clock, so that a lost memory *and* a
//! wrong clock are more than fences survive. For the same reason only keys with a TTL are evicted:
//! a node that silently forgets its fences is not covered by any promise.

pub mod chance;
pub mod check;
pub mod clock;
pub mod cluster;
pub mod fault;
pub mod history;
pub mod holder;
pub mod holders;
pub mod picture;
pub mod report;
pub mod run;
pub mod schedule;
pub mod store;
pub mod timeline;
pub mod told;
pub mod watch;
