//! Every backend answers like the lock table of the core: random requests go to both, and the
//! replies must be equal. Names, holders and fences are few and near each other, so that requests
//! meet.
//!
//! A new backend is one line at the end: a function that makes a [`Bench`]. A failure prints its
//! seed; `LEASEHOLD_SEED=<seed>` runs that case alone.

mod asking;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asking::ask;
use leasehold::clock::{Clock, SystemClock};
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold_core::{
    Fence, Fingerprint, Holder, LockName, LockTable, MemberName, Moment, Origin, Record,
    RecordState, Reply, Request, Sighting, Ttl, WallMicros,
};
use leasehold_judge::Chance;

const CASES: u64 = 50;
const STEPS: usize = 200;
/// Where fences begin: with as many digits as those made from clocks, so that none gets lost.
const AROUND: u64 = 1_800_000_000_000_001;

/// A backend on the bench.
struct Bench {
    /// Ways to one and the same node; each request takes any of them.
    nodes: Vec<Arc<dyn Node>>,
    /// The node's clock if the test can move it; without one, nothing ever expires.
    clock: Option<Arc<HandClock>>,
    /// Whether nobody else uses the node: then even the count of forgotten fences must be right.
    /// Otherwise names are told apart by the seed.
    is_alone: bool,
    /// Whatever must live as long as the node: a folder, a server.
    _keep: Box<dyn Any>,
}

/// A clock that stands until it is moved.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl HandClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallMicros {
        WallMicros(1_700_000_000_000_000 + self.0.load(Ordering::Relaxed) / 1000)
    }
}

/// One case: the model, and what requests are made of.
struct Case {
    chance: Chance,
    bench: Bench,
    model: LockTable,
    /// All names of this case begin with it.
    tag: String,
    names: Vec<LockName>,
    holders: Vec<Holder>,
    /// Records that stood there once, the newest last.
    records: Vec<Arc<str>>,
    /// Fences are near this, which moves up slowly.
    around: u64,
    history: Vec<String>,
}

impl Case {
    fn new(seed: u64, bench: Bench) -> Self {
        let tag = if bench.is_alone { String::new() } else { format!("{seed:x}:") };
        // Prefixes of each other, characters that patterns treat specially, and two bytes in one.
        let names = ["a", "ab", "a%", "a_b", "B", "ä*"];
        let mut case = Self {
            chance: Chance::new(seed),
            bench,
            model: LockTable::new(),
            names: names.iter().map(|n| LockName::new(format!("{tag}{n}")).unwrap()).collect(),
            tag,
            holders: (0..3).map(|n| Holder::new("h", u128::from(seed) << 8 | n).unwrap()).collect(),
            records: Vec::new(),
            around: AROUND,
            history: Vec::new(),
        };
        case.adopt_record();
        case
    }

    /// A node that others use has a record already.
    fn adopt_record(&mut self) {
        let Ok(Reply::Facts(facts)) = ask(&*self.bench.nodes[0], None, Request::Probe) else {
            panic!("a probe is answered with facts")
        };
        if let Some(record) = facts.record {
            let floor = Record::parse(&record).unwrap().floor;
            self.around = self.around.max(floor.get());
            let record: Arc<str> = record.into();
            self.records.push(Arc::clone(&record));
            let adopt = Request::ReplaceRecord { expected: None, record };
            self.model.apply(Moment::default(), WallMicros(0), None, &adopt);
        }
    }

