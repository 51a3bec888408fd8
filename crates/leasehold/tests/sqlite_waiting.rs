//! What callers of a lock file meet: their requests are carried out in the order of the calls, nobody
//! is kept by a file that is busy, and who waits for a lock is told when it is free.
//!
//! Several nodes in one process are to each other like those of several processes.

#![cfg(all(feature = "sqlite", target_os = "linux"))]

mod asking;
mod lock_file;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use asking::{ask, send};
use leasehold::node::{InLine, Node, Place, Ticket, Watch, Watched};
use leasehold::nodes::sqlite::SqliteNode;
use leasehold_core::{Reply, Request};
use leasehold_testkit::eventually;
use lock_file::{MINUTE, acquire, admitted, name, open, record, release, write_lock};

/// Far above what anything here takes on a machine that is busy with other things.
const SOON: Duration = Duration::from_secs(20);

fn granted(node: &SqliteNode, lock: &str, nonce: u128, proposal: u64) {
    let request = acquire(lock, nonce, proposal, MINUTE);
    assert_eq!(ask(node, Some(&record()), request), Ok(Reply::Granted));
}

fn released(node: &SqliteNode, lock: &str, nonce: u128) {
    assert_eq!(ask(node, None, release(lock, nonce)), Ok(Reply::Released));
}

/// Something to tell, and where what is told arrives.
fn listener<T: Send + 'static>() -> (Box<dyn Fn(T) + Send + Sync>, Receiver<T>) {
    let (sender, words) = channel();
    let sender = Mutex::new(sender);
    let told = move |word| {
        // Nobody listens any more at the end of a test.
        let _ = sender.lock().unwrap().send(word);
    };
    (Box::new(told), words)
}

/// One who stands in line, and what it is told.
struct Waiter {
    place: Box<dyn Place>,
    words: Receiver<InLine>,
}

impl Waiter {
    fn stand(node: &SqliteNode, lock: &str) -> Self {
        let (told, words) = listener();
        let place = node.stand_in_line(&name(lock), None, told).expect("the file keeps lines");
        Self { place, words }
    }

    fn word(&self) -> InLine {
        self.words.recv_timeout(SOON).expect("it is told")
    }

    fn is_behind(&self) -> bool {
        matches!(self.word(), InLine::Behind(_))
    }

    /// How many are behind it, as it is told that it is first.
    fn others(&self) -> usize {
        match self.word() {
            InLine::First { others, .. } => others,
            word => panic!("{word:?}"),
        }
    }
}

fn watch(node: &SqliteNode, lock: &str) -> (Watch, Receiver<Watched>) {
    let (told, words) = listener();
    (node.watch(&name(lock), told).expect("the file gives hints"), words)
}

/// So many stand in line, as the file has it.
fn expect_in_line(path: &Path, wanted: u32) {
    let file = rusqlite::Connection::open(path).unwrap();
    let count =
        || file.query_row("SELECT count(*) FROM line", [], |row| row.get::<_, u32>(0)).unwrap();
    eventually(SOON, &format!("{wanted} stand in line"), || wanted == count());
}

#[test]
fn what_nobody_is_in_the_way_of_is_answered_when_asking_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (node, record) = (admitted(&folder.path().join("locks.db")), record());
    for round in 0..50 {
        let taken = send(&node, Some(&record), acquire("one", 1, 200 + round, MINUTE), SOON);
        assert_eq!(taken.try_recv(), Ok(Ok(Reply::Granted)));
        let given = send(&node, None, release("one", 1), SOON);
        assert_eq!(given.try_recv(), Ok(Ok(Reply::Released)));
    }
}

/// Also if the test fails: the other thread has to end.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn no_request_overtakes_another_whoever_carries_it_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (node, record) = (admitted(&path), record());
    let is_over = AtomicBool::new(false);
    let (is_over, path) = (&is_over, &path);
    let (mut at_once, mut later) = (0, 0);
    thread::scope(|scope| {
        let _end = AtEnd(|| is_over.store(true, Ordering::Relaxed));
        // Gets in the way of every other request or so.
        scope.spawn(|| {
            let other = rusqlite::Connection::open(path).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                if other.execute_batch("BEGIN IMMEDIATE").is_ok() {
                    thread::sleep(Duration::from_micros(300));
                    other.execute_batch("COMMIT").unwrap();
                }
                thread::sleep(Duration::from_micros(300));
            }
        });
        let end = Instant::now() + SOON;
        while at_once < 300 || later < 300 {
            assert!(Instant::now() < end, "{at_once} at once, {later} later");
            let pairs: Vec<_> = (0..10)
                .map(|n| {
                    let (lock, proposal) = (format!("l{n}"), 1000 + at_once + later);
                    let taken =
                        send(&node, Some(&record), acquire(&lock, 1, proposal, MINUTE), SOON);
                    let answer = taken.try_recv().ok();
                    let given = send(&node, None, release(&lock, 1), SOON);
                    (answer, taken, given)
                })
                .collect();
            for (answer, taken, given) in pairs {
                *(if answer.is_some() { &mut at_once } else { &mut later }) += 1;
                let answer = answer.unwrap_or_else(|| taken.recv_timeout(SOON).unwrap());
                assert_eq!(answer, Ok(Reply::Granted));
                let given = given.recv_timeout(SOON).unwrap();
                assert_eq!(given, Ok(Reply::Released), "after {at_once} at once, {later} later");
            }
        }
    });
    println!("{at_once} were answered at once, {later} were not");
}

