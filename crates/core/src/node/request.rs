//! What a node can be asked. Requests are data: they can be logged, delayed, dropped and compared with
//! the model by code that does not know what they mean.

use std::sync::Arc;

use crate::{Fence, Holder, LockName, Ttl};

/// What a node can be asked. Each request is one atomic step on the node, except `List`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Take the lock, with `proposal` as the fence. Needs the node's identity.
    Acquire {
        /// Which lock.
        lock: LockName,
        /// Who asks; fresh for each attempt.
        holder: Holder,
        /// The fence of this round.
        proposal: Fence,
        /// How long the node keeps it.
        ttl: Ttl,
    },
    /// Keep the lock, or take it back on a node that lost it. Needs the node's identity.
    Extend {
        /// Which lock.
        lock: LockName,
        /// Who holds it.
        holder: Holder,
        /// The fence that the nodes have for it.
        token: Fence,
        /// The fence that they shall have: the same, or a higher one, which is a refresh.
        next: Fence,
        /// Only where `holder` is the owner, with a fence from `token` to `next`, and nothing but the
        /// time is written: whoever asks may have made all of it up.
        unbroken: bool,
        /// How long the node keeps it from now on.
        ttl: Ttl,
    },
    /// Give the lock back. Needs no identity: the holder value is unique over all lives of a node,
    /// and refusing would only leave the owner there until its Ttl.
    Release {
        /// Which lock.
        lock: LockName,
        /// Whose ownership ends.
        holder: Holder,
    },
    /// Take the lock away from `holder`, who acquired it with `fence`, and raise the fence so that
    /// it cannot be healed back. Needs the node's identity.
    ForceRelease {
        /// Which lock.
        lock: LockName,
        /// Whose ownership ends. Where another owns it, nothing is written.
        holder: Holder,
        /// The fence that the operator saw.
        fence: Fence,
        /// Why, for nodes that keep a record of it. Decides nothing.
        reason: Option<Arc<str>>,
    },
    /// Look at one lock.
    Inspect {
        /// Which lock.
        lock: LockName,
    },
    /// Look at all locks that are owned and whose name begins with `prefix`.
    List {
        /// The beginning of the names; empty for all.
        prefix: String,
    },
    /// Who are you, what time is it, do you remember me?
    Probe,
    /// Write the identity record if it still is `expected`.
    ReplaceRecord {
        /// What stands there now; `None` for nothing.
        expected: Option<Arc<str>>,
        /// What shall stand there.
        record: Arc<str>,
    },
    /// Drop the fences below `below` of locks that nobody owns. Sound only once the record's floor
    /// is at `below` or higher, which the node checks against the identity it is given.
    ForgetIdle {
        /// Fences below this one go.
        below: Fence,
    },
}

impl Request {
    /// The lock it is about, if it is about one.
    pub fn lock(&self) -> Option<&LockName> {
        match self {
            Self::Acquire { lock, .. }
            | Self::Extend { lock, .. }
            | Self::Release { lock, .. }
            | Self::ForceRelease { lock, .. }
            | Self::Inspect { lock } => Some(lock),
            Self::List { .. }
            | Self::Probe
            | Self::ReplaceRecord { .. }
            | Self::ForgetIdle { .. } => None,
        }
    }

    /// Whether a node with this record carries it out for somebody who expects `identity` there.
    pub fn may_come_from(&self, identity: Option<&str>, record: Option<&str>) -> bool {
        !self.needs_identity() || (identity.is_some() && identity == record)
    }

    /// Whether the node must be told which identity is expected.
    pub fn needs_identity(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. }
                | Self::Extend { .. }
                | Self::ForceRelease { .. }
                | Self::ForgetIdle { .. }
        )
    }
}
