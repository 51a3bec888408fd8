//! Setting up a member list, and changing it. Two lists have disjoint majorities, so clients of the
//! old one must be unable to decide anything before those of the new one can.
//!
//! * One node more: majorities of the old and of the new list still meet in a node that remembers,
//!   so the nodes are told of the new list one after the other, and nobody waits.
//! * Anything else: a barrier. Every node of both lists first refuses the old list; only when all
//!   have confirmed that does the quarantine of the new list begin.

use std::sync::Arc;

use leasehold_core::{
    Admission, AdmissionPolicy, AdmissionStep, Facts, Fence, NodeError, Origin, Record,
    RecordState, Reply, Request, Roster, Standing,
};
use tokio::task::JoinSet;

use crate::Locks;
use crate::error::InitError;
use crate::locks::LOOK_LIMIT;
use crate::node::NodeId;

/// So many connections to each node are compared before a cluster is set up, and by `doctor`.
const CONNECTIONS_COMPARED: usize = 8;

impl Locks {
    /// Admits the nodes of a new cluster at once, on the word of a person that they never held a
    /// lock. Every node must answer and none may know the cluster; otherwise nothing is changed.
    /// A cluster that is admitted already is left alone.
    pub async fn init(&self) -> Result<(), InitError> {
        let mut admissions = Vec::new();
        let all = self.facts_compared().await?;
        let mut roster = Roster::new(all.len());
        all.iter().enumerate().for_each(|(index, facts)| _ = roster.show(index, facts));
        for (index, facts) in all.into_iter().enumerate() {
            let node = self.cluster().members[index].node.id().clone();
            let twin = roster.show(index, &facts).map(|twin| self.cluster().member_name(twin));
            // Examined by the core, as if no quarantine were asked for.
            let policy = AdmissionPolicy { quarantine: false, ..self.cluster().policy.clone() };
            let mut admission = Admission::new(policy, node.as_str());
            let (now, life) = (self.cluster().now(), crate::chance::nonce());
            let step = admission.examine(now, now, &facts, life, twin.as_ref());
            match admission.standing() {
                Standing::Refused { reason } | Standing::Foreign { reason } => {
                    return Err(InitError::Refused { node, reason: reason.clone() });
                }
                Standing::Down(error) => {
                    return Err(InitError::Unreachable { node, error: error.clone() });
                }
                _ => {}
            }
            let is_known = facts
                .record
                .as_deref()
                .and_then(|text| Record::parse(text).ok())
                .is_some_and(|record| record.state == RecordState::Admitted);
            admissions.push((node, is_known, step));
        }
        let known = admissions.iter().find(|(_, is_known, _)| *is_known);
        let blank = admissions.iter().find(|(_, is_known, _)| !*is_known);
        match (known, blank) {
            (Some((known, ..)), Some((blank, ..))) => {
                return Err(InitError::NotNew { known: known.clone(), blank: blank.clone() });
            }
            (Some(_), None) => return Ok(()),
            _ => {}
        }
        for (index, (_, _, step)) in admissions.into_iter().enumerate() {
            if let AdmissionStep::Replace { expected, record } = step {
                let record = record.to_string().into();
                self.replace_record(index, expected, record).await?;
            }
        }
        self.cluster().examine_all(LOOK_LIMIT).await;
        Ok(())
    }

    /// `init` for the builder: a cluster that is not new, or not all there, is opened as it is.
    pub(crate) async fn trust_if_new(&self) {
        if let Err(error) = self.init().await {
            tracing::warn!("not trusted as a new cluster: {error}");
        }
    }

    async fn replace_record(
        &self,
        index: usize,
        expected: Option<Arc<str>>,
        record: Arc<str>,
    ) -> Result<(), InitError> {
        let request = Request::ReplaceRecord { expected, record };
        match self.cluster().ask_one(index, request, LOOK_LIMIT).await {
            // Somebody else was quicker; what stands there now is examined like any other.
            Ok(Reply::Record { .. }) => Ok(()),
            Ok(other) => {
                Err(self.unreachable(index, NodeError::Garbled { reason: other.to_string() }))
            }
            Err(error) => Err(self.unreachable(index, error)),
        }
    }

