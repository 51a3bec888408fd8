//! What Leasehold's own tests need around them: real Redis and Valkey servers that can be killed,
//! paused and lied to about the time, a TCP proxy that misbehaves on request, certificates, and
//! other people's lock libraries to meet on the same keys; what runs beside a lock server
//! (Prometheus, Alertmanager, HAProxy); and odd inputs for whatever reads any.
//!
//! Everything here is blocking and short, so that async tests can call it too. Nothing binds
//! anything but 127.0.0.1, and nothing started here outlives the test process, however that ends.

mod balancer;
mod clock_shim;
mod daemon;
mod fork;
mod fuzz;
mod http;
mod locate;
mod namespaces;
mod peers;
mod pool;
mod ports;
mod preload;
mod proxy;
mod resp;
mod servers;
mod spawn;
mod tls;
mod wait;

pub use balancer::balancer;
pub use clock_shim::WallClock;
pub use daemon::Daemon;
pub use fork::{can_fork, fork};
pub use fuzz::{Input, fuzz};
pub use http::{HttpAnswer, http_get, http_send};
pub use locate::{Need, skip};
pub use namespaces::Namespace;
pub use peers::{Answer, Peer};
pub use pool::PoolingProxy;
pub use ports::ReservedPort;
pub use proxy::{Counts, Fault, Proxy, Scope};
pub use resp::{Connection, Value};
pub use servers::{RedisServer, ServerBuilder};
pub use spawn::{bound_command, spawn};
pub use tls::TlsFiles;
pub use wait::eventually;
