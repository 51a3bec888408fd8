//! What only a file can do wrong: many processes on it, processes that die, files that are not
//! ours, files that vanish, disks that are full. That it answers like the lock table is checked in
//! `agrees_with_model`.

#![cfg(feature = "sqlite")]

mod asking;
mod lock_file;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use asking::{ask, send};
use leasehold::clock::{Clock, SystemClock};
use leasehold::node::{Ask, Node, ReplyTo};
use leasehold::nodes::sqlite::SqliteNode;
use leasehold_core::{Answer, NodeError, Owner, Reply, Request};
use lock_file::{MINUTE, acquire, admitted, name, open, record, release, write_lock};

/// Far above what any request takes, far below what a starved one would.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

fn rejected(answer: Answer) -> String {
    match answer {
        Err(NodeError::Rejected { reason } | NodeError::Gone { reason }) => reason,
        other => panic!("expected to be rejected, got {other:?}"),
    }
}

/// What one of many did.
#[derive(Default)]
struct Tale {
    cycles: u64,
    asks: Vec<Duration>,
}

/// Takes and gives back `lock` for `time`. Inside, it makes a file that must not exist and appends
/// its fence to the log: so the log is in the order in which the lock was held.
fn hammer(path: &Path, lock: &str, time: Duration, alone: bool) -> Tale {
    let folder = path.parent().unwrap();
    let (inside, log) = (folder.join("inside"), folder.join("log"));
    let node = open(path).unwrap();
    let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    let (record, end, mut tale, mut seen) = (record(), Instant::now() + time, Tale::default(), 0);
    let timed = |tale: &mut Tale, request| {
        let begun = Instant::now();
        let answer = ask(&node, Some(&record), request).expect("no request fails");
        tale.asks.push(begun.elapsed());
        answer
    };
    while Instant::now() < end {
        let nonce = u128::from(getrandom::u64().unwrap());
        let proposal = SystemClock.wall().0.max(seen + 1);
        match timed(&mut tale, acquire(lock, nonce, proposal, MINUTE)) {
            Reply::Granted => {
                seen = proposal;
                tale.cycles += 1;
                if !alone {
                    let made = OpenOptions::new().write(true).create_new(true).open(&inside);
                    made.expect("nobody else is inside");
                    writeln!(log, "{proposal}").unwrap();
                    fs::remove_file(&inside).unwrap();
                }
                assert_eq!(timed(&mut tale, release(lock, nonce)), Reply::Released);
            }
            Reply::Busy { fence, .. } | Reply::Behind { fence } => seen = seen.max(fence.get()),
            other => panic!("{other:?}"),
        }
    }
    tale
}

fn check_log(folder: &Path) {
    let log = fs::read_to_string(folder.join("log")).unwrap();
    let fences: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(fences.len() > 20, "only {} cycles", fences.len());
    for pair in fences.windows(2) {
        assert!(pair[0] < pair[1], "fence {} was followed by {}", pair[0], pair[1]);
    }
}

fn check_waits(what: &str, tales: &mut [Tale]) {
    let cycles: Vec<f64> = tales.iter().map(|tale| tale.cycles as f64).collect();
    let sum: f64 = cycles.iter().sum();
    let jain = sum * sum / (cycles.len() as f64 * cycles.iter().map(|c| c * c).sum::<f64>());
    let mut asks: Vec<Duration> = tales.iter_mut().flat_map(|tale| tale.asks.drain(..)).collect();
    asks.sort_unstable();
    let at = |share: usize| asks[(asks.len() - 1) * share / 1000];
    println!(
        "{what}: {sum} cycles, {} asks, p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}, Jain {jain:.3}",
        asks.len(),
        at(500),
        at(990),
        at(999),
        at(1000),
    );
    assert!(at(1000) < LONGEST_WAIT, "an answer took {:?}", at(1000));
}

