//! Whether a node's answers count. A node that may have forgotten something must not vote before
//! everything it may have forgotten is over, and then only above a floor that covers the fences it
//! gave. Decided here from what the node says of itself; asking and writing is the driver's work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    ClockJump, ClockSample, ClockWatch, Drift, Facts, Fence, Fingerprint, Moment, NodeError,
    Record, RecordState, Role,
};

/// What a client expects of its nodes. The same for all nodes of a cluster.
#[derive(Debug, Clone)]
pub struct AdmissionPolicy {
    /// The member list that this client is configured for.
    pub cluster: Fingerprint,
    /// How many nodes that list has.
    pub nodes: usize,
    /// The longest Ttl of the cluster; `None` adopts what the nodes say.
    pub max_ttl: Option<Duration>,
    /// Written to a node that has no record, if `max_ttl` says nothing.
    pub max_ttl_default: Duration,
    /// How far clocks may drift.
    pub drift: Drift,
    /// How far any two wall clocks may be apart.
    pub max_clock_skew: Duration,
    /// Whether a node that forgot sits out. Off only for a quorum of one.
    pub quarantine: bool,
    /// Whether a node that may evict keys is refused rather than warned about.
    pub strict: bool,
}

/// The proof that a node was examined, to be shown with each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The node's record, to the letter.
    pub record: Arc<str>,
    /// The connection on which it was read. Behind another one may be a server that restarted.
    pub generation: u64,
    /// An absent fence counts as this, so a proposal must be above it.
    pub floor: Fence,
    /// The longest Ttl of the cluster.
    pub max_ttl: Duration,
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
    /// Its clock jumped.
    Clock(ClockJump),
    /// Its member list is being changed.
    Barred,
}

/// What to do after an examination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionStep {
    /// Nothing: the standing says it all.
    Settled,
    /// Write this record if the old one is still there, then examine again.
    Replace {
        /// What stands there now.
        expected: Option<Arc<str>>,
        /// What shall stand there.
        record: Record,
    },
}

/// The standing of one node.
#[derive(Debug, Clone)]
pub struct Admission {
    policy: AdmissionPolicy,
    standing: Standing,
    clock: ClockWatch,
    minds_jumps: bool,
    suspended: Option<(Moment, ClockJump)>,
    warning: Option<String>,
}

impl AdmissionPolicy {
    /// How long a node that forgot must not vote: until the longest lease that it may have granted
    /// is over, and until its clock is above every number that it may have given.
    pub fn quarantine_for(&self, max_ttl: Duration) -> Duration {
        let skew = self.max_clock_skew.saturating_mul(2);
        max_ttl.saturating_add(self.drift.allowance(max_ttl)).saturating_add(skew)
    }
}

impl Admission {
    /// A node that nobody asked yet.
    pub fn new(policy: AdmissionPolicy) -> Self {
        let clock = ClockWatch::new(policy.drift);
        Self {
            policy,
            standing: Standing::Unknown,
            clock,
            minds_jumps: true,
            suspended: None,
            warning: None,
        }
    }

    /// What is known of it.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Something an operator should know though the node votes.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The node's clock minus ours, in microseconds.
    pub fn clock_offset_micros(&self) -> Option<i64> {
        self.clock.offset_micros()
    }

    /// The node did not answer.
    pub fn down(&mut self, error: NodeError) {
        self.standing = Standing::Down(error);
    }

