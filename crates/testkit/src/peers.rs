//! Other people's lock libraries, each in an interpreter of its own, to meet Leasehold on the same
//! keys.
//!
//! The interpreter runs `tests/peers/peer.py` or `peer.mjs` and speaks lines over its pipes:
//! `acquire NAME TTL_MS` is answered `ok`, `busy` or `error TEXT`; `release NAME` is answered `ok`
//! or `error TEXT`. Every library makes one attempt and never retries or extends by itself.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::locate::{Need, repository};
use crate::spawn::{bound_command, spawn};

/// An interpreter needs about a second to import its libraries; a busy machine makes that many.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What a peer said to an `acquire`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds the lock.
    Ok,
    /// Someone else does, or too few servers answered: not every library tells these apart.
    Busy,
    /// The library raised this.
    Error(String),
}

/// A lock library of another language, at work on the given servers.
///
/// | library | language | servers | key of lock `NAME` on the wire | value |
/// |---|---|---|---|---|
/// | `redis-py` | Python | the first only | `NAME` | 32 hex digits |
/// | `redlock-py` | Python | all, one after the other | `NAME` | 22 letters and digits |
/// | `pottery` | Python | all at once, returns at the majority | `redlock:NAME` | a UUID |
/// | `redlock` | Node | all at once, returns at the majority | `NAME` | 32 hex digits |
/// | `redis-semaphore` | Node | all at once | `mutex:NAME` | a UUID |
///
/// A library that returns at the majority may still be writing to the other servers when it says
/// `ok`.
#[derive(Debug)]
pub struct Peer {
    library: String,
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    dir: TempDir,
}

impl Peer {
    /// Starts `redis-py`, `redlock-py` or `pottery` on servers given as `host:port`.
    #[track_caller]
    pub fn python<A: AsRef<str>>(library: &str, addrs: &[A]) -> Peer {
        let mut command = bound_command(Need::PythonPeers.path());
        command.arg(repository().join("tests/peers/peer.py"));
        Peer::start(command, library, addrs)
    }

    /// Starts `redlock` or `redis-semaphore` on servers given as `host:port`.
    #[track_caller]
    pub fn node<A: AsRef<str>>(library: &str, addrs: &[A]) -> Peer {
        let packages = fs::canonicalize(Need::NodePeers.path()).expect("the folder of peers");
        let mut command = bound_command("node");
        command
            .env("LEASEHOLD_TEST_NODE_PEERS", packages)
            .arg(repository().join("tests/peers/peer.mjs"));
        Peer::start(command, library, addrs)
    }

    /// Tries once to take lock `name`, a single word, for `ttl`.
    #[track_caller]
    pub fn acquire(&mut self, name: &str, ttl: Duration) -> Answer {
        assert!(!name.contains(char::is_whitespace), "the line protocol takes one word as a name");
        match self.ask(&format!("acquire {name} {}", ttl.as_millis())).as_str() {
            "ok" => Answer::Ok,
            "busy" => Answer::Busy,
            other => Answer::Error(without_prefix(other)),
        }
    }

    /// Releases lock `name`, taken by this peer before. Some libraries report a lock that is no
    /// longer theirs as an error, some say nothing.
    #[track_caller]
    pub fn release(&mut self, name: &str) -> Result<(), String> {
        match self.ask(&format!("release {name}")).as_str() {
            "ok" => Ok(()),
            other => Err(without_prefix(other)),
        }
    }

    /// The key under which this library keeps lock `name`.
    pub fn key(&self, name: &str) -> String {
        match self.library.as_str() {
            "pottery" => format!("redlock:{name}"),
            "redis-semaphore" => format!("mutex:{name}"),
            _ => name.to_owned(),
        }
    }