#[test]
fn many_nodes_of_one_process_never_own_together_and_fences_only_rise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let _first = admitted(&path);
    let mut tales: Vec<Tale> = thread::scope(|scope| {
        let start = |_| scope.spawn(|| hammer(&path, "one", Duration::from_millis(1000), false));
        let threads: Vec<_> = (0..4).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    check_log(folder.path());
    check_waits("4 nodes in one process, one lock", &mut tales);
}

#[test]
fn many_processes_never_own_together_and_fences_only_rise() {
    let mut tales = hammer_by_processes("shared");
    check_waits("8 processes, one lock", &mut tales);
}

#[test]
fn no_process_is_starved_by_others_that_hammer_the_file() {
    let mut tales = hammer_by_processes("own");
    check_waits("8 processes, a lock each", &mut tales);
    let (least, most) =
        (tales.iter().map(|t| t.cycles).min(), tales.iter().map(|t| t.cycles).max());
    println!("cycles of a process: {least:?} to {most:?}");
    assert!(least > Some(0), "one process never had its turn");
}

fn hammer_by_processes(locks: &str) -> Vec<Tale> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let first = admitted(&path);
    drop(first);
    let start = |n: usize| {
        let lock = if locks == "own" { format!("own-{n}") } else { "one".to_owned() };
        child("hammer").env("LOCK_FILE", &path).env("LOCK", lock).stdout(Stdio::piped()).spawn()
    };
    let children: Vec<Child> = (0..8).map(|n| start(n).unwrap()).collect();
    let mut tales = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "a process failed: {text}");
        let line = text.lines().find_map(|line| Some(line.split_once("asks ")?.1)).expect(&text);
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let cycles = numbers.next().unwrap();
        let asks: Vec<_> = numbers.map(Duration::from_nanos).collect();
        tales.push(Tale { cycles, asks });
    }
    if locks != "own" {
        check_log(folder.path());
    }
    tales
}

#[test]
fn two_processes_that_make_the_file_together_share_one() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/locks.db");
        let nodes: Vec<SqliteNode> = thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| open(&path).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut written = 0;
        for node in &nodes {
            let write = Request::ReplaceRecord { expected: None, record: record().into() };
            if ask(node, None, write) == Ok(Reply::Record { replaced: true }) {
                written += 1;
            }
        }
        assert_eq!(written, 1, "there is one record in one file");
        let mut files: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files, ["locks.db", "locks.db-shm", "locks.db-wal"], "no drafts are left");
    }
}

