//! What a process wants from the world: to send, to be woken, to be watched.

use std::sync::Arc;

use leasehold_core::{Moment, Request};

use super::Told;
use crate::history::Happening;

/// What a process wants from the world.
#[derive(Debug)]
pub enum Act {
    /// Send a request to one of its members.
    Send {
        /// Which member.
        member: usize,
        /// The number under which the answer is awaited.
        ask: u64,
        /// What.
        question: Question,
    },
    /// Be woken.
    Wake {
        /// When, by its own clock.
        at: Moment,
        /// What for.
        timer: Timer,
    },
    /// Answer a caller.
    Answer {
        /// Which.
        caller: usize,
        /// Which of its requests.
        request: u64,
        /// What it is told.
        told: Told,
    },
    /// Tell the observer.
    Tell(Happening),
}

/// What a process asks a server.
#[derive(Debug, Clone)]
pub struct Question {
    /// What.
    pub request: Arc<Request>,
    /// The identity that the node must have.
    pub identity: Option<Arc<str>>,
    /// The server process that it must be.
    pub run: Option<Arc<str>>,
    /// How many further connections are to be made, to see whom they meet.
    pub compares: usize,
}

/// What a process is woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// A holder has something to do.
    Holder {
        /// Which.
        holder: usize,
        /// Only if it still waits for this.
        ticket: u64,
    },
    /// The time limit of a question is over.
    Limit {
        /// Whose.
        holder: usize,
        /// Which question.
        op: u64,
    },
    /// The time limit of a refresh that reserves fences is over.
    ReserveLimit {
        /// Which refresh.
        op: u64,
    },
    /// The caller loses interest.
    Drop {
        /// Whose.
        holder: usize,
        /// In which question.
        op: u64,
    },
    /// A member is to be looked at.
    Examine {
        /// Which.
        member: usize,
        /// Only if nothing was scheduled since.
        ticket: u64,
    },
    /// A look at a member takes too long.
    ExamineLimit {
        /// Which.
        member: usize,
        /// Only if it still is the same look.
        ask: u64,
    },
}
