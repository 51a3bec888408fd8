//! Setting up a member list, and changing it. Two lists have disjoint majorities, so clients of the
//! old one must be unable to decide anything before those of the new one can.
//!
//! * One node more: majorities of the old and of the new list still meet in a node that remembers,
//!   so the nodes are told of the new list one after the other, and none of them waits. The node that is
//!   added is barred before that, and waits when all others serve the new list: with its vote, half of
//!   an even list would be enough, and two changes at once have half each.
//! * Anything else: a barrier. Every node of both lists first refuses the old list; only when all
//!   have confirmed that does the quarantine of the new list begin. The nodes that join are barred
//!   first: a change that ends half-way then leaves nobody of the new list who could decide without
//!   those of the old one, which may still keep leases.
//!
//! Asking and writing is the driver's work.

mod init;
mod stage;
mod succession;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::node::no_single_server;
use crate::{
    AdmissionPolicy, ClockSample, Facts, Fence, Moment, Origin, Record, RecordState, Roster,
};

pub use init::{Init, InitRefusal};
pub use stage::{Side, SuccessionStep};
pub use succession::Succession;

/// A record that another client changes meanwhile is read again, and so often at most.
const TRIES: usize = 8;

/// A member list, and what its clients expect of its nodes.
#[derive(Debug, Clone)]
pub struct MemberList {
    policy: AdmissionPolicy,
    names: Vec<String>,
}

/// What all members of a list said when they were asked at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// When they were asked.
    pub sent: Moment,
    /// When all had answered.
    pub received: Moment,
    /// What they said, in the order of the list.
    pub facts: &'a [Facts],
}

impl MemberList {
    /// The list of these names.
    pub fn new(policy: AdmissionPolicy, names: Vec<String>) -> Self {
        Self { policy, names }
    }

    /// Holds the clocks of the nodes against each other. What they show becomes a floor, so none may be
    /// far off. Says which one is, and how.
    fn compare_clocks(&self, told: Told<'_>) -> Result<Roster, (usize, String)> {
        let names = self.names.iter().map(|name| self.policy.member(name)).collect();
        let mut roster = Roster::new(names, &self.policy);
        let Told { sent, received, facts } = told;
        for (member, facts) in facts.iter().enumerate() {
            roster.show_clock(member, ClockSample { sent, received, clock: facts.clock });
        }
        let off = |member| Some((member, roster.line(member).objection()?));
        match (0..facts.len()).find_map(off) {
            Some(off) => Err(off),
            None => Ok(roster),
        }
    }

    /// Whether the name of each node leads to one server, and whether their clocks agree. A server that
    /// only some connections meet must not become a member.
    fn compare(&self, told: Told<'_>) -> Result<(), (usize, String)> {
        let odd = |(member, facts)| Some((member, no_single_server(facts)?));
        match told.facts.iter().enumerate().find_map(odd) {
            Some(odd) => Err(odd),
            None => self.compare_clocks(told).map(|_| ()),
        }
    }

    fn is_known_to(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| self.policy.is_list_of(&record))
    }

    /// Whether the change to this list is over for this node.
    fn is_served_by(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.policy.is_list_of(&record) && record.state != RecordState::Barred
        })
    }

    /// Whether a node of this list may go on in the next one with what it remembers.
    fn can_roll(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.policy.is_list_of(&record)
                && record.state == RecordState::Admitted
                && !record.is_of_the_format_before()
                && record.is_by(&facts.server)
        })
    }

    /// The longest Ttl that anybody may have used with this list.
    fn longest_ttl(&self, facts: &[Facts]) -> Duration {
        let of_node = |facts| read(facts).map_or(self.policy.longest_ttl(), |(_, r)| r.max_ttl);
        facts.iter().map(of_node).chain(self.policy.max_ttl).max().unwrap_or_default()
    }

    /// The record of a node that comes from another list, or from none.
    fn record_of_a_change(
        &self,
        name: &str,
        facts: &Facts,
        state: RecordState,
        life: u128,
    ) -> Record {
        Record {
            cluster: self.policy.cluster,
            nodes: self.policy.nodes,
            member: self.policy.member(name),
            max_ttl: self.policy.longest_ttl(),
            life,
            run_id: facts.server.run_id.clone(),
            replication_id: facts.server.replication_id.clone(),
            origin: Origin::Succession,
            state,
            floor: Fence::ZERO,
            born: facts.clock,
            waits: None,
            clocks: Vec::new(),
        }
    }
}

/// The longest time that a record of either list says its node has to wait.
fn longest_wait(ours: &[Facts], theirs: &[Facts]) -> Duration {
    let waits = |facts| read(facts).and_then(|(_, record)| record.waits);
    ours.iter().chain(theirs).filter_map(waits).max().unwrap_or_default()
}

/// Whether these facts are of one server. One that copied another shows that one's record, and two
/// files on one machine show one run id.
fn is_one_server(a: &Facts, b: &Facts) -> bool {
    let life = |facts| read(facts).map(|(_, record)| record.life);
    life(a).is_some() && life(a) == life(b) && a.server.run_id == b.server.run_id
}

/// The record of a node, as text and as read.
fn read(facts: &Facts) -> Option<(String, Record)> {
    let text = facts.record.clone()?;
    let record = Record::parse(&text).ok()?;
    Some((text, record))
}