    /// Judges what the node says of itself. `life` is 128 fresh random bits, used if the node needs
    /// a new record.
    pub fn examine(
        &mut self,
        sent: Moment,
        received: Moment,
        facts: &Facts,
        life: u128,
    ) -> AdmissionStep {
        self.minds_jumps = facts.server.expires_by_wall;
        self.observe_clock(ClockSample { sent, received, clock: facts.clock });
        self.warning = facts.server.evicts.as_ref().map(|policy| {
            format!(
                "it may evict locks (maxmemory-policy {policy}): \
                 set `maxmemory-policy noeviction`, or give it no maxmemory"
            )
        });
        if let Some(reason) = self.unfit(facts) {
            return self.refuse(reason);
        }
        let Some(text) = &facts.record else {
            return AdmissionStep::Replace {
                expected: None,
                record: self.new_life(facts, None, life),
            };
        };
        let record = match Record::parse(text) {
            Ok(record) => record,
            Err(error) => {
                return self.refuse(format!(
                    "{error}; use another database, or a newer Leasehold, and do not delete it \
                     while locks are held"
                ));
            }
        };
        if let Some(reason) = self.foreign(&record) {
            self.standing = Standing::Foreign { reason };
            return AdmissionStep::Settled;
        }
        if let Some(reason) = self.disagreement(&record) {
            return self.refuse(reason);
        }
        let expected = Some(Arc::from(text.as_str()));
        if let Some(record) = self.successor(&record, facts, life) {
            return AdmissionStep::Replace { expected, record };
        }
        self.settle(received, text, &record, facts);
        AdmissionStep::Settled
    }

    /// A reading of the node's clock that came with another answer.
    pub fn observe_clock(&mut self, sample: ClockSample) -> Option<ClockJump> {
        let jump = self.clock.observe(sample).filter(|_| self.minds_jumps)?;
        let max_ttl = match &self.standing {
            Standing::Voting(pass) => pass.max_ttl,
            _ => self.policy.max_ttl.unwrap_or(self.policy.max_ttl_default),
        };
        let until = sample.received.plus(self.policy.quarantine_for(max_ttl));
        self.suspended = Some((until, jump));
        if matches!(self.standing, Standing::Voting(_)) {
            self.standing = Standing::Waiting { until, cause: Cause::Clock(jump) };
        }
        Some(jump)
    }

    /// Why this server may never vote, whatever it remembers.
    fn unfit(&self, facts: &Facts) -> Option<String> {
        match facts.server.role {
            Role::Replica => Some(
                "it is a replica, and a replica never votes: give the address of its primary"
                    .into(),
            ),
            Role::ClusterMember => Some(
                "it runs in cluster mode: Leasehold needs independent standalone servers".into(),
            ),
            Role::Primary if self.policy.strict => self.warning.clone(),
            Role::Primary => None,
        }
    }

    /// Why this node belongs to others.
    fn foreign(&self, record: &Record) -> Option<String> {
        let is_ours = record.cluster == self.policy.cluster && record.nodes == self.policy.nodes;
        (!is_ours).then(|| {
            format!(
                "it belongs to cluster {} of {} node(s), you are configured for cluster {} of {}: \
                 give every client the same member list, spelled the same way",
                record.cluster, record.nodes, self.policy.cluster, self.policy.nodes
            )
        })
    }

    /// Why its cluster is not as this client was told.
    fn disagreement(&self, record: &Record) -> Option<String> {
        match self.policy.max_ttl {
            Some(ours) if ours != record.max_ttl => Some(format!(
                "its cluster has max_ttl {:?}, you are configured for {ours:?}: \
                 max_ttl belongs to the cluster, leave it out to adopt it",
                record.max_ttl
            )),
            _ => None,
        }
    }

    /// The record that must stand there before the node can be judged, if not the present one.
    fn successor(&self, record: &Record, facts: &Facts, life: u128) -> Option<Record> {
        if record.run_id != facts.server.run_id {
            // It came back with what it had on disk. Unless each write was there before it was
            // answered, the last ones may be missing.
            return Some(if facts.server.durable {
                Record { run_id: facts.server.run_id.clone(), ..record.clone() }
            } else {
                self.new_life(facts, Some(record), life)
            });
        }
        match record.state {
            RecordState::Admitted | RecordState::Barred => None,
            RecordState::Quarantined if facts.clock < record.born => {
                // The clock went back: how long it waited is unknown, so it waits again.
                Some(Record { born: facts.clock, ..record.clone() })
            }
            RecordState::Quarantined => self.is_served(record, facts).then(|| Record {
                state: RecordState::Admitted,
                floor: record.floor.max(Fence::from_clock(facts.clock)),
                ..record.clone()
            }),
        }
    }

    fn is_served(&self, record: &Record, facts: &Facts) -> bool {
        !self.policy.quarantine || self.left_of_quarantine(record, facts).is_zero()
    }

