//! The promise itself: commands under one lock never run at the same time, whatever happens to
//! their supervisors.
//!
//! Several chains of `leasehold run` compete for a lock. Each command writes stamps of the boot
//! clock to a common file for as long as it lives, while supervisors are killed and stopped at
//! random. Afterwards the lives of the commands, as the file tells them, must lie one after another
//! and in the order of their fences. `LEASEHOLD_TEST_OVERLAP_SECONDS` makes it longer.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testkit::{Need, skip};
use support::{Place, Running, SOON, Signal, boot_nanos, five_nodes};

/// Set for the commands: where to write.
const STAMPS: &str = "LEASEHOLD_TEST_STAMPS";

/// The command. Not a test, unless it is started as one.
#[test]
fn stamping_command() {
    let Some(file) = std::env::var_os(STAMPS) else { return };
    let fence = std::env::var("LEASEHOLD_FENCE").unwrap();
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    // Most are short, to have many; some are several leases long, to be cut short.
    let chance = boot_nanos() / 1000;
    let life = if chance.is_multiple_of(3) { 300 + chance / 3 % 900 } else { chance % 50 };
    let life = Duration::from_millis(life);
    // Deaf to requests: a life ends by itself or by SIGKILL.
    signal_hook::flag::register(Signal::TERM.as_raw(), Arc::default()).unwrap();
    let start = Instant::now();
    while start.elapsed() < life {
        file.write_all(format!("{fence} {}\n", boot_nanos()).as_bytes()).unwrap();
    }
    // Without the words of the test harness, and without its time.
    std::process::exit(0);
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
}

fn seconds() -> u64 {
    std::env::var("LEASEHOLD_TEST_OVERLAP_SECONDS")
        .map_or(9, |text| text.parse().expect("a number"))
}

fn compete(backend: Option<&str>, ttl: &str, chains: usize) {
    let place = Place::new();
    let stamps = place.file("stamps");
    fs::write(&stamps, "").unwrap();
    let this = std::env::current_exe().unwrap();
    let start = || {
        let mut command = place.leasehold();
        command.args(["run", "--ttl", ttl, "--holder", "chain", "job", "--"]);
        command.arg(&this).args(["--exact", "stamping_command", "--nocapture"]);
        command.env(STAMPS, &stamps).stderr(Stdio::null());
        if let Some(url) = backend {
            command.env("LEASEHOLD_BACKEND", url);
        }
        Running::new(&mut command)
    };
    let seed = boot_nanos() | 1;
    let mut dice = Dice(seed);
    let mut running: Vec<Running> = (0..chains).map(|_| start()).collect();
    let mut stopped: Vec<(Running, Instant)> = Vec::new();
    let (mut rounds, mut kills, mut stops) = (0, 0, 0);
    let end = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        for run in &mut running {
            let has_ended = run.has_ended();
            match dice.roll(900) {
                _ if has_ended => *run = start(),
                0..3 => {
                    run.signal(Signal::KILL);
                    kills += 1;
                    *run = start();
                }
                3..6 => {
                    run.signal(Signal::STOP);
                    stops += 1;
                    let until = Instant::now() + Duration::from_millis(dice.roll(900));
                    stopped.push((std::mem::replace(run, start()), until));
                }
                _ => continue,
            }
            rounds += 1;
        }
        let (over, still) = stopped.into_iter().partition(|(_, until)| Instant::now() >= *until);
        stopped = still;
        let _: &Vec<_> = &over;
        for (run, _) in over {
            // It may end by itself now, or as the loser that it is.
            run.signal(Signal::CONT);
            running.push(run);
        }
        // Those that came back beyond the usual number leave when they end.
        let mut surplus = running.len().saturating_sub(chains);
        running.retain_mut(|run| {
            let leaves = surplus > 0 && run.has_ended();
            surplus -= usize::from(leaves);
            !leaves
        });
    }
    for (run, _) in &stopped {
        run.signal(Signal::KILL);
    }
    drop((running, stopped));
    let lives = read(&stamps);
    println!("{} lives in {rounds} rounds, {kills} kills, {stops} stops, seed {seed}", lives.len());
    assert!(lives.len() > 5 && kills > 0 && stops > 0, "it was tried: {} lives", lives.len());
    let mut previous: Option<(u64, u64)> = None;
    for (fence, (first, last)) in lives {
        if let Some((other, until)) = previous {
            assert!(
                until < first,
                "fence {fence} began {} us before fence {other} ended, seed {seed}",
                (until - first) / 1000
            );
        }
        previous = Some((fence, last));
    }
}

/// First and last stamp by fence.
fn read(stamps: &Path) -> BTreeMap<u64, (u64, u64)> {
    // What was killed may still be dying.
    let mut text = String::new();
    let start = Instant::now();
    while start.elapsed() < SOON {
        let again = fs::read_to_string(stamps).unwrap();
        if again == text {
            break;
        }
        text = again;
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut lives = BTreeMap::new();
    for line in text.lines() {
        let (fence, at) = line.split_once(' ').unwrap();
        let (fence, at): (u64, u64) = (fence.parse().unwrap(), at.parse().unwrap());
        let life: &mut (u64, u64) = lives.entry(fence).or_insert((at, at));
        life.0 = life.0.min(at);
        life.1 = life.1.max(at);
    }
    lives
}

#[test]
fn commands_never_overlap_on_a_file() {
    compete(None, "300ms", 3);
}

#[test]
fn commands_never_overlap_on_five_nodes() {
    if skip(Need::Redis) {
        return;
    }
    let (_servers, url) = five_nodes();
    compete(Some(&url), "600ms", 3);
}
