//! What the node does with the file: each request one transaction, answered like
//! [`leasehold_core::LockTable`].
//!
//! Acquire, extend and release first try the one statement that does it all if the answer is yes.
//! If it changed nothing, the lock is looked at and judged; a refusal is then answered as of that
//! look, and anything that still has to be written is judged again under the write lock.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::{
    Facts, Fence, LockName, Moment, NO_REPLICATION, Owner, Record, Reply, Request, Role,
    ServerFacts, Sighting,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::judge::{Look, Step, Write};
use super::nanos;
use super::patience::patiently;
use crate::clock::Clock;

/// The owner may be the asker itself: a second round of one acquire.
const ACQUIRE: &str = "
    INSERT INTO locks (name, owner, expires, ttl, fence)
    SELECT ?1, ?2, ?3, ?4, ?5 FROM meta WHERE record = ?6 AND floor < ?5
    ON CONFLICT (name) DO UPDATE
       SET owner = excluded.owner, expires = excluded.expires, ttl = excluded.ttl,
           fence = excluded.fence
     WHERE fence < excluded.fence
       AND (owner IS NULL OR owner = excluded.owner OR expires <= ?7)";

const EXTEND: &str = "
    UPDATE locks SET expires = max(expires, ?3), ttl = max(ttl, ?4), fence = ?5
     WHERE name = ?1 AND owner = ?2 AND expires > ?7 AND fence <= ?5
       AND EXISTS (SELECT 1 FROM meta WHERE record = ?6)";

const RELEASE: &str = "
    UPDATE locks SET owner = NULL WHERE name = ?1 AND owner = ?2 AND expires > ?3";

/// The usual case, which so costs one statement: nobody is to be told.
const RELEASE_UNLESS_WAITED_FOR: &str = "
    UPDATE locks SET owner = NULL WHERE name = ?1 AND owner = ?2 AND expires > ?3
       AND NOT EXISTS (SELECT 1 FROM line WHERE lock = ?1)";

const LOOK: &str = "
    SELECT record, floor, owner, expires, fence FROM meta LEFT JOIN locks ON name = ?1";

const WRITE: &str = "
    INSERT OR REPLACE INTO locks (name, owner, expires, ttl, fence) VALUES (?1, ?2, ?3, ?4, ?5)";

const LIST: &str = "
    SELECT name, owner, expires, fence FROM locks
     WHERE name >= ?1 AND owner IS NOT NULL AND expires > ?2 ORDER BY name";

/// Where a stretch of some thousand names ends.
const STRETCH: &str = "
    SELECT max(name) FROM (SELECT name FROM locks WHERE name > ?1 ORDER BY name LIMIT 4096)";

/// Never above the floor, which is what protects the numbers that are forgotten.
const FORGET: &str = "
    DELETE FROM locks
     WHERE name > ?1 AND name <= ?2 AND (owner IS NULL OR expires <= ?3)
       AND fence < min(?4, (SELECT floor FROM meta))";

/// The tables in the open file.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) connection: Connection,
    pub(super) clock: Arc<dyn Clock>,
    /// The boot id, which stands for the server's run: see the file's `synchronous` setting.
    pub(super) run_id: String,
    /// Whether somebody may stand in line for the lock that was released last.
    pub(super) is_waited_for: Cell<bool>,
}

impl Table {
    /// Carries one request out.
    pub(super) fn apply(&self, step: &Step<'_>) -> rusqlite::Result<Reply> {
        match step.request {
            Request::Acquire { lock, .. }
            | Request::Extend { lock, .. }
            | Request::Release { lock, .. }
            | Request::ForceRelease { lock, .. } => self.change(step, lock),
            Request::Inspect { lock } => patiently(step.until, || {
                let now = self.clock.now();
                Ok(Reply::Seen(self.look(lock, now)?.sighting(lock.clone(), now)))
            }),
            Request::List { prefix } => patiently(step.until, || self.list(prefix)),
            Request::Probe => patiently(step.until, || self.probe()),
            Request::ReplaceRecord { expected, record } => {
                let floor = Record::parse(record).map_or(Fence::MAX, |record| record.floor);
                let row = params![&**record, number(floor), expected.as_deref()];
                let replace = "UPDATE meta SET record = ?1, floor = ?2 WHERE record IS ?3";
                patiently(step.until, || self.execute(replace, row))
                    .map(|replaced| Reply::Record { replaced })
            }
            Request::ForgetIdle { below } => self.forget_idle(step, *below),
        }
    }

