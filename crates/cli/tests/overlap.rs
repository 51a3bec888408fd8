//! The promise itself: commands under one lock never run at the same time, whatever happens to
//! those who watch over them.
//!
//! On several locks at once, two `leasehold run` compete for each. A command writes stamps of the
//! boot clock to a file for as long as it lives, deaf to SIGTERM, and mostly in a process group or
//! session that it went to by itself. Supervisors, wardens and guardians are killed and stopped, alone
//! or two of them at once, most of them while they hold the lock. The lives of the commands, as the
//! file tells them, must lie one after another and in the order of their fences. For hours instead of
//! seconds:
//!
//! ```text
//! LEASEHOLD_TEST_OVERLAP_SECONDS=3600 ./test -- --release -p leasehold-cli --test overlap -- --nocapture
//! ```

mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::iter::Sum;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_judge::Chance;
use leasehold_testkit::{Namespace, Need, eventually, skip};
use support::{Place, Running, SOON, Signal, boot_nanos, children, five_nodes, send_if_there};

/// Locks that are competed for side by side: much of the time a lock waits for the end of a lease.
const LOCKS: usize = 3;

/// Per lock: one that holds it, and one that waits for it.
const RUNS: usize = 2;

/// A busy machine gets this much more time to show enough.
const EXTRA: Duration = Duration::from_secs(90);

/// Set for the commands: where to write, in which run, and how long to live.
const STAMPS: &str = "LEASEHOLD_TEST_STAMPS";
const RUN: &str = "LEASEHOLD_TEST_RUN";
const LIFE_MS: &str = "LEASEHOLD_TEST_LIFE_MS";

/// The command. Not a test, unless it is started as one.
#[test]
fn stamping_command() {
    let Some(file) = std::env::var_os(STAMPS) else { return };
    let variable = |name| std::env::var(name).unwrap();
    let (fence, run) = (variable("LEASEHOLD_FENCE"), variable(RUN));
    let life = Duration::from_millis(variable(LIFE_MS).parse().unwrap());
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    let mut stamp = |word| {
        let line = format!("{fence} {run} {} {word}\n", boot_nanos());
        file.write_all(line.as_bytes()).unwrap();
    };
    // Deaf to requests: a life ends by itself or by SIGKILL.
    signal_hook::flag::register(Signal::TERM.as_raw(), Arc::default()).unwrap();
    let start = Instant::now();
    stamp("lives");
    while start.elapsed() < life {
        thread::sleep(Duration::from_micros(500));
        stamp("lives");
    }
    stamp("ends");
    // Without the words of the test harness, and without its time.
    std::process::exit(0);
}

/// What the file tells of one command.
struct Life {
    run: u64,
    first: u64,
    last: u64,
    is_whole: bool,
}

/// The file of one lock, read as it grows.
struct Stamps {
    file: File,
    unread: String,
    /// By fence.
    lives: BTreeMap<u64, Life>,
    runs: BTreeSet<u64>,
}

impl Stamps {
    fn create(path: &Path) -> Self {
        File::create(path).unwrap();
        let file = File::open(path).unwrap();
        Self { file, unread: String::new(), lives: BTreeMap::new(), runs: BTreeSet::new() }
    }

    /// Takes in what is new; says whether there was anything.
    fn read(&mut self) -> bool {
        let is_new = self.file.read_to_string(&mut self.unread).unwrap() > 0;
        let Some(end) = self.unread.rfind('\n') else { return is_new };
        let unread = self.unread.split_off(end + 1);
        for line in std::mem::replace(&mut self.unread, unread).lines() {
            let [fence, run, at, word] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let [fence, run, at]: [u64; 3] = [fence, run, at].map(|word| word.parse().unwrap());
            let new = Life { run, first: at, last: at, is_whole: false };
            let life = self.lives.entry(fence).or_insert(new);
            assert_eq!(life.run, run, "one fence for two runs");
            life.first = life.first.min(at);
            life.last = life.last.max(at);
            life.is_whole |= word == "ends";
            self.runs.insert(run);
        }
        is_new
    }
}

