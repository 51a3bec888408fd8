//! Many processes at once, and processes that are stopped: fences of one lock are distinct and grow
//! in real time, whatever happens to the nodes, and a holder that was paused past its lease does
//! not go on.
//!
//! The other processes are this test binary again, told by its environment what to do.

mod real;

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::clock::{Clock as _, SystemClock};
use leasehold::{Fence, Locks, RetryPolicy};
use leasehold_testkit::{RedisServer, eventually};
use real::{Cluster, WrongWall, ms, secs};

/// The longest Ttl in these tests; keeps quarantines short.
const MAX_TTL: Duration = ms(500);

async fn open(url: &str, offset_secs: i64) -> Locks {
    Locks::builder()
        .url(url)
        .timeout(ms(200))
        .max_ttl(MAX_TTL)
        .max_clock_skew(ms(50))
        .clock(Arc::new(WrongWall { offset_secs }))
        .open()
        .await
        .expect("open")
}

/// What the other processes do. Does nothing unless the environment says so.
#[tokio::test]
async fn as_another_process() {
    let Ok(role) = std::env::var("LEASEHOLD_TEST_ROLE") else { return };
    let var = |name: &str| std::env::var(name).expect(name);
    let locks =
        open(&var("LEASEHOLD_TEST_URL"), var("LEASEHOLD_TEST_OFFSET").parse().unwrap()).await;
    match role.as_str() {
        "acquire" => acquire_again_and_again(&locks, Path::new(&var("LEASEHOLD_TEST_LOG"))).await,
        "hold" => hold_and_tell(&locks, Path::new(&var("LEASEHOLD_TEST_LOG"))).await,
        other => panic!("{other}"),
    }
}

/// Writes `start end fence` of each acquisition, by the machine's one boot clock, until the file
/// `stop` is there.
async fn acquire_again_and_again(locks: &Locks, log: &Path) {
    let mut log_file = std::fs::File::create(log).unwrap();
    let stop = log.with_file_name("stop");
    while !stop.exists() {
        let start = SystemClock.now().as_nanos();
        // Asks often: the more acquisitions, the more there is to check.
        let retry = RetryPolicy { first: ms(1), longest: ms(4), attempts: None };
        let request = locks.lock("l").ttl(ms(300)).wait(ms(500)).retry(retry);
        let Ok(guard) = request.acquire().await else { continue };
        let end = SystemClock.now().as_nanos();
        writeln!(log_file, "{start} {end} {}", guard.fence()).unwrap();
        let _ = guard.release().await;
    }
}

/// Holds a lock until told to stop, writing down when it believed to hold it.
async fn hold_and_tell(locks: &Locks, log: &Path) {
    let guard = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    std::fs::write(log, guard.fence().to_string()).unwrap();
    let until = Instant::now() + secs(30);
    while Instant::now() < until {
        if guard.ensure_valid(Duration::ZERO).is_err() {
            let extended = guard.extend().await;
            std::fs::write(log, format!("lost, extend says {extended:?}")).unwrap();
            return;
        }
        std::thread::sleep(ms(1));
    }
}

struct Process(Child);

impl Process {
    fn start(role: &str, url: &str, offset_secs: i64, log: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "as_another_process", "--nocapture"])
            .env("LEASEHOLD_TEST_ROLE", role)
            .env("LEASEHOLD_TEST_URL", url)
            .env("LEASEHOLD_TEST_OFFSET", offset_secs.to_string())
            .env("LEASEHOLD_TEST_LOG", log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(status.success());
    }

    fn finish(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One acquisition of one process.
#[derive(Debug, Clone, Copy)]
struct Acquisition {
    start: u64,
    end: u64,
    fence: u64,
}

fn read_log(log: &Path) -> Vec<Acquisition> {
    let text = std::fs::read_to_string(log).unwrap();
    let line = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Acquisition { start: next(), end: next(), fence: next() }
    };
    text.lines().map(line).collect()
}

/// F1: all fences differ. F2: if one acquire ended before another started, its fence is lower.
fn check_fences(mut all: Vec<Acquisition>) {
    let mut fences: Vec<u64> = all.iter().map(|acquisition| acquisition.fence).collect();
    fences.sort_unstable();
    for pair in fences.windows(2) {
        assert_ne!(pair[0], pair[1], "a fence was given twice");
    }
    let mut by_end = all.clone();
    by_end.sort_unstable_by_key(|acquisition| acquisition.end);
    all.sort_unstable_by_key(|acquisition| acquisition.start);
    let (mut ended, mut highest) = (by_end.iter().peekable(), None::<Acquisition>);
    for acquisition in &all {
        while let Some(before) = ended.next_if(|before| before.end < acquisition.start) {
            highest = highest.filter(|known| known.fence > before.fence).or(Some(*before));
        }
        if let Some(before) = highest {
            assert!(before.fence < acquisition.fence, "{before:?} ended before {acquisition:?}");
        }
    }
}