    fn unreachable(&self, index: usize, error: NodeError) -> InitError {
        InitError::Unreachable { node: self.cluster().members[index].node.id().clone(), error }
    }

    /// Makes this member list the successor of `old`, which is opened with the list as it was.
    ///
    /// Every node of both lists must answer. Adding one node takes effect at once, the new node
    /// sitting out its quarantine; any other change stops all locks for that long. Holders that
    /// use the old list cannot extend any more and lose their leases within their Ttl. May be
    /// repeated if it fails half-way.
    pub async fn succeed(&self, old: &Locks) -> Result<(), InitError> {
        let (ours, theirs) = (self.facts().await?, old.facts().await?);
        let is_known = |facts: &Facts| read(facts).is_some_and(|(_, r)| self.is_list_of(&r));
        if ours.iter().all(|facts| self.is_served_by(facts)) && theirs.iter().all(is_known) {
            return Ok(());
        }
        if self.adds_one_node_to(old) {
            return self.roll(old, &theirs).await;
        }
        old.bar(self, &theirs).await?;
        self.bar(self, &self.facts().await?).await?;
        // All nodes of both lists refuse the old one. From now on, the quarantine counts.
        for (index, facts) in self.facts().await?.into_iter().enumerate() {
            let Some((text, record)) = read(&facts) else {
                continue;
            };
            if record.state == RecordState::Barred {
                let born = facts.clock;
                let record = Record { state: RecordState::Quarantined, born, ..record };
                self.replace_record(index, Some(text.into()), record.to_string().into()).await?;
            }
        }
        self.cluster().examine_all(LOOK_LIMIT).await;
        Ok(())
    }

