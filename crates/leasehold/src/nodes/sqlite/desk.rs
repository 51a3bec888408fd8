//! Who carries a request out: whoever asks, on the spot, if nobody is ahead of it and no other
//! process is in the way; else the node's thread. Either way in the order of the calls.
//!
//! To go through the thread costs two switches between threads, which is more than the statement
//! itself takes. But a caller is never kept: what finds the file busy, may take long, or would have
//! to wait for the disk is handed over.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{Answer, NodeError, Request};

use super::hints::Hint;
use super::whereabouts::Whereabouts;
use super::worker::Worker;
use crate::node::Ask;

/// At some 20 µs each, more than this would wait longer than the usual limit of 50 ms.
const BACKLOG_MAX: usize = 4096;

/// How long a node that was dropped goes on with what it was asked before.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// What is to be done with the file.
#[derive(Debug)]
pub(super) enum Job {
    /// A request, and when it was made.
    Ask(Ask, Instant),
    Hint(Hint),
    /// To see whether the file is still there.
    Look,
}

impl Job {
    pub(super) fn is_release(&self) -> bool {
        matches!(self, Self::Ask(ask, _) if matches!(*ask.request, Request::Release { .. }))
    }

    fn settle(self, answer: Option<Answer>) {
        if let (Self::Ask(ask, _), Some(answer)) = (self, answer) {
            ask.reply_to.answer(answer);
        }
    }
}

/// What came of a job.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answer: Option<Answer>,
    /// What there is to be done besides, and could not be done without waiting.
    pub(super) rest: Option<Hint>,
}

/// The worker and what waits for it.
#[derive(Debug)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// Wakes the thread.
    called: Condvar,
}

#[derive(Debug)]
struct State {
    /// Away while somebody works with it.
    worker: Option<Box<Worker>>,
    jobs: VecDeque<Job>,
    /// Set when the node is dropped: from then on nothing new is begun.
    finish_by: Option<Instant>,
    /// The thread will look at the file soon.
    is_watching: bool,
    /// Nobody is there to carry out what is handed over.
    is_closed: bool,
}

impl Desk {
    pub(super) fn new(worker: Worker) -> Arc<Self> {
        let state = State {
            worker: Some(Box::new(worker)),
            jobs: VecDeque::new(),
            finish_by: None,
            is_watching: false,
            is_closed: false,
        };
        Arc::new(Self { state: Mutex::new(state), called: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the job or has it done, behind all that were given before.
    pub(super) fn take(&self, job: Job) {
        let mut state = self.state();
        if state.jobs.is_empty()
            && state.worker.as_ref().is_some_and(|worker| worker.is_quick(&job))
            && let Some(worker) = state.worker.take()
        {
            drop(state);
            return self.at_once(worker, job);
        }
        // Twice the room for releases: each frees a lock, and there is at most one per acquire.
        let room = if job.is_release() { 2 * BACKLOG_MAX } else { BACKLOG_MAX };
        let backlog = state.jobs.len();
        if backlog >= room {
            drop(state);
            let reason = format!("{backlog} requests wait for the lock file already");
            return job.settle(Some(Err(NodeError::Overloaded { reason })));
        }
        if state.is_closed {
            drop(state);
            // Dropping it answers it.
            return drop(job);
        }
        state.jobs.push_back(job);
        if state.worker.is_some() {
            self.called.notify_one();
        }
    }

    fn at_once(&self, worker: Box<Worker>, job: Job) {
        let mut away = Away { desk: self, worker: Some(worker), unfinished: None };
        match away.worker().try_job(&job) {
            Some(done) => {
                away.unfinished = done.rest.map(Job::Hint);
                // Back at its place first: whoever hears the answer may ask again.
                drop(away);
                job.settle(done.answer);
            }
            None => away.unfinished = Some(job),
        }
    }

    /// What the thread does: ends when the node is dropped and nothing is left to do, or no time to
    /// do it.
    pub(super) fn work(&self) {
        let _closing = Closing(self);
        let mut state = self.state();
        loop {
            let is_idle = state.jobs.is_empty() && state.finish_by.is_none();
            let Some(worker) = state.worker.take_if(|_| !is_idle) else {
                state = self.rest(state);
                continue;
            };
            let is_over = state.finish_by.is_some_and(|end| Instant::now() >= end);
            let job = state.jobs.pop_front().filter(|_| !is_over);
            drop(state);
            let Some(job) = job else { return worker.end() };
            let mut away = Away { desk: self, worker: Some(worker), unfinished: None };
            let answer = away.worker().job(&job);
            drop(away);
            job.settle(answer);
            state = self.state();
        }
    }

    /// Waits until there may be something to do. As long as there are leases, that is to look at the
    /// file every so often.
    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let keeps_leases = state.worker.as_ref().is_some_and(|worker| worker.keeps_leases());
        state.is_watching = keeps_leases && state.jobs.is_empty();
        if !state.is_watching {
            return self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let waited = self.called.wait_timeout(state, Whereabouts::CHECK_EVERY);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && state.jobs.is_empty() {
            state.jobs.push_back(Job::Look);
        }
        state
    }

    /// Lets the thread finish what was asked.
    pub(super) fn close(&self) {
        self.state().finish_by = Some(Instant::now() + FINISH_WITHIN);
        self.called.notify_one();
    }
}

/// The worker in somebody's hands. Goes back to its place also if that one panics.
struct Away<'a> {
    desk: &'a Desk,
    worker: Option<Box<Worker>>,
    /// What is handed over to the thread. Whatever was asked since comes behind it.
    unfinished: Option<Job>,
}

impl Away<'_> {
    fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("it goes back only when this is dropped")
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        state.worker = self.worker.take();
        if state.is_closed {
            // Answered by being dropped, which must not happen under the mutex.
            return;
        }
        if let Some(job) = self.unfinished.take() {
            state.jobs.push_front(job);
        }
        let keeps_leases = state.worker.as_ref().is_some_and(|worker| worker.keeps_leases());
        let is_to_watch = keeps_leases && !state.is_watching;
        if is_to_watch || !state.jobs.is_empty() || state.finish_by.is_some() {
            self.desk.called.notify_one();
        }
    }
}

/// The end of the thread, also by a panic: what waits for it is answered by being dropped.
struct Closing<'a>(&'a Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        drop(jobs);
    }
}
