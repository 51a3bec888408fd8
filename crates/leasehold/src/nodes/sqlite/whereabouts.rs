//! Whether the open files still are the ones that newcomers would open.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::file::beside;

/// Which files the open connection works on. Once one of them is removed or replaced, newcomers
/// work on other files: a second world in which every lock is free.
#[derive(Debug)]
pub(super) struct Whereabouts {
    files: Vec<(PathBuf, Inode)>,
    next_check: Instant,
}

#[derive(Debug, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl Whereabouts {
    /// How long two worlds can last unnoticed. Three `stat` in 100 ms cost nothing; three in each
    /// request would cost a tenth of it.
    const CHECK_EVERY: Duration = Duration::from_millis(100);

    pub(super) fn of(connection: &Connection) -> io::Result<Self> {
        // SQLite's own answer: symbolic links are resolved in it.
        let path = Path::new(connection.path().unwrap_or_default());
        let files = ["", "-wal", "-shm"].map(|suffix| {
            let file = beside(path, suffix);
            inode(&file).map(|inode| (file, inode))
        });
        Ok(Self {
            files: files.into_iter().collect::<io::Result<_>>()?,
            next_check: Instant::now() + Self::CHECK_EVERY,
        })
    }

    /// The sentence to refuse with if the files are others by now. Looks only every so often.
    pub(super) fn objection(&mut self) -> Option<String> {
        let now = Instant::now();
        if now < self.next_check {
            return None;
        }
        let objection = self.objection_now();
        if objection.is_none() {
            self.next_check = now + Self::CHECK_EVERY;
        }
        objection
    }

    /// As [`Self::objection`], looking in any case.
    pub(super) fn objection_now(&self) -> Option<String> {
        let (gone, _) = self
            .files
            .iter()
            .find(|(path, known)| inode(path).map_or(true, |found| found != *known))?;
        Some(format!(
            "{} was removed or replaced while this process had it open: restart every process \
             that uses the lock file",
            gone.display()
        ))
    }
}

fn inode(path: &Path) -> io::Result<Inode> {
    let file = fs::metadata(path)?;
    Ok(Inode { device: file.dev(), number: file.ino() })
}