    fn request(&mut self) -> Request {
        let lock = self.chance.pick(&self.names).clone();
        let holder = self.chance.pick(&self.holders).clone();
        let fence = self.fence();
        // Where time cannot be moved, none must pass: an hour is for ever.
        let ttl = match self.bench.clock {
            Some(_) => Duration::from_millis(100 + self.chance.below(3000)),
            None => Duration::from_secs(3600 + self.chance.below(3600)),
        };
        let ttl = Ttl::new(ttl).unwrap();
        match self.chance.below(100) {
            0..35 => Request::Acquire { lock, holder, proposal: fence, ttl },
            35..40 => {
                Request::Extend { lock, holder, token: fence, next: fence, unbroken: false, ttl }
            }
            40..47 => {
                let next = self.fence();
                Request::Extend { lock, holder, token: fence, next, unbroken: true, ttl }
            }
            47..55 => {
                let next = self.fence();
                Request::Extend { lock, holder, token: fence.min(next), next, unbroken: false, ttl }
            }
            55..75 => Request::Release { lock, holder },
            75..80 => Request::ForceRelease { lock, holder, fence, reason: None },
            80..85 => Request::Inspect { lock },
            85..89 => {
                let rest = &lock.as_str()[self.tag.len()..];
                let cut = self.chance.below(rest.chars().count() as u64 + 1) as usize;
                let cut: String = rest.chars().take(cut).collect();
                Request::List { prefix: format!("{}{cut}", self.tag) }
            }
            89..91 => Request::Probe,
            91..97 => Request::ReplaceRecord {
                expected: match self.chance.below(8) {
                    0 => None,
                    1 if !self.records.is_empty() => Some(self.chance.pick(&self.records).clone()),
                    _ => self.model.record().map(Arc::from),
                },
                record: self.record(),
            },
            _ => Request::ForgetIdle { below: fence },
        }
    }

    fn fence(&mut self) -> Fence {
        if self.chance.below(5) == 0 {
            self.around += 1;
        }
        Fence::new(self.around + self.chance.below(5)).unwrap()
    }

    fn record(&mut self) -> Arc<str> {
        if self.bench.is_alone && self.chance.below(20) == 0 {
            return "not a record".into();
        }
        let record = Record {
            cluster: Fingerprint::of_members(["a"]),
            nodes: 1,
            member: MemberName::of_one(),
            max_ttl: Duration::from_secs(7200),
            life: u128::from(self.chance.below(1000)),
            run_id: "run".into(),
            replication_id: "-".into(),
            origin: Origin::First,
            state: RecordState::Admitted,
            floor: Fence::new((self.around + self.chance.below(6)).saturating_sub(4)).unwrap(),
            born: WallMicros(0),
            waits: None,
            clocks: Vec::new(),
        };
        record.to_string().into()
    }

    fn identity(&mut self) -> Option<Arc<str>> {
        match self.chance.below(20) {
            0 => None,
            1 if !self.records.is_empty() => Some(self.chance.pick(&self.records).clone()),
            _ => self.model.record().map(Arc::from),
        }
    }

    /// One request to both. Returns what kind of answer it was.
    fn step(&mut self) -> String {
        if let Some(clock) = &self.bench.clock
            && self.chance.below(4) == 0
        {
            clock.advance(Duration::from_millis(self.chance.below(1500)));
        }
        let (request, identity) = (self.request(), self.identity());
        let reply = self.compare(identity.as_deref(), request.clone());
        if let (Request::ReplaceRecord { record, .. }, Reply::Record { replaced: true }) =
            (&request, &reply)
        {
            self.records.push(Arc::clone(record));
        }
        kind(&reply)
    }

    fn compare(&mut self, identity: Option<&str>, request: Request) -> Reply {
        let system = SystemClock;
        let clock: &dyn Clock = match &self.bench.clock {
            Some(clock) => &**clock,
            None => &system,
        };
        let (now, wall) = (clock.now(), clock.wall());
        let node = self.chance.index(self.bench.nodes.len());
        let got = ask(&*self.bench.nodes[node], identity, request.clone());
        let known = identity.is_some() && identity == self.model.record();
        self.history.push(format!("{now:?} {request:?} known={known} -> {got:?}"));
        let got = got.unwrap_or_else(|error| self.fail(&format!("the node says: {error}")));
        let wanted = match &request {
            Request::Probe => match &got {
                // What the server says of itself is its own; the record is the model's.
                Reply::Facts(facts) => {
                    let mut facts = facts.clone();
                    facts.record = self.model.record().map(str::to_owned);
                    Reply::Facts(facts)
                }
                _ => self.fail("a probe is answered with facts"),
            },
            request => self.model.apply(now, wall, identity, request),
        };
        let tolerance = match self.bench.clock {
            Some(_) => Duration::ZERO,
            None => Duration::from_secs(30),
        };
        if !are_equal(&got, &wanted, tolerance, self.bench.is_alone) {
            self.fail(&format!("the model says {wanted:?}"));
        }
        got
    }

