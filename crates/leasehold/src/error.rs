//! What can go wrong, one enum per operation, each with the evidence of every node.
//!
//! Messages are sentences for the person who reads them at night: they name the lock, the numbers
//! and each node's own reason; a hint stands on its own line.

use std::fmt;
use std::time::Duration;

use leasehold_core::rounds::{Ballot, ReleaseStep};
use leasehold_core::{
    Answer, Fence, HolderError, LockName, LossReason, NameError, NodeError, Owner, Reply, TtlError,
};
use thiserror::Error;

use crate::node::NodeId;

/// What one node had to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Which node.
    pub node: NodeId,
    /// Its answer; `None` if the question was decided without it.
    pub answer: Option<Answer>,
    /// How long it took.
    pub after: Duration,
}

/// What each node had to say, in the order of the member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReports(pub Vec<NodeReport>);

impl NodeReports {
    pub(crate) fn of<'a>(nodes: impl Iterator<Item = &'a NodeId>, ballot: &Ballot) -> Self {
        let votes = nodes.zip(ballot.votes());
        Self(
            votes
                .map(|(node, vote)| NodeReport {
                    node: node.clone(),
                    answer: vote.as_ref().map(|vote| vote.answer.clone()),
                    after: vote.as_ref().map_or(Duration::ZERO, |vote| vote.after),
                })
                .collect(),
        )
    }

    /// What each of them answered that was asked.
    pub(crate) fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.0.iter().filter_map(|report| report.answer.as_ref())
    }

    /// Nodes that gave an answer that counts: yes or no to the question, not an error.
    pub fn answered(&self) -> usize {
        let counts = |report: &&NodeReport| matches!(&report.answer, Some(Ok(reply)) if !matches!(reply, Reply::Stranger { .. }));
        self.0.iter().filter(counts).count()
    }

    /// How many answered; told apart from those that answered that they have no vote now.
    fn turnout(&self) -> String {
        let has_no_vote =
            |report: &&NodeReport| matches!(report.answer, Some(Err(NodeError::NotVoting { .. })));
        let (answered, all) = (self.answered(), self.0.len());
        match self.0.iter().filter(has_no_vote).count() {
            0 => format!("{answered} of {all} nodes answered"),
            without => format!("{answered} of {all} nodes voted, {without} may not vote now"),
        }
    }

    /// Whether some have to be examined before they can answer.
    pub(crate) fn has_strangers(&self) -> bool {
        self.0.iter().any(|report| matches!(report.answer, Some(Ok(Reply::Stranger { .. }))))
    }

    /// Nodes that are there, but not for us.
    pub fn denied(&self) -> usize {
        let denies =
            |report: &&NodeReport| matches!(&report.answer, Some(Err(NodeError::Denied { .. })));
        self.0.iter().filter(denies).count()
    }

    /// How many nodes must agree.
    pub fn needed(&self) -> usize {
        self.0.len() / 2 + 1
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.node)?;
        match &self.answer {
            None => f.write_str("not waited for"),
            Some(Ok(Reply::Granted | Reply::GrantedWith { .. })) => {
                write!(f, "ok {:.1?}", self.after)
            }
            Some(Ok(reply)) => reply.fmt(f),
            Some(Err(error)) => error.fmt(f),
        }
    }
}

impl fmt::Display for NodeReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, report) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            report.fmt(f)?;
        }
        Ok(())
    }
}

/// Why a backend could not be opened. A node that is down is not among these: it is asked again
/// and again, and does not vote until it answers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL, or the combination of settings, makes no sense.
    #[error("{0}")]
    Options(#[from] OptionsError),
    /// A file cannot be used: the SQLite file, a certificate.
    #[error("{0}")]
    File(String),
    /// The operating system gives us no thread for a node.
    #[error("{0}")]
    Thread(String),
    /// The background thread or runtime cannot be had.
    #[error(
        "cannot start background work: {0}\nhint: call `open` within a tokio runtime, or use `Background::OwnThread`"
    )]
    Background(std::io::Error),
}

/// Settings that make no sense. Nothing was asked of any node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The lock name cannot be used.
    #[error("{0}")]
    Name(#[from] NameError),
    /// The holder's label cannot be used.
    #[error("{0}")]
    Holder(#[from] HolderError),
    /// The Ttl cannot be used.
    #[error("{0}")]
    Ttl(#[from] TtlError),
    /// The Ttl is longer than the cluster allows.
    #[error(
        "ttl {asked:?} is longer than this cluster's max_ttl, {max:?}\n\
         hint: a node that restarts sits out max_ttl, so it belongs to the cluster; leases are kept \
         in the background, so a shorter ttl is no shorter lock"
    )]
    TtlAboveMax {
        /// What was asked for.
        asked: Duration,
        /// What the cluster allows.
        max: Duration,
    },
    /// The URL cannot be read.
    #[error("backend `{url}`: {reason}")]
    Url {
        /// The URL, without its password.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// A URL parameter that nobody knows.
    #[error("backend `{url}`: unknown parameter `{name}`; known are {known}")]
    UnknownParameter {
        /// The URL, without its password.
        url: String,
        /// The parameter.
        name: String,
        /// All that are known.
        known: String,
    },
    /// A value that cannot be used.
    #[error("{name} `{value}`: {reason}")]
    Value {
        /// Which setting.
        name: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The same node twice: it would vote twice.
    #[error("node {node} is listed twice: it would vote twice")]
    DuplicateNode {
        /// Which.
        node: NodeId,
    },
    /// The backend was opened by the process that this one was forked from.
    #[error(
        "this process is a fork of the one that opened the backend (process {opened_in}), and shares \
         its connections\nhint: open `Locks` anew in the fork"
    )]
    Forked {
        /// The process that opened it.
        opened_in: u32,
    },
    /// Nodes of different kinds, or none at all.
    #[error("{0}")]
    Nodes(String),
}

