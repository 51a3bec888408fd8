//! The examination: what a node says of itself, held against its record, its name and the others.

use std::sync::Arc;
use std::time::Duration;

use super::standing::{answered_by_several, met_nobody, rounded};
use super::{Admission, AdmissionStep, Cause, LOOKED_AT_EVERY, Pass, Standing};
use crate::{
    ClockSample, Facts, Fence, Line, Moment, NodeError, Origin, Peers, Record, RecordState, Role,
};

impl Admission {
    /// Judges what the node says of itself. `life` is 128 fresh random bits, used if the node needs
    /// a new record; `peers` are the other members, by the [`Roster`].
    ///
    /// [`Roster`]: crate::Roster
    pub fn examine(
        &mut self,
        sent: Moment,
        received: Moment,
        facts: &Facts,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        self.minds_jumps = facts.server.expires_by_wall;
        self.admitted = None;
        self.wants_peers = false;
        self.observe_clock(ClockSample { sent, received, clock: facts.clock });
        let peers = &peers.knowing(self.clock.bounds());
        self.line = peers.line();
        self.warning = evicts(facts)
            .or_else(|| several_addresses(facts))
            .or_else(|| self.fences_ahead(facts))
            .or_else(|| spent(facts));
        if let Some(reason) = self.unfit(facts).or_else(|| self.several_servers(facts)) {
            return self.refuse(reason);
        }
        if self.compared.is_none() && facts.unmet > 0 {
            // Behind one that hangs may be another server, which answers others.
            let reason = met_nobody(facts.unmet);
            self.standing = Standing::Down(NodeError::not_voting(reason));
            return AdmissionStep::Settled;
        }
        if self.compared.as_ref() != Some(&facts.server.run_id) {
            // Another server than the one that was compared. It says nothing before it is, too:
            // one that only some connections meet may have been admitted by others.
            self.compared = None;
            self.standing = Standing::Unknown;
            return AdmissionStep::Settled;
        }
        if let Some(twin) = &peers.twin {
            self.is_one_server_with(twin);
            return AdmissionStep::Settled;
        }
        let Some(text) = &facts.record else {
            return self.begin_first_life(sent, received, facts, life, peers);
        };
        self.blank = None;
        let record = match Record::parse(text) {
            Ok(record) => record,
            Err(error) => {
                return self.refuse(format!(
                    "{error}; use another database, or a newer Leasehold, and do not delete it \
                     while locks are held"
                ));
            }
        };
        if let Some(reason) = self.foreign(&record).or_else(|| self.disagreement(&record)) {
            self.standing = Standing::Foreign { reason };
            return AdmissionStep::Settled;
        }
        if let Some(reason) = self.another_member(&record) {
            return self.refuse(reason);
        }
        if !record.is_by(&facts.server) {
            // It restarted with what it had on disk, or has the data of another server, or is one.
            // Nothing that it says of its disk tells which of the last writes are missing.
            return self.begin_life(received, facts, Some((text, &record)), life, peers);
        }
        let age = Duration::from_micros(facts.clock.0.saturating_sub(record.born.0));
        let quarantine = self.policy.quarantine_of(&record);
        if record.state == RecordState::Admitted
            && self.lives.meet(record.life, sent, age, quarantine, &self.policy)
        {
            return self.refuse(format!(
                "several servers take turns at its address (this one has life {:.8}, and was there \
                 beside another): let the address lead to one server, and restart this program",
                format!("{:032x}", record.life)
            ));
        }
        if record.is_of_the_format_before() {
            let record = Record {
                member: self.member.clone(),
                replication_id: facts.server.replication_id.clone(),
                ..record
            };
            return AdmissionStep::Replace { expected: Some(Arc::from(text.as_str())), record };
        }
        if record.state == RecordState::Quarantined {
            return self.wait(sent, received, (text, &record), facts, life, peers);
        }
        self.watched = None;
        self.settle(received, text, &record, facts);
        AdmissionStep::Settled
    }

