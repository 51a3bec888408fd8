//! One server and the truth about it: whatever is done to its process or its memory is written
//! down with the run id of the process that it concerns.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Connection, RedisServer, ServerBuilder, Value};

use crate::check::word;
use crate::clock::boot_nanos;
use crate::history::{Log, SERVERS, ServerEvent};

/// A copy of a small server takes 0.1 s. A copy that takes longer is promoted as it is.
const COPY_WITHIN: Duration = Duration::from_secs(2);

/// The key of a node's identity record.
const RECORD: &str = "leasehold:node";
/// Stands there as long as the data are those of this server.
const OWN: &str = "chaos:own";

/// What became of the servers, written down.
#[derive(Debug)]
pub(super) struct Truth(Log);

impl Truth {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Log::open(&folder.join(SERVERS)).map(Self)
    }

    pub(super) fn note(&mut self, event: ServerEvent) -> Result<(), String> {
        self.0.now(event).map(drop).map_err(|error| error.to_string())
    }
}

/// With what a killed server starts.
#[derive(Debug)]
pub(super) enum Disk {
    /// With what it had on disk.
    Kept,
    /// With nothing.
    Empty,
    /// With a snapshot of its own past or of another server.
    Snapshot(Vec<u8>),
}

/// A server whose present process is known by its run id.
#[derive(Debug)]
pub(super) struct Server {
    number: usize,
    redis: RedisServer,
    run: String,
    data: PathBuf,
    /// Whether it starts from an append-only file rather than from a dump.
    appends: bool,
}

impl Server {
    pub(super) fn start(
        number: usize,
        builder: ServerBuilder,
        appends: bool,
        truth: &mut Truth,
    ) -> Result<Self, String> {
        let from = boot_nanos();
        let redis = builder.start();
        let data = match redis.command(&["CONFIG", "GET", "dir"])? {
            Value::Array(pair) => pair.get(1).and_then(Value::as_text).map(PathBuf::from),
            _ => None,
        };
        let data = data.ok_or("a server does not say where its files are")?;
        let mut server = Self { number, redis, run: String::new(), data, appends };
        server.note_start(from, truth)?;
        Ok(server)
    }

    pub(super) fn addr(&self) -> String {
        self.redis.addr()
    }

    pub(super) fn redis(&self) -> &RedisServer {
        &self.redis
    }

    /// Obeys, or says why not.
    pub(super) fn command(&self, words: &[&str]) -> Result<(), String> {
        self.redis.command(words).map(drop)
    }

    /// A field of INFO.
    pub(super) fn info(&self, section: &str, field: &str) -> Option<String> {
        let info = self.redis.command(&["INFO", section]).ok()?;
        let is_field = |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
        info.as_text()?.lines().find_map(is_field)
    }

    /// SIGKILL.
    pub(super) fn kill(&self, truth: &mut Truth) -> Result<(), String> {
        let from = boot_nanos();
        self.redis.kill();
        truth.note(ServerEvent::Ended { server: self.number, run: self.run.clone(), from })
    }

    /// Starts a killed server again. Each process is a new life, whatever it found on disk: nothing
    /// that a server says of its disk tells whether the last writes are there.
    pub(super) fn begin_life(
        &mut self,
        disk: Disk,
        why: &str,
        truth: &mut Truth,
    ) -> Result<(), String> {
        if let Disk::Snapshot(snapshot) = &disk {
            self.install(snapshot).map_err(|error| format!("{}: {error}", self.data.display()))?;
        }
        let from = boot_nanos();
        match disk {
            Disk::Empty => self.redis.restart_empty(),
            Disk::Kept | Disk::Snapshot(_) => self.redis.restart(),
        }
        self.note_start(from, truth)?;
        self.note_forgot(from, why, truth)
    }

    /// Has the server do what makes it forget.
    pub(super) fn forget(
        &self,
        command: &[&str],
        why: &str,
        truth: &mut Truth,
    ) -> Result<(), String> {
        let from = boot_nanos();
        self.command(command)?;
        self.note_forgot(from, why, truth)
    }

    /// Deletes the identity record, as an operator does. What the server remembers of locks stays:
    /// who still counts its votes under the old record is not wrong. Says whether it obeyed within
    /// `limit`.
    pub(super) fn delete_record(&self, limit: Duration) -> bool {
        Connection::to_within(&self.addr(), limit)
            .is_ok_and(|mut connection| connection.call(&["DEL", RECORD]).is_ok())
    }

