//! The lock file: where it lives, how it is made, and how to be sure that it is ours.
//!
//! Two rules shape this file. A file that was there before is never changed unless its header says
//! that it is ours. And no lock file is ever opened except by SQLite itself: closing any other
//! descriptor of it would drop all POSIX locks that this process has on it, and with them the
//! protection against other processes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::error::SqliteError;
use super::line::LINE_TABLE;
use super::nanos;
use super::patience::patiently;
use super::whereabouts::{Inode, Whereabouts, refuse_inherited, refuse_other_names};
use crate::clock::Clock;

/// `LHLD`: tells our files from those of every other program.
const APPLICATION_ID: i64 = 0x4c48_4c44;

/// Goes up when the tables change.
const FORMAT: i64 = 1;

/// How long opening waits for other processes: far above any transaction of ours, short enough
/// that a person sees the error.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// A commit writes whole pages, and a start reads the journal back page by page: small ones make
/// both cheaper. Seven locks fit into one.
const PAGE_BYTES: u32 = 1024;

/// `locks` without rowid: one tree, so that a grant writes one page. `fence` outlives its owner.
/// `expires` counts nanoseconds on the clock of the boot that `meta.boot` names.
const TABLES: &str = "
    CREATE TABLE meta (
        id     INTEGER PRIMARY KEY CHECK (id = 1),
        record TEXT,
        floor  INTEGER NOT NULL,
        boot   TEXT NOT NULL
    ) STRICT;
    CREATE TABLE locks (
        name    TEXT PRIMARY KEY,
        owner   TEXT,
        expires INTEGER,
        ttl     INTEGER,
        fence   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO meta (id, record, floor, boot) VALUES (1, NULL, 0, '');
";

/// Where the lock file is if nobody says otherwise: `$XDG_DATA_HOME/leasehold/locks.db`, else
/// `$HOME/.local/share/leasehold/locks.db`.
pub fn default_path() -> Result<PathBuf, SqliteError> {
    path_below(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
}

/// A relative path in either variable is ignored, as the XDG rules say: it would name another file
/// in each working directory.
fn path_below(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, SqliteError> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let data = xdg.and_then(absolute);
    let data = data.or_else(|| Some(home.and_then(absolute)?.join(".local/share")));
    Ok(data.ok_or(SqliteError::NoHome)?.join("leasehold/locks.db"))
}

/// The kernel's name for the time since it was started; empty where there is none.
pub(super) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Opens the lock file at `path`, which is made if it is not there.
pub(super) fn open(
    path: &Path,
    boot: &str,
    clock: &dyn Clock,
) -> Result<(Connection, Whereabouts), SqliteError> {
    // Absolute, so that SQLite never takes a name such as `file:x?mode=memory` for an address.
    let path = &std::path::absolute(path).map_err(|error| unusable(path, &error))?;
    match fs::metadata(path) {
        Ok(file) if !file.is_file() => return Err(SqliteError::NotAFile { path: path.clone() }),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path)?,
        Err(error) => return Err(unusable(path, &error)),
    }
    refuse_other_names(path)?;
    let before = fs::metadata(path).map_err(|error| unusable(path, &error))?;
    refuse_inherited(path, Inode::from(&before))?;
    if before.len() == 0 {
        return Err(SqliteError::Empty { path: path.clone() });
    }
    peek(path)?;
    let begun = Instant::now();
    let until = begun + OPEN_LIMIT;
    let failed = |error: &_| SqliteError::from_sqlite(path, begun.elapsed(), error);
    let connection = connect(path).map_err(|error| failed(&error))?;
    let header = patiently(until, || Header::read(&connection)).map_err(|error| failed(&error))?;
    header.check(path)?;
    patiently(until, || prepare(&connection, boot, clock)).map_err(|error| failed(&error))?;
    let whereabouts = Whereabouts::of(&connection, path, Inode::from(&before))?;
    // Until here closing left a journal of others alone; from here on the last one tidies up.
    tidy_at_close(&connection, true).map_err(|error| failed(&error))?;
    Ok((connection, whereabouts))
}

/// What the header says of whose file it is.
struct Header {
    application_id: i64,
    format: i64,
}

impl Header {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0));
        Ok(Self { application_id: pragma("application_id")?, format: pragma("user_version")? })
    }

    fn check(&self, path: &Path) -> Result<(), SqliteError> {
        let (path, found, known) = (path.to_owned(), self.format, FORMAT);
        if self.application_id != APPLICATION_ID {
            return Err(SqliteError::OtherApplication {
                path,
                application_id: self.application_id,
            });
        }
        if found > known {
            return Err(SqliteError::NewerFormat { path, found, known });
        }
        Ok(())
    }
}