    /// The node has no record. A client that writes one says what list it belongs to, so nobody does who
    /// finds the list in doubt. What the others said before it lost its record is too old to tell:
    /// one of them may have been without a record then.
    fn begin_first_life(
        &mut self,
        sent: Moment,
        now: Moment,
        facts: &Facts,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        if let Some(foreign) = &peers.foreign {
            let reason = format!(
                "it has no record, and none is written, because {foreign} belongs to another cluster \
                 or has another max_ttl: give every client the same member list and max_ttl"
            );
            self.standing = Standing::Foreign { reason };
            return AdmissionStep::Settled;
        }
        if peers.is_one_barred {
            // It may have been barred itself, and holders of the old list may have leases still.
            let (until, cause) = (now.plus(LOOKED_AT_EVERY), Cause::Barred);
            self.standing = Standing::Waiting { until, cause };
            return AdmissionStep::Settled;
        }
        let run_id = &facts.server.run_id;
        let blank = self.blank.take().filter(|(blank, _)| blank == run_id);
        let (_, since) = self.blank.insert(blank.unwrap_or_else(|| (run_id.clone(), sent)));
        if !peers.are_tried || peers.asked.is_some_and(|asked| asked < *since) {
            self.wants_peers = true;
            self.standing = Standing::Unknown;
            return AdmissionStep::Settled;
        }
        self.begin_life(now, facts, None, life, peers)
    }

    /// The node remembers nothing, or not enough. Until its new record stands there it has no
    /// standing: what it said before was said by another life.
    fn begin_life(
        &mut self,
        now: Moment,
        facts: &Facts,
        old: Option<(&String, &Record)>,
        life: u128,
        peers: &Peers,
    ) -> AdmissionStep {
        let mut record = self.new_life(facts, old.map(|(_, record)| record), life);
        // It may have had to wait for as long as the others have to, for what an older list granted.
        record.waits = record.waits.max(peers.waits);
        if record.state == RecordState::Quarantined {
            record.clocks = self.clocks_to_wait_by(now, peers);
        }
        let until = now.plus(self.policy.quarantine_of(&record));
        self.standing = match record.state {
            RecordState::Quarantined => {
                Standing::Waiting { until, cause: Cause::of(record.origin) }
            }
            RecordState::Barred => {
                Standing::Waiting { until: now.plus(LOOKED_AT_EVERY), cause: Cause::Barred }
            }
            RecordState::Admitted => Standing::Unknown,
        };
        let expected = old.map(|(text, _)| Arc::from(text.as_str()));
        AdmissionStep::Replace { expected, record }
    }

