//! A client looks at a node that lost its memory: `core::Admission` says what is to stand there, from
//! the node's clock, from the clocks and fences of the other members, by `core::Roster`, and from how
//! long the client saw it wait.

use leasehold_core::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Facts, MemberName, Moment, Origin,
    Peers, Record, RecordState, Role, Roster, ServerFacts, WallMicros,
};

use crate::mutation::Mutation;
use crate::nodes::{NOBODY, Nodes, fence, policy};
use crate::state::NODES_MAX;
use crate::voters::{replication_id, run_id};

/// What is seen of a node that is out.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The number of the record that stands there; 0 for none.
    pub record: u8,
    /// A number for its life, if it begins one.
    pub life: u8,
    /// What its clock shows, in microseconds.
    pub clock: u8,
    /// For how long the client saw it wait, in microseconds.
    pub waited: u8,
    /// For how long it must, in microseconds.
    pub quarantine: u8,
    /// The other members, if any is asked.
    pub others: Option<Others>,
}

/// What the other members show.
#[derive(Debug, Clone, Copy)]
pub struct Others {
    /// How many answer.
    pub count: u8,
    /// The highest fence that one of them remembers.
    pub highest: u8,
    /// What their clocks show, in microseconds.
    pub clocks: [u8; 2],
}

impl Nodes {
    /// The record that `core::Admission` writes to a node, if it writes one.
    pub fn examined(&self, look: Look) -> Option<u8> {
        let Look { record, life, clock, waited, others, .. } = look;
        // Clocks of others are one of few numbers, and so is the count.
        let (count, highest, clocks) =
            others.map_or((0, 0, [0; 2]), |o| (o.count, o.highest, o.clocks));
        let clocks = u32::from_le_bytes([clocks[0], clocks[1], 0, 0]);
        let key = u64::from(record) << 8
            | u64::from(clock) << 16
            | u64::from(clocks) << 24
            | u64::from(highest & 31) << 40
            | u64::from(waited & 31) << 45
            | u64::from(life & 7) << 50
            | u64::from(count & 7) << 53
            | 4;
        let written = self.written.get(key, || self.examine(look).into());
        (written > 0).then_some(written as u8)
    }

    fn examine(&self, look: Look) -> u8 {
        let policy = policy(self.members, look.quarantine);
        let text = (look.record > 0).then(|| self.text(look.record).to_owned());
        let facts = facts(0, look.clock, text, 0);
        let mut admission = Admission::new(policy.clone(), NOBODY);
        let first = Moment::from_millis(1);
        if look.record > 0 {
            // When the client first saw it wait.
            admission.examine(first, first, &facts, 0, &Peers::none(sample(first, &facts)));
        }
        let now = Moment::from_nanos(first.as_nanos() + 1 + u64::from(look.waited) * 1000);
        let peers = match look.others {
            None => Peers::none(sample(now, &facts)),
            Some(others) => {
                let others = Mutation::others(self.mutation, look.clock, others);
                self.roster(&policy, others, now).peers(0, None, sample(now, &facts))
            }
        };
        match admission.examine(now, now, &facts, look.life.into(), &peers) {
            AdmissionStep::Settled => 0,
            AdmissionStep::Replace { record, .. } => {
                let record = Mutation::record(self.mutation, record);
                self.number_of_record(&record.to_string())
            }
        }
    }

    /// The node itself is the first member, and the others were asked just now.
    fn roster(&self, policy: &AdmissionPolicy, others: Others, now: Moment) -> Roster {
        let name = |place: usize| match place {
            0 => MemberName::new(NOBODY),
            place => MemberName::new(&format!("other{place}")),
        };
        let names: Vec<MemberName> = (0..self.members.min(NODES_MAX)).map(name).collect();
        let mut roster = Roster::new(names.clone(), policy);
        for (place, member) in names.into_iter().enumerate().skip(1) {
            if place > usize::from(others.count) {
                roster.hide(place);
                continue;
            }
            let clock = others.clocks[(place - 1).min(1)];
            let record = Record {
                cluster: policy.cluster,
                nodes: policy.nodes,
                member: member.clone(),
                max_ttl: policy.longest_ttl(),
                life: place as u128,
                run_id: run_id(place as u8),
                replication_id: replication_id(0, 0),
                origin: Origin::First,
                state: RecordState::Admitted,
                floor: fence(0),
                born: WallMicros(0),
                waits: None,
                clocks: Vec::new(),
            };
            let facts = facts(place as u8, clock, Some(record.to_string()), others.highest);
            let mut admission = Admission::new(policy.clone(), member.as_str());
            admission.examine(now, now, &facts, 0, &Peers::none(sample(now, &facts)));
            roster.note(place, now, &admission, &facts);
        }
        roster
    }
}

fn sample(now: Moment, facts: &Facts) -> ClockSample {
    ClockSample { sent: now, received: now, clock: facts.clock }
}

fn facts(server: u8, clock: u8, record: Option<String>, highest: u8) -> Facts {
    Facts {
        generation: 1,
        clock: WallMicros(clock.into()),
        record,
        highest: fence(highest),
        has_spent: false,
        server: ServerFacts {
            version: "model".into(),
            run_id: run_id(server),
            replication_id: replication_id(0, 0),
            role: Role::Primary,
            evicts: None,
            persists: false,
            expires_by_wall: false,
        },
        others: Vec::new(),
        unmet: 0,
        addresses: 1,
    }
}
