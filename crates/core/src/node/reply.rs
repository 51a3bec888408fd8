//! What a node answers, and what it says of itself; also why there is no answer that counts.

use std::fmt;
use std::time::Duration;

use crate::quorum::proposed_at;
use crate::{Cause, Fence, Holder, LockName, Record, WallMicros};

/// Who owns a lock on a node, as far as the node can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// One of ours.
    Holder(Holder),
    /// Another library's lock under the same key.
    OtherLibrary {
        /// Its value, made printable.
        value: String,
    },
    /// Something at the lock's key that is not a lock at all.
    ForeignKey {
        /// Its type, in the backend's word: `hash`, `list` …
        kind: String,
    },
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Acquire: owned now, and the fence went strictly up to the proposal.
    Granted,
    /// Acquire, by a service that makes its own fences, such as a lock server: owned now, with this
    /// one. Counts only where that service is the whole quorum: numbers of two of them could not be
    /// compared.
    GrantedWith {
        /// The fence that went strictly up there.
        fence: Fence,
    },
    /// Acquire or extend: somebody else owns it. Nothing was written.
    Busy {
        /// Who.
        owner: Owner,
        /// Until the owner expires; `None` if it never does.
        expires_in: Option<Duration>,
        /// The fence on this node.
        fence: Fence,
        /// When the owner acquired it, if the node can tell.
        since: Option<WallMicros>,
    },
    /// Acquire: the proposal is not above the fence. Nothing was written.
    Behind {
        /// The fence on this node.
        fence: Fence,
    },
    /// Extend: was the owner, and is for another Ttl.
    Extended {
        /// The node's clock.
        clock: WallMicros,
    },
    /// Extend: there was no owner, and is now.
    Healed {
        /// The node's clock.
        clock: WallMicros,
    },
    /// Extend or force-release: a later acquisition wrote a higher fence here.
    Superseded {
        /// The fence on this node.
        fence: Fence,
    },
    /// Release or force-release: was the owner, and is no more.
    Released,
    /// Release or force-release: was not the owner.
    NotHeld {
        /// Who is.
        owner: Option<Owner>,
    },
    /// The identity that came with the request is not this node's. Nothing was written.
    Stranger {
        /// The record that stands there.
        record: Option<String>,
    },
    /// Inspect.
    Seen(Sighting),
    /// List.
    Locks(Vec<Sighting>),
    /// Probe.
    Facts(Box<Facts>),
    /// Replace the record.
    Record {
        /// Whether it was written.
        replaced: bool,
    },
    /// Forget idle fences.
    Forgot {
        /// How many fences went.
        fences: u64,
    },
}

/// One lock as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Which lock.
    pub lock: LockName,
    /// Who owns it, if anybody.
    pub owner: Option<Owner>,
    /// Until the owner expires; `None` without an owner, or if it never does.
    pub expires_in: Option<Duration>,
    /// The fence recorded here; `None` if there is no record.
    pub fence: Option<Fence>,
    /// When the owner acquired it, if the node can tell. A fact of its own: a fence is a number, and
    /// whoever makes it may count as they like.
    pub since: Option<WallMicros>,
}

impl Reply {
    /// The refusal of a voter, whose fences are our proposals.
    pub fn busy(owner: Owner, expires_in: Option<Duration>, fence: Fence) -> Self {
        let since = proposed_at(&owner, fence);
        Self::Busy { owner, expires_in, fence, since }
    }
}

impl Sighting {
    /// What a voter sees, whose fences are our proposals.
    pub fn by_voter(
        lock: LockName,
        owner: Option<Owner>,
        expires_in: Option<Duration>,
        fence: Option<Fence>,
    ) -> Self {
        let since = owner.as_ref().zip(fence);
        let since = since.and_then(|(owner, fence)| proposed_at(owner, fence));
        Self { lock, owner, expires_in, fence, since }
    }
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Counts the connections to this node, and the servers that were met on them.
    pub generation: u64,
    /// The node's clock.
    pub clock: WallMicros,
    /// The identity record, as it stands there.
    pub record: Option<String>,
    /// The highest fence of any lock there that is not spent; zero if there is none.
    pub highest: Fence,
    /// Whether the fence of a lock there is spent.
    pub has_spent: bool,
    /// What kind of server this is.
    pub server: ServerFacts,
    /// The run ids that other connections to the same address met.
    pub others: Vec<String>,
    /// How many connections that were made to compare met nobody.
    pub unmet: usize,
    /// How many addresses its name has, as far as its name has any.
    pub addresses: usize,
}

/// What kind of server a node is. Read in the same atomic step as the record and the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// Name and version: `redis 7.0.15`.
    pub version: String,
    /// Changes with each start of the server.
    pub run_id: String,
    /// Names the history of writes that the server has. Changes when the server copies another
    /// one, also if it does so for a moment and its process lives on. [`NO_REPLICATION`] where
    /// there is no such thing.
    pub replication_id: String,
    /// Whether it may vote at all.
    pub role: Role,
    /// Set if the server may throw keys away under memory pressure: its policy.
    pub evicts: Option<String>,
    /// Whether it writes each change to its disk, as far as it says. Nothing is decided from it.
    pub persists: bool,
    /// Whether owners expire by the wall clock, so that a jump of it ends leases early or late.
    pub expires_by_wall: bool,
}