    /// What an operator should know of its fences: they follow clocks, so a clock was wrong once. Nothing
    /// is wrong with them while they are remembered.
    fn fences_ahead(&self, facts: &Facts) -> Option<String> {
        let now = Fence::from_clock(facts.clock);
        let ahead = Duration::from_micros(facts.remembers().get().saturating_sub(now.get()));
        let is_right = !matches!(self.line, Line::Off { .. });
        (is_right && ahead > self.policy.max_clock_skew.saturating_mul(2)).then(|| {
            format!(
                "its highest fence is {} ahead of its clock: do not let a majority of nodes lose \
                 their memory before the clocks have come so far",
                rounded(ahead)
            )
        })
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
            Role::Primary if self.policy.strict => evicts(facts),
            Role::Primary => None,
        }
    }

    /// Whether connections to its address met different servers.
    fn several_servers(&mut self, facts: &Facts) -> Option<String> {
        let reason = answered_by_several(facts);
        // Until several agree, several are asked.
        if reason.is_some() {
            self.compared = None;
        } else if self.compared.is_none() && facts.unmet > 0 {
            return None;
        } else if !facts.others.is_empty() || self.compared.is_none() {
            self.compared = Some(facts.server.run_id.clone());
        }
        reason
    }

    /// Why this node belongs to others.
    fn foreign(&self, record: &Record) -> Option<String> {
        let is_ours = record.cluster == self.policy.cluster && record.nodes == self.policy.nodes;
        (!is_ours).then(|| {
            format!(
                "it belongs to cluster {} of {} node(s), you are configured for cluster {} of {}: \
                 give every client the same member list, spelled the same way, and the same quarantine",
                record.cluster, record.nodes, self.policy.cluster, self.policy.nodes
            )
        })
    }

    /// Whether its record names another member of our list.
    fn another_member(&self, record: &Record) -> Option<String> {
        let (ours, theirs) = (&self.member, &record.member);
        (!record.is_of_the_format_before() && ours != theirs).then(|| {
            format!(
                "its record says that it is {theirs}, not {ours}: correct its address; if this is \
                 {ours} with a copy of the data of {theirs}, delete the record, and it sits out its \
                 quarantine"
            )
        })
    }

    /// Why its cluster is not as this client was told.
    fn disagreement(&self, record: &Record) -> Option<String> {
        match self.policy.max_ttl {
            Some(ours) if ours != record.max_ttl => Some(format!(
                "its cluster has max_ttl {:?}, you are configured for {ours:?}: give every client \
                 the same, with max_ttl={0:?} in the backend URL",
                record.max_ttl
            )),
            _ => None,
        }
    }

    /// The record of a node that remembers nothing, or not enough.
    fn new_life(&self, facts: &Facts, old: Option<&Record>, life: u128) -> Record {
        let adopted = old.map_or(self.policy.max_ttl_default, |record| record.max_ttl);
        let old_floor = old.map_or(Fence::ZERO, |record| record.floor);
        let waits = old.and_then(|record| record.waits);
        Record {
            cluster: self.policy.cluster,
            nodes: self.policy.nodes,
            member: self.member.clone(),
            max_ttl: self.policy.max_ttl.unwrap_or(adopted),
            life,
            run_id: facts.server.run_id.clone(),
            replication_id: facts.server.replication_id.clone(),
            origin: if old.is_some() { Origin::Later } else { Origin::First },
            state: match old.map(|record| record.state) {
                // Its members have not all left their old list, whatever became of this one.
                Some(RecordState::Barred) => RecordState::Barred,
                _ if self.policy.quarantine || waits.is_some() => RecordState::Quarantined,
                _ => RecordState::Admitted,
            },
            // A clock that nobody has compared yet gives no floor: that comes when it is admitted.
            floor: match self.policy.quarantine {
                true => old_floor,
                false => old_floor.max(Fence::from_clock(facts.clock)),
            },
            born: facts.clock,
            waits,
            clocks: Vec::new(),
        }
    }

    fn settle(&mut self, now: Moment, text: &str, record: &Record, facts: &Facts) {
        if record.state != RecordState::Admitted {
            let (until, cause) = (now.plus(LOOKED_AT_EVERY), Cause::Barred);
            self.standing = Standing::Waiting { until, cause };
            return;
        }
        self.max_ttl = self.max_ttl.max(record.max_ttl);
        self.admitted = Some(Arc::new(Pass {
            record: text.into(),
            generation: facts.generation,
            floor: record.floor,
            max_ttl: record.max_ttl,
            has_waited: self.policy.waits(record),
        }));
        self.stand(now);
    }
}

/// What an operator should know of its memory.
fn evicts(facts: &Facts) -> Option<String> {
    let policy = facts.server.evicts.as_ref()?;
    Some(format!(
        "it may evict locks (maxmemory-policy {policy}): \
         set `maxmemory-policy noeviction`, or give it no maxmemory"
    ))
}

/// What an operator should know of a lock that nobody can have any more.
fn spent(facts: &Facts) -> Option<String> {
    facts.has_spent.then(|| {
        "the fence of one of its locks is used up: somebody made it up, and nobody can acquire that \
         lock again; use another name for it"
            .into()
    })
}

/// What an operator should know of its name.
fn several_addresses(facts: &Facts) -> Option<String> {
    let count = facts.addresses;
    (count > 1).then(|| {
        format!(
            "its name has {count} addresses, and behind each may be another server: \
             give it a name that leads to one"
        )
    })
}
