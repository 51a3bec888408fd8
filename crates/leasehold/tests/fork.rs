//! A process that forked: what it inherited is its parent's. It may hold nothing, release nothing, and
//! write nothing to sockets that it shares.

#![cfg(all(feature = "redis", feature = "sqlite", target_os = "linux"))]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use leasehold::{Guard, LeaseState, Locks, ReleaseOutcome};
use leasehold_testkit::{Connection, Need, RedisServer, can_fork, eventually, fork, skip};
use rustix::process::{Pid, Signal, WaitOptions, getppid, kill_process, waitpid};
use tokio::runtime::{Builder, Runtime};

/// Far above what anything here takes.
const SOON: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// This very program, in a process of its own that can fork, to do `part`.
fn forking(part: &str, url: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_a_child", "--nocapture", "--test-threads=1"]);
    command.env("LEASEHOLD_CHILD", part).env("LEASEHOLD_TEST_URL", url);
    can_fork(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("the fork ended well"), "{text}");
}

#[test]
fn a_fork_holds_nothing_releases_nothing_and_writes_nothing() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    forking("inherit", &server.url());
}

#[test]
fn a_fork_that_opens_the_backend_anew_is_a_client_like_any_other() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    forking("anew", &server.url());
}

#[test]
fn replies_to_a_fork_are_never_taken_for_ones_to_its_parent() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    forking("many", &server.url());
}

#[test]
fn a_fork_does_not_open_a_lock_file_that_its_parent_had_open() {
    let folder = tempfile::tempdir().unwrap();
    forking("file", &format!("sqlite:{}", folder.path().join("locks.db").display()));
}

#[test]
fn a_fork_gives_no_lock_in_a_file_back() {
    let folder = tempfile::tempdir().unwrap();
    forking("drop", &format!("sqlite:{}", folder.path().join("locks.db").display()));
}

/// Nothing, unless it is a child that runs it.
#[test]
fn as_a_child() {
    let Ok(part) = std::env::var("LEASEHOLD_CHILD") else { return };
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    match part.as_str() {
        "inherit" => inherit(&url),
        "anew" => anew(&url),
        "many" => many(&url),
        "file" => file(&url),
        "drop" => drop_in_a_fork(&url),
        other => panic!("{other}"),
    }
    println!("\nthe fork ended well");
}

fn open(runtime: &Runtime, url: &str) -> Locks {
    runtime.block_on(Locks::builder().url(url).trust_new_nodes().open()).unwrap()
}

fn hold(runtime: &Runtime, locks: &Locks, name: &str) -> Guard {
    runtime.block_on(locks.lock(name).ttl(TTL).acquire()).unwrap()
}

/// Forks, has the child do `work`, and waits until it did.
fn in_a_fork(work: impl FnOnce()) {
    match fork().unwrap() {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // Without the test harness, whose other threads are not here.
            std::process::exit(if done.is_ok() { 0 } else { 1 });
        }
        child => {
            let child = Pid::from_raw(child);
            let (_, status) = waitpid(child, WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(status.exit_status(), Some(0), "the fork failed, see above");
        }
    }
}

/// The parent, stopped, so that nobody but us says a word to its servers.
struct Stopped(Pid);

