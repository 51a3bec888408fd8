//! How long, and by whose clock. Each file here is a way in which a wall clock, or a setting that says
//! how long to wait, once made two holders, repeated a fence, or cost a healthy lease. Real Redis and
//! Valkey servers whose clocks are moved, the real binary; to see the tests fail on an older one:
//!
//! ```text
//! LEASEHOLD_BINARY=/path/to/leasehold cargo test -p leasehold-cli --test clocks
//! ```
//!
//! Member lists are changed by the library alone, so `succession` and `changes_in_a_row` fail only
//! where they are compiled with an older library.

mod changes_in_a_row;
mod late_clients;
mod longest_ttl;
mod one_node;
mod paused;
mod quarantine;
mod stage;
mod steps;
mod succession;
#[path = "../support/mod.rs"]
mod support;
mod wrong_from_the_start;
