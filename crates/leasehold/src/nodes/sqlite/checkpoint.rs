//! Writes the journal back into the file, beside the requests: that takes an fsync, which on a busy
//! disk was measured to take more than a second.
//!
//! A journal that is never written back makes every start slower, because the first process to open
//! the file reads all of it. So whoever finds it long begins, also a process that lives for a
//! moment only.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::file;

/// A quarter of a megabyte of journal: read back in less than half a millisecond.
const PAGES: u32 = 256;

/// Pages of journal at which a request writes it back itself, before it is answered. Needed if every
/// process that began it was gone before it was done, or if so many write that there always is
/// something new.
const PAGES_MAX: u32 = 1000;

/// Follows the journal's length, and has a thread for it once it is long.
#[derive(Debug)]
pub(super) struct Checkpointer {
    path: PathBuf,
    /// The journal's length at our last commit.
    pages: Arc<AtomicU32>,
    /// The length at which the thread is called next.
    call_at: u32,
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpointer {
    /// Follows the journal of the file that `connection` has open.
    pub(super) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, length: i32| {
            seen.store(length.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        // Where SQLite found it: the working directory may change, and links may be turned.
        let path = PathBuf::from(connection.path().unwrap_or_default());
        Ok(Self { path, pages, call_at: PAGES, thread: None })
    }

    fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Whether the next request has to do it.
    pub(super) fn is_overdue(&self) -> bool {
        self.pages() >= PAGES_MAX
    }

    /// After a request, which may have made the journal longer. Calls the thread, once for each
    /// stretch of the journal.
    pub(super) fn look(&mut self) {
        let pages = self.pages();
        if pages < self.call_at {
            if pages < PAGES {
                self.call_at = PAGES;
            }
            return;
        }
        self.call_at = pages + PAGES;
        if self.thread.is_none() {
            // Without a thread, requests will have to do it.
            self.thread = start(&self.path).ok();
        }
        if let Some((wake, _)) = &self.thread {
            // One call may wait while another is carried out; more would be the same.
            let _ = wake.try_send(());
        }
    }

    /// Writes the journal back by the connection of the requests, if it must be done now.
    pub(super) fn catch_up(&mut self, connection: &Connection) {
        if self.is_overdue() {
            write_back(connection, "PRAGMA wal_checkpoint(FULL)");
            // If it failed, the next commit tells the length again.
            self.pages.store(0, Ordering::Relaxed);
        }
    }

    /// Ends the thread and its connection, so that another one can be the last and tidy up.
    pub(super) fn end(self) {
        if let Some((wake, thread)) = self.thread {
            drop(wake);
            let _ = thread.join();
        }
    }
}

/// A thread with a connection of its own. It never tidies up when it is closed.
fn start(path: &Path) -> std::io::Result<(SyncSender<()>, JoinHandle<()>)> {
    let (wake, calls) = mpsc::sync_channel(1);
    let path = path.to_owned();
    let thread = thread::Builder::new().name("leasehold-ckpt".to_owned()).spawn(move || {
        let connection = file::connect(&path).and_then(|connection| {
            connection.pragma_update(None, "synchronous", "normal")?;
            Ok(connection)
        });
        let Ok(connection) = connection else { return };
        while calls.recv().is_ok() {
            // Passive: waits for nobody, and nobody waits for it.
            write_back(&connection, "PRAGMA wal_checkpoint(PASSIVE)");
        }
    })?;
    Ok((wake, thread))
}

/// If it fails, the next one does more; a disk that cannot be written shows in the requests, too.
fn write_back(connection: &Connection, checkpoint: &str) {
    let progress = connection
        .query_row(checkpoint, [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    if let Ok((pages, done)) = progress
        && pages == done
    {
        let _ = begin_anew(connection);
    }
}

/// Whoever writes next begins the journal anew, which takes one more fsync: better here than in a
/// request on somebody's own thread.
///
/// A value that does not change is not written, so it changes twice.
fn begin_anew(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    transaction
        .execute_batch("UPDATE meta SET boot = boot || ' '; UPDATE meta SET boot = rtrim(boot)")?;
    transaction.commit()
}