/// How a command goes away from where it was started: `$0` are its words.
const WAYS: [&str; 5] = [
    "exec \"$0\" \"$@\"",
    "timeout 60 \"$0\" \"$@\"; exit",
    "set -m; \"$0\" \"$@\" & wait",
    "setsid -w \"$0\" \"$@\"; exit",
    "(setsid \"$0\" \"$@\" &)",
];

/// Where the machine allows it.
const NAMESPACE: &str = "unshare -Urpf \"$0\" \"$@\"; exit";

fn ways() -> &'static [&'static str] {
    static ALL: OnceLock<Vec<&str>> = OnceLock::new();
    ALL.get_or_init(|| {
        let is_allowed = !Namespace::Processes.skip();
        WAYS.into_iter().chain(is_allowed.then_some(NAMESPACE)).collect()
    })
}

/// Those who watch over a command.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Supervisor,
    Warden,
    Guardian,
}

/// What is to happen to some of them.
#[derive(Debug, Clone, PartialEq)]
struct Fate {
    hits: Vec<(Who, Signal)>,
    /// How long those are stopped who are.
    time: Duration,
}

impl Fate {
    fn is_none(&self) -> bool {
        self.hits.is_empty()
    }

    fn roll(chance: &mut Chance, ttl: Duration) -> Self {
        let three = [Who::Supervisor, Who::Warden, Who::Guardian];
        let time = match chance.below(2) {
            0 => ttl.mul_f64(1.5) + time(chance, ttl),
            _ => time(chance, ttl * 2),
        };
        let mut signal = || if chance.below(2) == 0 { Signal::KILL } else { Signal::STOP };
        let signals = [signal(), signal()];
        let first = chance.index(3);
        let hits = match chance.below(10) {
            0..4 => vec![],
            4..6 => vec![(Who::Supervisor, signals[0])],
            6 => vec![(three[1 + first % 2], signals[0])],
            _ => vec![(three[first], signals[0]), (three[(first + 1) % 3], signals[1])],
        };
        Self { hits, time }
    }

    fn does(&self, to: Who, what: Signal) -> bool {
        self.hits.contains(&(to, what))
    }
}

struct Run {
    number: u64,
    process: Running,
    fate: Fate,
    /// How long it holds the lock before its fate comes.
    after: Duration,
    due: Option<Instant>,
    /// Who is stopped, and until when.
    stopped: Option<(Instant, Vec<i32>)>,
}

impl Run {
    fn pid(&self, who: Who) -> Option<i32> {
        let child = |parent| children(parent).first().copied();
        match who {
            Who::Supervisor => Some(self.process.pid()),
            Who::Warden => child(self.process.pid()),
            Who::Guardian => child(child(self.process.pid())?),
        }
    }

    /// Lets its fate come, all at once; says whether it did.
    fn meet(&mut self) -> bool {
        let pids = self.fate.hits.iter().map(|(who, signal)| Some((self.pid(*who)?, *signal)));
        let Some(mut pids) = pids.collect::<Option<Vec<_>>>() else { return false };
        // Stops first: who is killed is noticed at once.
        pids.sort_by_key(|(_, signal)| *signal == Signal::KILL);
        pids.iter().for_each(|(pid, signal)| send_if_there(*pid, *signal));
        let stopped = pids.iter().filter(|(_, signal)| *signal == Signal::STOP);
        let stopped: Vec<i32> = stopped.map(|(pid, _)| *pid).collect();
        if !stopped.is_empty() {
            self.stopped = Some((Instant::now() + self.fate.time, stopped));
        }
        true
    }

    /// They may end by themselves now, or as the losers that they are.
    fn go_on(&mut self) {
        for pid in self.stopped.take().into_iter().flat_map(|(_, pids)| pids) {
            send_if_there(pid, Signal::CONT);
        }
    }