/// Reads the header without locks, journals or any trace: `immutable` does not even create the
/// `-wal` and `-shm` files that opening another application's database would leave behind.
///
/// A lock file has its header from the moment it has its name, see [`create`].
fn peek(path: &Path) -> Result<(), SqliteError> {
    let mut address = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                address.push(char::from(*byte));
            }
            other => address.push_str(&format!("%{other:02X}")),
        }
    }
    address.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let header = Connection::open_with_flags(address, flags)
        .and_then(|connection| Header::read(&connection));
    match header.map_err(|error| SqliteError::from_sqlite(path, Duration::ZERO, &error)) {
        Ok(header) => header.check(path),
        // Without locks a checkpoint in progress looks like damage: who has locks may judge.
        Err(SqliteError::Damaged { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A connection that, so far, leaves everything as it is.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // SQLite's own waiting sleeps ever longer and starves some processes for seconds.
    connection.busy_timeout(Duration::ZERO)?;
    tidy_at_close(&connection, false)?;
    Ok(connection)
}

/// Whether the last one to close the file writes the journal back and removes it, by name.
pub(super) fn tidy_at_close(connection: &Connection, tidy: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !tidy).map(drop)
}

/// Sets the connection up, and the owners' time after a reboot.
fn prepare(connection: &Connection, boot: &str, clock: &dyn Clock) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    // NORMAL leaves out the fsync of each commit. What it can lose are the last commits before a
    // power loss or a crash of the kernel, never those of a process that is killed. Either changes
    // the boot id, which this node reports as its run id: admission then begins a new life whose
    // floor is the wall clock, so a lost fence cannot come back, and every holder died with the
    // machine.
    connection.pragma_update(None, "synchronous", "normal")?;
    // Files of before there were lines have none.
    connection.execute_batch(LINE_TABLE)?;
    let stored: String = connection.query_row("SELECT boot FROM meta", [], |row| row.get(0))?;
    if stored == boot && !boot.is_empty() {
        return Ok(());
    }
    begin_boot(connection, boot, clock)
}

/// The clock that owners expire by starts again with each boot. If it did, what is stored says
/// nothing any more, and every owner keeps its lock for one whole Ttl: too long rather than too short.
///
/// Another boot id alone does not tell that it did: a container may show one of its own. What tells
/// is a Ttl that begins in the future. If there is none, either the clock is the same, or it has run
/// for as long since the reboot as it had when the last owner was written: then those that are over
/// by it have had their Ttl.
fn begin_boot(connection: &Connection, boot: &str, clock: &dyn Clock) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // Not before the write lock is there: what was written until then would begin in the future.
    let now = nanos(clock.now());
    let has_restarted: bool = transaction.query_row(
        "SELECT EXISTS (SELECT 1 FROM locks WHERE expires - ttl > ?1)",
        [now],
        |row| row.get(0),
    )?;
    if has_restarted {
        transaction
            .execute("UPDATE locks SET expires = ?1 + ttl WHERE owner IS NOT NULL", [now])?;
        transaction.execute("DELETE FROM line", [])?;
    }
    transaction.execute("UPDATE meta SET boot = ?1", [boot])?;
    transaction.commit()
}

