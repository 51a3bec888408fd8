//! Looking at locks and nodes without touching them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{
    Cause, Fence, LockName, Moment, NodeError, Owner, Record, Sighting, Standing,
};

use crate::clock::Clock;
use crate::driver::Member;
use crate::node::NodeId;

/// One lock, as each node sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockStatus {
    /// Which lock.
    pub name: LockName,
    /// What each node says, in the order of the member list.
    pub nodes: Vec<(NodeId, Result<Sighting, NodeError>)>,
    /// What is left counts from then.
    pub(crate) asked_at: Moment,
    /// Whether an owner was left out because its time can be over.
    pub(crate) is_ending: bool,
}

/// Whether a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Nobody owns it on any node that answered.
    Free,
    /// A quorum has the same owner.
    Held,
    /// Some nodes have an owner, no owner has a quorum: an attempt under way, or what is left of one. Also
    /// if an owner's time can be over by now.
    Split,
}

impl LockState {
    /// `free`, `held` or `split`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Split => "split",
        }
    }
}

/// How far the nodes' time may be ahead of our clock and still be believed: clocks are apart by less.
const CLOCK_SLACK: Duration = Duration::from_secs(1);

impl LockStatus {
    /// Whether it is held.
    pub fn state(&self) -> LockState {
        match (self.holder(), self.owner()) {
            (Some(_), _) => LockState::Held,
            (None, Some(_)) => LockState::Split,
            (None, None) if self.is_ending => LockState::Split,
            (None, None) => LockState::Free,
        }
    }

    /// When its holder acquired it, or last refreshed it, as far as the nodes can tell. `None` where
    /// they name a time that is still to come: a clock was wrong then.
    pub fn since(&self, now: SystemTime) -> Option<SystemTime> {
        let since = self.sightings_of(self.holder()?).filter_map(|sighting| sighting.since);
        let since = UNIX_EPOCH + Duration::from_micros(since.max()?.0);
        (since <= now + CLOCK_SLACK).then_some(since)
    }

    /// How many nodes answered.
    pub fn answered(&self) -> usize {
        self.sightings().count()
    }

    /// How many nodes must agree.
    pub fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Whoever owns the lock on most nodes, and on how many.
    pub fn owner(&self) -> Option<(&Owner, usize)> {
        let owners = || self.sightings().filter_map(|sighting| sighting.owner.as_ref());
        let votes = |owner: &Owner| owners().filter(|other| *other == owner).count();
        owners().map(|owner| (owner, votes(owner))).max_by_key(|(_, votes)| *votes)
    }

    /// The owner, if a quorum agrees on it.
    pub fn holder(&self) -> Option<&Owner> {
        self.owner().filter(|(_, votes)| *votes > self.nodes.len() / 2).map(|(owner, _)| owner)
    }

    /// The fence with which `owner` acquired it.
    pub fn fence_of(&self, owner: &Owner) -> Option<Fence> {
        // The last round that it asked counts, and is the highest.
        self.sightings_of(owner).filter_map(|sighting| sighting.fence).max()
    }

    /// The highest fence on record, also of attempts that did not succeed.
    pub fn fence(&self) -> Option<Fence> {
        self.sightings().filter_map(|sighting| sighting.fence).max()
    }

    /// When fewer than a quorum will own it if nobody extends it: from then on it may be acquired.
    /// `None` if it is not held, or never expires.
    pub fn expires_in(&self) -> Option<Duration> {
        let holder = self.holder()?;
        let mut left: Vec<_> = self
            .sightings_of(holder)
            .map(|sighting| sighting.expires_in.unwrap_or(Duration::MAX))
            .collect();
        left.sort_unstable();
        let majority = self.nodes.len() / 2 + 1;
        left.get(left.len() - majority).copied().filter(|left| *left < Duration::MAX)
    }

    fn sightings_of(&self, owner: &Owner) -> impl Iterator<Item = &Sighting> {
        self.sightings().filter(move |sighting| sighting.owner.as_ref() == Some(owner))
    }

    fn sightings(&self) -> impl Iterator<Item = &Sighting> {
        self.nodes.iter().filter_map(|(_, sighting)| sighting.as_ref().ok())
    }
}

