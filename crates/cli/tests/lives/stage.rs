//! Members behind proxies, clients of two kinds (a process per question, a server that was there all
//! the time), and the judge: nobody is granted what somebody else was granted before its end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Fault, Proxy, RedisServer, eventually};

use crate::support::{Place, Running, SOON, code, stderr};

/// The lock that everybody wants.
pub(crate) const LOCK: &str = "pay";

/// The first holder's ttl, and the longest of the cluster. Long enough for what is done to a server
/// while the lock is held, and for others to ask, on a very busy machine.
const TTL: &str = "20s";

/// How long others ask for a lock that is held: members are examined three times meanwhile.
const ASK_FOR: Duration = Duration::from_secs(3);

/// Between two questions of a client that was refused.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The members of a list, each behind a proxy, whose address is the member's name.
pub(crate) struct Cluster {
    pub(crate) place: Place,
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Cluster {
    /// Members that vote: `leasehold init` was run.
    pub(crate) fn new(servers: Vec<RedisServer>) -> Self {
        let proxies = servers.iter().map(|server| Proxy::to(server.addr())).collect();
        let cluster = Self { place: Place::new(), servers, proxies };
        cluster.client().init();
        cluster
    }

    pub(crate) fn of_three() -> Self {
        Self::new(RedisServer::redis().start_many(3))
    }

    /// A client that is a new process for each question.
    pub(crate) fn client(&self) -> Client<'_> {
        let addresses: Vec<_> = self.proxies.iter().map(Proxy::addr).collect();
        Client::new(&self.place, &addresses, "")
    }

    /// A lock as the first two members only have it: the third cannot be reached meanwhile.
    #[track_caller]
    pub(crate) fn granted_by_the_first_two(&self) -> Grant {
        self.proxies[2].set(Fault::Refuse);
        let grant = self.client().must_acquire();
        self.proxies[2].set(Fault::Pass);
        let has_it = |server: &RedisServer| server.exists(&key(LOCK));
        let have_it: Vec<_> = self.servers[..3].iter().map(has_it).collect();
        assert_eq!(have_it, [true, true, false]);
        grant
    }
}

/// Where Redis has a lock.
pub(crate) fn key(lock: &str) -> String {
    format!("leasehold:lock:{lock}")
}

/// Makes `server` a copy of `other`, without breaking its connections, and waits until it is one.
#[track_caller]
pub(crate) fn copy(server: &RedisServer, other: &RedisServer) {
    other.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).unwrap();
    eventually(SOON, "the copy is complete", || {
        let info = server.command(&["INFO", "replication"]).unwrap();
        info.as_text().unwrap().contains("master_link_status:up")
    });
}

#[track_caller]
pub(crate) fn make_primary(server: &RedisServer) {
    server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

/// Somebody with a backend.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    place: &'a Place,
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

impl<'a> Client<'a> {
    pub(crate) fn new(place: &'a Place, addresses: &[String], parameters: &str) -> Self {
        let addresses = addresses.join(",");
        let backend = format!("redis://{addresses}?timeout=2s&max_ttl={TTL}{parameters}");
        Self { place, backend }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.place.run(&[&["--backend", &self.backend], arguments].concat())
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.place.start(&[&["--backend", &self.backend], arguments].concat())
    }

    #[track_caller]
    pub(crate) fn init(&self) {
        // All members must answer at once, which a very busy machine may need some attempts for.
        let end = Instant::now() + 3 * SOON;
        loop {
            let output = self.run(&["init"]);
            if code(&output) == 0 {
                return;
            }
            assert!(Instant::now() < end, "{}", stderr(&output));
        }
    }

    /// What `leasehold nodes` says.
    fn nodes(&self) -> String {
        let output = self.run(&["nodes"]);
        String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output)
    }

    /// Waits until `leasehold nodes` says `words` of the member with this address.
    #[track_caller]
    pub(crate) fn is_told_of(&self, member: &Proxy, words: &str) {
        let member = member.addr();
        eventually(SOON, &format!("nodes says of {member}: {words}"), || {
            self.nodes().lines().any(|line| line.starts_with(&member) && line.contains(words))
        });
    }

    /// Asks for the lock; the words if it is refused.
    pub(crate) fn acquire(&self, more: &[&str]) -> Result<Grant, String> {
        let asked = Instant::now();
        let output = self.run(&[&acquire_command(), more].concat());
        if code(&output) != 0 {
            assert!([69, 75, 77].contains(&code(&output)), "{}", stderr(&output));
            return Err(stderr(&output));
        }
        Ok(Grant::read(asked, &output.stdout))
    }

    /// Starts to wait for the lock, and returns when it is in the line.
    #[track_caller]
    pub(crate) fn wait(&self, members: &[RedisServer]) -> Waiter {
        let asked = Instant::now();
        let running = self.start(&[&acquire_command()[..], &["-w", "30s"]].concat());
        let line = format!("leasehold:line:{}", key(LOCK));
        let has_line = |server: &RedisServer| server.exists(&line);
        eventually(SOON, "it waits in the line", || members.iter().any(has_line));
        Waiter { asked, running }
    }

    /// Gives the lock back where it can be. Where a member forgot, it may be told that it was lost.
    fn release(&self, grant: &Grant) {
        self.run(&["release", &grant.token]);
    }

    /// Asks for this much more time, and is told that it cannot be had.
    #[track_caller]
    pub(crate) fn fail_to_renew(&self, grant: &Grant, ttl: &str) {
        let output = self.run(&["extend", &grant.token, "--ttl", ttl]);
        assert_eq!(code(&output), 69, "{}", stderr(&output));
    }

    #[track_caller]
    pub(crate) fn must_acquire(&self) -> Grant {
        self.acquire(&["-w", "30s"]).unwrap_or_else(|error| panic!("{error}\n{}", self.nodes()))
    }
}

