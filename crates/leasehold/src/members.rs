//! Setting up a member list, and changing it. Two lists have disjoint majorities, so clients of the
//! old one must be unable to decide anything before those of the new one can.
//!
//! * One node more: majorities of the old and of the new list still meet in a node that remembers,
//!   so the nodes are told of the new list one after the other, and nobody waits.
//! * Anything else: a barrier. Every node of both lists first refuses the old list; only when all
//!   have confirmed that does the quarantine of the new list begin.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Facts, Fence, Moment, NodeError,
    Origin, Record, RecordState, Reply, Request, Roster, Standing,
};
use tokio::task::JoinSet;

use crate::Locks;
use crate::error::InitError;
use crate::locks::LOOK_LIMIT;
use crate::node::NodeId;

/// So many connections to each node are compared before a cluster is set up, and by `doctor`.
const CONNECTIONS_COMPARED: usize = 8;

/// A record that another client changes meanwhile is read again, and so often at most.
const TRIES: usize = 8;

const CHANGED_MEANWHILE: &str = "its record keeps changing: try again";

fn is_barred(new: &Locks, facts: &Facts) -> bool {
    read(facts)
        .is_some_and(|(_, record)| new.is_list_of(&record) && record.state == RecordState::Barred)
}

impl Locks {
    /// Admits the nodes of a new cluster at once, on the word of a person that they never held a
    /// lock. Every node must answer and none may know the cluster; otherwise nothing is changed.
    /// A cluster that is admitted already is left alone, and so is one whose nodes wait because they
    /// restarted, lost some of their memory, or come from another list.
    pub async fn init(&self) -> Result<(), InitError> {
        let mut admissions = Vec::new();
        let asked = self.cluster().now();
        let all = self.facts_compared().await?;
        let mut roster = self.compare_clocks(asked, &all)?;
        all.iter().enumerate().for_each(|(index, facts)| _ = roster.show(index, facts));
        for (index, facts) in all.into_iter().enumerate() {
            let node = self.cluster().members[index].node.id().clone();
            let (admission, step) = self.examine_as_new(index, &mut roster, asked, &facts);
            match admission.standing() {
                Standing::Refused { reason } | Standing::Foreign { reason } => {
                    return Err(InitError::Refused { node, reason: reason.clone() });
                }
                Standing::Down(error) => {
                    return Err(InitError::Unreachable { node, error: error.clone() });
                }
                _ => {}
            }
            let record = facts.record.as_deref().and_then(|text| Record::parse(text).ok());
            let is_known = record.as_ref().is_some_and(|r| r.state == RecordState::Admitted);
            if let Some(record) = record
                && record.state != RecordState::Admitted
                && record.origin != Origin::First
            {
                let reason = "it was a member before, and waits until everything that it may have \
                              granted is over; init is for servers that never held a lock"
                    .to_owned();
                return Err(InitError::Refused { node, reason });
            }
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
        for (index, (_, _, mut step)) in admissions.into_iter().enumerate() {
            let mut tries = TRIES;
            while let AdmissionStep::Replace { expected, record } = step {
                let is_written =
                    self.replace_record(index, expected, record.to_string().into()).await?;
                tries -= 1;
                if is_written || tries == 0 {
                    break;
                }
                // A client that looks at the same node wrote down that it waits: that changes nothing.
                let asked = self.cluster().now();
                let facts = self.facts_of(index).await?;
                step = match read(&facts) {
                    Some((_, record)) if record.origin != Origin::First => AdmissionStep::Settled,
                    _ => self.examine_as_new(index, &mut roster, asked, &facts).1,
                };
            }
        }
        self.cluster().examine_all(LOOK_LIMIT).await;
        Ok(())
    }

    /// Has the core examine a node as if no quarantine were asked for.
    fn examine_as_new(
        &self,
        index: usize,
        roster: &mut Roster,
        asked: Moment,
        facts: &Facts,
    ) -> (Admission, AdmissionStep) {
        let cluster = self.cluster();
        let policy = AdmissionPolicy { quarantine: false, ..cluster.policy.clone() };
        let mut admission = Admission::new(policy, cluster.members[index].node.id().as_str());
        let twin = roster.show(index, facts);
        let now = cluster.now();
        let sample = ClockSample { sent: asked, received: now, clock: facts.clock };
        let peers = roster.peers(index, twin, sample);
        let step = admission.examine(asked, now, facts, crate::chance::nonce(), &peers);
        (admission, step)
    }

    async fn facts_of(&self, index: usize) -> Result<Facts, InitError> {
        match self.cluster().ask_one(index, Request::Probe, LOOK_LIMIT).await {
            Ok(Reply::Facts(facts)) => Ok(*facts),
            Ok(other) => {
                Err(self.unreachable(index, NodeError::Garbled { reason: other.to_string() }))
            }
            Err(error) => Err(self.unreachable(index, error)),
        }
    }

    /// `init` for the builder: a cluster that is not new, or not all there, is opened as it is.
    pub(crate) async fn trust_if_new(&self) {
        if let Err(error) = self.init().await {
            tracing::warn!("not trusted as a new cluster: {error}");
        }
    }

    /// Holds the clocks of the nodes against each other. What they show becomes a floor, so none may be
    /// far off.
    fn compare_clocks(&self, asked: Moment, all: &[Facts]) -> Result<Roster, InitError> {
        let cluster = self.cluster();
        let names = (0..all.len()).map(|index| cluster.member_name(index)).collect();
        let mut roster = Roster::new(names, &cluster.policy);
        let received = cluster.now();
        for (index, facts) in all.iter().enumerate() {
            let sample = ClockSample { sent: asked, received, clock: facts.clock };
            roster.show_clock(index, sample);
        }
        match (0..all.len()).find_map(|index| Some((index, roster.line(index).objection()?))) {
            Some((index, reason)) => Err(self.refused(index, &reason)),
            None => Ok(roster),
        }
    }

    async fn replace_record(
        &self,
        index: usize,
        expected: Option<Arc<str>>,
        record: Arc<str>,
    ) -> Result<bool, InitError> {
        let request = Request::ReplaceRecord { expected, record };
        match self.cluster().ask_one(index, request, LOOK_LIMIT).await {
            // If not, somebody else was quicker; what stands there now is examined like any other.
            Ok(Reply::Record { replaced }) => Ok(replaced),
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
    /// sitting out its quarantine; any other change stops all locks for that long, which is counted
    /// by the longer `max_ttl` of both lists (a single node's is a day, unless set). Holders that
    /// use the old list cannot extend any more and lose their leases within their Ttl. May be
    /// repeated if it fails half-way; if another change was quicker, it says so.
    pub async fn succeed(&self, old: &Locks) -> Result<(), InitError> {
        let asked = self.cluster().now();
        let ours = self.facts().await?;
        self.compare_clocks(asked, &ours)?;
        let theirs = old.facts().await?;
        let is_known = |facts: &Facts| read(facts).is_some_and(|(_, r)| self.is_list_of(&r));
        if ours.iter().all(|facts| self.is_served_by(facts)) && theirs.iter().all(is_known) {
            return Ok(());
        }
        if self.adds_one_node_to(old) {
            let can_follow = |facts: &Facts| self.is_served_by(facts) || old.can_roll(facts);
            match theirs.iter().position(|facts| !can_follow(facts)) {
                None => return self.roll(old, &theirs).await,
                // Nothing was begun yet, so nothing is: a node that has to wait needs the others for it.
                Some(index) if theirs.iter().all(|facts| !is_known(facts)) => {
                    return Err(old.refused(index, "it is not an admitted member of the old list"));
                }
                // Half of them know the new list, and this one can no longer follow: all begin anew.
                Some(_) => {}
            }
        }
        let longest = self.longest_ttl(&ours).max(old.longest_ttl(&theirs));
        let waits = self.cluster().policy.quarantine_for(longest);
        // The nodes that join go first: a change that ends half-way then leaves nobody of the new list
        // who could decide without those of the old one, which may still keep leases.
        let known: Vec<_> = old.cluster().node_ids().collect();
        let joins = |index: usize| !known.contains(&self.cluster().members[index].node.id());
        self.bar(self, joins, &ours, waits).await?;
        old.bar(self, |_| true, &theirs, waits).await?;
        self.bar(self, |_| true, &self.facts().await?, waits).await?;
        // All nodes of both lists refuse the old one. From now on, the quarantine counts; and no number
        // is given any more that is above what they remember, also those that leave.
        let (ours, theirs) = (self.facts().await?, old.facts().await?);
        let remembered = ours.iter().chain(&theirs).map(Facts::remembers).max();
        for (index, facts) in ours.into_iter().enumerate() {
            let Some((text, record)) = read(&facts) else {
                continue;
            };
            if record.state == RecordState::Barred {
                let born = facts.clock;
                let state = RecordState::Quarantined;
                let floor = record.floor.max(remembered.unwrap_or(Fence::ZERO));
                let record = Record { state, born, floor, clocks: Vec::new(), ..record };
                self.replace_record(index, Some(text.into()), record.to_string().into()).await?;
            }
        }
        self.confirm(old).await
    }

    /// Looks whether the change took place: somebody else may have made another one meanwhile.
    async fn confirm(&self, old: &Locks) -> Result<(), InitError> {
        let quicker = "another change of the member list was quicker: look at `leasehold nodes`";
        for (index, facts) in self.facts().await?.iter().enumerate() {
            if read(facts).is_some() && !self.is_served_by(facts) {
                return Err(self.refused(index, quicker));
            }
        }
        for (index, facts) in old.facts().await?.iter().enumerate() {
            if !read(facts).is_some_and(|(_, record)| self.is_list_of(&record)) {
                return Err(old.refused(index, quicker));
            }
        }
        // An examination that was under way may tell of the old list; the one after it does not.
        for _ in 0..2 {
            self.cluster().examine_all(LOOK_LIMIT).await;
        }
        Ok(())
    }

    /// The longest Ttl that anybody may have used with this list.
    fn longest_ttl(&self, facts: &[Facts]) -> Duration {
        let policy = &self.cluster().policy;
        let of_node = |facts| read(facts).map_or(policy.longest_ttl(), |(_, r)| r.max_ttl);
        facts.iter().map(of_node).chain(policy.max_ttl).max().unwrap_or_default()
    }

    /// Whether the change is over for this node.
    fn is_served_by(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.is_list_of(&record) && record.state != RecordState::Barred
        })
    }

    fn is_list_of(&self, record: &Record) -> bool {
        self.cluster().policy.is_list_of(record)
    }

    fn adds_one_node_to(&self, old: &Locks) -> bool {
        let ours: Vec<_> = self.cluster().node_ids().collect();
        let mut theirs = old.cluster().node_ids();
        ours.len() == old.cluster().members.len() + 1
            && theirs.all(|id| ours.contains(&id))
            && self.cluster().policy.max_ttl == old.cluster().policy.max_ttl
    }

    /// Whether a node of this list may go on in the next one with what it remembers.
    fn can_roll(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.is_list_of(&record)
                && record.state == RecordState::Admitted
                && !record.is_of_the_format_before()
                && record.is_by(&facts.server)
        })
    }

    /// Tells the nodes of the old list of the new one. Each keeps its memory and its vote; its floor
    /// goes up, so that the next change finds no number that only a removed node remembers. Then the
    /// new node begins to wait, also if it had begun before: what the old list granted may have been
    /// granted until now, and a later change must not find this node without its quarantine.
    async fn roll(&self, old: &Locks, theirs: &[Facts]) -> Result<(), InitError> {
        let to = &self.cluster().policy;
        for (index, facts) in theirs.iter().enumerate() {
            let Some((text, record)) = read(facts).filter(|_| old.can_roll(facts)) else {
                continue;
            };
            let floor = record.floor.max(Fence::from_clock(facts.clock));
            let member = to.member(old.cluster().members[index].node.id().as_str());
            let record = Record { cluster: to.cluster, nodes: to.nodes, member, floor, ..record };
            old.replace_record(index, Some(text.into()), record.to_string().into()).await?;
        }
        let known: Vec<_> = old.cluster().node_ids().collect();
        let is_new = |id: &NodeId| !known.contains(&id);
        for index in (0..known.len() + 1).filter(|i| is_new(self.cluster().members[*i].node.id())) {
            self.begin_to_wait(index).await?;
        }
        self.confirm(old).await
    }

    /// Has a node that was added to the list begin its quarantine now.
    async fn begin_to_wait(&self, index: usize) -> Result<(), InitError> {
        for _ in 0..TRIES {
            let facts = self.facts_of(index).await?;
            let old = read(&facts);
            if old.as_ref().is_some_and(|(_, record)| !self.is_list_of(record)) {
                return Err(self.refused(index, "it belongs to another list"));
            }
            let floor = old.as_ref().map_or(Fence::ZERO, |(_, record)| record.floor);
            let record = Record {
                floor,
                ..self.record_of_a_change(index, &facts, RecordState::Quarantined)
            };
            let expected = old.map(|(text, _)| text.into());
            if self.replace_record(index, expected, record.to_string().into()).await? {
                return Ok(());
            }
        }
        Err(self.refused(index, CHANGED_MEANWHILE))
    }

    /// The record of a node that comes from another list, or from none.
    fn record_of_a_change(&self, index: usize, facts: &Facts, state: RecordState) -> Record {
        let policy = &self.cluster().policy;
        Record {
            cluster: policy.cluster,
            nodes: policy.nodes,
            member: self.cluster().member_name(index),
            max_ttl: policy.longest_ttl(),
            life: crate::chance::nonce(),
            run_id: facts.server.run_id.clone(),
            replication_id: facts.server.replication_id.clone(),
            origin: Origin::Succession,
            state,
            floor: Fence::from_clock(facts.clock),
            born: facts.clock,
            waits: None,
            clocks: Vec::new(),
        }
    }

    /// Makes the nodes `whom` of this list refuse all lists but the one of `new`, and that one for now.
    /// What is barred waits for `waits` when it is let in.
    async fn bar(
        &self,
        new: &Locks,
        whom: impl Fn(usize) -> bool,
        facts: &[Facts],
        waits: Duration,
    ) -> Result<(), InitError> {
        let mut facts = facts.to_vec();
        for _ in 0..TRIES {
            self.try_to_bar(new, &whom, &facts, waits).await?;
            // A record that somebody else changed meanwhile was not replaced: look, do not believe.
            facts = self.facts().await?;
            let mut open = (0..facts.len()).filter(|i| whom(*i) && !is_barred(new, &facts[*i]));
            if open.next().is_none() {
                return Ok(());
            }
        }
        let is_open = |index: &usize| whom(*index) && !is_barred(new, &facts[*index]);
        let changed = (0..facts.len()).find(is_open).unwrap_or_default();
        Err(self.refused(changed, CHANGED_MEANWHILE))
    }

    async fn try_to_bar(
        &self,
        new: &Locks,
        whom: &impl Fn(usize) -> bool,
        facts: &[Facts],
        waits: Duration,
    ) -> Result<(), InitError> {
        let to = &new.cluster().policy;
        for (index, facts) in facts.iter().enumerate().filter(|(index, _)| whom(*index)) {
            // A node that knows the new list but waits already must begin to wait again.
            if is_barred(new, facts) {
                continue;
            }
            let old = read(facts);
            if let Some((_, record)) = &old
                && !new.is_list_of(record)
                && !self.is_list_of(record)
            {
                return Err(self.refused(index, "it belongs to neither list"));
            }
            let record = new.record_of_a_change(0, facts, RecordState::Barred);
            let record = Record {
                member: to.member(self.cluster().members[index].node.id().as_str()),
                floor: old.as_ref().map_or(record.floor, |(_, old)| record.floor.max(old.floor)),
                waits: Some(waits),
                ..record
            };
            let expected = old.map(|(text, _)| text.into());
            self.replace_record(index, expected, record.to_string().into()).await?;
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