#[test]
fn a_killed_process_leaves_a_sound_file_and_its_lock_expires() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let (record, ttl) = (record(), Duration::from_millis(300));
    let mut was_held = 0;
    for round in 0..12 {
        let mut victim =
            child("hold").env("LOCK_FILE", &path).stdout(Stdio::null()).spawn().unwrap();
        // Some are killed while they start, most in the middle of a transaction.
        thread::sleep(Duration::from_millis(20 + 9 * round));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let killed = Instant::now();
        loop {
            let proposal = SystemClock.wall().0;
            let request = acquire("one", 1, proposal, ttl);
            match ask(&node, Some(&record), request).expect("the file is usable") {
                Reply::Granted => break,
                Reply::Busy { owner: Owner::Holder(_), expires_in: Some(left), .. } => {
                    was_held += 1;
                    assert!(left <= ttl);
                    thread::sleep(left);
                }
                Reply::Behind { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(killed.elapsed() < ttl + Duration::from_millis(500), "{:?}", killed.elapsed());
        assert_eq!(ask(&node, None, release("one", 1)), Ok(Reply::Released));
    }
    println!("found the lock of a dead process in {was_held} looks");
    assert!(was_held > 0, "no process was killed while it held the lock");
    drop(node);
    let check = rusqlite::Connection::open(&path).unwrap();
    let verdict: String = check.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

#[test]
fn a_dropped_node_still_carries_out_what_it_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let answers: Vec<_> = (0..200_u64)
        .map(|n| {
            let request = acquire(&format!("l{n}"), 1, 200, MINUTE);
            send(&node, Some(&record()), request, Duration::from_secs(5))
        })
        .collect();
    let asked = |request| Ask::new(Arc::new(request), None, ReplyTo::nobody(), Duration::ZERO);
    node.ask(asked(release("l0", 1)));
    drop(node);
    for answer in answers {
        assert_eq!(answer.recv_timeout(Duration::from_secs(5)).unwrap(), Ok(Reply::Granted));
    }
    // The last connection removes the journal: that the thread ended can be seen.
    let end = Instant::now() + Duration::from_secs(5);
    while folder.path().join("locks.db-wal").exists() {
        assert!(Instant::now() < end, "the thread goes on");
        thread::sleep(Duration::from_millis(5));
    }
    let again = open(&path).unwrap();
    let Ok(Reply::Locks(locks)) = ask(&again, None, Request::List { prefix: "l".into() }) else {
        panic!("a list is answered with locks")
    };
    assert_eq!(locks.len(), 199, "the release was carried out, though its limit was over");
}

#[test]
fn a_request_gives_up_at_its_limit_and_ask_never_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let blocker = write_lock(&path);
    let begun = Instant::now();
    let limit = Duration::from_millis(100);
    let first = send(&node, Some(&record()), acquire("a", 1, 200, MINUTE), limit);
    let second = send(&node, Some(&record()), acquire("b", 1, 200, MINUTE), limit / 2);
    let last = send(&node, None, release("a", 1), limit);
    assert!(begun.elapsed() < limit, "asking took {:?}", begun.elapsed());
    let reason = rejected(first.recv().unwrap());
    assert!(reason.contains("other processes kept the lock file busy"), "{reason}");
    assert!((limit..10 * limit).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(second.recv().unwrap(), Err(NodeError::TimedOut { after: limit / 2 }));
    drop(blocker);
    let released = last.recv().unwrap();
    assert_eq!(released, Ok(Reply::NotHeld { owner: None }), "a release outlives its limit");
    for lock in ["a", "b"] {
        let Ok(Reply::Seen(seen)) = ask(&node, None, Request::Inspect { lock: name(lock) }) else {
            panic!("an inspection is answered with a sighting")
        };
        assert_eq!((seen.owner, seen.fence), (None, None), "{lock} was not carried out later");
    }
}

#[test]
fn too_many_requests_are_refused_and_releases_have_room_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let blocker = write_lock(&path);
    let limit = Duration::from_secs(5);
    let answers: Vec<_> = (0..5000)
        .map(|_| send(&node, Some(&record()), acquire("a", 1, 200, MINUTE), limit))
        .collect();
    let freed = send(&node, None, release("b", 1), limit);
    drop(blocker);
    let answers = answers.into_iter().map(|answer| answer.recv().unwrap());
    let overloaded = answers.filter(|a| matches!(a, Err(NodeError::Overloaded { .. }))).count();
    assert!((800..=904).contains(&overloaded), "{overloaded}");
    assert_eq!(freed.recv().unwrap(), Ok(Reply::NotHeld { owner: None }));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_file_is_for_its_user_only_and_existing_modes_stay() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("deep/data");
    let path = data.join("locks.db");
    let node = admitted(&path);
    assert_eq!(node.id().as_str(), format!("sqlite:{}", path.display()));
    for new in [folder.path().join("deep"), data.clone()] {
        assert_eq!(mode(&new), 0o700, "{}", new.display());
    }
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    drop(node);
    wait_until_closed(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o750)).unwrap();
    let _node = open(&path).unwrap();
    assert_eq!((mode(&path), mode(&data)), (0o660, 0o750));
}

