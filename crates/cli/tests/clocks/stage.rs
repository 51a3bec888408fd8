//! Servers with clocks of their own, clients of three kinds (a process per question, a command under a
//! lock, a lock server that was there all the time), and the judge: nobody is granted what somebody
//! else was granted before its end.

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Need, RedisServer, ServerBuilder, eventually, skip};
use serde_json::Value;

use crate::support::{Place, Running, SOON, code, is_alive, stderr};

/// The lock that everybody wants.
pub(crate) const LOCK: &str = "pay";

pub(crate) const HOUR: f64 = 3600.0;

/// Between two questions of a client that was refused.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Says its pid, and runs until its input ends.
const PATIENT: &str = "echo $$; read x; exit 0";

/// Runs a test on Redis and on Valkey at the same time; the panicking thread's name tells which.
pub(crate) fn on_each_server(test: impl Fn(ServerBuilder) + Sync) {
    let kinds = [
        ("redis", Need::Redis, RedisServer::redis as fn() -> ServerBuilder),
        ("valkey", Need::Valkey, RedisServer::valkey),
    ];
    let test = &test;
    thread::scope(|scope| {
        for (name, need, server) in kinds {
            if !skip(need) {
                let run = move || test(server().with_clock_shim());
                let named = thread::Builder::new().name(name.to_owned());
                named.spawn_scoped(scope, run).expect("a thread");
            }
        }
    });
}

/// The servers of a member list, and what its clients have in their URL.
pub(crate) struct Cluster {
    pub(crate) place: Place,
    pub(crate) servers: Vec<RedisServer>,
    parameters: String,
}

impl Cluster {
    /// Blank servers that nobody has looked at.
    pub(crate) fn blank(server: ServerBuilder, count: usize, parameters: &str) -> Self {
        let parameters = parameters.to_owned();
        Self { place: Place::new(), servers: server.start_many(count), parameters }
    }

    /// Members that vote: `leasehold init` was run.
    pub(crate) fn new(server: ServerBuilder, count: usize, parameters: &str) -> Self {
        let cluster = Self::blank(server, count, parameters);
        cluster.client().init();
        cluster
    }

    pub(crate) fn client(&self) -> Client<'_> {
        self.client_with(&self.parameters)
    }

    /// A client that was given other parameters.
    pub(crate) fn client_with(&self, parameters: &str) -> Client<'_> {
        Client { place: &self.place, backend: url(&self.servers, parameters) }
    }

    /// The named members' clocks, moved at the same time or nearly.
    pub(crate) fn jump(&self, members: &[usize], seconds: f64) {
        members.iter().for_each(|member| self.servers[*member].jump_clock(seconds));
    }
}

/// The URL of a member list.
pub(crate) fn url<'a>(
    servers: impl IntoIterator<Item = &'a RedisServer>,
    parameters: &str,
) -> String {
    let addresses: Vec<_> = servers.into_iter().map(RedisServer::addr).collect();
    format!("redis://{}?timeout=1s{parameters}", addresses.join(","))
}

/// Where Redis has a lock.
pub(crate) fn key(lock: &str) -> String {
    format!("leasehold:lock:{lock}")
}

/// Somebody with a backend.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    pub(crate) place: &'a Place,
    pub(crate) backend: String,
}

/// A lease that a client was told of.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) fence: u64,
    token: String,
    /// The client may believe in it until then, or a little longer: counted from before it asked.
    pub(crate) until: Instant,
}

