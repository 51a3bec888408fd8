//! The floor of a lock in a file: the bare statements, with a fence, on a table like Leasehold's.
//! It blocks its thread, as the statements do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS locks (
        name TEXT PRIMARY KEY, owner TEXT, expires INTEGER, fence INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID";
const ACQUIRE: &str = "
    INSERT INTO locks (name, owner, expires, fence) VALUES (?1, ?2, ?3, 1)
    ON CONFLICT (name) DO UPDATE
       SET owner = excluded.owner, expires = excluded.expires, fence = fence + 1
     WHERE owner IS NULL OR expires <= ?4
    RETURNING fence";
const RELEASE: &str = "UPDATE locks SET owner = NULL WHERE name = ?1 AND owner = ?2";

const TTL: Duration = Duration::from_secs(10);
const BUSY_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Bare {
    connection: Mutex<Connection>,
    start: Instant,
    process: usize,
    turn: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Held {
    name: String,
    owner: String,
}

impl Bare {
    pub(crate) fn open(file: &str, process: usize) -> rusqlite::Result<Bare> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(BUSY_LIMIT)?;
        connection.pragma_update(None, "page_size", 1024)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(TABLE)?;
        let (start, turn) = (Instant::now(), AtomicU64::new(0));
        Ok(Bare { connection: Mutex::new(connection), start, process, turn })
    }

    pub(crate) fn acquire(&self, name: &str) -> Result<Held, String> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{:016x}{turn:016x}", self.process);
        let now = self.start.elapsed();
        let row = params![name, owner, nanos(now + TTL), nanos(now)];
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let fence = connection
            .prepare_cached(ACQUIRE)
            .and_then(|mut acquire| acquire.query_row(row, |row| row.get::<_, i64>(0)));
        fence.map_err(|error| error.to_string())?;
        Ok(Held { name: name.to_owned(), owner })
    }

    pub(crate) fn release(&self, held: &Held) -> Result<(), String> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let row = params![held.name, held.owner];
        let released =
            connection.prepare_cached(RELEASE).and_then(|mut release| release.execute(row));
        match released {
            Ok(1) => Ok(()),
            Ok(_) => Err("not held".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn nanos(since: Duration) -> i64 {
    since.as_nanos().try_into().unwrap_or(i64::MAX)
}
