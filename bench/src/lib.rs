//! What a lock costs: Leasehold, a bare client that does the least that a lock could do, and other
//! people's libraries, in one run on the same servers.
//!
//! A machine is never the same twice, so figures of different runs say little. Here contestants take
//! turns of a second within each round, every round in another order, and what counts is the median
//! of the rounds and the median ratio to the floor of the same round.

pub mod args;
pub mod child;
mod clients;
mod contestants;
mod floor;
pub mod interrupt;
pub mod lock_server;
mod order;
mod player;
pub mod report;
mod rounds;
pub mod row;
pub mod scenarios;
mod servers;
mod stats;
mod work;
