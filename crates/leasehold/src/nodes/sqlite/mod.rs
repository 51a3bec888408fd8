//! One SQLite file as a node, for all processes of one machine.
//!
//! Here is the node: a thread that owns the connection and carries requests out in the order of
//! the calls. `table` has the statements and `judge` the rules for what they refuse, `file` how the
//! file is found, made and checked, `checkpoint` writes its journal back, `whereabouts` notices that
//! it went away, `patience` is how other processes are waited for.
//!
//! Owners expire by the machine's boot-time clock, which all its processes share and which no
//! change of the wall clock moves.

mod checkpoint;
mod error;
mod file;
mod judge;
mod patience;
mod table;
mod whereabouts;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::{Answer, Moment, NodeError, Request};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::node::{Ask, Node, NodeId};

pub use error::SqliteError;
pub use file::default_path;

use checkpoint::Checkpointer;
use judge::Step;
use table::Table;
use whereabouts::Whereabouts;

/// The file has no connection that could break and come back.
const GENERATION: u64 = 1;

/// At some 20 µs each, more than this would wait longer than the usual limit of 50 ms.
const BACKLOG_MAX: usize = 4096;

/// How long a release waits for other processes whatever its limit: a lock that is not given back
/// stands until its Ttl.
const RELEASE_PATIENCE: Duration = Duration::from_millis(250);

/// Stands for a limit that is too long to count with.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// How long a node that was dropped goes on with what it was asked before.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// A lock file, shared by all processes of one machine.
///
/// Dropping it lets its thread finish what was asked, for two seconds at most.
#[derive(Debug)]
pub struct SqliteNode {
    id: NodeId,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    generation: watch::Sender<u64>,
}

#[derive(Debug)]
struct Job {
    ask: Ask,
    asked: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    /// How many requests wait for the thread.
    backlog: AtomicUsize,
    /// Set when the node is dropped: from then on nothing new is begun.
    finish_by: OnceLock<Instant>,
}

impl SqliteNode {
    /// Opens the lock file at `path`; the file and its folder are made if they are not there, for
    /// this user only.
    ///
    /// Reads and, the first time, writes the disk: some milliseconds, at most five seconds if other
    /// processes are in the way.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, SqliteError> {
        let run_id = file::boot_id();
        let (mut connection, whereabouts) = file::open(path, &run_id, clock.now())?;
        let checkpointer = Checkpointer::of(&mut connection)
            .map_err(|error| SqliteError::from_sqlite(path, Duration::ZERO, &error))?;
        let (jobs, todo) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            table: Table { connection, clock, run_id },
            whereabouts,
            checkpointer,
            shared: Arc::clone(&shared),
        };
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || worker.run(&todo))
            .map_err(|source| SqliteError::Thread { source })?;
        Ok(Self {
            id: NodeId::new(format!("sqlite:{}", path.display())),
            jobs,
            shared,
            generation: watch::Sender::new(GENERATION),
        })
    }
}

impl Node for SqliteNode {
    fn id(&self) -> &NodeId {
        &self.id
    }

    fn ask(&self, ask: Ask) {
        // Twice the room for releases: each frees a lock, and there is at most one per acquire.
        let room = if is_release(&ask) { 2 * BACKLOG_MAX } else { BACKLOG_MAX };
        let backlog = self.shared.backlog.fetch_add(1, Ordering::Relaxed);
        if backlog >= room {
            self.shared.backlog.fetch_sub(1, Ordering::Relaxed);
            let reason = format!("{backlog} requests wait for the lock file already");
            return ask.reply_to.answer(Err(NodeError::Overloaded { reason }));
        }
        // Fails only if the thread panicked; dropping the request then answers it.
        let _ = self.jobs.send(Job { ask, asked: Instant::now() });
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}

impl Drop for SqliteNode {
    fn drop(&mut self) {
        let _ = self.shared.finish_by.set(Instant::now() + FINISH_WITHIN);
    }
}

/// What the thread owns.
struct Worker {
    table: Table,
    whereabouts: Whereabouts,
    checkpointer: Checkpointer,
    shared: Arc<Shared>,
}

impl Worker {
    /// Ends when the node is dropped and nothing is left to do, or no time to do it.
    fn run(mut self, todo: &Receiver<Job>) {
        while let Ok(Job { ask, asked }) = todo.recv() {
            self.shared.backlog.fetch_sub(1, Ordering::Relaxed);
            if self.shared.finish_by.get().is_some_and(|end| Instant::now() >= *end) {
                break;
            }
            let answer = self.answer(&ask, asked);
            ask.reply_to.answer(answer);
            self.checkpointer.look();
        }
        self.checkpointer.end();
        if self.whereabouts.objection_now().is_some() {
            // Tidying up goes by name, and under these names may be the files of others by now.
            let _ = file::tidy_at_close(&self.table.connection, false);
        }
    }

    fn answer(&mut self, ask: &Ask, asked: Instant) -> Answer {
        let begun = Instant::now();
        let mut until = asked.checked_add(ask.limit).unwrap_or(begun + NO_LIMIT);
        if is_release(ask) {
            until = until.max(begun + RELEASE_PATIENCE);
        } else if begun >= until {
            return Err(NodeError::TimedOut { after: ask.limit });
        }
        let objection = match *ask.request {
            Request::Probe => self.whereabouts.objection_now(),
            _ => self.whereabouts.objection(),
        };
        if let Some(reason) = objection {
            return Err(NodeError::Rejected { reason });
        }
        let identity = ask.pass.as_ref().map(|pass| &*pass.record);
        let step = Step { request: &ask.request, identity, until };
        self.table.apply(&step).map_err(|error| {
            let reason = if patience::is_busy(&error) {
                format!("other processes kept the lock file busy for {:.0?}", begun.elapsed())
            } else {
                format!("SQLite: {error}")
            };
            NodeError::Rejected { reason }
        })
    }
}

fn is_release(ask: &Ask) -> bool {
    matches!(*ask.request, Request::Release { .. })
}

/// A moment as it is stored. SQLite's integers are signed, and last for 292 years.
fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}
