//! Whether the open files are the ones that newcomers open, and no others of the same content.
//!
//! SQLite finds the journal by the name of the file. So two processes that open one file by two names work
//! with two journals: two worlds, in each of which the locks of the other are free. The same happens
//! when the name leads to another file by now. Neither is a matter of taste: both are refused.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::error::SqliteError;
use super::file::{beside, tidy_drafts, unusable};
use crate::home::Home;

/// Which files the open connection works on, by each name that leads there.
#[derive(Debug)]
pub(super) struct Whereabouts {
    /// The file, its journal and the journal's index, where SQLite found them: without links.
    files: [(PathBuf, Inode); 3],
    /// The path as it was given: links in it may be turned.
    given: PathBuf,
    next_check: Instant,
    _opened: Opened,
}

/// Files that are open, and where. SQLite keeps a list of its own by which it shares locks between
/// connections; after a fork that list is not true.
static OPENED: Mutex<Vec<(Inode, Home)>> = Mutex::new(Vec::new());

/// Has the file on the list until it is dropped.
#[derive(Debug)]
struct Opened(Inode);

impl Opened {
    fn note(file: Inode) -> Self {
        opened().push((file, Home::here()));
        Self(file)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut opened = opened();
        let ours = (self.0, Home::here());
        if let Some(index) = opened.iter().position(|open| *open == ours) {
            opened.swap_remove(index);
        }
    }
}

fn opened() -> MutexGuard<'static, Vec<(Inode, Home)>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses a file that the process has open from which this one was forked.
pub(super) fn refuse_inherited(path: &Path, file: Inode) -> Result<(), SqliteError> {
    let is_inherited = opened().iter().any(|(open, home)| *open == file && home.is_elsewhere());
    if is_inherited { Err(SqliteError::Forked { path: path.to_owned() }) } else { Ok(()) }
}

/// A file, whatever its name. Its number is not given to another one as long as we have it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

impl Whereabouts {
    /// How long two worlds can last unnoticed. Four `stat` in 100 ms cost nothing; four in each
    /// request would cost a tenth of it.
    pub(super) const CHECK_EVERY: Duration = Duration::from_millis(100);

    /// The files of `connection`, which was opened by the path `given` after that had led to
    /// `before`. Refuses if SQLite opened others, or if they have further names.
    pub(super) fn of(
        connection: &Connection,
        given: &Path,
        before: Inode,
    ) -> Result<Self, SqliteError> {
        // SQLite's own answer: symbolic links are resolved in it.
        let path = PathBuf::from(connection.path().unwrap_or_default());
        let seen = |file: PathBuf| match Inode::of(&file) {
            Ok(inode) => Ok((file, inode)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(replaced(given)),
            Err(error) => Err(unusable(given, &error)),
        };
        let files =
            [seen(path.clone())?, seen(beside(&path, "-wal"))?, seen(beside(&path, "-shm"))?];
        let are_open = are_open_here(files.each_ref().map(|(_, inode)| *inode))
            .map_err(|error| unusable(given, &error))?;
        if files[0].1 != before || Inode::of(given).ok() != Some(before) || !are_open {
            return Err(replaced(given));
        }
        for (file, _) in &files {
            refuse_other_names(file)?;
        }
        let next_check = Instant::now() + Self::CHECK_EVERY;
        let _opened = Opened::note(before);
        Ok(Self { files, given: given.to_owned(), next_check, _opened })
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
        let is_there =
            |path: &Path, known: Inode| Inode::of(path).is_ok_and(|found| found == known);
        let advice = "restart every process that uses the lock file";
        if let Some((gone, _)) = self.files.iter().find(|(path, known)| !is_there(path, *known)) {
            return Some(format!(
                "{} was removed or replaced while this process had it open: {advice}",
                gone.display()
            ));
        }
        let [(path, file), ..] = &self.files;
        if is_there(&self.given, *file) {
            return None;
        }
        Some(format!(
            "{} no longer leads to {}, which this process has open: {advice}",
            self.given.display(),
            path.display()
        ))
    }
}

impl Inode {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&fs::metadata(path)?))
    }
}

impl From<&fs::Metadata> for Inode {
    fn from(file: &fs::Metadata) -> Self {
        Self { device: file.dev(), number: file.ino() }
    }
}

/// Refuses a file that can be opened by another name, with another journal.
pub(super) fn refuse_other_names(path: &Path) -> Result<(), SqliteError> {
    if is_mount_point(path) {
        return Err(SqliteError::MountPoint { path: path.to_owned() });
    }
    let links = || fs::metadata(path).map(|file| file.nlink());
    if links().is_ok_and(|links| links > 1) {
        // Or it is being made, or who made it was killed.
        tidy_drafts(path);
    }
    match links() {
        Ok(0 | 1) => Ok(()),
        Ok(links) => Err(SqliteError::HardLinks { path: path.to_owned(), links }),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// Whether something is mounted on the file itself. Kernels before 5.8 do not tell.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let seen = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    seen.is_ok_and(|file| file.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_mount_point(_: &Path) -> bool {
    false
}

/// Whether this process has all of them open: a name may lead elsewhere since SQLite used it. This
/// opens none of them, see `file`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn are_open_here<const N: usize>(files: [Inode; N]) -> io::Result<bool> {
    let mut missing = files.to_vec();
    for descriptor in fs::read_dir("/proc/self/fd")? {
        if let Ok(open) = Inode::of(&descriptor?.path()) {
            missing.retain(|file| *file != open);
        }
    }
    Ok(missing.is_empty())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn are_open_here<const N: usize>(_: [Inode; N]) -> io::Result<bool> {
    Ok(true)
}

fn replaced(path: &Path) -> SqliteError {
    SqliteError::Replaced { path: path.to_owned() }
}
