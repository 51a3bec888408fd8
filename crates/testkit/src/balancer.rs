//! HAProxy as it is deployed: with deploy/haproxy.cfg, in which only the addresses and the number of
//! connections are replaced.

use std::fs;

use crate::daemon::Daemon;
use crate::locate::repository;

/// A HAProxy before two lock servers (`127.0.0.1:port`), for so many connections. It is not the number
/// in the file, which needs a limit on open files that this machine may not have.
#[track_caller]
pub fn balancer(servers: [&str; 2], connections: usize) -> Daemon {
    let file = repository().join("deploy/haproxy.cfg");
    let config = fs::read_to_string(&file).expect("the configuration that is deployed");
    Daemon::haproxy(|addr| {
        let [one, two] = servers;
        [
            ("maxconn 20000", format!("maxconn {connections}")),
            ("bind :7717\n", format!("bind {addr}\n")),
            ("server leasehold-1 leasehold-1:7717", format!("server one {one}")),
            ("server leasehold-2 leasehold-2:7717", format!("server two {two}")),
        ]
        .iter()
        .fold(config.clone(), |config, (from, to)| {
            assert!(config.contains(from), "{from:?} is not in:\n{config}");
            config.replace(from, to)
        })
    })
}