    /// Its record, if it has one and can be asked within `limit`.
    pub(super) fn record(&self, limit: Duration) -> Option<String> {
        let mut connection = Connection::to_within(&self.addr(), limit).ok()?;
        let record = connection.call(&["GET", RECORD]).ok()?;
        record.as_text().map(str::to_owned)
    }

    /// A field of its record.
    pub(super) fn word_of_record(&self, field: &str, limit: Duration) -> Option<String> {
        word(&self.record(limit)?, field).map(str::to_owned)
    }

    /// Whether it answers and votes, by its own record.
    pub(super) fn is_admitted(&self) -> bool {
        let record = self.record(Duration::from_millis(100));
        let has = |record: &String| {
            word(record, "state") == Some("admitted") && word(record, "run") == Some(&self.run)
        };
        record.as_ref().is_some_and(has)
    }

    /// Ends every client's connection.
    pub(super) fn close_connections(&self) -> Result<(), String> {
        self.command(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
        self.command(&["CLIENT", "KILL", "TYPE", "normal"])
    }

    /// Makes it a copy of `of`, and waits for it.
    pub(super) fn copy(&self, of: &Self) -> Result<(), String> {
        self.command(&["REPLICAOF", "127.0.0.1", &of.redis.port().to_string()])?;
        let end = Instant::now() + COPY_WITHIN;
        while self.info("replication", "master_link_status").as_deref() != Some("up")
            && Instant::now() < end
        {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Makes a copy a server of its own.
    pub(super) fn promote(&self, why: &str, truth: &mut Truth) -> Result<(), String> {
        self.forget(&["REPLICAOF", "NO", "ONE"], why, truth)
    }

    /// Begins to copy `of`, and waits for nothing.
    pub(super) fn follow(&self, port: u16) -> Result<(), String> {
        self.command(&["SET", OWN, &self.run])?;
        self.command(&["REPLICAOF", "127.0.0.1", &port.to_string()])
    }

    /// The same as [`Self::promote`] after that: in a short time, or of a server that is down, there is no
    /// copy, and its data are its own still.
    pub(super) fn promote_if_copied(&self, why: &str, truth: &mut Truth) -> Result<(), String> {
        let from = boot_nanos();
        self.command(&["REPLICAOF", "NO", "ONE"])?;
        let own = self.redis.command(&["GET", OWN])?;
        self.command(&["DEL", OWN])?;
        match own.as_text() == Some(self.run.as_str()) {
            true => Ok(()),
            false => self.note_forgot(from, why, truth),
        }
    }

    /// All it has in memory, as a file.
    pub(super) fn snapshot(&self) -> Result<Vec<u8>, String> {
        self.command(&["SAVE"])?;
        let dump = self.dump();
        let snapshot = fs::read(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
        if !self.appends {
            // Otherwise the next start would find it.
            fs::remove_file(&dump).map_err(|error| error.to_string())?;
        }
        Ok(snapshot)
    }

    fn dump(&self) -> PathBuf {
        self.data.join("dump.rdb")
    }

    /// Puts a snapshot where the server looks for its memory, and removes everything else.
    fn install(&self, snapshot: &[u8]) -> io::Result<()> {
        fs::remove_dir_all(&self.data)?;
        fs::create_dir(&self.data)?;
        if !self.appends {
            return fs::write(self.dump(), snapshot);
        }
        // An append-only file begins with a snapshot, so this one is as good as its own.
        let folder = self.data.join("appendonlydir");
        fs::create_dir(&folder)?;
        let file = |end: &str| folder.join(format!("appendonly.aof.{end}"));
        fs::write(file("1.base.rdb"), snapshot)?;
        fs::write(file("1.incr.aof"), "")?;
        let manifest = "file appendonly.aof.1.base.rdb seq 1 type b\n\
                        file appendonly.aof.1.incr.aof seq 1 type i\n";
        fs::write(file("manifest"), manifest)
    }

    fn note_start(&mut self, from: u64, truth: &mut Truth) -> Result<(), String> {
        self.run = self.info("server", "run_id").ok_or("a server does not tell its run id")?;
        truth.note(ServerEvent::Started { server: self.number, run: self.run.clone(), from })
    }

    fn note_forgot(&self, from: u64, why: &str, truth: &mut Truth) -> Result<(), String> {
        let (server, run, why) = (self.number, self.run.clone(), why.to_owned());
        truth.note(ServerEvent::Forgot { server, run, from, why })
    }
}
