//! The server as its callers see it: real sockets, a real backend.

mod access;
mod idempotency;
mod leases;
mod life;
mod limits;
mod metrics;
mod streams;
mod support;
mod waiting;
