//! The servers of a run, and what they have done so far.

use std::sync::{Mutex, PoisonError};

use leasehold_testkit::{Connection, Need, RedisServer, Value};

use crate::args::ServerKind;

/// Some servers alike.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) kind: ServerKind,
    /// To ask what they have done.
    spies: Mutex<Vec<Connection>>,
}

/// What may happen to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    /// SIGKILL: connections break, new ones are refused.
    Kill,
    /// SIGSTOP: connections stay, and nothing is ever answered.
    Hang,
}

/// What servers have done since they were started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_us: f64,
    /// Commands carried out, those inside scripts too.
    pub(crate) commands: f64,
}

impl Cluster {
    /// Starts `count` servers.
    pub(crate) fn start(kind: ServerKind, count: usize) -> Result<Cluster, String> {
        let (need, builder) = match kind {
            ServerKind::Redis => (Need::Redis, RedisServer::redis()),
            ServerKind::Valkey => (Need::Valkey, RedisServer::valkey()),
        };
        need.check()?;
        let servers = builder.start_many(count);
        let spies = servers
            .iter()
            .map(|server| Connection::to(&server.addr()).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        Ok(Cluster { servers, kind, spies: Mutex::new(spies) })
    }

    /// Where they are.
    pub(crate) fn addrs(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::addr).collect()
    }

    /// Whether they have `DELIFEQ`.
    pub(crate) fn has_native_release(&self) -> bool {
        self.kind == ServerKind::Valkey
    }

    /// Harms the last `count` servers. They are not asked any more what they do.
    pub(crate) fn harm(&self, harm: Harm, count: usize) {
        let healthy = self.servers.len() - count;
        self.spies.lock().unwrap_or_else(PoisonError::into_inner).truncate(healthy);
        for server in &self.servers[healthy..] {
            match harm {
                Harm::Kill => server.kill(),
                Harm::Hang => server.pause(),
            }
        }
    }

    /// What all of them together have done so far.
    pub(crate) fn usage(&self) -> Result<Usage, String> {
        let mut sum = Usage::default();
        for spy in self.spies.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            for section in ["cpu", "commandstats"] {
                match spy.call(&["INFO", section])? {
                    Value::Text(text) => sum = sum.plus(Usage::read(&text)),
                    other => return Err(format!("INFO answered {other:?}")),
                }
            }
        }
        Ok(sum)
    }
}

impl Usage {
    fn read(info: &str) -> Usage {
        let mut usage = Usage::default();
        for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
            match key {
                "used_cpu_sys" | "used_cpu_user" => {
                    usage.cpu_us += value.trim().parse().unwrap_or(0.0) * 1e6;
                }
                // Our own looks.
                "cmdstat_info" => {}
                _ if key.starts_with("cmdstat_") => usage.commands += calls(value),
                _ => {}
            }
        }
        usage
    }

    fn plus(self, other: Usage) -> Usage {
        Usage { cpu_us: self.cpu_us + other.cpu_us, commands: self.commands + other.commands }
    }

    /// What was done since `before`.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage { cpu_us: self.cpu_us - before.cpu_us, commands: self.commands - before.commands }
    }
}

/// The number in `calls=12,usec=34,…`.
fn calls(stats: &str) -> f64 {
    let first = stats.split(',').next().unwrap_or_default();
    first.strip_prefix("calls=").and_then(|calls| calls.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_what_a_server_says_of_itself() {
        let cpu = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\n\
                   used_cpu_sys_children:9.0\r\n";
        let stats = "# Commandstats\r\ncmdstat_set:calls=12,usec=3,usec_per_call=0.25\r\n\
                     cmdstat_info:calls=7,usec=3,usec_per_call=1\r\n\
                     cmdstat_script|load:calls=3,usec=1,usec_per_call=0.1\r\n";
        let usage = Usage::read(cpu).plus(Usage::read(stats));
        assert_eq!(usage, Usage { cpu_us: 1_750_000.0, commands: 15.0 });
        let later = Usage { cpu_us: 1_750_500.0, commands: 35.0 };
        assert_eq!(later.since(usage), Usage { cpu_us: 500.0, commands: 20.0 });
    }
}