/// Makes a lock file that gets its name only when it is complete: two processes that start together
/// agree on one file, and a crash or a full disk in between leaves none.
fn create(path: &Path) -> Result<(), SqliteError> {
    let failed = |reason: String| SqliteError::Create { path: path.to_owned(), reason };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SqliteError::NotAFile { path: path.to_owned() });
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| SqliteError::Folder { folder: folder.to_owned(), source })?;
    let mut draft = draft_prefix(name);
    draft.push(format!("{:032x}", crate::chance::nonce()));
    let draft = folder.join(draft);
    // SQLite gives the mode of the file to its -wal and -shm files, too.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .map_err(|error| failed(error.to_string()))?;
    let made = furnish(&draft).map_err(|error| error.to_string()).and_then(|()| {
        match fs::hard_link(&draft, path) {
            // Another process was quicker; its file is as good as ours.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(|error| error.to_string()),
        }
    });
    for suffix in ["", "-journal", "-wal", "-shm"] {
        // Most are not there; and a draft that cannot be removed does no harm.
        let _ = fs::remove_file(beside(&draft, suffix));
    }
    made.map_err(failed)
}

/// How the names of drafts of the file `name` begin; 32 hexadecimal digits follow.
fn draft_prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    prefix
}

/// Removes the names that the lock file had while it was made, if its creator did not.
pub(super) fn tidy_drafts(path: &Path) {
    let Ok(path) = fs::canonicalize(path) else { return };
    let (Some(folder), Some(name), Ok(file)) = (path.parent(), path.file_name(), Inode::of(&path))
    else {
        return;
    };
    let prefix = draft_prefix(name);
    let is_draft = |name: &OsStr| {
        let nonce = name.as_bytes().strip_prefix(prefix.as_bytes());
        nonce.is_some_and(|nonce| nonce.len() == 32 && nonce.iter().all(u8::is_ascii_hexdigit))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let draft = entry.path();
        if is_draft(&entry.file_name()) && Inode::of(&draft).is_ok_and(|draft| draft == file) {
            let _ = fs::remove_file(draft);
        }
    }
}

fn furnish(draft: &Path) -> rusqlite::Result<()> {
    let connection = connect(draft)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute_batch(LINE_TABLE)?;
    transaction.commit()?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    tidy_at_close(&connection, true)?;
    connection.close().map_err(|(_, error)| error)
}

/// The name of a file that SQLite puts next to `path`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    name.into()
}

