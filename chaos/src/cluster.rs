//! The nodes: servers behind proxies, or a file, and the hands that hurt them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_testkit::{Connection, Fault as ProxyFault, Proxy, RedisServer, Scope, Value};

use crate::fault::{LinkFault, NodeFault, Side};
use crate::schedule::{Backend, MOST_BEHIND, Persistence, Plan, persistence};

/// How fast a clock that is behind catches up: half of the drift that Leasehold allows.
const SLEW: f64 = 0.005;

/// How often it is moved. A step must be much smaller than what one comparison of clocks allows,
/// 2 ms, or it would be a jump.
const SLEW_EVERY: Duration = Duration::from_millis(100);

/// What holders connect to.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    file: Option<PathBuf>,
    grabbed: Option<rusqlite::Connection>,
    slewed: Instant,
    beyond: bool,
}

#[derive(Debug)]
struct Node {
    server: RedisServer,
    proxy: Proxy,
    /// The wall clock minus the true one, in seconds.
    offset: f64,
}

impl Cluster {
    /// Starts all nodes.
    pub fn start(plan: &Plan, folder: &Path) -> Self {
        let builder = || match plan.backend {
            Backend::Valkey => RedisServer::valkey(),
            Backend::Redis | Backend::Sqlite => RedisServer::redis(),
        };
        let node = |index| {
            let mut builder = builder()
                .with_clock_shim()
                .config("enable-debug-command", "yes")
                .config("repl-diskless-sync-delay", "0");
            builder = match persistence(plan, index) {
                Persistence::Nothing => builder,
                Persistence::EverySecond => builder.append_fsync("everysec"),
                Persistence::Always => builder.append_fsync("always"),
            };
            let server = builder.start();
            let proxy = Proxy::to(server.addr());
            Node { server, proxy, offset: 0.0 }
        };
        let is_file = plan.backend == Backend::Sqlite;
        Self {
            nodes: if is_file { Vec::new() } else { (0..plan.nodes).map(node).collect() },
            file: is_file.then(|| folder.join("locks.db")),
            grabbed: None,
            slewed: Instant::now(),
            beyond: plan.beyond,
        }
    }

    /// The backend URL for the holders.
    pub fn url(&self) -> String {
        match &self.file {
            Some(file) => format!("sqlite:{}", file.display()),
            None => {
                let addrs: Vec<_> = self.nodes.iter().map(|node| node.proxy.addr()).collect();
                format!("redis://{}", addrs.join(","))
            }
        }
    }