    fn compare_all(&mut self) {
        for lock in self.names.clone() {
            self.compare(None, Request::Inspect { lock });
        }
        self.compare(None, Request::List { prefix: self.tag.clone() });
        self.compare(None, Request::Probe);
    }

    fn fail(&self, reason: &str) -> ! {
        let shown = self.history.len().saturating_sub(60);
        panic!("{}\n{reason}", self.history[shown..].join("\n"))
    }
}

/// Equal but for clocks, and for the time that passes between two looks at one.
fn are_equal(got: &Reply, wanted: &Reply, tolerance: Duration, is_alone: bool) -> bool {
    let near = |a: &Option<Duration>, b: &Option<Duration>| match (a, b) {
        (Some(a), Some(b)) => a.abs_diff(*b) <= tolerance,
        (None, None) => true,
        _ => false,
    };
    let alike = |a: &Sighting, b: &Sighting| {
        let strip = |s: &Sighting| Sighting { expires_in: None, ..s.clone() };
        strip(a) == strip(b) && near(&a.expires_in, &b.expires_in)
    };
    match (got, wanted) {
        (Reply::Extended { .. }, Reply::Extended { .. })
        | (Reply::Healed { .. }, Reply::Healed { .. }) => true,
        (
            Reply::Busy { owner: a, expires_in: left_a, fence: at_a, since: since_a },
            Reply::Busy { owner: b, expires_in: left_b, fence: at_b, since: since_b },
        ) => a == b && at_a == at_b && since_a == since_b && near(left_a, left_b),
        (Reply::Seen(a), Reply::Seen(b)) => alike(a, b),
        (Reply::Locks(a), Reply::Locks(b)) => {
            let sorted = |locks: &[Sighting]| {
                let locks = locks.iter().map(|s| (s.lock.clone(), s.clone()));
                locks.collect::<BTreeMap<_, _>>()
            };
            let (x, y) = (sorted(a), sorted(b));
            a.len() == b.len()
                && x.len() == y.len()
                && x.values().zip(y.values()).all(|(a, b)| alike(a, b))
        }
        (Reply::Forgot { .. }, Reply::Forgot { .. }) if !is_alone => true,
        _ => got == wanted,
    }
}

/// A reply without its numbers.
fn kind(reply: &Reply) -> String {
    match reply {
        Reply::NotHeld { owner } => format!("NotHeld by={}", owner.is_some()),
        Reply::Forgot { fences } => format!("Forgot some={}", *fences > 0),
        Reply::Stranger { record } => format!("Stranger record={}", record.is_some()),
        Reply::Record { replaced } => format!("Record replaced={replaced}"),
        Reply::Seen(sighting) => format!("Seen owned={}", sighting.owner.is_some()),
        Reply::Locks(locks) => format!("Locks some={}", !locks.is_empty()),
        other => format!("{other:?}").split([' ', '(', '{']).next().unwrap_or_default().to_owned(),
    }
}

/// The suite without these would pass for a node that answers nothing but strangers.
const MUST_BE_SEEN: [&str; 16] = [
    "Granted",
    "Busy",
    "Behind",
    "Extended",
    "Healed",
    "Superseded",
    "Released",
    "NotHeld by=false",
    "NotHeld by=true",
    "Stranger record=true",
    "Record replaced=false",
    "Record replaced=true",
    "Forgot some=true",
    "Seen owned=true",
    "Locks some=true",
    "Facts",
];