fn wait_until_closed(path: &Path) {
    let end = Instant::now() + Duration::from_secs(5);
    while path.with_file_name("locks.db-wal").exists() {
        assert!(Instant::now() < end, "the node does not close its file");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A lock file at rest.
fn closed_file(folder: &Path) -> PathBuf {
    let path = folder.join("locks.db");
    let node = admitted(&path);
    ask(&node, Some(&record()), acquire("a", 1, 200, MINUTE)).unwrap();
    drop(node);
    wait_until_closed(&path);
    path
}

/// All files of a folder with their content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[test]
fn a_file_that_is_not_ours_is_refused_with_a_sentence_and_left_as_it_is() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil); 10] = [
        ("is not a SQLite database", |path| fs::write(path, "hello").unwrap()),
        ("is not a SQLite database", |path| fs::write(path, vec![b'x'; 20_000]).unwrap()),
        ("is empty", |path| fs::write(path, "").unwrap()),
        ("knows up to 1; upgrade Leasehold", |path| patch(path, FORMAT_AT, &2_u32.to_be_bytes())),
        ("another application", |path| patch(path, APPLICATION_AT, &7_u32.to_be_bytes())),
        ("another application", |path| {
            fs::remove_file(path).unwrap();
            let other = rusqlite::Connection::open(path).unwrap();
            other.execute_batch("CREATE TABLE notes (text); INSERT INTO notes VALUES (1)").unwrap();
        }),
        ("another application", |path| {
            // Of a program that was killed: half of its data is in the journal.
            fs::remove_file(path).unwrap();
            let live = path.with_file_name("live");
            let other = rusqlite::Connection::open(&live).unwrap();
            let sql = "PRAGMA journal_mode = wal; CREATE TABLE notes (text);";
            other.execute_batch(sql).unwrap();
            fs::copy(&live, path).unwrap();
            fs::copy(path.with_file_name("live-wal"), path.with_file_name("locks.db-wal")).unwrap();
        }),
        ("is damaged", |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1024).unwrap();
        }),
        ("is damaged", |path| patch(path, 100, &[0xff; 2000])),
        ("is damaged", |path| {
            // And a process was killed before: its last words are in the journal.
            let wal = path.with_file_name("locks.db-wal");
            let node = open(path).unwrap();
            ask(&node, Some(&record()), acquire("b", 1, 200, MINUTE)).unwrap();
            let kept = [path, &wal].map(|file| (file.to_owned(), fs::read(file).unwrap()));
            drop(node);
            wait_until_closed(path);
            for (file, bytes) in kept {
                fs::write(file, bytes).unwrap();
            }
            patch(path, 100, &[0xff; 2000]);
        }),
    ];
    for (sentence, spoil) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = closed_file(folder.path());
        spoil(&path);
        let before = content(folder.path());
        let error = open(&path).expect_err(sentence).to_string();
        assert!(error.contains(sentence), "{error}");
        assert!(error.contains("locks.db"), "it names the file: {error}");
        println!("{error}");
        let after = content(folder.path());
        for (file, bytes) in &before {
            assert!(after.get(file) == Some(bytes), "{sentence}: {} changed", file.display());
        }
        if !sentence.contains("damaged") {
            assert_eq!(before.len(), after.len(), "{sentence}: nothing is left behind");
        }
    }
}

/// Where SQLite's header has its `user_version`.
const FORMAT_AT: u64 = 60;
/// Where SQLite's header has its `application_id`.
const APPLICATION_AT: u64 = 68;