    /// What the first node says it is.
    pub fn version(&self) -> String {
        let Some(node) = self.nodes.first() else {
            return format!("sqlite {}", rusqlite::version());
        };
        let info = match node.server.command(&["INFO", "server"]) {
            Ok(Value::Text(info)) => info,
            _ => String::new(),
        };
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|value| value.trim().to_owned())
        };
        match field("valkey_version:") {
            Some(version) => format!("valkey {version}"),
            None => format!("redis {}", field("redis_version:").unwrap_or_default()),
        }
    }

    /// Begins to hurt servers for `time`. An error is what a server said instead of obeying.
    pub fn hurt(&mut self, nodes: &[usize], kind: NodeFault, time: Duration) -> Result<(), String> {
        for index in nodes {
            let node = &self.nodes[*index];
            let command = |words: &[&str]| node.server.command(words).map(drop);
            match kind {
                NodeFault::Kill | NodeFault::Empty => node.server.kill(),
                NodeFault::Stop => node.server.pause(),
                NodeFault::Flush => command(&["FLUSHALL"])?,
                NodeFault::KillClients => command(&["CLIENT", "KILL", "TYPE", "normal"])?,
                NodeFault::ForgetScripts => command(&["SCRIPT", "FLUSH"])?,
                NodeFault::Replica { of } => {
                    let port = self.nodes[of].server.port().to_string();
                    command(&["REPLICAOF", "127.0.0.1", &port])?;
                }
                NodeFault::Full => command(&["CONFIG", "SET", "maxmemory", "1"])?,
                NodeFault::Sleep => sleep(&node.server, time),
                NodeFault::ClockBack { millis } => {
                    let least = -MOST_BEHIND.as_secs_f64();
                    let to = (node.offset - millis as f64 / 1000.0).max(least);
                    self.set_clock(*index, to);
                }
                NodeFault::ClockJump { millis } => {
                    let to = node.offset + millis as f64 / 1000.0;
                    self.set_clock(*index, to);
                }
                NodeFault::Evict => {
                    command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"])?;
                    command(&["CONFIG", "SET", "maxmemory", "1"])?;
                }
            }
        }
        Ok(())
    }

    /// Ends what [`Self::hurt`] began.
    pub fn heal(&self, nodes: &[usize], kind: NodeFault) -> Result<(), String> {
        for index in nodes {
            let server = &self.nodes[*index].server;
            let command = |words: &[&str]| server.command(words).map(drop);
            match kind {
                NodeFault::Kill => server.restart(),
                NodeFault::Empty => server.restart_empty(),
                NodeFault::Stop => server.resume(),
                NodeFault::Replica { .. } => command(&["REPLICAOF", "NO", "ONE"])?,
                NodeFault::Full => command(&["CONFIG", "SET", "maxmemory", "0"])?,
                NodeFault::Evict => {
                    command(&["CONFIG", "SET", "maxmemory", "0"])?;
                    command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])?;
                }
                NodeFault::Flush
                | NodeFault::KillClients
                | NodeFault::ForgetScripts
                | NodeFault::Sleep
                | NodeFault::ClockBack { .. }
                | NodeFault::ClockJump { .. } => {}
            }
        }
        Ok(())
    }

    /// Begins to hurt the ways to servers.
    pub fn cut_off(&self, nodes: &[usize], side: Side, kind: LinkFault) {
        let fault = match kind {
            LinkFault::Delay { millis } => ProxyFault::Delay(Duration::from_millis(millis)),
            LinkFault::Stall => ProxyFault::Stall,
            LinkFault::BlackHole | LinkFault::HalfOpen => ProxyFault::BlackHole,
            LinkFault::LoseReplies => ProxyFault::DropReplies,
            LinkFault::LoseRequests => ProxyFault::DropRequests,
            LinkFault::Refuse => ProxyFault::Refuse,
            LinkFault::Cut => ProxyFault::CutAfterRequest,
            LinkFault::Drip => ProxyFault::OneByteAtATime,
        };
        let scope = match side {
            _ if kind == LinkFault::HalfOpen => Scope::Open,
            Side::All => Scope::All,
            Side::Half => Scope::Odd,
            Side::OtherHalf => Scope::Even,
        };
        nodes.iter().for_each(|node| self.nodes[*node].proxy.set_for(scope, fault.clone()));
    }

    /// Ends what [`Self::cut_off`] began.
    pub fn reconnect(&self, nodes: &[usize]) {
        nodes.iter().for_each(|node| self.nodes[*node].proxy.set(ProxyFault::Pass));
    }

    /// Takes the SQLite file for writing. Says whether it could: a holder that was stopped in the
    /// middle of a step may have it.
    pub fn grab(&mut self) -> Result<bool, String> {
        let Some(file) = &self.file else { return Ok(false) };
        let connection = rusqlite::Connection::open(file).map_err(|error| error.to_string())?;
        let begin = connection
            .busy_timeout(Duration::from_millis(100))
            .and_then(|()| connection.execute_batch("BEGIN IMMEDIATE"));
        match begin {
            Ok(()) => self.grabbed = Some(connection),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                return Ok(false);
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(true)
    }

    /// Lets go of it.
    pub fn let_go(&mut self) {
        self.grabbed = None;
    }

    /// Lets clocks that are behind catch up, slowly. To be called often.
    pub fn slew(&mut self) {
        let passed = self.slewed.elapsed();
        if self.beyond || passed < SLEW_EVERY {
            return;
        }
        self.slewed = Instant::now();
        for index in 0..self.nodes.len() {
            let offset = self.nodes[index].offset;
            if offset < 0.0 {
                // No faster after a long silence: a large step would be a jump.
                let step = passed.min(2 * SLEW_EVERY).as_secs_f64() * SLEW;
                self.set_clock(index, (offset + step).min(0.0));
            }
        }
    }

    fn set_clock(&mut self, index: usize, offset: f64) {
        let node = &mut self.nodes[index];
        node.offset = offset;
        node.server.set_clock_offset(offset);
    }
}

/// Has the server sleep, and does not wait for it.
fn sleep(server: &RedisServer, time: Duration) {
    if let Ok(mut connection) = Connection::to_within(&server.addr(), Duration::from_millis(1)) {
        let _ = connection.call(&["DEBUG", "SLEEP", &format!("{:.3}", time.as_secs_f64())]);
    }
}