#[test]
fn nobody_is_kept_by_a_file_that_another_process_has_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    granted(&node, "held", 1, 200);
    let mut blocker = Peer::start("block", &path);
    blocker.expect("blocks");
    let begun = Instant::now();
    let wants = |request| send(&node, Some(&record()), request, SOON);
    let taken = wants(acquire("a", 1, 200, MINUTE));
    let given = send(&node, None, release("held", 1), SOON);
    let raised = wants(Request::ReplaceRecord { expected: None, record: record().into() });
    let probed = wants(Request::Probe);
    let waiter = Waiter::stand(&node, "held");
    drop(waiter.place);
    let asking = begun.elapsed();
    assert!(taken.try_recv().is_err() && given.try_recv().is_err(), "the file is not locked");
    // It lets go when it is told to, and not before.
    assert!(asking < Duration::from_secs(5), "asking took {asking:?}");
    blocker.say("go");
    blocker.expect("done");
    assert_eq!(taken.recv_timeout(SOON).unwrap(), Ok(Reply::Granted));
    // A release waits for a quarter of a second, which may be over.
    let given = given.recv_timeout(SOON).unwrap();
    assert!(matches!(given, Ok(Reply::Released) | Err(_)), "{given:?}");
    assert_eq!(raised.recv_timeout(SOON).unwrap(), Ok(Reply::Record { replaced: false }));
    assert!(matches!(probed.recv_timeout(SOON).unwrap(), Ok(Reply::Facts(_))));
}

#[test]
fn the_release_of_another_process_tells_the_first_in_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let mut holder = Peer::start("hold", &path);
    holder.expect("holds");
    let waiter = Waiter::stand(&node, "one");
    assert_eq!(waiter.others(), 0);
    let (_watch, words) = watch(&node, "one");
    // There is nothing in this test that looks at the file again: only a word can end the wait.
    assert_eq!(words.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
    holder.say("go");
    assert_eq!(words.recv_timeout(SOON), Ok(Watched::Free));
    holder.expect("released");
    granted(&node, "one", 9, u64::MAX >> 12);
}

#[test]
fn a_lock_that_is_free_already_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let node = admitted(&folder.path().join("locks.db"));
    let waiter = Waiter::stand(&node, "one");
    assert_eq!(waiter.others(), 0);
    let (_watch, words) = watch(&node, "one");
    assert_eq!(words.recv_timeout(SOON), Ok(Watched::Free));
}

#[test]
fn a_watch_of_nobody_in_line_is_told_too_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (holder, node) = (admitted(&path), open(&path).unwrap());
    granted(&holder, "one", 1, 200);
    let (over, _) = watch(&node, "one");
    let (watch, words) = watch(&node, "one");
    expect_in_line(&path, 2);
    drop(over);
    expect_in_line(&path, 1);
    released(&holder, "one", 1);
    assert_eq!(words.recv_timeout(SOON), Ok(Watched::Free));
    drop(watch);
    expect_in_line(&path, 0);
}

#[test]
fn who_leaves_tells_the_next_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let nodes = [admitted(&path), open(&path).unwrap(), open(&path).unwrap()];
    let [first, second, third] = nodes.each_ref().map(|node| {
        let waiter = Waiter::stand(node, "one");
        (waiter.word(), waiter)
    });
    assert!(matches!(first.0, InLine::First { others: 0, .. }), "{:?}", first.0);
    assert!(matches!((second.0, third.0), (InLine::Behind(a), InLine::Behind(b)) if a < b));
    expect_in_line(&path, 3);
    let other = Waiter::stand(&nodes[0], "another");
    assert_eq!(other.others(), 0, "each lock has its own line");
    // One from the middle leaves: nothing changes for the others.
    drop(second.1);
    drop(first.1);
    assert_eq!(third.1.others(), 0);
    drop(third.1);
    drop(other);
    expect_in_line(&path, 0);
}

#[test]
fn a_long_line_moves_up_by_words_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (node, other) = (admitted(&path), open(&path).unwrap());
    let nodes = [&node, &other].into_iter().cycle();
    let waiters: Vec<_> = nodes.take(200).map(|node| Waiter::stand(node, "one")).collect();
    let begun = Instant::now();
    for waiter in waiters {
        while !matches!(waiter.word(), InLine::First { .. }) {}
        // Each process also looks once a second, which alone would take a hundred seconds.
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    expect_in_line(&path, 0);
}

#[test]
fn a_ticket_of_before_keeps_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (node, other) = (admitted(&path), open(&path).unwrap());
    let _first = Waiter::stand(&node, "one");
    let late = Waiter::stand(&other, "one");
    assert!(late.is_behind());
    let (told, words) = listener();
    let _place = node.stand_in_line(&name("one"), Some(Ticket(7)), told).unwrap();
    let word = words.recv_timeout(SOON).unwrap();
    assert_eq!(word, InLine::First { ticket: Ticket(7), others: 2 });
}

