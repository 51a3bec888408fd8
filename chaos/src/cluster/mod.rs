//! The nodes: servers behind proxies, or a file. What is done to them is in `hurt.rs`.

mod hurt;
mod server;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leasehold_testkit::{PoolingProxy, Proxy, RedisServer, ServerBuilder};

use crate::clock::boot_nanos;
use crate::history::ServerEvent;
use crate::schedule::{Backend, MAX_SKEW, MOST_OFF, Persistence, Plan, is_pooled, persistence};
use server::{Server, Truth};

/// How fast a clock that was slewed comes back: half of the drift that Leasehold allows.
const SLEW: f64 = 0.005;

/// How often it is moved. A step must be much smaller than what one comparison of clocks allows,
/// 2 ms, or it would be a jump.
const SLEW_EVERY: Duration = Duration::from_millis(100);

/// What holders connect to.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Member>,
    /// The members' own servers and, after them, the spare one.
    servers: Vec<Server>,
    /// By member: the wall clock of its server.
    clocks: Vec<ServerClock>,
    truth: Truth,
    file: Option<PathBuf>,
    grabbed: Option<rusqlite::Connection>,
    slewed: Instant,
    beyond: bool,
    /// By node: the files with which it will start.
    snapshots: HashMap<usize, Vec<u8>>,
    detours: HashMap<usize, Detour>,
    /// What each member is called in its record.
    names: Vec<String>,
    /// Nodes that carry another member's record, and since when.
    strange: HashMap<usize, Instant>,
    /// Nodes whose lives clients saw take turns with others.
    distrusted: HashSet<usize>,
    tended: Instant,
}

/// A wall clock minus true time: the sum of both, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct ServerClock {
    stepped: f64,
    /// By small steps, within the drift allowance.
    slewed: f64,
    /// How fast it is slewed away, as a share of time.
    rate: f64,
}

/// A member's address.
#[derive(Debug)]
struct Member {
    proxy: Proxy,
    /// Keeps the client's connection when the server's is lost.
    pool: Option<PoolingProxy>,
}

/// The way on which connections are led elsewhere.
#[derive(Debug)]
enum Detour {
    Open(#[expect(dead_code, reason = "kept for its drop")] Proxy),
    /// Somebody else closes it in time.
    Limited(JoinHandle<()>),
}

impl Cluster {
    /// Starts all nodes. What becomes of them is written down in the folder `history`; `folder` is
    /// for a file that is a node.
    pub fn start(plan: &Plan, folder: &Path, history: &Path) -> io::Result<Self> {
        let mut truth = Truth::open(history)?;
        let is_file = plan.backend == Backend::Sqlite;
        let nodes = if is_file { 0 } else { plan.nodes };
        let mut servers = Vec::new();
        for number in 0..nodes + usize::from(!is_file) {
            let kept =
                if number < nodes { persistence(plan, number) } else { Persistence::Nothing };
            let appends = kept != Persistence::Nothing;
            let server = Server::start(number, builder(plan, kept), appends, &mut truth);
            servers.push(server.map_err(io::Error::other)?);
        }
        let member = |number: usize| {
            let addr = servers[number].addr();
            let pool = is_pooled(plan, number).then(|| PoolingProxy::to(addr.clone()));
            let proxy = Proxy::to(pool.as_ref().map_or(addr, PoolingProxy::addr));
            Member { proxy, pool }
        };
        Ok(Self {
            members: (0..nodes).map(member).collect(),
            servers,
            clocks: vec![ServerClock::default(); nodes],
            truth,
            file: is_file.then(|| folder.join("locks.db")),
            grabbed: None,
            slewed: Instant::now(),
            beyond: plan.beyond,
            snapshots: HashMap::new(),
            detours: HashMap::new(),
            names: Vec::new(),
            strange: HashMap::new(),
            distrusted: HashSet::new(),
            tended: Instant::now(),
        })
    }

    /// Learns what the members are called, once somebody introduced them to each other. Says whether
    /// all have a name.
    pub fn learn_names(&mut self) -> bool {
        let name = |server: &Server| server.word_of_record("member", Duration::from_secs(5));
        let members = &self.servers[..self.members.len()];
        self.names = members.iter().map_while(name).collect();
        self.names.len() == self.members.len()
    }