    /// Whether it takes part in the competition.
    fn competes(&self) -> bool {
        self.stopped.is_none() && !self.fate.does(Who::Supervisor, Signal::KILL)
    }
}

/// A time up to `most`.
fn time(chance: &mut Chance, most: Duration) -> Duration {
    most.mul_f64(chance.below(1000) as f64 / 1000.0)
}

/// What happened, as counted when it was over.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    /// `leasehold run` started.
    runs: usize,
    /// Commands started.
    lives: usize,
    /// … that came to their own end.
    whole: usize,
    /// … whose supervisor was killed.
    killed: usize,
    /// … whose supervisor was stopped, and that were ended at the end of the lease.
    stopped: usize,
    /// … whose warden or guardian was killed or stopped.
    below: usize,
    /// … of which two were killed or stopped at once.
    both: usize,
    /// … that ended otherwise: the machine was too busy to keep the lease, or the test was over.
    other: usize,
    /// Killed or stopped before they had a command.
    waiting: usize,
}

impl Tally {
    fn is_enough(&self) -> bool {
        self.whole >= 10
            && [self.killed, self.stopped, self.below].iter().all(|count| *count >= 2)
            && self.both >= 5
            && self.waiting >= 1
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |a, b| Self {
            runs: a.runs + b.runs,
            lives: a.lives + b.lives,
            whole: a.whole + b.whole,
            killed: a.killed + b.killed,
            stopped: a.stopped + b.stopped,
            below: a.below + b.below,
            both: a.both + b.both,
            other: a.other + b.other,
            waiting: a.waiting + b.waiting,
        })
    }
}

/// Two runs at a time compete for one lock.
struct Competition<'a> {
    place: &'a Place,
    backend: Option<&'a str>,
    ttl: Duration,
    lock: String,
    chance: Chance,
    stamps: Stamps,
    started: u64,
    running: Vec<Run>,
    /// What was done to which run.
    hit: HashMap<u64, Fate>,
}

impl<'a> Competition<'a> {
    fn new(
        place: &'a Place,
        backend: Option<&'a str>,
        ttl: Duration,
        lock: usize,
        seed: u64,
    ) -> Self {
        let lock = format!("job-{lock}");
        Self {
            place,
            backend,
            ttl,
            chance: Chance::new(seed),
            stamps: Stamps::create(&place.file(&lock)),
            lock,
            started: 0,
            running: Vec::new(),
            hit: HashMap::new(),
        }
    }