/// Joins what the nodes list into one status per lock.
pub(crate) fn merge(
    answers: Vec<(NodeId, Result<Vec<Sighting>, NodeError>)>,
    asked_at: Moment,
) -> Vec<LockStatus> {
    let names: BTreeMap<LockName, ()> = answers
        .iter()
        .filter_map(|(_, listed)| listed.as_ref().ok())
        .flatten()
        .map(|sighting| (sighting.lock.clone(), ()))
        .collect();
    let look = |name: &LockName, listed: &Result<Vec<Sighting>, NodeError>| match listed {
        Err(error) => Err(error.clone()),
        Ok(listed) => {
            let found = listed.iter().find(|sighting| sighting.lock == *name).cloned();
            Ok(found.unwrap_or_else(|| Sighting::by_voter(name.clone(), None, None, None)))
        }
    };
    names
        .into_keys()
        .map(|name| LockStatus {
            nodes: answers.iter().map(|(id, listed)| (id.clone(), look(&name, listed))).collect(),
            name,
            asked_at,
            is_ending: false,
        })
        .collect()
}

/// How one node is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Which node.
    pub node: NodeId,
    /// Whether it votes.
    pub state: NodeState,
    /// Of the last probe.
    pub round_trip: Option<Duration>,
    /// Its wall clock minus ours, in microseconds; good to half a round trip.
    pub clock_offset_micros: Option<i64>,
    /// Name and version of the server.
    pub version: Option<String>,
    /// Something an operator should know though the node votes.
    pub warning: Option<String>,
    /// Whether it writes each change to its disk, as far as it says.
    pub persists: Option<bool>,
    /// Which process of the server answered last.
    pub run_id: Option<String>,
    /// Which life of the node this is: another one each time it may have forgotten something.
    pub life: Option<String>,
    /// When this life began, by the node's clock.
    pub since: Option<SystemTime>,
    /// The identity record, as it stands there.
    pub record: Option<String>,
}

/// Whether a node votes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It does.
    Up,
    /// Not now: it lost its memory, or its clock jumped.
    Quarantined {
        /// For how long yet.
        left: Duration,
        /// Why, in words.
        why: String,
        /// Why.
        cause: Cause,
    },
    /// Not until somebody changes something.
    Refused {
        /// What is wrong, and what to do.
        why: String,
    },
    /// It does not answer.
    Down {
        /// Why.
        error: NodeError,
    },
    /// Nobody asked it yet.
    Unknown,
}

impl NodeHealth {
    pub(crate) fn of(member: &Member, now: Moment, clock: &dyn Clock) -> Self {
        let notes = member.notes();
        let state = match notes.admission.standing() {
            Standing::Voting(_) => NodeState::Up,
            Standing::Waiting { until, cause } => {
                let (left, why) = (until.since(now), cause.to_string());
                NodeState::Quarantined { left, why, cause: *cause }
            }
            Standing::Refused { reason } | Standing::Foreign { reason } => {
                NodeState::Refused { why: reason.clone() }
            }
            Standing::Down(error) => NodeState::Down { error: error.clone() },
            Standing::Unknown => NodeState::Unknown,
        };
        let server = notes.server.as_ref();
        let record = notes.record.as_deref().and_then(|text| Record::parse(text).ok());
        let own = record.filter(|record| server.is_some_and(|server| record.is_by(server)));
        // The core compares with our boot clock; people compare wall clocks.
        let wall_ahead = clock.wall().0 as i64 - (now.as_nanos() / 1000) as i64;
        Self {
            node: member.node.id().clone(),
            state,
            round_trip: notes.round_trip,
            clock_offset_micros: notes
                .admission
                .clock_offset_micros()
                .map(|offset| offset - wall_ahead),
            version: server.map(|server| server.version.clone()),
            warning: notes.admission.warning().map(str::to_owned),
            persists: server.map(|server| server.persists),
            run_id: server.map(|server| server.run_id.clone()),
            life: own.as_ref().map(|record| format!("{:032x}", record.life)),
            since: own.map(|record| UNIX_EPOCH + Duration::from_micros(record.born.0)),
            record: notes.record.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Holder, WallMicros};

    use super::*;

    #[test]
    fn since_is_what_the_nodes_say_whatever_the_fence_is() {
        let (lock, now) = (LockName::new("l").unwrap(), UNIX_EPOCH + Duration::from_secs(1_000));
        let owner = Owner::Holder(Holder::new("ana", 1).unwrap());
        let held = |since: Option<u64>| {
            let fence = Fence::new(7);
            let sighting = Sighting {
                since: since.map(|seconds| WallMicros(seconds * 1_000_000)),
                ..Sighting::by_voter(lock.clone(), Some(owner.clone()), None, fence)
            };
            let nodes = vec![(NodeId::new("n"), Ok(sighting))];
            let asked_at = Moment::default();
            LockStatus { name: lock.clone(), nodes, asked_at, is_ending: false }.since(now)
        };
        assert_eq!(held(Some(990)), Some(now - Duration::from_secs(10)));
        assert_eq!(held(None), None, "an engine's fence is no time");
        assert_eq!(held(Some(1_002)), None, "a clock was wrong");
    }
}