pub(super) fn unusable(path: &Path, error: &io::Error) -> SqliteError {
    SqliteError::Unusable { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Moment, WallMicros};
    use rusqlite::params;

    use super::*;

    /// A boot clock that stands still.
    #[derive(Debug)]
    struct At(Moment);

    impl Clock for At {
        fn now(&self) -> Moment {
            self.0
        }

        fn wall(&self) -> WallMicros {
            WallMicros(0)
        }
    }

    #[test]
    fn the_default_path_follows_the_xdg_rules() {
        let path = |xdg: Option<&str>, home: Option<&str>| {
            path_below(xdg.map(OsString::from), home.map(OsString::from)).ok()
        };
        let below = |path: &str| Some(PathBuf::from(path));
        assert_eq!(path(Some("/d"), Some("/h")), below("/d/leasehold/locks.db"));
        for ignored in [None, Some(""), Some("d"), Some("./d")] {
            let home = below("/h/.local/share/leasehold/locks.db");
            assert_eq!(path(ignored, Some("/h")), home, "{ignored:?}");
            assert_eq!(path(ignored, None), None);
            assert_eq!(path(ignored, Some("")), None);
        }
        let error = path_below(None, None).unwrap_err().to_string();
        assert!(error.contains("XDG_DATA_HOME") && error.contains("HOME"), "{error}");
    }

    const HOUR: i64 = 3_600_000_000_000;

    /// Adds a lock of an hour that was granted at this moment; without an owner, if it was released.
    fn add(connection: &Connection, name: &str, is_owned: bool, granted: Moment) {
        let row = params![name, is_owned.then_some("me"), nanos(granted) + HOUR, HOUR];
        connection.execute("INSERT INTO locks VALUES (?1, ?2, ?3, ?4, 7)", row).unwrap();
    }

    /// When each lock's hour began, by name.
    fn begun(connection: &Connection) -> Vec<(String, Moment)> {
        let begun = "SELECT name, expires - ttl FROM locks ORDER BY 1";
        let mut all = connection.prepare(begun).unwrap();
        let at = |nanos: i64| Moment::from_nanos(nanos as u64);
        all.query_map([], |row| Ok((row.get(0)?, at(row.get(1)?)))).unwrap().flatten().collect()
    }

    fn wanted<const N: usize>(locks: [(&str, Moment); N]) -> Vec<(String, Moment)> {
        locks.map(|(name, moment)| (name.to_owned(), moment)).to_vec()
    }

    #[test]
    fn after_a_reboot_every_owner_keeps_its_lock_for_one_more_ttl() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let at = Moment::from_millis;
        let open = |boot: &str, now: u64| open(&path, boot, &At(at(now))).unwrap().0;
        let connection = open("boot-1", 0);
        add(&connection, "early", true, at(3));
        add(&connection, "free", false, at(60));
        add(&connection, "late", true, at(50));
        let before = begun(&connection);
        drop(connection);
        assert_eq!(begun(&open("boot-1", 70)), before, "the same boot changes nothing");

        let renewed = wanted([("early", at(55)), ("free", at(60)), ("late", at(55))]);
        assert_eq!(begun(&open("boot-2", 55)), renewed, "a release at 60 was before the reboot");
        assert_eq!(begun(&open("boot-2", 57)), renewed, "once per boot");
    }

    #[test]
    fn another_boot_id_by_itself_gives_no_owner_any_more_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let at = Moment::from_millis;
        for (number, boot) in ["host", "container", "host", "", "", "host"].into_iter().enumerate()
        {
            let now = at(100 + number as u64);
            let (connection, _) = open(&path, boot, &At(now)).unwrap();
            if number == 0 {
                add(&connection, "l", true, now);
                connection.execute("INSERT INTO line VALUES ('l', 'r', 1, 'p', 1)", []).unwrap();
            }
            assert_eq!(begun(&connection), wanted([("l", at(100))]), "{number}: {boot:?}");
            let waiting = connection.query_row("SELECT count(*) FROM line", [], |row| row.get(0));
            assert_eq!(waiting, Ok(1), "nobody loses its place");
        }
    }

    #[test]
    fn without_boot_ids_no_owner_outlives_its_ttl() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let at = Moment::from_millis;
        let open = |now: u64| open(&path, "", &At(at(now))).unwrap().0;
        add(&open(8900), "l", true, at(8900));
        for (now, granted) in [(8900, 8900), (8899, 8899), (1000, 1000), (1050, 1000)] {
            assert_eq!(begun(&open(now)), wanted([("l", at(granted))]), "at {now}");
        }
    }

    /// A boot clock that shows the moment at which it is asked for the first time, and `told` then.
    #[derive(Debug)]
    struct WhenAsked<'a>(&'a std::sync::atomic::AtomicBool);

    impl Clock for WhenAsked<'static> {
        fn now(&self) -> Moment {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            Moment::from_millis(100)
        }

        fn wall(&self) -> WallMicros {
            WallMicros(0)
        }
    }

    #[test]
    fn the_clock_is_read_when_nobody_else_can_write_any_more() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static IS_READ: AtomicBool = AtomicBool::new(false);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let (connection, _) = open(&path, "boot-1", &At(Moment::default())).unwrap();
        let writing = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate);
        let writing = writing.unwrap();
        let other = connect(&path).unwrap();
        let busy = begin_boot(&other, "boot-2", &WhenAsked(&IS_READ)).unwrap_err();
        assert!(super::super::patience::is_busy(&busy) && !IS_READ.load(Ordering::SeqCst));
        drop(writing);
        begin_boot(&other, "boot-2", &WhenAsked(&IS_READ)).unwrap();
        assert!(IS_READ.load(Ordering::SeqCst));
    }
}