fn acquire_command() -> [&'static str; 5] {
    ["--json", "acquire", LOCK, "--ttl", TTL]
}

impl Grant {
    fn read(asked: Instant, lease: &[u8]) -> Self {
        let lease: serde_json::Value = serde_json::from_slice(lease).expect("a lease");
        let number = |field: &str| lease[field].as_u64().expect("a number");
        let until = asked + Duration::from_millis(number("validity_ms"));
        let token = lease["token"].as_str().expect("a token").to_owned();
        Self { fence: number("fence"), token, until }
    }
}

/// A client that waits for the lock.
pub(crate) struct Waiter {
    asked: Instant,
    running: Running,
}

impl Waiter {
    /// It gets the lock, but not before `held` is given back.
    #[track_caller]
    pub(crate) fn comes_after(mut self, held: &Grant, holder: &Client) {
        let end = Instant::now() + ASK_FOR;
        while Instant::now() < end {
            assert!(!self.running.has_ended(), "two holders: the waiter got what is held");
            thread::sleep(ASK_EVERY);
        }
        assert!(Instant::now() < held.until, "too slow: the lease was over meanwhile");
        holder.release(held);
        let next = Grant::read(self.asked, self.running.line().as_bytes());
        assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
    }
}

/// A lock server, which keeps its connections to the members.
pub(crate) struct LockServer<'a> {
    _running: Running,
    pub(crate) client: Client<'a>,
}

impl<'a> LockServer<'a> {
    /// Returns when each of `members` has voted for something that it asked for.
    #[track_caller]
    pub(crate) fn start(of: &Client<'a>, lock: &str, members: &[RedisServer]) -> Self {
        let mut running = of.start(&["serve", "--listen", "127.0.0.1:0"]);
        let line = running.line();
        let (_, url) = line.rsplit_once(" at ").unwrap_or_else(|| panic!("{line}"));
        let client = Client { place: of.place, backend: url.to_owned() };
        eventually(SOON, "all members vote", || {
            let output = client.run(&["run", "--ttl", "2s", "-w", "1s", lock, "--", "true"]);
            let knows = |server: &RedisServer| {
                let fence = server.command(&["ZSCORE", &server.fences_key(), &key(lock)]);
                fence.is_ok_and(|fence| fence.as_text().is_some())
            };
            code(&output) == 0 && members.iter().all(knows)
        });
        Self { _running: running, client }
    }
}

impl LockServer<'_> {
    /// Waits until it says `words` of one of its members.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        let address = self.client.backend.trim_start_matches("http://").trim_end_matches('/');
        eventually(2 * SOON, &format!("/v1/cluster says: {words}"), || {
            let mut answer = String::new();
            let mut connection = TcpStream::connect(address).unwrap();
            let request =
                b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            connection.write_all(request).unwrap();
            connection.read_to_string(&mut answer).unwrap();
            answer.contains(words)
        });
    }
}

/// Others ask again and again: nobody may be granted the lock while `held` lasts. Then the holder
/// gives it back, and somebody must.
#[track_caller]
pub(crate) fn nobody_else_holds(held: &Grant, holder: &Client, others: &[&Client]) {
    nobody_is_granted(held, others);
    holder.release(held);
    let next = others[0].must_acquire();
    assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
}

/// Others ask again and again: nobody may be granted the lock while `held` lasts.
#[track_caller]
pub(crate) fn nobody_is_granted(held: &Grant, others: &[&Client]) {
    let end = Instant::now() + ASK_FOR;
    while Instant::now() < end {
        for other in others {
            if let Ok(second) = other.acquire(&["-n"]) {
                let left = held.until.saturating_duration_since(Instant::now());
                let (first, second) = (held.fence, second.fence);
                assert!(
                    left.is_zero(),
                    "two holders: fence {second} was granted {left:?} before the end of {first}"
                );
            }
        }
        thread::sleep(ASK_EVERY);
    }
    assert!(Instant::now() < held.until, "too slow: the lease was over meanwhile");
}