    fn change(&self, step: &Step<'_>, lock: &LockName) -> rusqlite::Result<Reply> {
        if let Some(done) = patiently(step.until, || self.at_once(step))? {
            return Ok(done);
        }
        let (refusal, write) = patiently(step.until, || {
            let now = self.clock.now();
            Ok(self.look(lock, now)?.judge(now, self.clock.wall(), step))
        })?;
        if write.is_none() {
            return Ok(refusal);
        }
        patiently(step.until, || {
            let transaction = self.begin()?;
            let now = self.clock.now();
            let (reply, write) = self.look(lock, now)?.judge(now, self.clock.wall(), step);
            if let Some(Write { owner, fence }) = write {
                let (holder, expires, ttl) = owner
                    .map_or((None, None, None), |(holder, at, ttl)| {
                        (Some(holder), Some(nanos(at)), Some(duration_nanos(ttl)))
                    });
                let row = params![lock.as_str(), holder, expires, ttl, number(fence)];
                self.execute(WRITE, row)?;
            }
            transaction.commit()?;
            Ok(reply)
        })
    }

    /// The whole request in one statement, if the answer is yes.
    ///
    /// The clock is read before the write lock is there. That errs on the safe side: others seem to
    /// own for longer, and what is granted still lasts a whole Ttl from when it was asked for.
    fn at_once(&self, step: &Step<'_>) -> rusqlite::Result<Option<Reply>> {
        let now = self.clock.now();
        let (statement, lock, holder, fence, ttl, yes) = match step.request {
            Request::Acquire { lock, holder, proposal, ttl } => {
                (ACQUIRE, lock, holder, proposal, ttl, Reply::Granted)
            }
            Request::Extend { lock, holder, next, unbroken: false, ttl, .. } => {
                let clock = self.clock.wall();
                (EXTEND, lock, holder, next, ttl, Reply::Extended { clock })
            }
            Request::Release { lock, holder } => {
                let row = params![lock.as_str(), holder.as_str(), nanos(now)];
                return Ok(self.release(row)?.then_some(Reply::Released));
            }
            Request::Extend { .. } => return Ok(None),
            _ => {
                self.is_waited_for.set(true);
                return Ok(None);
            }
        };
        let row = params![
            lock.as_str(),
            holder.as_str(),
            nanos(now.plus(ttl.get())),
            duration_nanos(ttl.get()),
            number(*fence),
            step.identity,
            nanos(now),
        ];
        Ok(self.execute(statement, row)?.then_some(yes))
    }

    fn release(&self, row: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<bool> {
        let is_alone = self.execute(RELEASE_UNLESS_WAITED_FOR, row)?;
        self.is_waited_for.set(!is_alone);
        Ok(is_alone || self.execute(RELEASE, row)?)
    }

    /// Whether nobody owns the lock.
    pub(super) fn is_free(&self, lock: &LockName, until: Instant) -> rusqlite::Result<bool> {
        patiently(until, || Ok(self.look(lock, self.clock.now())?.owner.is_none()))
    }

    fn look(&self, lock: &LockName, now: Moment) -> rusqlite::Result<Look> {
        let mut look = self.connection.prepare_cached(LOOK)?;
        look.query_row([lock.as_str()], |row| {
            let owner: Option<String> = row.get(2)?;
            let until = row.get::<_, Option<i64>>(3)?.map(moment).unwrap_or_default();
            Ok(Look {
                record: row.get(0)?,
                floor: fence(row, 1)?.unwrap_or_default(),
                owner: owner.map(|owner| (owner, until)).filter(|(_, until)| *until > now),
                fence: fence(row, 4)?,
            })
        })
    }

    fn list(&self, prefix: &str) -> rusqlite::Result<Reply> {
        let now = self.clock.now();
        let mut list = self.connection.prepare_cached(LIST)?;
        let mut rows = list.query(params![prefix, nanos(now)])?;
        let mut locks = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            // Names come in the order of their bytes: those with the prefix stand together.
            if !name.starts_with(prefix) {
                break;
            }
            let Ok(lock) = LockName::new(&name) else { continue };
            let owner: String = row.get(1)?;
            let owner = Some(Owner::from_value(owner.as_bytes()));
            let left = Some(moment(row.get(2)?).since(now));
            locks.push(Sighting::by_voter(lock, owner, left, fence(row, 3)?));
        }
        Ok(Reply::Locks(locks))
    }