    fn left_of_quarantine(&self, record: &Record, facts: &Facts) -> Duration {
        let served = Duration::from_micros(facts.clock.0.saturating_sub(record.born.0));
        self.policy.quarantine_for(record.max_ttl).saturating_sub(served)
    }

    /// The record of a node that remembers nothing, or not enough.
    fn new_life(&self, facts: &Facts, old: Option<&Record>, life: u128) -> Record {
        let adopted = old.map_or(self.policy.max_ttl_default, |record| record.max_ttl);
        let old_floor = old.map_or(Fence::ZERO, |record| record.floor);
        Record {
            cluster: self.policy.cluster,
            nodes: self.policy.nodes,
            max_ttl: self.policy.max_ttl.unwrap_or(adopted),
            life,
            run_id: facts.server.run_id.clone(),
            state: if self.policy.quarantine {
                RecordState::Quarantined
            } else {
                RecordState::Admitted
            },
            floor: old_floor.max(Fence::from_clock(facts.clock)),
            born: facts.clock,
        }
    }

    fn settle(&mut self, now: Moment, text: &str, record: &Record, facts: &Facts) {
        self.standing = match (record.state, self.suspended) {
            (RecordState::Quarantined, _) => Standing::Waiting {
                until: now.plus(self.left_of_quarantine(record, facts)),
                cause: Cause::Forgot,
            },
            (RecordState::Barred, _) => {
                Standing::Waiting { until: now.plus(Duration::from_secs(1)), cause: Cause::Barred }
            }
            (RecordState::Admitted, Some((until, jump))) if now < until => {
                Standing::Waiting { until, cause: Cause::Clock(jump) }
            }
            (RecordState::Admitted, _) => {
                self.suspended = None;
                Standing::Voting(Arc::new(Pass {
                    record: text.into(),
                    generation: facts.generation,
                    floor: record.floor,
                    max_ttl: record.max_ttl,
                }))
            }
        };
    }

    fn refuse(&mut self, reason: String) -> AdmissionStep {
        self.standing = Standing::Refused { reason };
        AdmissionStep::Settled
    }
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

    /// The pass, if the node votes.
    pub fn pass(&self) -> Option<&Pass> {
        match self {
            Self::Voting(pass) => Some(pass),
            _ => None,
        }
    }

