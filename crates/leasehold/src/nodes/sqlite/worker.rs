//! Carries one request out, with the open file in hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::{Answer, LockName, NodeError, Reply, Request};
use tokio::sync::watch;

use super::bell::News;
use super::checkpoint::Checkpointer;
use super::desk::{Done, Job};
use super::hints::{Hint, Hints};
use super::leases::Leases;
use super::table::{Step, Table};
use super::whereabouts::Whereabouts;
use super::{file, patience};
use crate::node::Ask;

/// How long a release waits for other processes whatever its limit: a lock that is not given back
/// stands until its Ttl. As long for what others are to be told.
const RELEASE_PATIENCE: Duration = Duration::from_millis(250);

/// Stands for a limit that is too long to count with.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The open file and all that belongs to it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) table: Table,
    pub(super) whereabouts: Whereabouts,
    pub(super) checkpointer: Checkpointer,
    pub(super) hints: Arc<Hints>,
    pub(super) leases: Leases,
    pub(super) alarm: Alarm,
}

/// Has the node examined at once when its file is gone.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) generation: Arc<watch::Sender<u64>>,
    pub(super) is_given: bool,
}

/// Whether other processes are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    UntilLimit,
}

impl Worker {
    /// Whether the job takes some microseconds if nobody is in the way.
    pub(super) fn is_quick(&self, job: &Job) -> bool {
        let is_small = match job {
            Job::Ask(ask, _) => {
                !matches!(*ask.request, Request::List { .. } | Request::ForgetIdle { .. })
            }
            Job::Hint(hint) => !matches!(hint, Hint::Beat),
            Job::Look => false,
        };
        is_small && !self.checkpointer.is_overdue()
    }

    /// Does the job, unless other processes are in the way. Nothing was done then.
    pub(super) fn try_job(&mut self, job: &Job) -> Option<Done> {
        let answer = match job {
            Job::Ask(ask, asked) => match self.carry_out(ask, *asked, Patience::None) {
                Err(Failure::Busy { .. }) => return None,
                Err(Failure::Other(error)) => Some(Err(error)),
                Ok(reply) => Some(Ok(reply)),
            },
            Job::Hint(hint) => match self.hint(hint, Instant::now()) {
                Err(error) if patience::is_busy(&error) => return None,
                _ => None,
            },
            Job::Look => return None,
        };
        self.checkpointer.look();
        let rest = self.freed_by(job, &answer).and_then(|lock| {
            let hint = Hint::Tell(lock.clone(), News::Free);
            self.hint(&hint, Instant::now()).err().map(|_| hint)
        });
        Some(Done { answer, rest })
    }

    /// Does the job, however long other processes are in the way, up to its limit.
    pub(super) fn job(&mut self, job: &Job) -> Option<Answer> {
        let answer = match job {
            Job::Ask(ask, asked) => {
                let reply = self.carry_out(ask, *asked, Patience::UntilLimit);
                Some(reply.map_err(Failure::sentence))
            }
            Job::Hint(hint) => {
                // Nobody waits for it, and timers cover what is not told.
                let _ = self.hint(hint, Instant::now() + RELEASE_PATIENCE);
                None
            }
            Job::Look => {
                self.leases.forget_ended(Instant::now());
                self.objection(false);
                None
            }
        };
        self.checkpointer.look();
        self.checkpointer.catch_up(&self.table.connection);
        if let Some(lock) = self.freed_by(job, &answer) {
            let hint = Hint::Tell(lock.clone(), News::Free);
            let _ = self.hint(&hint, Instant::now() + RELEASE_PATIENCE);
        }
        answer
    }

    fn hint(&self, hint: &Hint, until: Instant) -> rusqlite::Result<()> {
        if let Hint::Look(lock) = hint {
            if self.table.is_free(lock, until)? {
                self.hints.freed(lock);
            }
            return Ok(());
        }
        self.hints.carry_out(&self.table.connection, hint, until)
    }

    /// The lock that has no owner any more and that somebody waits for.
    fn freed_by<'a>(&self, job: &'a Job, answer: &Option<Answer>) -> Option<&'a LockName> {
        match (job, answer) {
            (Job::Ask(ask, _), Some(Ok(Reply::Released))) if self.table.is_waited_for.get() => {
                ask.request.lock()
            }
            _ => None,
        }
    }

    fn carry_out(
        &mut self,
        ask: &Ask,
        asked: Instant,
        patience: Patience,
    ) -> Result<Reply, Failure> {
        let begun = Instant::now();
        let mut until = asked.checked_add(ask.limit).unwrap_or(begun + NO_LIMIT);
        if matches!(*ask.request, Request::Release { .. }) {
            until = until.max(begun + RELEASE_PATIENCE);
        } else if begun >= until {
            return Err(Failure::Other(NodeError::TimedOut { after: ask.limit }));
        }
        if let Some(reason) = self.objection(matches!(*ask.request, Request::Probe)) {
            return Err(Failure::Other(NodeError::Gone { reason }));
        }
        if patience == Patience::None {
            until = begun;
        }
        let identity = ask.pass.as_ref().map(|pass| &*pass.record);
        let step = Step { request: &ask.request, identity, until };
        let reply = self.table.apply(&step).map_err(|error| {
            if patience::is_busy(&error) {
                return Failure::Busy { waited: begun.elapsed() };
            }
            Failure::Other(NodeError::Rejected { reason: format!("SQLite: {error}") })
        })?;
        self.leases.note(begun, &ask.request, &reply);
        Ok(reply)
    }

    /// Whether anybody must be told if the file goes away.
    pub(super) fn keeps_leases(&self) -> bool {
        self.leases.are_any()
    }

    /// Why the file is not to be used; looks only every so often, unless it is wanted `now`.
    fn objection(&mut self, now: bool) -> Option<String> {
        let objection = match now {
            true => self.whereabouts.objection_now(),
            false => self.whereabouts.objection(),
        };
        let was_given = std::mem::replace(&mut self.alarm.is_given, objection.is_some());
        if objection.is_some() && !was_given {
            self.alarm.generation.send_modify(|generation| *generation += 1);
        }
        objection
    }

    /// Closes the file.
    pub(super) fn end(self) {
        self.checkpointer.end();
        if self.whereabouts.objection_now().is_some() {
            // Tidying up goes by name, and under these names may be the files of others by now.
            let _ = file::tidy_at_close(&self.table.connection, false);
        }
    }
}

/// Why there is no reply.
enum Failure {
    /// Other processes were in the way. Nothing was written.
    Busy {
        waited: Duration,
    },
    Other(NodeError),
}

impl Failure {
    fn sentence(self) -> NodeError {
        match self {
            Self::Busy { waited } => {
                let reason = format!("other processes kept the lock file busy for {waited:.0?}");
                NodeError::Rejected { reason }
            }
            Self::Other(error) => error,
        }
    }
}