/// The replication id of a server that is never replicated.
pub const NO_REPLICATION: &str = "-";

/// What part a server plays among its own kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It copies another server.
    Replica,
    /// It is a shard of a cluster.
    ClusterMember,
}

/// Why a node gave no answer that counts. Any of these is that node's "no", and says nothing about
/// the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// No answer within the time limit.
    TimedOut {
        /// The limit.
        after: Duration,
    },
    /// The node cannot be reached: refused, no such host, TLS, connection closed …
    Unreachable {
        /// The reason, in the system's words.
        reason: String,
    },
    /// The node is there, but not for us: wrong password, missing right, another cluster's node.
    Denied {
        /// The node's own words, or whose node it is.
        reason: String,
    },
    /// The node answered with an error: LOADING, READONLY, OOM, disk full …
    Rejected {
        /// The node's own words.
        reason: String,
    },
    /// The node may not vote now: quarantined, clock jumped, a replica …
    NotVoting {
        /// Why, and for how long.
        reason: String,
        /// What it waits for, if it waits.
        cause: Option<Cause>,
    },
    /// The node answered something that this request never gets.
    Garbled {
        /// What it was.
        reason: String,
    },
    /// What the node granted is known to nobody who asks it from now on: its data were removed, or
    /// replaced by others. Its leases are over.
    Gone {
        /// What became of it.
        reason: String,
    },
    /// Too much waits for this node already: the request was not sent, nor will it be.
    Overloaded {
        /// How much, and since when.
        reason: String,
    },
}

/// What became of one request to one node.
pub type Answer = Result<Reply, NodeError>;

impl Owner {
    /// Reads what stands at a lock's key.
    pub fn from_value(value: &[u8]) -> Self {
        match std::str::from_utf8(value).ok().and_then(|text| Holder::parse(text).ok()) {
            Some(holder) => Self::Holder(holder),
            None => Self::OtherLibrary { value: value.escape_ascii().to_string() },
        }
    }

    /// Whether this is `holder`.
    pub fn is(&self, holder: &Holder) -> bool {
        matches!(self, Self::Holder(owner) if owner == holder)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holder(holder) => f.write_str(holder.label()),
            Self::OtherLibrary { value } => write!(f, "another library's lock `{value}`"),
            Self::ForeignKey { kind } => write!(f, "a foreign key of type {kind}"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted | Self::GrantedWith { .. } => f.write_str("ok"),
            Self::Busy { owner, expires_in: Some(left), .. } => {
                write!(f, "held by {owner}, {left:.1?} left")
            }
            Self::Busy { owner, expires_in: None, .. } => write!(f, "held by {owner}, no TTL"),
            Self::Behind { fence } => write!(f, "fence is at {fence} already"),
            Self::Extended { .. } => f.write_str("extended"),
            Self::Healed { .. } => f.write_str("healed"),
            Self::Superseded { fence } => write!(f, "superseded by fence {fence}"),
            Self::Released => f.write_str("released"),
            Self::NotHeld { owner: Some(owner) } => write!(f, "held by {owner}"),
            Self::NotHeld { owner: None } => f.write_str("not held"),
            Self::Stranger { record: None } => {
                f.write_str("it may not be the server that was examined, or lost its memory")
            }
            Self::Stranger { record: Some(_) } => f.write_str("its identity changed"),
            Self::Seen(_) | Self::Locks(_) | Self::Facts(_) => f.write_str("answered"),
            Self::Record { replaced: true } => f.write_str("record written"),
            Self::Record { replaced: false } => f.write_str("record was changed by another"),
            Self::Forgot { fences } => write!(f, "forgot {fences} idle fences"),
        }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { after } => write!(f, "timed out after {after:?}"),
            Self::Unreachable { reason }
            | Self::Denied { reason }
            | Self::Rejected { reason }
            | Self::NotVoting { reason, .. }
            | Self::Gone { reason }
            | Self::Overloaded { reason } => f.write_str(reason),
            Self::Garbled { reason } => write!(f, "unexpected answer: {reason}"),
        }
    }
}

impl Facts {
    /// The highest number that the node remembers, or may have forgotten in an orderly way: nobody may
    /// be given it again.
    pub fn remembers(&self) -> Fence {
        let record = self.record.as_deref().and_then(|text| Record::parse(text).ok());
        self.highest.max(record.map_or(Fence::ZERO, |record| record.floor))
    }
}

impl NodeError {
    /// It may not vote now, for a reason that is not a wait.
    pub fn not_voting(reason: impl Into<String>) -> Self {
        Self::NotVoting { reason: reason.into(), cause: None }
    }

    /// Whether only a person can change it.
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }
}

impl std::error::Error for NodeError {}