    /// Why a node that does not vote does not.
    pub fn objection(&self, now: Moment) -> Option<NodeError> {
        let reason = match self {
            Self::Voting(_) => return None,
            Self::Down(error) => return Some(error.clone()),
            Self::Unknown => "not connected yet".to_owned(),
            Self::Foreign { reason } => return Some(NodeError::Denied { reason: reason.clone() }),
            Self::Refused { reason } => reason.clone(),
            Self::Waiting { cause: Cause::Barred, .. } => Cause::Barred.to_string(),
            Self::Waiting { until, cause } => {
                format!("{cause}: it does not vote for another {:.1?}", until.since(now))
            }
        };
        Some(NodeError::NotVoting { reason })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgot => f.write_str("it is new or lost its memory"),
            Self::Clock(jump) => jump.fmt(f),
            Self::Barred => f.write_str("its member list is being changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerFacts, WallMicros};

    const SECOND: u64 = 1_000_000;

    fn policy(nodes: usize) -> AdmissionPolicy {
        AdmissionPolicy {
            cluster: Fingerprint::of_members(["a", "b", "c"]),
            nodes,
            max_ttl: None,
            max_ttl_default: Duration::from_secs(30),
            drift: Drift::DEFAULT,
            max_clock_skew: Duration::from_secs(1),
            quarantine: nodes > 1,
            strict: false,
        }
    }

    fn facts(clock: u64, record: Option<&Record>) -> Facts {
        Facts {
            generation: 1,
            clock: WallMicros(clock),
            record: record.map(Record::to_string),
            server: ServerFacts {
                version: "redis 7.0.15".into(),
                run_id: "run1".into(),
                role: Role::Primary,
                evicts: None,
                durable: false,
                expires_by_wall: true,
            },
        }
    }

    /// Examines at the same time on both clocks, plus a constant.
    fn examine(admission: &mut Admission, facts: &Facts) -> AdmissionStep {
        let now = Moment::from_nanos(facts.clock.0 * 1000);
        admission.examine(now, now, facts, 99)
    }

    fn replaced(step: AdmissionStep) -> Record {
        match step {
            AdmissionStep::Replace { record, .. } => record,
            AdmissionStep::Settled => panic!("nothing to replace"),
        }
    }

    fn admitted(policy: &AdmissionPolicy) -> Record {
        Record {
            cluster: policy.cluster,
            nodes: policy.nodes,
            max_ttl: Duration::from_secs(30),
            life: 1,
            run_id: "run1".into(),
            state: RecordState::Admitted,
            floor: Fence::new(5).unwrap(),
            born: WallMicros(1),
        }
    }

    #[test]
    fn a_node_without_memory_sits_out_the_quarantine_and_returns_with_its_clock_as_floor() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone());
        let born = 1_000 * SECOND;
        let record = replaced(examine(&mut admission, &facts(born, None)));
        assert_eq!(record.state, RecordState::Quarantined);
        assert_eq!(record.born, WallMicros(born));
        assert!(admission.standing().pass().is_none());

        // 30 s + 1 % + 2 ms of drift, and twice a second of skew.
        let served = born + 32 * SECOND + 302_000;
        for clock in [born, born + 20 * SECOND, served - 1] {
            assert_eq!(
                examine(&mut admission, &facts(clock, Some(&record))),
                AdmissionStep::Settled
            );
            let Standing::Waiting { until, cause: Cause::Forgot } = admission.standing() else {
                panic!("{:?}", admission.standing());
            };
            assert_eq!(*until, Moment::from_nanos(served * 1000));
        }
        let back = replaced(examine(&mut admission, &facts(served, Some(&record))));
        assert_eq!(back.state, RecordState::Admitted);
        assert_eq!(back.floor.get(), served);
        assert_eq!(back.life, record.life);
        examine(&mut admission, &facts(served, Some(&back)));
        assert_eq!(admission.standing().pass().unwrap().floor.get(), served);
    }

    #[test]
    fn a_quorum_of_one_is_admitted_at_once_above_its_clock() {
        let mut admission = Admission::new(policy(1));
        let record = replaced(examine(&mut admission, &facts(77, None)));
        assert_eq!((record.state, record.floor.get()), (RecordState::Admitted, 77));
    }

