//! One SQLite file as a node, for all processes of one machine.
//!
//! Here is the node. `desk` decides whether the caller or the node's thread carries a request out,
//! `worker` does it, `table` has the statements, `file` how the file is found, made and checked.
//! `checkpoint` writes its journal back, `whereabouts` notices that it went away, also while `leases`
//! says that somebody holds one, `patience` is how other processes are waited for. `line` has the
//! waiters of all processes, `hints` those of this one, and `bell` is how processes tell each other.
//!
//! Owners expire by the machine's boot-time clock, which all its processes share and which no
//! change of the wall clock moves. In a time namespace the process's own boot clock is another one.

mod bell;
mod checkpoint;
mod desk;
mod error;
mod file;
mod hints;
mod leases;
mod line;
mod patience;
mod table;
mod whereabouts;
mod worker;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::{LockName, Moment};
use tokio::sync::watch;

use crate::clock::{Clock, SharedClock};
use crate::node::{Ask, InLine, Node, NodeId, Place, Ticket, Watch, Watched};

pub use error::SqliteError;
pub use file::default_path;

use checkpoint::Checkpointer;
use desk::{Desk, Job};
use hints::Hints;
use leases::Leases;
use table::Table;
use worker::{Alarm, Worker};

/// The file has no connection that could break and come back. Only the end of the file counts as one.
const GENERATION: u64 = 1;

/// A lock file, shared by all processes of one machine.
///
/// Dropping it lets its thread finish what was asked, for two seconds at most.
#[derive(Debug)]
pub struct SqliteNode {
    id: NodeId,
    desk: Arc<Desk>,
    hints: Arc<Hints>,
    generation: Arc<watch::Sender<u64>>,
}

impl SqliteNode {
    /// Opens the lock file at `path`; the file and its folder are made if they are not there, for
    /// this user only.
    ///
    /// Reads and, the first time, writes the disk: some milliseconds, at most five seconds if other
    /// processes are in the way.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, SqliteError> {
        let clock = SharedClock::of(clock)
            .map_err(|source| SqliteError::NoSharedClock { path: path.to_owned(), source })?;
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let run_id = file::boot_id();
        let (mut connection, whereabouts) = file::open(path, &run_id, &*clock)?;
        let checkpointer = Checkpointer::of(&mut connection)
            .map_err(|error| SqliteError::from_sqlite(path, Duration::ZERO, &error))?;
        let hints = Hints::new(Arc::clone(&clock));
        let table = Table { connection, clock, run_id, is_waited_for: Cell::new(false) };
        let generation = Arc::new(watch::Sender::new(GENERATION));
        let worker = Worker {
            table,
            whereabouts,
            checkpointer,
            hints: Arc::clone(&hints),
            leases: Leases::default(),
            alarm: Alarm { generation: Arc::clone(&generation), is_given: false },
        };
        let desk = Desk::new(worker);
        let threads = Arc::clone(&desk);
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || threads.work())
            .map_err(|source| SqliteError::Thread { source })?;
        Ok(Self { id: NodeId::new(format!("sqlite:{}", path.display())), desk, hints, generation })
    }
}

impl Node for SqliteNode {
    fn id(&self) -> &NodeId {
        &self.id
    }

    fn ask(&self, ask: Ask) {
        self.desk.take(Job::Ask(ask, Instant::now()));
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    fn watch(&self, lock: &LockName, told: Box<dyn Fn(Watched) + Send + Sync>) -> Option<Watch> {
        self.hints.watch(&self.desk, lock, told)
    }

    fn stand_in_line(
        &self,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: Box<dyn Fn(InLine) + Send + Sync>,
    ) -> Option<Box<dyn Place>> {
        self.hints.stand(&self.desk, lock, ticket, told)
    }

    fn on_nudge(&self, told: Box<dyn Fn(&LockName) + Send + Sync>) {
        self.hints.on_nudge(told);
    }
}

impl Drop for SqliteNode {
    fn drop(&mut self) {
        self.desk.close();
    }
}

/// A moment as it is stored. SQLite's integers are signed, and last for 292 years.
fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}