    /// Whether the change is over for this node.
    fn is_served_by(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.is_list_of(&record) && record.state != RecordState::Barred
        })
    }

    fn is_list_of(&self, record: &Record) -> bool {
        let policy = &self.cluster().policy;
        (record.cluster, record.nodes) == (policy.cluster, policy.nodes)
    }

    fn adds_one_node_to(&self, old: &Locks) -> bool {
        let ours: Vec<_> = self.cluster().node_ids().collect();
        let mut theirs = old.cluster().node_ids();
        ours.len() == old.cluster().members.len() + 1 && theirs.all(|id| ours.contains(&id))
    }

    /// Tells the nodes of the old list of the new one. Each keeps its memory and its vote; its floor
    /// goes up, so that the next change finds no number that only a removed node remembers.
    async fn roll(&self, old: &Locks, theirs: &[Facts]) -> Result<(), InitError> {
        let to = &self.cluster().policy;
        for (index, facts) in theirs.iter().enumerate() {
            let Some((text, record)) = read(facts) else {
                return Err(old.refused(index, "it does not know the old list"));
            };
            if self.is_list_of(&record) {
                continue;
            }
            if !old.is_list_of(&record)
                || record.state != RecordState::Admitted
                || record.is_of_the_format_before()
                || !record.is_by(&facts.server)
            {
                return Err(old.refused(index, "it is not an admitted member of the old list"));
            }
            let floor = record.floor.max(Fence::from_clock(facts.clock));
            let member = to.member(old.cluster().members[index].node.id().as_str());
            let record = Record { cluster: to.cluster, nodes: to.nodes, member, floor, ..record };
            old.replace_record(index, Some(text.into()), record.to_string().into()).await?;
        }
        self.cluster().examine_all(LOOK_LIMIT).await;
        Ok(())
    }

    /// Makes every node of this list refuse all lists but the one of `new`, and that one for now.
    async fn bar(&self, new: &Locks, facts: &[Facts]) -> Result<(), InitError> {
        let to = &new.cluster().policy;
        for (index, facts) in facts.iter().enumerate() {
            let old = read(facts);
            if let Some((_, record)) = &old {
                // A node that knows the new list but waits already must begin to wait again.
                if new.is_list_of(record) && record.state == RecordState::Barred {
                    continue;
                }
                if !new.is_list_of(record) && !self.is_list_of(record) {
                    return Err(self.refused(index, "it belongs to neither list"));
                }
            }
            let record = Record {
                cluster: to.cluster,
                nodes: to.nodes,
                member: to.member(self.cluster().members[index].node.id().as_str()),
                max_ttl: old.as_ref().map_or(to.max_ttl_default, |(_, record)| record.max_ttl),
                life: crate::chance::nonce(),
                run_id: facts.server.run_id.clone(),
                replication_id: facts.server.replication_id.clone(),
                origin: Origin::Succession,
                state: RecordState::Barred,
                floor: Fence::from_clock(facts.clock)
                    .max(old.as_ref().map_or(Fence::ZERO, |(_, record)| record.floor)),
                born: facts.clock,
            };
            let expected = old.map(|(text, _)| text.into());
            self.replace_record(index, expected, record.to_string().into()).await?;
        }
        // A record that somebody else changed meanwhile was not replaced: look, do not believe.
        for (index, facts) in self.facts().await?.iter().enumerate() {
            let is_barred =
                |record: &Record| new.is_list_of(record) && record.state == RecordState::Barred;
            if !read(facts).is_some_and(|(_, record)| is_barred(&record)) {
                return Err(self.refused(index, "its record changed meanwhile: try again"));
            }
        }
        Ok(())
    }

    /// What the nodes say of themselves, each over several connections: a name that leads to several
    /// servers must not become a member.
    async fn facts_compared(&self) -> Result<Vec<Facts>, InitError> {
        let (facts, met) = tokio::join!(self.facts(), self.meet_servers());
        let mut facts = facts?;
        for (facts, (_, met)) in facts.iter_mut().zip(met) {
            facts.unmet = met.iter().filter(|met| met.is_none()).count();
            facts.others.extend(met.into_iter().flatten());
        }
        Ok(facts)
    }

    /// Opens several connections to each node, for a moment, and says which servers they met: the
    /// run id of each, or `None` where nobody answered. Two different ones are two servers behind one
    /// name, or one that restarted just now.
    pub async fn meet_servers(&self) -> Vec<(NodeId, Vec<Option<String>>)> {
        let cluster = self.cluster();
        let mut meetings = JoinSet::new();
        for (index, member) in cluster.members.iter().enumerate() {
            let meeting = member.node.meet(CONNECTIONS_COMPARED);
            meetings.spawn_on(async move { (index, meeting.await) }, &cluster.background);
        }
        let mut met: Vec<_> = cluster.node_ids().map(|id| (id.clone(), Vec::new())).collect();
        while let Some(meeting) = meetings.join_next().await {
            if let Ok((index, servers)) = meeting {
                met[index].1 = servers;
            }
        }
        met
    }

    async fn facts(&self) -> Result<Vec<Facts>, InitError> {
        let cluster = self.cluster();
        let mut gather = cluster.gather(Request::Probe, LOOK_LIMIT).await;
        (0..cluster.members.len())
            .map(|index| match gather.take(index).0 {
                Ok(Reply::Facts(facts)) => Ok(*facts),
                Ok(other) => Err(self.refused(index, &other.to_string())),
                Err(error) => Err(self.unreachable(index, error)),
            })
            .collect()
    }

    fn refused(&self, index: usize, reason: &str) -> InitError {
        let node = self.cluster().members[index].node.id().clone();
        InitError::Refused { node, reason: reason.to_owned() }
    }
}

/// The record of a node, as text and as read.
fn read(facts: &Facts) -> Option<(String, Record)> {
    let text = facts.record.clone()?;
    let record = Record::parse(&text).ok()?;
    Some((text, record))
}
