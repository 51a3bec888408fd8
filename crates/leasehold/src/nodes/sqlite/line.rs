//! The lines of waiters, in the file: per lock, first come first served, for all processes that can
//! hear each other. Nothing here decides who gets a lock; it only says who is to be told.

use std::time::Duration;

use leasehold_core::{LockName, Moment};
use rusqlite::{Connection, OptionalExtension, params};

use super::nanos;
use crate::node::Ticket;

/// `realm` are those that can hear each other. `seen` is when the waiter was last known to live, on
/// the clock of the boot.
pub(super) const LINE_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS line (
        lock    TEXT NOT NULL,
        realm   TEXT NOT NULL,
        ticket  INTEGER NOT NULL,
        process TEXT NOT NULL,
        seen    INTEGER NOT NULL,
        PRIMARY KEY (lock, realm, ticket, process)
    ) STRICT, WITHOUT ROWID;
";

/// How long a waiter that gives no sign of life keeps those behind it waiting. It gives one every
/// second; who was killed is noticed at once.
const SILENCE_MAX: Duration = Duration::from_secs(3);

const ENTER: &str = "
    INSERT OR REPLACE INTO line (lock, realm, ticket, process, seen) VALUES (?1, ?2, ?3, ?4, ?5)";

const LEAVE: &str = "
    DELETE FROM line WHERE lock = ?1 AND realm = ?2 AND ticket = ?3 AND process = ?4";

const FIRST: &str = "
    SELECT ticket, process, seen, (SELECT count(*) - 1 FROM line WHERE lock = ?1 AND realm = ?2)
      FROM line WHERE lock = ?1 AND realm = ?2 ORDER BY ticket, process LIMIT 1";

const RENEW: &str = "UPDATE line SET seen = ?3 WHERE realm = ?1 AND process = ?2";

/// One waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ticket: Ticket,
    pub(super) process: String,
}

/// The first in line, and how many are behind it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) entry: Entry,
    pub(super) others: usize,
    /// It was not heard of for too long.
    pub(super) is_silent: bool,
}

/// The lines of one realm.
pub(super) struct Lines<'a> {
    pub(super) connection: &'a Connection,
    pub(super) realm: &'a str,
}

impl Lines<'_> {
    pub(super) fn enter(
        &self,
        lock: &LockName,
        entry: &Entry,
        now: Moment,
    ) -> rusqlite::Result<()> {
        let (ticket, process) = (number(entry.ticket), &entry.process);
        let row = params![lock.as_str(), self.realm, ticket, process, nanos(now)];
        self.connection.prepare_cached(ENTER)?.execute(row).map(drop)
    }

    pub(super) fn leave(&self, lock: &LockName, entry: &Entry) -> rusqlite::Result<()> {
        let row = params![lock.as_str(), self.realm, number(entry.ticket), entry.process];
        self.connection.prepare_cached(LEAVE)?.execute(row).map(drop)
    }

    pub(super) fn head(&self, lock: &LockName, now: Moment) -> rusqlite::Result<Option<Head>> {
        let mut first = self.connection.prepare_cached(FIRST)?;
        let head = first.query_row([lock.as_str(), self.realm], |row| {
            let seen = Moment::from_nanos(u64::try_from(row.get::<_, i64>(2)?).unwrap_or_default());
            // Before the machine was started, its clock may have been further.
            let is_silent = now.since(seen) > SILENCE_MAX || seen.since(now) > SILENCE_MAX;
            Ok(Head {
                entry: Entry {
                    ticket: Ticket(u64::try_from(row.get::<_, i64>(0)?).unwrap_or_default()),
                    process: row.get(1)?,
                },
                others: usize::try_from(row.get::<_, i64>(3)?).unwrap_or_default(),
                is_silent,
            })
        });
        head.optional()
    }

    /// A sign of life of all waiters of `process`.
    pub(super) fn renew(&self, process: &str, now: Moment) -> rusqlite::Result<()> {
        let row = params![self.realm, process, nanos(now)];
        self.connection.prepare_cached(RENEW)?.execute(row).map(drop)
    }
}

/// SQLite's integers are signed.
fn number(ticket: Ticket) -> i64 {
    i64::try_from(ticket.0).unwrap_or(i64::MAX)
}