/// Why a lock was not acquired.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds it.
    #[error("lock `{lock}`: held by {}{}: {nodes}", describe(owner.as_ref()), left(*expires_in))]
    Held {
        /// Which lock.
        lock: LockName,
        /// Who, if a node knew.
        owner: Option<Owner>,
        /// When the first of its owners might expire.
        expires_in: Option<Duration>,
        /// The evidence.
        nodes: NodeReports,
    },
    /// Too few nodes answered, so nobody can tell whether it is free. Worth retrying.
    #[error("lock `{lock}`: {}, {} needed: {nodes}", nodes.turnout(), nodes.needed())]
    NoQuorum {
        /// Which lock.
        lock: LockName,
        /// The evidence.
        nodes: NodeReports,
    },
    /// A quorum granted it, but so late that nothing useful was left. It was given back.
    #[error("lock `{lock}`: granted too late, {validity:.1?} of its {ttl:?} was left: {nodes}")]
    TooLate {
        /// Which lock.
        lock: LockName,
        /// What was left.
        validity: Duration,
        /// Of what.
        ttl: Duration,
        /// The evidence.
        nodes: NodeReports,
    },
    /// The waiting time, or the number of attempts, is used up.
    #[error("lock `{lock}`: gave up after {waited:.1?} and {attempts} attempt(s){}", last_words(last.as_deref()))]
    TimedOut {
        /// Which lock.
        lock: LockName,
        /// How long it was tried.
        waited: Duration,
        /// How often the nodes were asked; 0 if others of this process were ahead all the time.
        attempts: u32,
        /// What the last attempt met with.
        last: Option<Box<AcquireError>>,
    },
    /// Nothing was asked: the options make no sense.
    #[error("{0}")]
    Options(#[from] OptionsError),
}

fn describe(owner: Option<&Owner>) -> String {
    owner.map_or_else(|| "another".to_owned(), Owner::to_string)
}

fn left(expires_in: Option<Duration>) -> String {
    expires_in.map_or_else(|| ", no TTL".to_owned(), |left| format!(", {left:.1?} left"))
}

fn last_words(last: Option<&AcquireError>) -> String {
    match last {
        Some(AcquireError::Held { owner, expires_in, nodes, .. }) => {
            format!(", held by {}{}: {nodes}", describe(owner.as_ref()), left(*expires_in))
        }
        Some(other) => format!(", the last: {other}"),
        None => ": others of this process were ahead".to_owned(),
    }
}

impl AcquireError {
    /// Whether somebody else holds the lock, as opposed to: nobody can tell.
    pub fn is_held(&self) -> bool {
        match self {
            Self::Held { .. } => true,
            Self::TimedOut { last, .. } => last.as_deref().is_none_or(Self::is_held),
            _ => false,
        }
    }

    /// Whether so many nodes deny us that no quorum is left, whoever else comes back: it takes another
    /// password, token or member list, not time.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::NoQuorum { nodes, .. } => nodes.0.len() - nodes.denied() < nodes.needed(),
            _ => false,
        }
    }
}

/// A lease that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("lock `{lock}` (fence {fence}) is lost: {reason}")]
pub struct Loss {
    /// Which lock.
    pub lock: LockName,
    /// The fence it was held with.
    pub fence: Fence,
    /// Why.
    pub reason: LossReason,
}

/// Why a lease must not be relied on now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ValidityError {
    /// It is lost.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// Less is left than the caller needs.
    #[error("lock `{lock}`: {left:.1?} of validity left, {margin:?} needed")]
    TooShort {
        /// Which lock.
        lock: LockName,
        /// What is left.
        left: Duration,
        /// What is needed.
        margin: Duration,
    },
}

fn and_left(left: Duration) -> String {
    if left.is_zero() { String::new() } else { format!(", {left:.1?} left") }
}