impl Stopped {
    fn parent() -> Self {
        let pid = getppid().unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = Self(pid);
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        eventually(SOON, "the parent is stopped", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// How many bytes the server has read so far.
fn bytes_read(server: &mut Connection) -> i64 {
    let stats = server.call(&["INFO", "stats"]).unwrap();
    let stats = stats.as_text().unwrap().to_owned();
    let line = stats.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:")).unwrap();
    line.trim().parse().unwrap()
}

#[track_caller]
fn refused(sentence: &str) {
    assert!(sentence.contains("is a fork of the one"), "{sentence}");
    assert!(sentence.contains("open `Locks` anew"), "{sentence}");
}

fn inherit(url: &str) {
    let runtime = runtime();
    let locks = open(&runtime, url);
    let [kept, dropped, given_back, detached] =
        ["kept", "dropped", "given-back", "detached"].map(|name| hold(&runtime, &locks, name));
    let mut server = Connection::to(url.strip_prefix("redis://").unwrap()).unwrap();
    let (given_back, dropped) = (Some(given_back), Some(dropped));
    let (mut given_back, mut dropped, mut detached) = (given_back, dropped, Some(detached));
    in_a_fork(|| {
        let parent = Stopped::parent();
        let before = bytes_read(&mut server);
        let of_a_question = bytes_read(&mut server) - before;
        refused(&kept.ensure_valid(Duration::ZERO).unwrap_err().to_string());
        assert_eq!((kept.validity(), kept.state()), (Duration::ZERO, LeaseState::Lost));
        assert!(kept.cancellation_token().is_cancelled());
        assert!(
            kept.deadline() < SystemClock.now(),
            "nothing that the fork does is under the lock"
        );
        drop(dropped.take());
        let token = detached.take().unwrap().detach();
        let own = self::runtime();
        own.block_on(async {
            refused(&kept.lost().await.to_string());
            refused(&kept.extend().await.unwrap_err().to_string());
            match given_back.take().unwrap().release().await {
                ReleaseOutcome::Unknown { nodes } => refused(&nodes.to_string()),
                other => panic!("{other:?}"),
            }
            let lock = || locks.lock("other");
            refused(&lock().acquire().await.unwrap_err().to_string());
            refused(&lock().try_acquire().await.unwrap_err().to_string());
            refused(&lock().try_acquire_or_tell().await.unwrap_err().to_string());
            refused(&locks.inspect("kept").await.unwrap_err().to_string());
            refused(&locks.list("").await.unwrap_err().to_string());
            refused(&locks.force_release("kept", kept.fence()).await.unwrap_err().to_string());
            refused(&locks.extend(&token).await.unwrap_err().to_string());
            match locks.release(&token).await {
                ReleaseOutcome::Unknown { nodes } => refused(&nodes.to_string()),
                other => panic!("{other:?}"),
            }
            refused(&locks.init().await.unwrap_err().to_string());
            locks.settle().await;
        });
        drop(locks.clone());
        assert_eq!(bytes_read(&mut server) - before, 2 * of_a_question, "not a byte");
        drop(parent);
    });
    for guard in [Some(kept), dropped, given_back, detached].into_iter().flatten() {
        guard.ensure_valid(Duration::ZERO).expect("the parent goes on");
        runtime.block_on(guard.extend()).unwrap();
        assert_eq!(runtime.block_on(guard.release()), ReleaseOutcome::Released);
    }
}

fn anew(url: &str) {
    let runtime = runtime();
    let locks = open(&runtime, url);
    let guard = hold(&runtime, &locks, "l");
    in_a_fork(|| {
        let own = self::runtime();
        let locks = open(&own, url);
        let refused = own.block_on(locks.lock("l").ttl(TTL).try_acquire()).unwrap();
        assert!(refused.is_none(), "the parent holds it");
        let other = hold(&own, &locks, "other");
        own.block_on(other.extend()).unwrap();
        other.ensure_valid(Duration::ZERO).unwrap();
        assert_eq!(own.block_on(other.release()), ReleaseOutcome::Released);
    });
    assert_eq!(runtime.block_on(guard.release()), ReleaseOutcome::Released);
    let other = hold(&runtime, &locks, "other");
    assert_eq!(runtime.block_on(other.release()), ReleaseOutcome::Released);
}

/// Parent and fork ask at the same time, by one `Locks`.
fn many(url: &str) {
    let runtime = runtime();
    let locks = open(&runtime, url);
    for round in 0..100 {
        let child = match fork().unwrap() {
            0 => {
                let own = self::runtime();
                let held = (0..20).any(|_| {
                    let asked = locks.lock("l").ttl(TTL).try_acquire();
                    own.block_on(async { tokio::time::timeout(SOON, asked).await }).unwrap().is_ok()
                });
                std::process::exit(held.into());
            }
            child => Pid::from_raw(child),
        };
        let guard = hold(&runtime, &locks, "l");
        guard.ensure_valid(Duration::ZERO).unwrap();
        let status = runtime.block_on(locks.inspect("l")).unwrap();
        let (owner, _) = status.owner().expect("somebody owns it");
        assert!(owner.is(guard.holder()), "round {round}: {owner} owns it");
        let outcome = runtime.block_on(guard.release());
        assert_eq!(outcome, ReleaseOutcome::Released, "round {round}");
        let (_, status) = waitpid(child, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0), "round {round}: a fork was answered");
    }
}

fn file(url: &str) {
    let runtime = runtime();
    let locks = open(&runtime, url);
    let guard = hold(&runtime, &locks, "l");
    in_a_fork(|| {
        let own = self::runtime();
        let error = own.block_on(Locks::open(url)).unwrap_err().to_string();
        assert!(error.contains("is a fork of one that has it open"), "{error}");
        refused(&guard.ensure_valid(Duration::ZERO).unwrap_err().to_string());
        // Another file is no matter.
        let other = Path::new(url.strip_prefix("sqlite:").unwrap()).with_file_name("other.db");
        let locks = open(&own, &format!("sqlite:{}", other.display()));
        assert_eq!(own.block_on(hold(&own, &locks, "l").release()), ReleaseOutcome::Released);
    });
    runtime.block_on(guard.extend()).unwrap();
    assert_eq!(runtime.block_on(guard.release()), ReleaseOutcome::Released);
    drop(locks);
    eventually(SOON, "the file is closed", || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut names = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
        !names.any(|name| name.starts_with("leasehold-sqlit"))
    });
    in_a_fork(|| {
        let own = self::runtime();
        let locks = open(&own, url);
        assert_eq!(own.block_on(hold(&own, &locks, "l").release()), ReleaseOutcome::Released);
    });
}

fn drop_in_a_fork(url: &str) {
    let runtime = runtime();
    let locks = open(&runtime, url);
    let mut guard = Some(hold(&runtime, &locks, "l"));
    in_a_fork(|| drop(guard.take()));
    let guard = guard.expect("only the fork dropped it");
    let status = runtime.block_on(locks.inspect("l")).unwrap();
    let (owner, _) = status.owner().expect("it stands in the file");
    assert!(owner.is(guard.holder()), "{owner}");
    assert_eq!(runtime.block_on(guard.release()), ReleaseOutcome::Released);
}
