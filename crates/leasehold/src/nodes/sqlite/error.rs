//! Why a lock file cannot be used. Each sentence names the file and says what to do; in none of
//! these cases was anything written to a file that was there before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ErrorCode;

/// Why a lock file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// Nobody said where the file is, and the environment does not either.
    #[error(
        "no place for the lock file: neither XDG_DATA_HOME (an absolute path) nor HOME is set; \
         set one of them, or give a path"
    )]
    NoHome,
    /// The folder is not there and cannot be made.
    #[error("cannot create the folder {}: {source}; create it, or give another path", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// There is no file yet, and none can be made.
    #[error(
        "cannot create the lock file {}: {reason}; its folder must be writable, on a local file \
         system with hard links and some free space",
        path.display()
    )]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's or SQLite's words.
        reason: String,
    },
    /// Something else than a file is there.
    #[error("{} is not a regular file; give the path of a lock file, which is made if it is not there", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file can be opened by another name.
    #[error(
        "the lock file {} has {links} names (hard links): whoever opens it by another one works \
         with another journal and is granted the same locks; remove the other names (`find -samefile` \
         lists them)",
        path.display()
    )]
    HardLinks {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// Something is mounted on the file itself.
    #[error(
        "{} is a mount point of its own: whoever opens the file where it came from works with \
         another journal and is granted the same locks; mount its folder instead",
        path.display()
    )]
    MountPoint {
        /// The file.
        path: PathBuf,
    },
    /// The path led to another file when it was looked at again.
    #[error("the lock file {} was removed or replaced while it was opened; try again", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The process that this one was forked from has the file open.
    #[error(
        "this process is a fork of one that has it open: cannot use the lock file {}, because SQLite \
         takes the parent's locks for its own; fork before it is opened, or start a program in the fork",
        path.display()
    )]
    Forked {
        /// The file.
        path: PathBuf,
    },
    /// The file has no content.
    #[error(
        "the lock file {} is empty: it may have lost its locks, so it is left alone; once no \
         process uses it, remove it, and a new one is made",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not a SQLite database; it is left as it is, give another path", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another program.
    #[error(
        "{} is a SQLite database of another application (application id {application_id:#x}); it \
         is left as it is, give another path",
        path.display()
    )]
    OtherApplication {
        /// The file.
        path: PathBuf,
        /// What its header says.
        application_id: i64,
    },
    /// The file was written by a newer version.
    #[error(
        "the lock file {} has format {found}, this version of Leasehold knows up to {known}; \
         upgrade Leasehold, or give another path",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest known format.
        known: i64,
    },
    /// The file is damaged.
    #[error(
        "the lock file {} is damaged: {reason}; it is left as it is: stop all processes that use \
         it, move it away, and a new one is made",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        reason: String,
    },
    /// Other processes did not let us in.
    #[error(
        "the lock file {} was locked by other processes for {waited:?}; look for a stopped \
         process that has it open",
        path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// For how long.
        waited: Duration,
    },
    /// The file or its folder cannot be read or written.
    #[error(
        "cannot use the lock file {}: {reason}; this user must be able to write the file and its \
         folder",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The system's or SQLite's words.
        reason: String,
    },
    /// The times in the file cannot be compared with the clock of this process.
    #[error(
        "cannot use the lock file {}: {source}; mount /proc, and start the process anew if it made \
         a time namespace",
        path.display()
    )]
    NoSharedClock {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system gave no thread.
    #[error("cannot start a thread for the lock file: {source}")]
    Thread {
        /// The system's words.
        source: std::io::Error,
    },
}

impl SqliteError {
    /// What SQLite says of `path`, as one of ours. `waited` is how long it was tried.
    pub(super) fn from_sqlite(path: &Path, waited: Duration, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, reason },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy { path, waited }
            }
            // A table, a column or the one row is missing, or holds what we never write.
            None | Some(ErrorCode::Unknown) => Self::Damaged { path, reason },
            Some(_) => Self::Unusable { path, reason },
        }
    }
}