#[test]
fn a_holder_learns_with_its_release_that_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (node, other) = (admitted(&path), open(&path).unwrap());
    let nudges = Arc::new(Mutex::new(Vec::new()));
    let heard = nudges.clone();
    node.on_nudge(Box::new(move |lock| heard.lock().unwrap().push(lock.as_str().to_owned())));
    let waiter = Waiter::stand(&other, "one");
    assert_eq!(waiter.others(), 0);
    for lock in ["two", "one"] {
        granted(&node, lock, 1, 200);
        released(&node, lock, 1);
    }
    drop(waiter);
    granted(&node, "one", 1, 300);
    released(&node, "one", 1);
    assert_eq!(*nudges.lock().unwrap(), ["one"]);
}

#[test]
fn those_behind_one_that_was_killed_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (holder, node) = (admitted(&path), open(&path).unwrap());
    granted(&holder, "one", 1, 200);
    let mut victim = Peer::start("stand", &path);
    victim.expect("first");
    let waiter = Waiter::stand(&node, "one");
    assert!(waiter.is_behind());
    drop(victim);
    expect_in_line(&path, 2);
    released(&holder, "one", 1);
    // Nobody waits for the three seconds that a silent one is given.
    let word = waiter.words.recv_timeout(Duration::from_secs(2));
    assert!(matches!(word, Ok(InLine::First { others: 0, .. })), "{word:?}");
    expect_in_line(&path, 1);
    let (_watch, words) = watch(&node, "one");
    assert_eq!(words.recv_timeout(SOON), Ok(Watched::Free));
}

#[test]
fn those_behind_one_that_is_stopped_go_on_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let mut sleeper = Peer::start("stand", &path);
    sleeper.expect("first");
    let waiter = Waiter::stand(&node, "one");
    assert!(waiter.is_behind());
    sleeper.stop();
    assert_eq!(waiter.others(), 0);
    expect_in_line(&path, 1);
}

#[test]
fn who_left_before_it_could_enter_is_not_in_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let node = admitted(&path);
    let mut blocker = Peer::start("block", &path);
    blocker.expect("blocks");
    let waiter = Waiter::stand(&node, "one");
    drop(waiter.place);
    blocker.say("go");
    blocker.expect("done");
    ask(&node, None, Request::Probe).unwrap();
    expect_in_line(&path, 0);
}

#[test]
fn a_node_closes_its_file_also_if_somebody_leaves_the_line_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    drop(admitted(&path));
    for round in 0..100 {
        let node = open(&path).unwrap();
        let places: Vec<_> = (0..20).map(|_| Waiter::stand(&node, "one").place).collect();
        thread::scope(|scope| {
            scope.spawn(|| drop(places));
            thread::sleep(Duration::from_micros(10 * round));
            drop(node);
        });
        // The last one to close the file removes its journal.
        let journal = path.with_file_name("locks.db-wal");
        eventually(SOON, "the file is closed", || !journal.exists());
    }
}

#[test]
fn a_file_from_before_there_were_lines_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    drop(admitted(&path));
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE line").unwrap();
    let node = open(&path).unwrap();
    assert_eq!(Waiter::stand(&node, "one").others(), 0);
    granted(&node, "one", 1, 200);
    released(&node, "one", 1);
}

/// Another process, which does one thing and says how far it is.
struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// This very program, to do `part` in a process of its own.
    fn start(part: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "as_a_child", "--nocapture", "--test-threads=1"])
            .env("LEASEHOLD_CHILD", part)
            .env("LOCK_FILE", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn expect(&mut self, word: &str) {
        let mut lines = self.output.by_ref().lines().map(|line| line.unwrap());
        assert!(lines.any(|line| line == word), "it ended without `{word}`");
    }

    fn say(&mut self, word: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing, unless it is a child that runs it.
#[test]
fn as_a_child() {
    let Ok(part) = std::env::var("LEASEHOLD_CHILD") else { return };
    let path = PathBuf::from(std::env::var_os("LOCK_FILE").unwrap());
    // Not for ever: a test that fails does not say a word.
    let told = || {
        let (sender, words) = channel();
        thread::spawn(move || sender.send(std::io::stdin().lock().lines().next()));
        let _ = words.recv_timeout(SOON / 2);
    };
    match part.as_str() {
        "block" => {
            let blocker = write_lock(&path);
            println!("\nblocks");
            told();
            drop(blocker);
            println!("done");
        }
        "hold" => {
            let node = open(&path).unwrap();
            granted(&node, "one", 1, 200);
            println!("\nholds");
            told();
            released(&node, "one", 1);
            println!("released");
        }
        "stand" => {
            let node = open(&path).unwrap();
            let waiter = Waiter::stand(&node, "one");
            assert_eq!(waiter.others(), 0);
            println!("\nfirst");
            thread::sleep(SOON);
        }
        other => panic!("{other}"),
    }
}
