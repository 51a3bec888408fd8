//! What a client expects of its nodes, and how long a node that forgot must wait.

use std::time::Duration;

use crate::{Drift, Fingerprint, MemberName, Record};

/// What a client expects of its nodes. The same for all nodes of a cluster.
#[derive(Debug, Clone)]
pub struct AdmissionPolicy {
    /// The member list that this client is configured for.
    pub cluster: Fingerprint,
    /// How many nodes that list has.
    pub nodes: usize,
    /// The longest Ttl of the cluster. The same for all its clients, like the member list: quarantines
    /// last as long. `None`, which adopts what the node says, only where there is no quarantine.
    pub max_ttl: Option<Duration>,
    /// Written to a node that has no record, if `max_ttl` says nothing.
    pub max_ttl_default: Duration,
    /// How far clocks may drift.
    pub drift: Drift,
    /// How far the wall clocks of nodes may be apart. A node whose clock is not within this of a
    /// quorum's, its own included, grants nothing and gives no floor.
    pub max_clock_skew: Duration,
    /// Whether a node that forgot sits out. Off only for a quorum of one.
    pub quarantine: bool,
    /// Whether a node that may evict keys is refused rather than warned about.
    pub strict: bool,
}

impl AdmissionPolicy {
    /// What the record of the member called `name` calls it.
    pub fn member(&self, name: &str) -> MemberName {
        if self.nodes == 1 { MemberName::of_one() } else { MemberName::new(name) }
    }

    /// How long a node that forgot must not vote, where the longest Ttl is this.
    pub fn quarantine_for(&self, max_ttl: Duration) -> Duration {
        quarantine(max_ttl, self.drift, self.max_clock_skew)
    }

    /// How long the life that this record describes must not vote.
    pub fn quarantine_of(&self, record: &Record) -> Duration {
        self.quarantine_for(record.max_ttl).max(record.waits.unwrap_or_default())
    }

    /// Whether the life that this record describes waits at all before it votes. A single node waits
    /// for what the list before it granted, though not for what it forgot.
    pub(super) fn waits(&self, record: &Record) -> bool {
        self.quarantine || record.waits.is_some()
    }

    /// The longest Ttl, where no record says it.
    pub fn longest_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(self.max_ttl_default)
    }

    /// Whether a record is one of this member list, with this longest Ttl.
    pub fn is_list_of(&self, record: &Record) -> bool {
        record.cluster == self.cluster
            && record.nodes == self.nodes
            && self.max_ttl.is_none_or(|ours| ours == record.max_ttl)
    }
}

/// How long a node that forgot must not vote: until the longest lease that it may have granted is
/// over, and until its clock is above every number that it may have given.
pub fn quarantine(max_ttl: Duration, drift: Drift, max_clock_skew: Duration) -> Duration {
    let skew = max_clock_skew.saturating_mul(2);
    max_ttl.saturating_add(drift.allowance(max_ttl)).saturating_add(skew)
}