#[test]
fn the_check_of_fences_can_fail() {
    let one = |start, end, fence| Acquisition { start, end, fence };
    check_fences(vec![one(0, 5, 1), one(3, 9, 7), one(6, 8, 2), one(9, 10, 3)]);
    for bad in [
        vec![one(0, 5, 1), one(9, 10, 1)],
        vec![one(0, 5, 4), one(6, 7, 3)],
        vec![one(0, 5, 9), one(1, 2, 1), one(3, 4, 2), one(6, 7, 8)],
    ] {
        assert!(std::panic::catch_unwind(|| check_fences(bad)).is_err());
    }
}

/// How long the processes compete, in seconds; longer by `LEASEHOLD_TEST_SECONDS`.
fn seconds() -> u64 {
    let asked = std::env::var("LEASEHOLD_TEST_SECONDS").ok();
    asked.map_or(60, |seconds| seconds.parse().expect("LEASEHOLD_TEST_SECONDS is a number"))
}

/// Eight processes on one lock for some seconds while `disturb` does its worst, again and again.
async fn eight_processes(offsets: [i64; 8], disturb: impl Fn(&Cluster, usize)) {
    let cluster = Cluster::of(5);
    let first = open(&cluster.url(), 0).await;
    first.init().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = |i: usize| folder.path().join(format!("{i}.log"));
    let processes: Vec<_> = offsets
        .iter()
        .enumerate()
        .map(|(i, offset)| Process::start("acquire", &cluster.url(), *offset, &log(i)))
        .collect();
    let until = Instant::now() + secs(seconds());
    let mut round = 0;
    while Instant::now() < until {
        tokio::time::sleep(ms(1200)).await;
        tokio::task::block_in_place(|| disturb(&cluster, round));
        round += 1;
    }
    std::fs::write(folder.path().join("stop"), "").unwrap();
    processes.into_iter().for_each(Process::finish);
    let logs: Vec<_> = (0..offsets.len()).map(|i| read_log(&log(i))).collect();
    let counts: Vec<_> = logs.iter().map(Vec::len).collect();
    let total: usize = counts.iter().sum();
    eprintln!("{total} acquisitions, {counts:?} by process, {round} disturbances");
    assert!(total > 300, "too few to mean anything: {counts:?}");
    check_fences(logs.concat());
}

/// Kills, empties and flushes nodes, one after the other, so that a quorum is there most of the
/// time; now and then three at once, so that everybody must sit it out.
fn lose_memory(cluster: &Cluster, round: usize) {
    let server = |i: usize| &cluster.servers[i % 5];
    match round % 3 {
        _ if round % 10 == 9 => (0..3).for_each(|i| server(round + i).flush_all()),
        0 => server(round).restart_empty(),
        1 => server(round).flush_all(),
        _ => {
            server(round).kill();
            std::thread::sleep(ms(100));
            server(round).restart_empty();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_are_distinct_and_grow_in_real_time_while_nodes_forget() {
    eight_processes([0; 8], lose_memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_also_with_wall_clocks_that_are_an_hour_off() {
    eight_processes([3600, 0, 0, -3600, 0, 0, 0, 0], lose_memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_was_stopped_past_its_lease_does_not_go_on() {
    let cluster = Cluster::of(3);
    let locks = open(&cluster.url(), 0).await;
    locks.init().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let holder = Process::start("hold", &cluster.url(), 0, &log);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually(secs(10), "it holds the lock", || read().parse::<u64>().is_ok());
    let fence = Fence::new(read().parse().unwrap()).unwrap();
    holder.signal("STOP");
    let guard = locks.lock("l").ttl(MAX_TTL).wait(secs(10)).acquire().await.unwrap();
    assert!(guard.fence() > fence);
    holder.signal("CONT");
    eventually(secs(10), "it finds out", || read().starts_with("lost"));
    assert!(read().contains("Err(Lost("), "{}", read());
    holder.finish();
    guard.ensure_valid(Duration::ZERO).expect("nobody disturbed the next holder");
    // A node that was too slow for the acquire has it from the next extension on.
    let is_its = |server: &RedisServer| {
        server.get("leasehold:lock:l").as_deref() == Some(guard.holder().as_str())
    };
    eventually(secs(5), "all nodes have the next holder", || cluster.servers.iter().all(is_its));
    guard.ensure_valid(Duration::ZERO).expect("nobody disturbed the next holder");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_killed_process_is_free_after_its_ttl() {
    let cluster = Cluster::of(3);
    let locks = open(&cluster.url(), 0).await;
    locks.init().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let holder = Process::start("hold", &cluster.url(), 0, &log);
    eventually(secs(10), "it holds the lock", || {
        std::fs::read_to_string(&log).is_ok_and(|text| !text.is_empty())
    });
    assert!(locks.lock("l").ttl(MAX_TTL).try_acquire().await.unwrap().is_none());
    drop(holder);
    let killed = Instant::now();
    drop(locks.lock("l").ttl(MAX_TTL).wait(secs(10)).acquire().await.unwrap());
    assert!(killed.elapsed() < secs(5), "{:?}", killed.elapsed());
    cluster.servers.iter().for_each(RedisServer::kill);
}
