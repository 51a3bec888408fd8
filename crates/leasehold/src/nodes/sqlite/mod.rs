//! One SQLite file as a node, for all processes of one machine.
//!
//! Here is the node. `desk` decides whether the caller or the node's thread carries a request out,
//! `worker` does it, `table` has the statements and `judge` the rules for what they refuse, `file`
//! how the file is found, made and checked, `checkpoint` writes its journal back, `whereabouts`
//! notices that it went away, `patience` is how other processes are waited for.
//!
//! Owners expire by the machine's boot-time clock, which all its processes share and which no
//! change of the wall clock moves.

mod checkpoint;
mod desk;
mod error;
mod file;
mod judge;
mod patience;
mod table;
mod whereabouts;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leasehold_core::Moment;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::node::{Ask, Node, NodeId};

pub use error::SqliteError;
pub use file::default_path;

use checkpoint::Checkpointer;
use desk::Desk;
use table::Table;
use worker::Worker;

/// The file has no connection that could break and come back.
const GENERATION: u64 = 1;

/// A lock file, shared by all processes of one machine.
///
/// Dropping it lets its thread finish what was asked, for two seconds at most.
#[derive(Debug)]
pub struct SqliteNode {
    id: NodeId,
    desk: Arc<Desk>,
    generation: watch::Sender<u64>,
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
        let table = Table { connection, clock, run_id };
        let desk = Desk::new(Worker { table, whereabouts, checkpointer });
        let threads = Arc::clone(&desk);
        thread::Builder::new()
            .name("leasehold-sqlite".to_owned())
            .spawn(move || threads.work())
            .map_err(|source| SqliteError::Thread { source })?;
        Ok(Self {
            id: NodeId::new(format!("sqlite:{}", path.display())),
            desk,
            generation: watch::Sender::new(GENERATION),
        })
    }
}

impl Node for SqliteNode {
    fn id(&self) -> &NodeId {
        &self.id
    }

    fn ask(&self, ask: Ask) {
        self.desk.take(ask);
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
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