fn patch(path: &Path, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_place_where_no_file_can_be_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    for (path, sentence) in [
        (folder.path().to_owned(), "is not a regular file"),
        ("/dev/null".into(), "is not a regular file"),
        ("/".into(), "is not a regular file"),
        (file.join("below/locks.db"), "Not a directory"),
        ("/proc/self/locks.db".into(), "cannot create the lock file"),
        ("/proc/nowhere/locks.db".into(), "cannot create the folder"),
        (folder.path().join("n".repeat(300)), "File name too long"),
    ] {
        let error = open(&path).expect_err(sentence).to_string();
        assert!(error.contains(sentence), "{error}");
        println!("{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

#[test]
fn names_that_mean_something_to_sqlite_are_only_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in [":memory:", "file:x?mode=memory", "a b%20#c?d", "ä"] {
        // By a relative path, which needs a process with another working directory.
        let made =
            child("make").current_dir(folder.path()).env("LOCK_FILE", name).output().unwrap();
        assert!(made.status.success(), "{name}: {}", String::from_utf8_lossy(&made.stdout));
        let path = folder.path().join(name);
        assert!(path.is_file(), "{name}");
        open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_file_that_this_user_may_not_write_is_a_sentence() {
    // Not in $TMPDIR, which another user may be unable to enter.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let path = closed_file(folder.path());
    let before = fs::read(&path).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    for (file, sentence) in [("locks.db", "must be able to write"), ("new.db", "must be writable")]
    {
        let mut opener = child("open");
        opener.env("LOCK_FILE", path.with_file_name(file)).env("SENTENCE", sentence);
        if rustix::process::getuid().is_root() {
            // Root may write everything.
            opener.uid(65534).gid(65534);
        }
        match opener.output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{text}");
            }
            // The test program itself may be out of reach for that user.
            Err(error) => println!("skipped: {error}"),
        }
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_full_disk_is_a_sentence_and_what_was_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed_file(folder.path());
    // A limit on the size of files, as a full disk that needs no rights to be set up. The signal
    // that comes with it is ignored by the shell, and so by what the shell becomes.
    let filler = child("fill");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\""]);
    shell.arg(filler.get_program()).args(filler.get_args());
    shell.env("LEASEHOLD_CHILD", "fill").env("LOCK_FILE", &path);
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let granted: usize =
        text.lines().find_map(|line| line.split_once("granted ")?.1.parse().ok()).unwrap();
    println!("{text}");
    let node = open(&path).unwrap();
    let Ok(Reply::Locks(locks)) = ask(&node, None, Request::List { prefix: "fill".into() }) else {
        panic!("a list is answered with locks")
    };
    assert_eq!(locks.len(), granted, "what was granted is there, what was refused is not");
}

#[test]
fn a_file_that_was_removed_or_replaced_grants_nothing_any_more() {
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let old = admitted(&path);
        let removed = folder.path().join(file);
        fs::rename(&removed, folder.path().join("away")).unwrap();
        let reason = rejected(ask(&old, None, Request::Probe));
        assert!(reason.contains("was removed or replaced"), "{reason}");
        thread::sleep(Duration::from_millis(110));
        for request in [acquire("a", 1, 200, MINUTE), release("a", 1)] {
            rejected(ask(&old, Some(&record()), request));
        }
        // Put back, it is the same file as before.
        fs::rename(folder.path().join("away"), &removed).unwrap();
        assert_eq!(
            ask(&old, Some(&record()), acquire("a", 1, 200, MINUTE)),
            Ok(Reply::Granted),
            "{file}"
        );
    }
}

#[test]
fn a_node_whose_file_was_replaced_does_not_harm_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let old = admitted(&path);
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let new = admitted(&path);
    drop(old);
    // The old one would remove the new one's journal if it tidied up.
    thread::sleep(Duration::from_millis(200));
    assert!(path.with_file_name("locks.db-wal").exists());
    assert_eq!(ask(&new, Some(&record()), acquire("a", 1, 200, MINUTE)), Ok(Reply::Granted));
    let newer = open(&path).unwrap();
    let busy = ask(&newer, Some(&record()), acquire("a", 2, 300, MINUTE));
    assert!(matches!(busy, Ok(Reply::Busy { .. })), "one world: {busy:?}");
}

#[test]
fn a_node_whose_journal_was_removed_leaves_that_of_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed_file(folder.path());
    let old = open(&path).unwrap();
    ask(&old, Some(&record()), acquire("old", 1, 200, MINUTE)).unwrap();
    for file in ["locks.db-wal", "locks.db-shm"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let other = child("take").env("LOCK_FILE", &path).output().unwrap();
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stdout));
    drop(old);
    thread::sleep(Duration::from_millis(200));
    let new = open(&path).unwrap();
    let busy = ask(&new, Some(&record()), acquire("taken", 2, 300, MINUTE));
    assert!(matches!(busy, Ok(Reply::Busy { .. })), "what the other took was lost: {busy:?}");
}