/// Panics with the seed of the first case in which `make`'s node and the model differ.
fn agrees_with_the_model(make: fn() -> Bench) {
    let replay = std::env::var("LEASEHOLD_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let first = replay.unwrap_or_else(|| getrandom::u64().unwrap() >> 16);
    let mut seen = BTreeMap::new();
    for seed in first..first + if replay.is_some() { 1 } else { CASES } {
        let told = Told(seed);
        let mut case = Case::new(seed, make());
        for _ in 0..STEPS {
            *seen.entry(case.step()).or_insert(0) += 1;
        }
        case.compare_all();
        drop(told);
    }
    println!("{seen:#?}");
    if replay.is_none() {
        for kind in MUST_BE_SEEN {
            assert!(seen.contains_key(kind), "{kind} never came up: {seen:#?}");
        }
    }
}

/// Says how to run a failed case again.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again: LEASEHOLD_SEED={} cargo test --test agrees_with_model", self.0);
        }
    }
}

fn memory() -> Bench {
    let clock = Arc::new(HandClock::default());
    let node = MemoryNode::new(NodeId::new("memory"), Arc::clone(&clock) as Arc<dyn Clock>);
    Bench { nodes: vec![Arc::new(node)], clock: Some(clock), is_alone: true, _keep: Box::new(()) }
}

/// Stands for a server that has its own clock and outlives a case, so that this way of running the
/// suite is tried.
fn memory_as_a_server() -> Bench {
    static SERVER: OnceLock<Arc<dyn Node>> = OnceLock::new();
    let start = || Arc::new(MemoryNode::new(NodeId::new("memory"), Arc::new(SystemClock))) as _;
    let node = Arc::clone(SERVER.get_or_init(start));
    Bench { nodes: vec![node], clock: None, is_alone: false, _keep: Box::new(()) }
}

#[cfg(feature = "sqlite")]
fn sqlite_by(connections: usize) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let open = |_| {
        let (path, clock) = (folder.path().join("locks.db"), Arc::clone(&clock) as Arc<dyn Clock>);
        let node = leasehold::nodes::sqlite::SqliteNode::open(&path, clock).unwrap();
        Arc::new(node) as Arc<dyn Node>
    };
    let nodes = (0..connections).map(open).collect();
    Bench { nodes, clock: Some(clock), is_alone: true, _keep: Box::new(folder) }
}

/// One server for all cases, as in real life: names are told apart by the seed.
#[cfg(feature = "redis")]
fn server(server: leasehold_testkit::ServerBuilder) -> Bench {
    use leasehold::nodes::redis::{DEFAULT_PREFIX, RedisNode, parse_url};
    thread_local! {
        static SERVER: std::cell::OnceCell<(Arc<dyn Node>, Box<dyn Any>)> = const { std::cell::OnceCell::new() };
    }
    let start = || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = server.start();
        let (mut configs, _) = parse_url(&server.url()).unwrap();
        let config = configs.remove(0);
        let limit = Duration::from_secs(5);
        let node =
            RedisNode::connect(config, DEFAULT_PREFIX.into(), limit, runtime.handle().clone())
                .unwrap();
        (Arc::new(node) as Arc<dyn Node>, Box::new((server, runtime)) as Box<dyn Any>)
    };
    let node = SERVER.with(|cell| Arc::clone(&cell.get_or_init(start).0));
    // Connected: from here on its passes are those of the first connection.
    let probe = ask(&*node, None, Request::Probe);
    assert!(matches!(probe, Ok(Reply::Facts(_))), "{probe:?}");
    Bench { nodes: vec![node], clock: None, is_alone: false, _keep: Box::new(()) }
}

macro_rules! backends {
    ($($(#[$condition:meta])* $name:ident: $make:expr;)*) => {$(
        $(#[$condition])*
        #[test]
        fn $name() {
            agrees_with_the_model($make);
        }
    )*};
}

backends! {
    memory_agrees: memory;
    memory_as_a_server_agrees: memory_as_a_server;
    #[cfg(feature = "sqlite")] sqlite_agrees: || sqlite_by(1);
    #[cfg(feature = "sqlite")] sqlite_through_two_connections_agrees: || sqlite_by(2);
    #[cfg(feature = "redis")] redis_agrees: || server(leasehold_testkit::RedisServer::redis());
    #[cfg(feature = "redis")] old_redis_agrees: || server(leasehold_testkit::RedisServer::old_redis());
    #[cfg(feature = "redis")] valkey_agrees: || server(leasehold_testkit::RedisServer::valkey());
}
