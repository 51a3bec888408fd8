//! Carries one request out, with the open file in hand.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, NodeError, Request};

use super::checkpoint::Checkpointer;
use super::desk::Job;
use super::judge::Step;
use super::table::Table;
use super::whereabouts::Whereabouts;
use super::{file, patience};

/// How long a release waits for other processes whatever its limit: a lock that is not given back
/// stands until its Ttl.
const RELEASE_PATIENCE: Duration = Duration::from_millis(250);

/// Stands for a limit that is too long to count with.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The open file and all that belongs to it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) table: Table,
    pub(super) whereabouts: Whereabouts,
    pub(super) checkpointer: Checkpointer,
}

impl Worker {
    /// Whether the request takes some microseconds if nobody is in the way.
    pub(super) fn is_quick(&self, request: &Request) -> bool {
        let is_small = !matches!(request, Request::List { .. } | Request::ForgetIdle { .. });
        is_small && !self.checkpointer.is_overdue()
    }

    /// The answer, unless other processes are in the way. Nothing was done then.
    pub(super) fn try_answer(&mut self, job: &Job) -> Option<Answer> {
        let answer = self.carry_out(job, |begun, _| begun);
        self.checkpointer.look();
        match answer {
            Err(Failure::Busy { .. }) => None,
            Err(Failure::Other(error)) => Some(Err(error)),
            Ok(reply) => Some(Ok(reply)),
        }
    }

    /// The answer, however long other processes are in the way, up to the limit.
    pub(super) fn answer(&mut self, job: &Job) -> Answer {
        let answer = self.carry_out(job, |_, until| until);
        self.checkpointer.look();
        self.checkpointer.catch_up(&self.table.connection);
        answer.map_err(|failure| match failure {
            Failure::Busy { waited } => {
                let reason =
                    format!("other processes kept the lock file busy for {waited:.0?}");
                NodeError::Rejected { reason }
            }
            Failure::Other(error) => error,
        })
    }

    /// `patience` tells until when to wait for others, given when this was begun and its limit.
    fn carry_out(
        &mut self,
        job: &Job,
        patience: impl FnOnce(Instant, Instant) -> Instant,
    ) -> Result<leasehold_core::Reply, Failure> {
        let (ask, begun) = (&job.ask, Instant::now());
        let mut until = job.asked.checked_add(ask.limit).unwrap_or(begun + NO_LIMIT);
        if ask.is_release() {
            until = until.max(begun + RELEASE_PATIENCE);
        } else if begun >= until {
            return Err(Failure::Other(NodeError::TimedOut { after: ask.limit }));
        }
        let objection = match *ask.request {
            Request::Probe => self.whereabouts.objection_now(),
            _ => self.whereabouts.objection(),
        };
        if let Some(reason) = objection {
            return Err(Failure::Other(NodeError::Rejected { reason }));
        }
        let identity = ask.pass.as_ref().map(|pass| &*pass.record);
        let step = Step { request: &ask.request, identity, until: patience(begun, until) };
        self.table.apply(&step).map_err(|error| {
            if patience::is_busy(&error) {
                return Failure::Busy { waited: begun.elapsed() };
            }
            Failure::Other(NodeError::Rejected { reason: format!("SQLite: {error}") })
        })
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
    Busy { waited: Duration },
    Other(NodeError),
}