impl Grant {
    fn read(asked: Instant, lease: &[u8]) -> Self {
        let lease: Value = serde_json::from_slice(lease).expect("a lease");
        let number = |field: &str| lease[field].as_u64().expect("a number");
        let until = asked + Duration::from_millis(number("validity_ms"));
        let token = lease["token"].as_str().expect("a token").to_owned();
        Self { fence: number("fence"), token, until }
    }

    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl Client<'_> {
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.place.run(&[&["--backend", &self.backend], arguments].concat())
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.place.start(&[&["--backend", &self.backend], arguments].concat())
    }

    /// Says that the servers are new. All must answer at once, which a very busy machine may need some
    /// attempts for.
    #[track_caller]
    pub(crate) fn init(&self) {
        eventually(3 * SOON, "init", || code(&self.run(&["init"])) == 0);
    }

    /// Asks for a lock; the exit code and the words if it is refused.
    pub(crate) fn ask(&self, lock: &str, ttl: &str, more: &[&str]) -> Result<Grant, (i32, String)> {
        let asked = Instant::now();
        let output = self.run(&[&["--json", "acquire", lock, "--ttl", ttl], more].concat());
        match code(&output) {
            0 => Ok(Grant::read(asked, &output.stdout)),
            refused @ (69 | 75 | 77) => Err((refused, stderr(&output))),
            other => panic!("exit code {other}: {}", stderr(&output)),
        }
    }

    /// Gets a lock, whatever there is to wait for.
    #[track_caller]
    pub(crate) fn acquire(&self, lock: &str, ttl: &str) -> Grant {
        let grant = self.ask(lock, ttl, &["-w", "40s"]);
        grant.unwrap_or_else(|(_, error)| panic!("{error}\n{:#?}", self.nodes()))
    }

    /// Gives a lock back where it can be.
    pub(crate) fn release(&self, grant: &Grant) {
        self.run(&["release", &grant.token]);
    }

    /// Runs a command under the lock, until its input ends.
    #[track_caller]
    pub(crate) fn keep(&self, ttl: &str) -> Kept {
        let mut run = self.start(&["run", "--ttl", ttl, "-w", "40s", LOCK, "-c", PATIENT]);
        let command = run.pid_line();
        Kept { run, command }
    }

    /// What `leasehold nodes --json` says of each node.
    pub(crate) fn nodes(&self) -> Vec<Value> {
        let output = self.run(&["--json", "nodes"]);
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    }

    /// Waits until `leasehold nodes` says `words` of this member, both to people and to programs.
    #[track_caller]
    pub(crate) fn is_told_of(&self, member: &RedisServer, words: &str) {
        // Its name has the database, too.
        let name = format!("{}/0", member.addr());
        eventually(SOON, &format!("nodes --json says of {name}: {words}"), || {
            let says = |node: &Value| node["why"].as_str().is_some_and(|why| why.contains(words));
            self.nodes().iter().any(|node| node["node"] == name.as_str() && says(node))
        });
        eventually(SOON, &format!("nodes says of {name}: {words}"), || {
            let table = String::from_utf8_lossy(&self.run(&["nodes"]).stdout).into_owned();
            table.lines().any(|line| line.starts_with(&name) && line.contains(words))
        });
    }
}

/// `up`, `quarantined`, `refused` …
pub(crate) fn states(nodes: &[Value]) -> Vec<&str> {
    nodes.iter().map(|node| node["state"].as_str().expect("a word")).collect()
}

/// A command that runs under the lock, which is extended for as long as it runs.
pub(crate) struct Kept {
    pub(crate) run: Running,
    pub(crate) command: i32,
}

impl Kept {
    /// Its lease was never lost: it runs until its input ends, and nobody complains.
    #[track_caller]
    pub(crate) fn ends_by_itself(mut self) {
        self.run.close_input();
        let code = self.run.end();
        assert_eq!(code, Some(0), "{}", self.run.complaints());
    }
}

/// A lock server: one client that runs all the time.
pub(crate) struct LockServer<'a> {
    _running: Running,
    pub(crate) client: Client<'a>,
}

impl<'a> LockServer<'a> {
    /// Returns when it has served a lock.
    #[track_caller]
    pub(crate) fn start(of: &Client<'a>) -> Self {
        let mut running = of.start(&["serve", "--listen", "127.0.0.1:0"]);
        let line = running.line();
        let (_, url) = line.rsplit_once(" at ").unwrap_or_else(|| panic!("{line}"));
        let client = Client { place: of.place, backend: url.to_owned() };
        client.release(&client.acquire("warm-up", "2s"));
        Self { _running: running, client }
    }
}

/// Others ask again and again for as long as `held` lasts: nobody may be granted the lock.
#[track_caller]
pub(crate) fn nobody_is_granted(held: &Grant, others: &[&Client]) {
    nobody_is_granted_for(Duration::MAX, held, others);
}

/// The same, for a part of that time.
#[track_caller]
pub(crate) fn nobody_is_granted_for(limit: Duration, held: &Grant, others: &[&Client]) {
    let start = Instant::now();
    assert!(start < held.until, "too slow: the lease was over before anybody asked");
    while start.elapsed() < limit && Instant::now() < held.until {
        for other in others {
            if let Ok(second) = other.ask(LOCK, "1s", &["-n"]) {
                let (left, first, second) = (held.left(), held.fence, second.fence);
                assert!(
                    left.is_zero(),
                    "two holders: fence {second} was granted {left:?} before the end of {first}"
                );
            }
        }
        thread::sleep(ASK_EVERY);
    }
}

/// Others ask again and again for so long: nobody may be granted what a command keeps.
#[track_caller]
pub(crate) fn stays_kept(time: Duration, kept: &mut Kept, others: &[&Client]) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for other in others {
            let granted = other.ask(LOCK, "1s", &["-n"]).is_ok();
            if !is_alive(kept.command) {
                let (code, complaints) = (kept.run.end(), kept.run.complaints());
                panic!("a healthy lease is lost, exit code {code:?}: {complaints}");
            }
            assert!(!granted, "two holders: another was granted the lock while the command ran");
        }
        thread::sleep(ASK_EVERY);
    }
}