#[test]
fn damage_while_running_is_answered_in_sqlites_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed_file(folder.path());
    let node = open(&path).unwrap();
    // Behind its back, the table is taken away.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("DROP TABLE locks").unwrap();
    let reason = rejected(ask(&node, Some(&record()), acquire("b", 1, 200, MINUTE)));
    assert!(reason.contains("no such table: locks"), "{reason}");
    // Or is full of what is not ours.
    other.execute_batch("CREATE TABLE locks (name, owner, expires, ttl, fence)").unwrap();
    other.execute_batch("INSERT INTO locks VALUES ('b', 'x', 9000000000000000000, 1, -5)").unwrap();
    for request in [Request::Inspect { lock: name("b") }, Request::List { prefix: "b".into() }] {
        let reason = rejected(ask(&node, None, request));
        assert!(reason.starts_with("SQLite: "), "{reason}");
    }
}

#[test]
fn a_probe_tells_the_boot_and_that_the_last_writes_may_be_lost_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = admitted(&folder.path().join("locks.db"));
    let Ok(Reply::Facts(facts)) = ask(&node, None, Request::Probe) else {
        panic!("a probe is answered with facts")
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    assert_eq!(facts.server.run_id, boot.trim());
    assert!(facts.server.version.starts_with("sqlite 3."), "{}", facts.server.version);
    assert_eq!((facts.server.persists, facts.server.evicts), (true, None));
    assert_eq!((facts.generation, *node.generation().borrow()), (1, 1));
    assert_eq!(facts.record, Some(record()));
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
        "hammer" => {
            let lock = std::env::var("LOCK").unwrap();
            let alone = lock.starts_with("own");
            let tale = hammer(&path, &lock, Duration::from_millis(1500), alone);
            let asks: Vec<_> = tale.asks.iter().map(|ask| ask.as_nanos().to_string()).collect();
            println!("\nasks {} {}", tale.cycles, asks.join(" "));
        }
        "hold" => hold(&path),
        "open" => {
            let error = open(&path).expect_err("it must not open").to_string();
            println!("{error}");
            assert!(error.contains(&std::env::var("SENTENCE").unwrap()));
        }
        "fill" => fill(&path),
        "take" => {
            let taken =
                ask(&open(&path).unwrap(), Some(&record()), acquire("taken", 1, 200, MINUTE));
            assert_eq!(taken, Ok(Reply::Granted));
        }
        "make" => drop(admitted(&path)),
        other => panic!("{other}"),
    }
}

/// Takes and gives back until it is killed.
fn hold(path: &Path) {
    let (node, record) = (open(path).unwrap(), record());
    for nonce in 2.. {
        let proposal = SystemClock.wall().0;
        let request = acquire("one", nonce, proposal, Duration::from_millis(300));
        if ask(&node, Some(&record), request) == Ok(Reply::Granted) && nonce % 3 != 0 {
            ask(&node, None, release("one", nonce)).unwrap();
        }
    }
}

/// Takes locks until there is no room for more.
fn fill(path: &Path) {
    let (node, record) = (open(path).unwrap(), record());
    let mut granted = 0;
    let reason = loop {
        let lock = format!("fill{granted}{}", "x".repeat(400));
        match ask(&node, Some(&record), acquire(&lock, 1, 200, MINUTE)) {
            Ok(Reply::Granted) => granted += 1,
            other => break rejected(other),
        }
        assert!(granted < 100_000, "the disk is never full");
    };
    println!("\n{reason}\ngranted {granted}");
    assert!(reason.contains("SQLite: ") && reason.contains("disk"), "{reason}");
    let seen = ask(&node, None, Request::List { prefix: "fill".into() });
    assert!(matches!(seen, Ok(Reply::Locks(_))), "reading goes on: {seen:?}");
}