    /// What the members are called.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Where a member's address leads when nothing is wrong.
    fn front(&self, node: usize) -> String {
        let pool = self.members[node].pool.as_ref();
        pool.map_or_else(|| self.servers[node].addr(), PoolingProxy::addr)
    }

    /// The backend URL for the holders.
    pub fn url(&self) -> String {
        match &self.file {
            Some(file) => format!("sqlite:{}", file.display()),
            None => {
                let addrs: Vec<_> = self.members.iter().map(|node| node.proxy.addr()).collect();
                // A pool knows no pushed messages.
                let pooled = self.members.iter().any(|member| member.pool.is_some());
                let protocol = if pooled { "?protocol=2" } else { "" };
                format!("redis://{}{protocol}", addrs.join(","))
            }
        }
    }

    /// What the first node says it is.
    pub fn version(&self) -> String {
        let Some(server) = self.servers.first() else {
            return format!("sqlite {}", rusqlite::version());
        };
        match server.info("server", "valkey_version") {
            Some(version) => format!("valkey {version}"),
            None => {
                format!("redis {}", server.info("server", "redis_version").unwrap_or_default())
            }
        }
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

    /// Slews clocks, away or back. To be called often.
    pub fn slew(&mut self) {
        let passed = self.slewed.elapsed();
        if self.beyond || passed < SLEW_EVERY {
            return;
        }
        self.slewed = Instant::now();
        // No faster after a long silence: a large step would be a jump.
        let passed = passed.min(2 * SLEW_EVERY).as_secs_f64();
        for index in 0..self.clocks.len() {
            let clock = &mut self.clocks[index];
            let most = MOST_OFF.as_secs_f64();
            let next = match clock.rate {
                0.0 => clock.slewed - clock.slewed.clamp(-passed * SLEW, passed * SLEW),
                rate => (clock.slewed + passed * rate).clamp(-most, most),
            };
            if next != clock.slewed {
                clock.slewed = next;
                self.show_clock(index);
            }
        }
    }

    fn show_clock(&self, index: usize) {
        let ServerClock { stepped, slewed, .. } = self.clocks[index];
        self.servers[index].redis().set_clock_offset(stepped + slewed);
    }

    /// Steps a clock at once to where `change` sets it, and writes that down.
    fn step_clock(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut ServerClock),
    ) -> Result<(), String> {
        let (from, before) = (boot_nanos(), self.clocks[index]);
        change(&mut self.clocks[index]);
        self.show_clock(index);
        let ServerClock { stepped, slewed, .. } = self.clocks[index];
        let micros = |seconds: f64| (seconds * 1e6).round() as i64;
        self.truth.note(ServerEvent::Clock {
            server: index,
            from,
            micros: micros(stepped + slewed - before.stepped - before.slewed),
            ahead: micros(stepped + slewed),
        })
    }

    /// Whether the clock of a member is so far off that the others must notice.
    pub fn has_wrong_clock(&self) -> bool {
        let surely = 1.2 * MAX_SKEW.as_secs_f64();
        self.clocks.iter().any(|clock| clock.stepped.abs() > surely)
    }

    /// Whether a server that answers was admitted. Where none is, an operator who takes the cluster
    /// for a new one is wrong, and nobody can tell.
    pub fn has_memory(&self) -> bool {
        self.servers[..self.members.len()].iter().any(Server::is_admitted)
    }
}

fn builder(plan: &Plan, kept: Persistence) -> ServerBuilder {
    let builder = match plan.backend {
        Backend::Valkey => RedisServer::valkey(),
        Backend::Redis | Backend::Sqlite => RedisServer::redis(),
    };
    let builder = builder
        .with_clock_shim()
        .config("enable-debug-command", "yes")
        .config("repl-diskless-sync-delay", "0");
    match kept {
        Persistence::Nothing => builder,
        Persistence::EverySecond => builder.append_fsync("everysec"),
        Persistence::Always => builder.append_fsync("always"),
    }
}