    fn probe(&self) -> rusqlite::Result<Reply> {
        Ok(Reply::Facts(Box::new(Facts {
            generation: super::GENERATION,
            clock: self.clock.wall(),
            record: self.record()?,
            // Nobody takes a floor from a cluster of one, and to look for it would read the whole table.
            highest: Fence::ZERO,
            has_spent: false,
            server: ServerFacts {
                version: format!("sqlite {}", rusqlite::version()),
                run_id: self.run_id.clone(),
                replication_id: NO_REPLICATION.to_owned(),
                role: Role::Primary,
                evicts: None,
                persists: true,
                expires_by_wall: false,
            },
            others: Vec::new(),
            unmet: 0,
            addresses: 1,
        })))
    }

    /// Stretch by stretch, so that no other process waits for the whole table. What is not reached
    /// in time stays for the next call.
    fn forget_idle(&self, step: &Step<'_>, below: Fence) -> rusqlite::Result<Reply> {
        let (mut fences, mut from) = (0, String::new());
        loop {
            let stretch = patiently(step.until, || {
                let transaction = self.begin()?;
                let record = self.record()?;
                if step.identity.is_none() || record.as_deref() != step.identity {
                    return Ok(Err(Reply::Stranger { record }));
                }
                let to: Option<String> = self
                    .connection
                    .prepare_cached(STRETCH)?
                    .query_row([&from], |row| row.get(0))?;
                let row = params![from, to, nanos(self.clock.now()), number(below)];
                let gone = self.connection.prepare_cached(FORGET)?.execute(row)?;
                transaction.commit()?;
                Ok(Ok((gone, to)))
            });
            match stretch {
                Ok(Ok((gone, to))) => {
                    fences += gone as u64;
                    match to {
                        Some(to) if Instant::now() < step.until => from = to,
                        _ => return Ok(Reply::Forgot { fences }),
                    }
                }
                // What went before this went soundly.
                Ok(Err(_)) | Err(_) if fences > 0 => return Ok(Reply::Forgot { fences }),
                Ok(Err(stranger)) => return Ok(stranger),
                Err(error) => return Err(error),
            }
        }
    }

    fn record(&self) -> rusqlite::Result<Option<String>> {
        let mut record = self.connection.prepare_cached("SELECT record FROM meta")?;
        record.query_row([], |row| row.get(0)).optional().map(Option::flatten)
    }

    fn begin(&self) -> rusqlite::Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
    }

    /// Whether the statement changed the row that it is about.
    fn execute(&self, statement: &str, row: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<bool> {
        Ok(self.connection.prepare_cached(statement)?.execute(row)? > 0)
    }
}

/// SQLite's integers are signed; a fence is below 2^53.
fn number(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// A number that is no fence is damage, and must not be taken for a small one.
fn fence(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Fence>> {
    let Some(number) = row.get::<_, Option<i64>>(column)? else { return Ok(None) };
    let fence = u64::try_from(number).ok().and_then(Fence::new);
    fence.map(Some).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, number))
}

fn moment(nanos: i64) -> Moment {
    Moment::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

fn duration_nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
