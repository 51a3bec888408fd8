//! Leasehold's core under a seeded queue of events: servers, processes, clocks and the network
//! between them are simulated, the protocol is the real one. One seed, one run.

pub mod addresses;
pub mod client;
pub mod clock;
pub mod faults;
pub mod history;
pub mod invariants;
pub mod lists;
pub mod network;
pub mod scenario;
pub mod server;
pub mod tales;
pub mod timeline;
pub mod world;
