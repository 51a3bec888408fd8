//! The server as its callers see it: real sockets, a real backend.

mod access;
mod idempotency;
mod leases;
mod life;
mod limits;
mod metrics;
mod reload;
mod streams;
mod support;
mod table;
mod waiting;
