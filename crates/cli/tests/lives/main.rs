//! A vote belongs to one life of one server. Each file here is a way in which an address, a record or
//! a connection outlives the memory behind it; with each of them two clients once held one lock at the
//! same time. Real servers, the real binary; to see the tests fail on an older one:
//!
//! ```text
//! LEASEHOLD_BINARY=/path/to/leasehold cargo test -p leasehold-cli --test lives
//! ```

mod balanced;
mod copies;
mod failover;
mod found_later;
mod one_server_twice;
mod pooled;
mod said_to_be_new;
mod stage;
#[path = "../support/mod.rs"]
mod support;