    #[track_caller]
    fn start<A: AsRef<str>>(mut command: Command, library: &str, addrs: &[A]) -> Peer {
        let dir = tempfile::tempdir().expect("a folder");
        let log = File::create(dir.path().join("stderr")).expect("a log");
        command
            .arg(library)
            .args(addrs.iter().map(AsRef::as_ref))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = spawn(command).unwrap_or_else(|error| panic!("{library}: {error}"));
        let requests = child.stdin.take().expect("a pipe");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let (lines, answers) = channel();
        // Ends with the child's output.
        thread::spawn(move || {
            said.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let peer = Peer { library: library.to_owned(), child, requests, answers, dir };
        let greeting = peer.next_line();
        assert_eq!(greeting, "ready", "{library} did not start");
        peer
    }

    #[track_caller]
    fn ask(&mut self, request: &str) -> String {
        if writeln!(self.requests, "{request}").is_err() {
            panic!("{} ended before {request:?}: {}", self.library, self.log());
        }
        self.next_line()
    }

    #[track_caller]
    fn next_line(&self) -> String {
        match self.answers.recv_timeout(ANSWER_WITHIN) {
            Ok(line) => line,
            Err(error) => panic!("{} says nothing ({error}): {}", self.library, self.log()),
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn without_prefix(answer: &str) -> String {
    answer.strip_prefix("error ").unwrap_or(answer).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisServer, eventually, skip};

    const TTL: Duration = Duration::from_secs(30);

    fn takes_and_gives_back(start: impl Fn(&[String]) -> Peer, everywhere: bool) {
        let servers = RedisServer::redis().start_many(5);
        let addrs: Vec<String> = servers.iter().map(RedisServer::addr).collect();
        let used = if everywhere { &servers[..] } else { &servers[..1] };
        let (mut one, mut two) = (start(&addrs), start(&addrs));
        let key = one.key("job");

        assert_eq!(one.acquire("job", TTL), Answer::Ok);
        eventually(Duration::from_secs(5), "the lock is on every server", || {
            used.iter().all(|server| server.exists(&key))
        });
        let ttl = used[0].pttl(&key);
        assert!((1..=30_000).contains(&ttl), "{ttl} ms left");

        assert_eq!(two.acquire("job", TTL), Answer::Busy);
        assert_eq!(two.acquire("another", TTL), Answer::Ok);
        assert!(two.release("job").is_err(), "never taken by this peer");
        assert_eq!(one.release("job"), Ok(()));
        eventually(Duration::from_secs(5), "the lock is on no server", || {
            used.iter().all(|server| !server.exists(&key))
        });
        assert_eq!(two.acquire("job", TTL), Answer::Ok);
    }

    fn works_with_two_of_five_dead(start: impl Fn(&[String]) -> Peer, expected: Answer) {
        let servers = RedisServer::redis().start_many(5);
        let addrs: Vec<String> = servers.iter().map(RedisServer::addr).collect();
        servers[3].kill();
        servers[4].kill();
        let mut peer = start(&addrs);
        assert_eq!(peer.acquire("job", TTL), expected);
    }

    #[test]
    fn redis_py_takes_and_gives_back() {
        if skip(Need::Redis) || skip(Need::PythonPeers) {
            return;
        }
        takes_and_gives_back(|addrs| Peer::python("redis-py", addrs), false);
    }

    #[test]
    fn redlock_py_takes_and_gives_back() {
        if skip(Need::Redis) || skip(Need::PythonPeers) {
            return;
        }
        takes_and_gives_back(|addrs| Peer::python("redlock-py", addrs), true);
    }

    #[test]
    fn pottery_takes_and_gives_back() {
        if skip(Need::Redis) || skip(Need::PythonPeers) {
            return;
        }
        takes_and_gives_back(|addrs| Peer::python("pottery", addrs), true);
        works_with_two_of_five_dead(|addrs| Peer::python("pottery", addrs), Answer::Ok);
    }

    #[test]
    fn node_redlock_takes_and_gives_back() {
        if skip(Need::Redis) || skip(Need::NodePeers) {
            return;
        }
        takes_and_gives_back(|addrs| Peer::node("redlock", addrs), true);
        works_with_two_of_five_dead(|addrs| Peer::node("redlock", addrs), Answer::Ok);
    }

    #[test]
    fn redis_semaphore_takes_and_gives_back() {
        if skip(Need::Redis) || skip(Need::NodePeers) {
            return;
        }
        takes_and_gives_back(|addrs| Peer::node("redis-semaphore", addrs), true);
        works_with_two_of_five_dead(|addrs| Peer::node("redis-semaphore", addrs), Answer::Ok);
    }

    #[test]
    #[should_panic(expected = "no such library: nonsense")]
    fn an_unknown_library_says_so() {
        if skip(Need::PythonPeers) {
            panic!("no such library: nonsense");
        }
        let _ = Peer::python("nonsense", &["127.0.0.1:1"]);
    }
}
