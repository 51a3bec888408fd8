//! What the lists and servers are, and the model that the checker sees.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Drift, Facts, Fence, Fingerprint,
    MemberList, Moment, Origin, Record, RecordState, Role, Roster, ServerFacts, Side, WallMicros,
};
use stateright::{Model, Property};

use super::changer::Changer;
use super::state::{Lease, Node, State, Written};
use super::steps::Step;
use super::{Rule, Setup};

/// The one property that is given to the checker.
pub(super) const PROPERTY: &str = "the promises hold";

/// Every clock shows this, always.
const CLOCK: WallMicros = WallMicros(1);
/// The fence that was given last, before anything happens.
const GIVEN: u64 = 5;
const MAX_TTL: Duration = Duration::from_secs(30);

/// A member list.
#[derive(Debug)]
pub(super) struct List {
    pub(super) policy: AdmissionPolicy,
    pub(super) list: MemberList,
    /// Its nodes, in the order of the list.
    pub(super) nodes: Vec<usize>,
    names: Vec<String>,
}

/// A case, made ready.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) lists: Vec<List>,
    pub(super) names: Vec<char>,
}

impl List {
    fn new(letters: &str, names: &[char]) -> Self {
        let words: Vec<String> = letters.chars().map(String::from).collect();
        let policy = AdmissionPolicy {
            cluster: match words.len() {
                1 => Fingerprint::of_one(),
                _ => Fingerprint::of_members(words.iter().map(String::as_str)),
            },
            nodes: words.len(),
            max_ttl: Some(MAX_TTL),
            max_ttl_default: MAX_TTL,
            drift: Drift::DEFAULT,
            max_clock_skew: Duration::from_secs(1),
            quarantine: words.len() > 1,
            strict: false,
        };
        let place = |letter| names.iter().position(|name| *name == letter).unwrap_or_default();
        let nodes = letters.chars().map(place).collect();
        Self { list: MemberList::new(policy.clone(), words.clone()), policy, nodes, names: words }
    }

    pub(super) fn quorum(&self) -> u32 {
        self.nodes.len() as u32 / 2 + 1
    }

    fn name(&self, node: usize) -> &str {
        let at = self.nodes.iter().position(|other| *other == node);
        at.map_or("?", |at| &self.names[at])
    }

    /// A record of this list that no change wrote.
    pub(super) fn record(
        &self,
        facts: &Facts,
        node: usize,
        state: RecordState,
        life: u128,
    ) -> Record {
        Record {
            cluster: self.policy.cluster,
            nodes: self.policy.nodes,
            member: self.policy.member(self.name(node)),
            max_ttl: MAX_TTL,
            life,
            run_id: facts.server.run_id.clone(),
            replication_id: facts.server.replication_id.clone(),
            origin: Origin::First,
            state,
            floor: Fence::ZERO,
            born: CLOCK,
            waits: None,
            clocks: Vec::new(),
        }
    }

    /// Whether a client of this list may ask this node.
    pub(super) fn is_served_by(&self, at: usize, node: &Node) -> bool {
        node.record.as_ref().is_some_and(|written| {
            self.nodes.contains(&at)
                && self.policy.is_list_of(&written.record)
                && written.record.state == RecordState::Admitted
                && written.record.run_id == run_id(at, node)
        })
    }
}

fn run_id(at: usize, node: &Node) -> String {
    format!("{at}-{}", node.run)
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let mut names: Vec<char> = setup.lists.iter().flat_map(|list| list.chars()).collect();
        names.sort_unstable();
        names.dedup();
        let lists = setup.lists.iter().map(|list| List::new(list, &names)).collect();
        Self { setup, lists, names }
    }

    pub(super) fn nodes_of(&self, change: usize, of: Side) -> &[usize] {
        let (from, to) = self.setup.changes[change];
        &self.lists[if of == Side::Old { from } else { to }].nodes
    }

    /// What a node says of itself.
    pub(super) fn facts(&self, at: usize, node: &Node) -> Facts {
        Facts {
            generation: 1,
            clock: CLOCK,
            record: node.record.as_ref().map(|written| written.text.to_string()),
            highest: Fence::new(node.highest).unwrap_or(Fence::MAX),
            has_spent: false,
            server: ServerFacts {
                version: "redis".into(),
                run_id: run_id(at, node),
                replication_id: "r".into(),
                role: Role::Primary,
                evicts: None,
                persists: false,
                expires_by_wall: true,
            },
            others: Vec::new(),
            unmet: 0,
            addresses: 1,
        }
    }

    /// The life that a server begins that restarted, once somebody of its list looks at it: as
    /// `Admission` says.
    pub(super) fn later_life(&self, at: usize, node: &Node) -> Option<Record> {
        let facts = self.facts(at, node);
        let old = &node.record.as_ref()?.record;
        if old.is_by(&facts.server) {
            return None;
        }
        let is_of = |list: &&List| list.policy.is_list_of(old) && list.nodes.contains(&at);
        // One that leaves is looked at by nobody.
        let list = self.lists.iter().find(is_of)?;
        let names = list.names.iter().map(|name| list.policy.member(name)).collect();
        let roster = Roster::new(names, &list.policy);
        let member = list.nodes.iter().position(|other| *other == at)?;
        let now = Moment::from_nanos(1);
        let sample = ClockSample { sent: now, received: now, clock: facts.clock };
        let peers = roster.peers(member, None, sample);
        let mut admission = Admission::new(list.policy.clone(), list.name(at));
        let life = 500_000 + at as u128 * 100 + u128::from(node.run);
        match admission.examine(now, now, &facts, life, &peers) {
            AdmissionStep::Replace { mut record, .. } => {
                if self.setup.without == Some(Rule::BarredStays)
                    && record.state == RecordState::Barred
                {
                    record.state = RecordState::Quarantined;
                }
                Some(record)
            }
            AdmissionStep::Settled => None,
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut nodes = vec![Node::default(); self.names.len()];
        for at in &self.lists[0].nodes {
            let facts = self.facts(*at, &nodes[*at]);
            let life = 900_000 + *at as u128;
            let record = self.lists[0].record(&facts, *at, RecordState::Admitted, life);
            nodes[*at].record = Some(Written::new(record));
            nodes[*at].highest = GIVEN;
        }
        let changers = 0..self.setup.changes.len();
        let changer = |change| Arc::new(Changer::new(self, change, self.setup.again));
        vec![State {
            nodes,
            changers: changers.map(changer).collect(),
            leases: vec![Lease::default(); self.setup.clients.len()],
            restarts: self.setup.restarts,
            completed: 0,
            went_back: false,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.steps(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        self.after(state, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(PROPERTY, |_: &Self, state: &State| state.broken().is_none())]
    }
}
