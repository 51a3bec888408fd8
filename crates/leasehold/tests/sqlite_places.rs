//! One file, several names: links that are turned, hard links, bind mounts, files that are replaced.
//! Each could make two worlds, in each of which the locks of the other are free.

#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod asking;
mod lock_file;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use asking::ask;
use leasehold::{Guard, Locks, ReleaseOutcome};
use leasehold_core::{NodeError, Reply, Request};
use leasehold_testkit::{Namespace, eventually};
use lock_file::{MINUTE, acquire, admitted, open, record, release, write_lock};

/// A holder would believe for as long, if nobody told it.
const LONG: Duration = Duration::from_secs(120);

/// Far above what it takes to be told, on a machine that is busy with other things.
const SOON: Duration = Duration::from_secs(20);

async fn locks(path: &Path) -> Locks {
    Locks::open(format!("sqlite:{}", path.display())).await.expect("the file can be opened")
}

async fn hold(locks: &Locks) -> Guard {
    locks.lock("l").ttl(LONG).acquire().await.expect("the lock is free")
}

/// A thread that wakes up as often as a node looks at its file, which is promised to notice within a
/// tenth of a second. What keeps it from its turn on a busy machine keeps the node from its own.
struct Neighbour {
    turns: Arc<AtomicU32>,
}

impl Neighbour {
    const EVERY: Duration = Duration::from_millis(100);
    /// One that is under way for each of the two, the node's own, and one for telling the holder.
    const TURNS: u32 = 4;

    fn start() -> Self {
        let turns = Arc::new(AtomicU32::new(0));
        let theirs = Arc::downgrade(&turns);
        thread::spawn(move || {
            while let Some(turns) = theirs.upgrade() {
                turns.fetch_add(1, Ordering::SeqCst);
                drop(turns);
                thread::sleep(Self::EVERY);
            }
        });
        Self { turns }
    }

    fn turns(&self) -> u32 {
        self.turns.load(Ordering::SeqCst)
    }
}

/// Waits until the holder is told of what was just done, and says what it was told.
async fn told_lost(guard: &Guard) -> String {
    let neighbour = Neighbour::start();
    let loss = tokio::time::timeout(SOON, guard.lost()).await.expect("the holder is told");
    let turns = neighbour.turns();
    assert!(turns <= Neighbour::TURNS, "after {turns} turns of a tenth of a second");
    assert!(guard.ensure_valid(Duration::ZERO).is_err(), "and no longer believes");
    loss.to_string()
}

/// A link that leads to `target`, in the place of the one before, as releases turn it.
fn turn(link: &Path, target: &str) {
    let fresh = link.with_extension("fresh");
    symlink(target, &fresh).unwrap();
    fs::rename(&fresh, link).unwrap();
}

fn rename_all(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::rename(name(from), name(to)).unwrap();
    }
}

#[tokio::test]
async fn a_link_to_the_folder_that_is_turned_ends_the_leases_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        fs::create_dir(folder.path().join(release)).unwrap();
    }
    let current = folder.path().join("current");
    turn(&current, "one");
    let path = current.join("locks.db");
    let old = locks(&path).await;
    let guard = hold(&old).await;
    turn(&current, "two");
    let newcomer = locks(&path).await;
    let second = hold(&newcomer).await;
    let told = told_lost(&guard).await;
    assert!(told.contains("no longer leads to") && told.contains("current/locks.db"), "{told}");
    let refused = old.lock("other").try_acquire().await.unwrap_err().to_string();
    assert!(refused.contains("restart every process"), "{refused}");
    second.ensure_valid(Duration::ZERO).expect("who has the new file is not concerned");
}

#[tokio::test]
async fn a_link_to_the_file_that_is_turned_ends_the_leases_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for release in ["one.db", "two.db"] {
        drop(open(&folder.path().join(release)).unwrap());
    }
    let path = folder.path().join("locks.db");
    turn(&path, "one.db");
    let locks = locks(&path).await;
    let guard = hold(&locks).await;
    turn(&path, "two.db");
    let told = told_lost(&guard).await;
    assert!(told.contains("no longer leads to"), "{told}");
    // Turned back, it is the same file as before, and new leases are as good as any.
    turn(&path, "one.db");
    let other = async || locks.lock("other").try_acquire().await;
    let end = Instant::now() + SOON;
    let guard = loop {
        match other().await {
            Ok(Some(guard)) => break guard,
            refused => assert!(Instant::now() < end, "{refused:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    guard.ensure_valid(Duration::ZERO).unwrap();
}

#[tokio::test]
async fn a_file_that_is_removed_or_replaced_ends_its_leases_at_once() {
    for is_replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let old = locks(&path).await;
        let guard = hold(&old).await;
        rename_all(&path, &folder.path().join("away.db"));
        let newcomer = if is_replaced { Some(locks(&path).await) } else { None };
        let told = told_lost(&guard).await;
        assert!(told.contains("locks.db was removed or replaced"), "{told}");
        if let Some(newcomer) = newcomer {
            hold(&newcomer).await.ensure_valid(Duration::ZERO).unwrap();
        }
    }
}

#[tokio::test]
async fn a_lease_that_was_given_back_ends_without_a_loss_when_its_file_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let locks = locks(&path).await;
    let guard = hold(&locks).await;
    let token = guard.cancellation_token();
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
    rename_all(&path, &folder.path().join("away.db"));
    let refused = async || locks.lock("l").try_acquire().await.is_err();
    let end = Instant::now() + SOON;
    while !refused().await {
        assert!(Instant::now() < end, "nobody noticed");
    }
    assert!(!token.is_cancelled(), "there was nothing left to lose");
}

