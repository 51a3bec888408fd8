//! The outcome of an examination: the pass of a node that votes, or why it does not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClockJump, Facts, Fence, Moment, NodeError, Origin, Request};

/// The proof that a node was examined, to be shown with each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The node's record, to the letter.
    pub record: Arc<str>,
    /// The connection on which it was read, and the server that was met on it. Behind another one
    /// may be a server that restarted.
    pub generation: u64,
    /// An absent fence counts as this, so a proposal must be above it.
    pub floor: Fence,
    /// The longest Ttl of the cluster.
    pub max_ttl: Duration,
    /// Whether the node waited, before it voted, for all leases that it may have forgotten.
    pub has_waited: bool,
}

impl Pass {
    /// `request` as this node is asked. One that did not wait heals no lease from before its floor:
    /// others may have had the lock since then, and what it has of them may be from an old backup.
    /// A lease that it still keeps is extended, for only its owner wrote that.
    pub fn fitted(&self, request: &Arc<Request>) -> Arc<Request> {
        match &**request {
            Request::Extend { lock, holder, token, next, unbroken: false, ttl }
                if !self.has_waited && *token < self.floor =>
            {
                let (lock, holder) = (lock.clone(), holder.clone());
                let (token, next, unbroken, ttl) = (Fence::ZERO, *next, false, *ttl);
                Arc::new(Request::Extend { lock, holder, token, next, unbroken, ttl })
            }
            _ => request.clone(),
        }
    }
}

/// Whether a node votes, as far as this client is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked it yet.
    Unknown,
    /// It does.
    Voting(Arc<Pass>),
    /// Not before a moment on our clock.
    Waiting {
        /// When it is looked at again.
        until: Moment,
        /// Why it must wait.
        cause: Cause,
    },
    /// Not until somebody changes something.
    Refused {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Never, for this client: it belongs to another cluster. Where one node does, two member lists
    /// are in use, and nothing may be acquired with this one.
    Foreign {
        /// Whose it is.
        reason: String,
    },
    /// It did not answer.
    Down(NodeError),
}

/// Why a node has to wait before it may vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is new, or it lost its memory: nobody but a person can tell.
    Forgot,
    /// Another process or another history of writes than before: some of its memory may be gone.
    AnotherLife,
    /// A change of the member list: it knows nothing of what the list before granted.
    AnotherList,
    /// Its clock went ahead, so that it may have ended leases early.
    Clock(ClockJump),
    /// Its clock is off those of the others.
    Off {
        /// How far ahead, in microseconds; negative for behind.
        micros: i64,
    },
    /// Its member list is being changed.
    Barred,
}

impl Standing {
    /// When to examine it next, if a node that votes is examined once in `every`.
    pub fn look_again_in(&self, now: Moment, every: Duration) -> Duration {
        /// Short, so that a node is back soon.
        const WHILE_DOWN: Duration = Duration::from_millis(250);
        match self {
            Self::Voting(_) | Self::Refused { .. } | Self::Foreign { .. } => every,
            Self::Waiting { until, .. } => (until.since(now) + Duration::from_millis(1)).min(every),
            Self::Unknown | Self::Down(_) => WHILE_DOWN.min(every),
        }
    }

    /// Whether the server that answers may not vote, however long a client waits.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Foreign { .. })
    }

    /// The pass, if the node votes.
    pub fn pass(&self) -> Option<&Pass> {
        self.pass_shared().map(|pass| &**pass)
    }

    pub(super) fn pass_shared(&self) -> Option<&Arc<Pass>> {
        match self {
            Self::Voting(pass) => Some(pass),
            _ => None,
        }
    }

    /// Why a node that does not vote does not.
    pub fn objection(&self, now: Moment) -> Option<NodeError> {
        let (reason, cause) = match self {
            Self::Voting(_) => return None,
            Self::Down(error) => return Some(error.clone()),
            Self::Unknown => ("not connected yet".to_owned(), None),
            Self::Foreign { reason } => return Some(NodeError::Denied { reason: reason.clone() }),
            Self::Refused { reason } => (reason.clone(), None),
            Self::Waiting { cause: cause @ (Cause::Barred | Cause::Off { .. }), .. } => {
                (cause.to_string(), Some(*cause))
            }
            Self::Waiting { until, cause } => {
                let left = until.since(now);
                (format!("{cause}: it does not vote for another {left:.1?}"), Some(*cause))
            }
        };
        Some(NodeError::NotVoting { reason, cause })
    }
}

impl Cause {
    pub(super) fn of(origin: Origin) -> Self {
        match origin {
            Origin::First => Self::Forgot,
            Origin::Later => Self::AnotherLife,
            Origin::Succession => Self::AnotherList,
        }
    }
}

/// Why the name of a member does not lead to one server, or may not, as far as several connections
/// tell.
pub(crate) fn no_single_server(facts: &Facts) -> Option<String> {
    answered_by_several(facts).or_else(|| (facts.unmet > 0).then(|| met_nobody(facts.unmet)))
}

pub(super) fn answered_by_several(facts: &Facts) -> Option<String> {
    let run_id = &facts.server.run_id;
    let other = facts.others.iter().find(|other| *other != run_id);
    other.map(|other| {
        format!(
            "its address is answered by several servers (run ids {run_id:.8} and {other:.8}): \
             give each server an address of its own"
        )
    })
}

pub(super) fn met_nobody(connections: usize) -> String {
    format!("not compared yet: {connections} further connection(s) met nobody")
}

/// A length of time in one unit that people think in.
pub(super) fn rounded(time: Duration) -> String {
    match time.saturating_add(Duration::from_millis(500)).as_secs() {
        0..10 => format!("{time:.1?}"),
        secs @ 10..7_200 => format!("{secs} s"),
        secs @ 7_200..172_800 => format!("{} h", secs / 3_600),
        secs => format!("{} d", secs / 86_400),
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgot => f.write_str("it is new or lost its memory"),
            Self::AnotherLife => {
                f.write_str("it restarted, copied another server or got its first replica")
            }
            Self::Clock(jump) => jump.fmt(f),
            Self::Off { micros } => {
                let by = Duration::from_micros(micros.unsigned_abs());
                let way = if *micros < 0 { "behind" } else { "ahead of" };
                write!(f, "its clock is {} {way} the others: put it right", rounded(by))
            }
            Self::AnotherList => f.write_str(
                "its member list was changed, and leases of the list before may live still",
            ),
            Self::Barred => f.write_str("its member list is being changed"),
        }
    }
}
