//! Writes the journal back into the file, beside the requests: that takes an fsync, which on a busy
//! disk was measured to take more than a second.

use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::file;

/// A megabyte of journal. Each process counts its own requests, so eight busy ones together come
/// half as far as [`PAGES_MAX`].
const REQUESTS_BETWEEN: u32 = 250;

/// Pages of journal at which whoever commits writes it back itself, within its request: needed when
/// many processes write that live too short to count far.
pub(super) const PAGES_MAX: u32 = 4000;

/// A thread with a connection of its own.
#[derive(Debug)]
pub(super) struct Checkpointer {
    since_last: u32,
    wake: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Checkpointer {
    /// Starts the thread for the file that `connection` has open.
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        // One call may wait while another is carried out; more would be the same.
        let (wake, calls) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("leasehold-ckpt".to_owned()).spawn(move || {
            while calls.recv().is_ok() {
                // Passive: waits for nobody, and nobody waits for it. If it fails, the next one
                // does more; a disk that cannot be written shows in the requests, too.
                let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            }
        })?;
        Ok(Self { since_last: 0, wake, thread })
    }

    /// One more request may have written to the journal.
    pub(super) fn count(&mut self) {
        self.since_last += 1;
        if self.since_last >= REQUESTS_BETWEEN && self.wake.try_send(()).is_ok() {
            self.since_last = 0;
        }
    }

    /// Ends the thread and its connection, so that another one can be the last and tidy up.
    pub(super) fn end(self) {
        drop(self.wake);
        let _ = self.thread.join();
    }
}

/// The second connection. It never tidies up when it is closed.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = file::connect(path)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    Ok(connection)
}