    #[test]
    fn a_restart_that_may_have_lost_writes_begins_a_new_life() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone());
        let old = admitted(&policy);
        let mut after = facts(50 * SECOND, Some(&old));
        after.server.run_id = "run2".into();
        let record = replaced(examine(&mut admission, &after));
        assert_eq!(record.state, RecordState::Quarantined);
        assert_eq!((record.life, record.run_id.as_str()), (99, "run2"));
        assert!(record.floor.get() >= 50 * SECOND);

        after.server.durable = true;
        let record = replaced(examine(&mut admission, &after));
        assert_eq!(record, Record { run_id: "run2".into(), ..old });
    }

    #[test]
    fn a_clock_that_went_back_makes_the_quarantine_start_again() {
        let policy = policy(3);
        let mut admission = Admission::new(policy.clone());
        let record =
            Record { state: RecordState::Quarantined, born: WallMicros(900), ..admitted(&policy) };
        let again = replaced(examine(&mut admission, &facts(800, Some(&record))));
        assert_eq!((again.state, again.born), (RecordState::Quarantined, WallMicros(800)));
    }

    #[test]
    fn another_member_list_is_refused_by_name() {
        let ours = policy(3);
        for record in [
            Record { cluster: Fingerprint::of_members(["a"]), ..admitted(&ours) },
            Record { nodes: 5, ..admitted(&ours) },
        ] {
            let mut admission = Admission::new(ours.clone());
            assert_eq!(examine(&mut admission, &facts(9, Some(&record))), AdmissionStep::Settled);
            let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
            assert!(objection.contains("belongs to cluster"), "{objection}");
            assert!(objection.contains(&format!("of {} node(s)", record.nodes)), "{objection}");
        }
    }

    #[test]
    fn max_ttl_belongs_to_the_cluster() {
        let mut ours = policy(3);
        let record = Record { max_ttl: Duration::from_secs(300), ..admitted(&ours) };
        let mut adopting = Admission::new(ours.clone());
        examine(&mut adopting, &facts(9, Some(&record)));
        assert_eq!(adopting.standing().pass().unwrap().max_ttl, Duration::from_secs(300));

        ours.max_ttl = Some(Duration::from_secs(30));
        let mut insisting = Admission::new(ours);
        examine(&mut insisting, &facts(9, Some(&record)));
        let objection = insisting.standing().objection(Moment::default()).unwrap().to_string();
        assert!(objection.contains("max_ttl 300s, you are configured for 30s"), "{objection}");
    }

    #[test]
    fn replicas_cluster_members_and_garbage_never_vote() {
        let policy = policy(3);
        let mut replica = facts(9, Some(&admitted(&policy)));
        replica.server.role = Role::Replica;
        let mut shard = replica.clone();
        shard.server.role = Role::ClusterMember;
        let mut garbage = facts(9, None);
        garbage.record = Some("hello".into());
        for (facts, word) in
            [(replica, "replica"), (shard, "cluster mode"), (garbage, "not one of ours")]
        {
            let mut admission = Admission::new(policy.clone());
            assert_eq!(examine(&mut admission, &facts), AdmissionStep::Settled);
            let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
            assert!(objection.contains(word), "{objection}");
        }
    }

    #[test]
    fn an_evicting_node_is_warned_about_and_in_strict_mode_refused() {
        let mut policy = policy(3);
        let mut evicting = facts(9, Some(&admitted(&policy)));
        evicting.server.evicts = Some("volatile-ttl".into());
        let mut lenient = Admission::new(policy.clone());
        examine(&mut lenient, &evicting);
        assert!(lenient.standing().pass().is_some());
        assert!(lenient.warning().unwrap().contains("volatile-ttl"));
        policy.strict = true;
        let mut strict = Admission::new(policy);
        examine(&mut strict, &evicting);
        assert!(matches!(strict.standing(), Standing::Refused { .. }));
    }

    #[test]
    fn a_clock_jump_takes_the_vote_away_for_the_quarantine() {
        let policy = policy(3);
        let record = admitted(&policy);
        let mut admission = Admission::new(policy);
        let at = |s: u64| Moment::from_millis(s * 1000);
        let shows = |s: u64| facts(s * SECOND, Some(&record));
        admission.examine(at(100), at(100), &shows(5_000), 0);
        assert!(admission.standing().pass().is_some());
        admission.examine(at(101), at(101), &shows(5_001 + 3_600), 0);
        let Standing::Waiting { until, cause: Cause::Clock(jump) } = admission.standing() else {
            panic!("{:?}", admission.standing());
        };
        assert_eq!(*until, at(101).plus(Duration::from_millis(32_302)));
        assert!((jump.micros - 3_600_000_000).abs() < 20_000, "{jump:?}");
        admission.examine(at(120), at(120), &shows(5_020 + 3_600), 0);
        assert!(admission.standing().pass().is_none(), "still sitting it out");
        admission.examine(at(134), at(134), &shows(5_034 + 3_600), 0);
        assert!(admission.standing().pass().is_some());
    }

    #[test]
    fn a_clock_by_which_nothing_expires_may_jump() {
        let policy = policy(1);
        let record = admitted(&policy);
        let mut admission = Admission::new(policy);
        for (s, shown) in [(100, 5_000), (101, 8_601), (102, 5_002)] {
            let mut facts = facts(shown * SECOND, Some(&record));
            facts.server.expires_by_wall = false;
            let at = Moment::from_millis(s * 1000);
            admission.examine(at, at, &facts, 0);
            assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
            let offset = (shown - s) as i64 * SECOND as i64;
            assert_eq!(
                admission.clock_offset_micros(),
                Some(offset),
                "it is followed all the same"
            );
        }
    }
}
