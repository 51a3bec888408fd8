//! The promise itself: commands under one lock never run at the same time, whatever happens to
//! their supervisors.
//!
//! On several locks at once, two `leasehold run` compete for each. A command writes stamps of the
//! boot clock to a file for as long as it lives; supervisors are killed and stopped, most of them
//! while they hold the lock. The lives of the commands, as the file tells them, must lie one after
//! another and in the order of their fences. For hours instead of seconds:
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
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Need, eventually, skip};
use support::{Place, Running, SOON, Signal, boot_nanos, five_nodes};

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

/// What is to happen to a supervisor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Nothing,
    Kill,
    Stop { time: Duration },
    Continue,
}

struct Run {
    number: u64,
    process: Running,
    fate: Fate,
    /// How long it holds the lock before its fate comes.
    after: Duration,
    due: Option<Instant>,
}

/// Cheap and good enough to choose faults by.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn time(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.roll(1000) as f64 / 1000.0)
    }
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
    /// … that ended otherwise: the machine was too busy to keep the lease, or the test was over.
    other: usize,
    /// Supervisors killed or stopped before they had a command.
    waiting: usize,
}

impl Tally {
    fn is_enough(&self) -> bool {
        self.whole >= 10 && self.killed >= 5 && self.stopped >= 5 && self.waiting >= 1
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
    dice: Dice,
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
            dice: Dice(seed),
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
        let fate = match self.dice.roll(10) {
            0..6 => Fate::Nothing,
            6..8 => Fate::Kill,
            8 => Fate::Stop { time: ttl.mul_f64(1.5) + self.dice.time(ttl) },
            _ => Fate::Stop { time: self.dice.time(ttl * 2) },
        };
        // Most are short, to have many. What is to be cut short would last for several leases.
        let life = match fate {
            Fate::Nothing => self.dice.time(Duration::from_millis(30)),
            _ => ttl * 3,
        };
        // Some are hit at any time after their start, whatever they are about to do.
        let is_early = fate != Fate::Nothing && self.dice.roll(3) == 0;
        let early = self.dice.time(Duration::from_millis(100));
        let mut command = self.place.leasehold();
        command.args(["run", "--ttl", &format!("{}ms", ttl.as_millis()), &self.lock, "--"]);
        command.arg(std::env::current_exe().unwrap());
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
            after: self.dice.time(ttl),
            due: is_early.then(|| Instant::now() + early),
        }
    }

    fn look(&mut self) {
        self.stamps.read();
        for mut run in std::mem::take(&mut self.running) {
            if run.process.has_ended() {
                continue;
            }
            if run.due.is_none() && self.stamps.runs.contains(&run.number) {
                run.due = Some(Instant::now() + run.after);
            }
            if run.fate == Fate::Nothing || run.due.is_none_or(|due| Instant::now() < due) {
                self.running.push(run);
                continue;
            }
            match run.fate {
                Fate::Nothing => {}
                Fate::Kill => {
                    run.process.signal(Signal::KILL);
                    self.hit.insert(run.number, Fate::Kill);
                }
                Fate::Stop { time } => {
                    run.process.signal(Signal::STOP);
                    self.hit.insert(run.number, run.fate);
                    let due = Some(Instant::now() + time);
                    self.running.push(Run { fate: Fate::Continue, due, ..run });
                }
                Fate::Continue => {
                    // It may end by itself now, or as the loser that it is.
                    run.process.signal(Signal::CONT);
                    self.running.push(Run { fate: Fate::Nothing, ..run });
                }
            }
        }
        // Those that are stopped do not compete; those that came back leave when they end.
        while self.running.iter().filter(|run| run.fate != Fate::Continue).count() < RUNS {
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
                Some(Fate::Kill) => &mut tally.killed,
                Some(Fate::Stop { .. }) => &mut tally.stopped,
                _ => &mut tally.other,
            };
            *count += 1;
        }
        tally.waiting = self.hit.keys().filter(|run| !self.stamps.runs.contains(run)).count();
        tally
    }

    /// Ends all runs, and waits until the last command has written its last stamp.
    fn end(&mut self) {
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
                "{}: fence {later} began {} us before fence {fence} ended, whose supervisor saw {:?} \
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
    let seed = boot_nanos() | 1;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut locks: Vec<_> = (0..LOCKS)
        .map(|lock| Competition::new(&place, backend, ttl, lock, dice.roll(u64::MAX) | 1))
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