    fn start(&mut self) -> Run {
        self.started += 1;
        let ttl = self.ttl;
        let fate = Fate::roll(&mut self.chance, ttl);
        // Most are short, to have many. What is to be cut short would last for several leases.
        let life = match fate.is_none() {
            true => time(&mut self.chance, Duration::from_millis(30)),
            false => ttl * 3,
        };
        // Some are hit at any time after their start, whatever they are about to do.
        let is_early = !fate.is_none() && self.chance.below(3) == 0;
        let early = time(&mut self.chance, Duration::from_millis(100));
        let way = *self.chance.pick(ways());
        let mut command = self.place.leasehold();
        command.args(["run", "--ttl", &format!("{}ms", ttl.as_millis()), &self.lock, "--"]);
        command.args(["bash", "-c", way]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "stamping_command", "--nocapture"]);
        command.env(STAMPS, self.place.file(&self.lock)).env(RUN, self.started.to_string());
        command.env(LIFE_MS, life.as_millis().to_string());
        if let Some(url) = self.backend {
            command.env("LEASEHOLD_BACKEND", url);
        }
        Run {
            number: self.started,
            process: Running::new(&mut command),
            fate,
            after: time(&mut self.chance, ttl),
            due: is_early.then(|| Instant::now() + early),
            stopped: None,
        }
    }

    fn look(&mut self) {
        self.stamps.read();
        for mut run in std::mem::take(&mut self.running) {
            if run.stopped.as_ref().is_some_and(|(until, _)| Instant::now() >= *until) {
                run.go_on();
            }
            if run.process.has_ended() && run.stopped.is_none() {
                continue;
            }
            if run.due.is_none() && self.stamps.runs.contains(&run.number) {
                run.due = Some(Instant::now() + run.after);
            }
            let is_due = !run.fate.is_none() && !self.hit.contains_key(&run.number);
            if is_due && run.due.is_some_and(|due| Instant::now() >= due) && run.meet() {
                self.hit.insert(run.number, run.fate.clone());
            }
            self.running.push(run);
        }
        // Those that are stopped do not compete; those that came back leave when they end.
        while self.running.iter().filter(|run| run.competes()).count() < RUNS {
            let run = self.start();
            self.running.push(run);
        }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally { runs: self.started as usize, ..Tally::default() };
        for life in self.stamps.lives.values() {
            tally.lives += 1;
            let count = match self.hit.get(&life.run) {
                _ if life.is_whole => &mut tally.whole,
                Some(fate) if fate.hits.len() > 1 => &mut tally.both,
                Some(fate) if fate.does(Who::Supervisor, Signal::KILL) => &mut tally.killed,
                Some(fate) if fate.does(Who::Supervisor, Signal::STOP) => &mut tally.stopped,
                Some(_) => &mut tally.below,
                None => &mut tally.other,
            };
            *count += 1;
        }
        tally.waiting = self.hit.keys().filter(|run| !self.stamps.runs.contains(run)).count();
        tally
    }

    /// Ends all runs, and waits until the last command has written its last stamp.
    fn end(&mut self) {
        self.running.iter_mut().for_each(Run::go_on);
        self.running.clear();
        eventually(SOON, "the last commands are gone", || {
            thread::sleep(Duration::from_millis(100));
            !self.stamps.read()
        });
    }

    fn judge(&self) {
        let lives = &self.stamps.lives;
        for ((fence, life), (later, next)) in lives.iter().zip(lives.iter().skip(1)) {
            assert!(
                life.last < next.first,
                "{}: fence {later} began {} us before fence {fence} ended, which saw {:?} \
                 and which lasted for {} us",
                self.lock,
                (life.last - next.first) / 1000,
                self.hit.get(&life.run),
                (life.last - life.first) / 1000
            );
        }
    }
}

fn compete(backend: Option<&str>, ttl: Duration) {
    let seconds = std::env::var("LEASEHOLD_TEST_OVERLAP_SECONDS")
        .map_or(7, |text| text.parse().expect("a number"));
    let place = Place::new();
    let seed = boot_nanos();
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let mut locks: Vec<_> = (0..LOCKS)
        .map(|lock| Competition::new(&place, backend, ttl, lock, chance.bits()))
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let is_enough =
        |locks: &[Competition]| locks.iter().map(Competition::tally).sum::<Tally>().is_enough();
    while Instant::now() < end || !is_enough(&locks) && Instant::now() < end + EXTRA {
        locks.iter_mut().for_each(Competition::look);
        thread::sleep(Duration::from_millis(2));
    }
    locks.iter_mut().for_each(Competition::end);
    let tally: Tally = locks.iter().map(Competition::tally).sum();
    println!("{} with {LOCKS} locks: {tally:?}", backend.map_or("a file", |_| "five nodes"));
    locks.iter().for_each(Competition::judge);
    assert!(tally.is_enough(), "too little happened: {tally:?}");
}

#[test]
fn commands_never_overlap_on_a_file() {
    compete(None, Duration::from_millis(300));
}

#[test]
fn commands_never_overlap_on_five_nodes() {
    if skip(Need::Redis) {
        return;
    }
    let (_servers, url) = five_nodes();
    compete(Some(&url), Duration::from_millis(600));
}