#[test]
fn a_file_with_a_second_name_is_refused_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let second = folder.path().join("second.db");
    drop(admitted(&path));
    eventually(SOON, "the node closes its file", || !path.with_extension("db-wal").exists());
    fs::hard_link(&path, &second).unwrap();
    for name in [&path, &second] {
        let error = open(name).expect_err("a hard link").to_string();
        assert!(error.contains("has 2 names (hard links)"), "{error}");
        assert!(error.contains(&name.display().to_string()), "{error}");
    }
    fs::remove_file(&second).unwrap();
    open(&path).expect("the other name is gone");
}

#[test]
fn a_second_name_that_a_killed_process_left_while_it_made_the_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    drop(admitted(&path));
    let draft = folder.path().join(format!(".locks.db.{:032x}", 7));
    fs::hard_link(&path, &draft).unwrap();
    // Another file of that kind of name is somebody else's.
    let other = folder.path().join(format!(".locks.db.{:032x}", 8));
    fs::write(&other, "x").unwrap();
    open(&path).expect("the draft is no name that anybody opens");
    assert!(!draft.exists() && other.exists());
}

#[test]
fn a_file_that_was_replaced_between_its_opening_and_our_look_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    drop(admitted(&path));
    let blocker = write_lock(&path);
    // Whoever opens it now has something to write, and so stands between the two.
    blocker.execute_batch("UPDATE meta SET boot = 'before'; COMMIT; BEGIN IMMEDIATE").unwrap();
    let opener = child("open")
        .env("LOCK_FILE", &path)
        .env("SENTENCE", "was removed or replaced while it was opened")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let descriptors = PathBuf::from(format!("/proc/{}/fd", opener.id()));
    eventually(SOON, "SQLite opens the file and its journal", || {
        let Ok(open) = fs::read_dir(&descriptors) else { return false };
        let mut open = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        open.any(|file| file.ends_with("locks.db-shm"))
    });
    rename_all(&path, &folder.path().join("away.db"));
    let _newcomer = admitted(&path);
    blocker.execute_batch("COMMIT").unwrap();
    let output = opener.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_bind_mount_of_the_file_is_refused_and_one_of_its_folder_is_one_world() {
    if Namespace::Mounts.skip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [home, elsewhere] = ["home", "elsewhere"].map(|name| folder.path().join(name));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    let (path, mounted) = (home.join("locks.db"), elsewhere.join("locks.db"));
    let node = admitted(&path);
    assert_eq!(ask(&node, Some(&record()), acquire("l", 1, 200, MINUTE)), Ok(Reply::Granted));
    fs::write(&mounted, "").unwrap();
    let mount = format!("mount --bind {} {}", path.display(), mounted.display());
    let mut opener = child("open");
    opener.env("LOCK_FILE", &mounted).env("SENTENCE", "is a mount point of its own");
    succeeds(&mut Namespace::Mounts.enter(&mount, &opener));
    let left: Vec<_> = fs::read_dir(&elsewhere).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["locks.db"], "nothing is left behind");

    let mount = format!("mount --bind {} {}", home.display(), elsewhere.display());
    let mut asker = child("busy");
    asker.env("LOCK_FILE", &mounted);
    succeeds(&mut Namespace::Mounts.enter(&mount, &asker));
}

#[test]
fn a_mount_over_the_folder_of_an_open_file_is_noticed() {
    if Namespace::Mounts.skip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = child("mounted-over");
    child.env("LOCK_FILE", folder.path().join("locks.db"));
    succeeds(&mut Namespace::Mounts.enter("", &child));
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// This very program, to do `part` in a process of its own.
fn child(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_a_child", "--nocapture", "--test-threads=1"]);
    command.env("LEASEHOLD_CHILD", part);
    command
}

/// Nothing, unless it is a child that runs it.
#[test]
fn as_a_child() {
    let Ok(part) = std::env::var("LEASEHOLD_CHILD") else { return };
    let path = PathBuf::from(std::env::var_os("LOCK_FILE").unwrap());
    match part.as_str() {
        "open" => {
            let error = open(&path).expect_err("it must not open").to_string();
            println!("{error}");
            assert!(error.contains(&std::env::var("SENTENCE").unwrap()));
        }
        "busy" => {
            let node = open(&path).unwrap();
            let answer = ask(&node, Some(&record()), acquire("l", 2, 300, MINUTE));
            assert!(matches!(answer, Ok(Reply::Busy { .. })), "{answer:?}");
            let answer = ask(&node, None, release("l", 1));
            assert_eq!(answer, Ok(Reply::Released), "it is the same lock");
        }
        "mounted-over" => {
            let node = admitted(&path);
            let folder = path.parent().unwrap();
            succeeds(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(folder));
            let answer = ask(&node, None, Request::Probe);
            assert!(matches!(answer, Err(NodeError::Gone { .. })), "{answer:?}");
        }
        other => panic!("{other}"),
    }
}