/// Why a lease was not extended. Unless it is lost, the old deadline stands.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// It is lost, for ever.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// No quorum extended it. Still held for `left`; worth retrying.
    #[error("lock `{lock}`: not extended{}: {nodes}", and_left(*left))]
    NoQuorum {
        /// Which lock.
        lock: LockName,
        /// Until the old deadline. Zero for a lease that only its token is known of.
        left: Duration,
        /// The evidence.
        nodes: NodeReports,
    },
    /// Nothing was asked: the options make no sense.
    #[error("{0}")]
    Options(#[from] OptionsError),
}

/// What became of a lease that was given back. None of these is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a release can find out that the lease had been lost before"]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// It was held, and is free now.
    Released,
    /// It was left to the next waiter of this process, and no node was asked. It was good by our own
    /// clock; whether it had been taken away by force is found out by whoever has it next.
    HandedOver,
    /// It had run out before.
    AlreadyExpired,
    /// It had run out before, or was taken away by force, and somebody else holds it now.
    TakenOver {
        /// Who.
        by: Owner,
    },
    /// It was not held any more: others had the lock since, or it was taken away by force. Nobody
    /// holds it now on a quorum of the nodes, but their fences have moved on.
    Superseded {
        /// The highest fence on the nodes.
        fence: Fence,
    },
    /// Too few nodes answered to tell: at worst it stays until its Ttl is over.
    Unknown {
        /// The evidence.
        nodes: NodeReports,
    },
}

impl ReleaseOutcome {
    pub(crate) fn of(step: ReleaseStep, nodes: impl FnOnce() -> NodeReports) -> Self {
        match step {
            ReleaseStep::Released => Self::Released,
            ReleaseStep::AlreadyExpired => Self::AlreadyExpired,
            ReleaseStep::TakenOver { by } => Self::TakenOver { by },
            ReleaseStep::Superseded { fence } => Self::Superseded { fence },
            ReleaseStep::Wait | ReleaseStep::Look | ReleaseStep::Unknown => {
                Self::Unknown { nodes: nodes() }
            }
        }
    }
}

/// Why `run` gave no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError<T, E> {
    /// The lock was not acquired; the body did not run.
    #[error(transparent)]
    Acquire(AcquireError),
    /// The lease was lost. The body was cancelled, or had gone on past the deadline.
    #[error("{loss}")]
    Lost {
        /// What was lost.
        loss: Loss,
        /// What the body came to, if it ended all the same, too late.
        output: Option<Result<T, E>>,
    },
    /// The body failed while the lease was good.
    #[error("{0}")]
    Body(E),
}

/// Why a question about locks could not be answered.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum InspectError {
    /// Too few nodes answered.
    #[error("{}, {} needed: {nodes}", nodes.turnout(), nodes.needed())]
    NoQuorum {
        /// The evidence.
        nodes: NodeReports,
    },
    /// Nothing was asked: the options make no sense.
    #[error("{0}")]
    Options(#[from] OptionsError),
}

/// Why a lock was not taken away from its holder.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ForceReleaseError {
    /// The holder's fence is not the one that was named. If it is higher, the lock went to another
    /// since, or its lease was refreshed; or nobody ever had the one that was named, which nodes that
    /// remember only the highest cannot tell.
    #[error(
        "lock `{lock}`: its fence is {found}, not {expected}{}\n\
         hint: look at it again before you take it away",
        if found > expected { ": it moved on since, or never was that" } else { "" }
    )]
    FenceMovedOn {
        /// Which lock.
        lock: LockName,
        /// What was named.
        expected: Fence,
        /// What stands there.
        found: Fence,
    },
    /// It is not one of ours, and so has no fence by which to tell it from what was seen before.
    #[error(
        "lock `{lock}` is held by {owner}: it has no fence\nhint: remove it with its own tools"
    )]
    NoFence {
        /// Which lock.
        lock: LockName,
        /// Who holds it.
        owner: Owner,
    },
    /// Too few nodes answered.
    #[error("lock `{lock}`: {}, {} needed: {nodes}", nodes.turnout(), nodes.needed())]
    NoQuorum {
        /// Which lock.
        lock: LockName,
        /// The evidence.
        nodes: NodeReports,
    },
    /// Nothing was asked: the options make no sense.
    #[error("{0}")]
    Options(#[from] OptionsError),
}

/// Why nodes were not set up as a new cluster, or with a new member list.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum InitError {
    /// Every node must be there.
    #[error("node {node} does not answer: {error}\nhint: all nodes must be up for this")]
    Unreachable {
        /// Which node.
        node: NodeId,
        /// Why.
        error: NodeError,
    },
    /// Some nodes know this cluster and others do not: that is a node that lost its memory.
    #[error(
        "node {known} serves this cluster already, node {blank} does not know it\n\
         hint: a node that lost its memory is admitted by itself when its quarantine is over"
    )]
    NotNew {
        /// A node that is admitted.
        known: NodeId,
        /// A node that is not.
        blank: NodeId,
    },
    /// A node belongs to others.
    #[error("node {node}: {reason}")]
    Refused {
        /// Which node.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// Nothing was asked: the options make no sense.
    #[error("{0}")]
    Options(#[from] OptionsError),
}
