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

use rusqlite::Connection;

use super::file;

/// A quarter of a megabyte of journal: read back in less than half a millisecond.
const PAGES: u32 = 256;

/// Pages of journal at which whoever commits writes it back itself, within its request: needed only
/// if every process that began it was gone before it was done.
const PAGES_MAX: u32 = 1000;

/// Follows the journal's length, and has a thread for it once it is long.
#[derive(Debug)]
pub(super) struct Checkpointer {
    path: PathBuf,
    /// The journal's length at our last commit.
    pages: Arc<AtomicU32>,
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpointer {
    /// Follows the journal of the file that `connection` has open.
    pub(super) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        connection.wal_hook(Some(move |wal: &mut rusqlite::hooks::Wal, length: i32| {
            let length = length.unsigned_abs();
            seen.store(length, Ordering::Relaxed);
            if length >= PAGES_MAX {
                // Busy if somebody else is at it; what fails here shows in the requests, too.
                let _ = wal.checkpoint();
            }
            Ok(())
        }))?;
        // Where SQLite found it: the working directory may change, and links may be turned.
        let path = PathBuf::from(connection.path().unwrap_or_default());
        Ok(Self { path, pages, thread: None })
    }

    /// After a request, which may have made the journal longer.
    pub(super) fn look(&mut self) {
        if self.pages.swap(0, Ordering::Relaxed) < PAGES {
            return;
        }
        if self.thread.is_none() {
            // Without a thread, requests will have to do it.
            self.thread = start(&self.path).ok();
        }
        if let Some((wake, _)) = &self.thread {
            // One call may wait while another is carried out; more would be the same.
            let _ = wake.try_send(());
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
            // Passive: waits for nobody, and nobody waits for it. If it fails, the next one does
            // more; a disk that cannot be written shows in the requests, too.
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    })?;
    Ok((wake, thread))
}
