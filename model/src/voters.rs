//! Which members vote for a process, where servers may change behind the members' names: decided by
//! `core::Roster` and `core::Admission` from what each server says of itself.

use leasehold_core::{
    Admission, ClockSample, Facts, Fence, Peers, Record, Role, Roster, ServerFacts, WallMicros,
};

use crate::mutation::Mutation;
use crate::nodes::{NOW, Nodes, policy};
use crate::protocol::Protocol;
use crate::state::{Node, State};

/// As many members as the cases with names have.
pub const NAMED: usize = 3;

/// What a process meets under the name of a member.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// The server: the place of the member that it is.
    pub server: u8,
    /// The number of the record that stands there.
    pub record: u8,
    /// How often it copied another server.
    pub history: u8,
}

impl Nodes {
    /// Which members vote, one bit each.
    pub fn voters(&self, shown: [Shown; NAMED]) -> u8 {
        let bytes = shown.map(|it| [it.record, it.history << 2 | it.server]);
        let [[a, b], [c, d], [e, f]] = bytes;
        let key = u64::from_le_bytes([6, a, b, c, d, e, f, 0]);
        self.cached(key, || self.elect(shown))
    }

    fn elect(&self, shown: [Shown; NAMED]) -> u8 {
        let facts = shown.map(|it| self.facts(it));
        let names = (0..NAMED).map(|member| policy(NAMED, 0).member(&name(member as u8)));
        let mut roster = Roster::new(names.collect(), &policy(NAMED, 0));
        for (member, facts) in facts.iter().enumerate() {
            roster.show(member, facts);
        }
        let votes = |member: &usize| {
            let (facts, twin) = (&facts[*member], roster.clone().show(*member, &facts[*member]));
            let (known_as, twin) =
                Mutation::known_as(self.mutation, name(*member as u8), twin, facts);
            let policy = policy(NAMED, 0);
            let twin = twin.map(|twin| policy.member(&name(twin as u8)));
            let mut admission = Admission::new(policy, &known_as);
            let sample = ClockSample { sent: NOW, received: NOW, clock: facts.clock };
            admission.examine(NOW, NOW, facts, 0, &Peers::none(sample).with_twin(twin));
            admission.standing().pass().is_some()
        };
        (0..NAMED).filter(votes).fold(0, |mask, member| mask | 1 << member)
    }

    fn facts(&self, shown: Shown) -> Facts {
        let text = (shown.record > 0).then(|| self.text(shown.record).to_owned());
        let written = text.as_deref().and_then(|text| Record::parse(text).ok());
        let server = ServerFacts {
            version: "model".into(),
            run_id: run_id(shown.server + 1),
            replication_id: replication_id(shown.server + 1, shown.history),
            role: Role::Primary,
            evicts: None,
            persists: false,
            expires_by_wall: false,
        };
        Facts {
            generation: 1,
            clock: WallMicros(0),
            record: text,
            highest: Fence::ZERO,
            has_spent: false,
            server: Mutation::server(self.mutation, server, written),
            others: Vec::new(),
            unmet: 0,
            addresses: 1,
        }
    }
}

impl Protocol {
    /// The place of the server that an attempt meets under the name of the member at `place`.
    pub(crate) fn met(&self, state: &State, agent: usize, place: usize) -> usize {
        // The name of the second member leads to the first one's server.
        if state.agents[agent].misled && place == 1 { 0 } else { place }
    }

    /// Whether the member at `place` votes for an attempt.
    pub(crate) fn is_voter(&self, state: &State, agent: usize, place: usize) -> bool {
        let shown = |member: usize| {
            let server = self.met(state, agent, member);
            let Node { history, .. } = state.nodes[server];
            let record = self.view(&state.nodes[server]).record;
            Shown { server: server as u8, record, history }
        };
        self.nodes.voters(std::array::from_fn(shown)) >> place & 1 == 1
    }
}

/// The name of the member at this place.
pub fn name(place: u8) -> String {
    format!("node{place}")
}

/// The process of a server; those of servers without a name are alike.
pub fn run_id(server: u8) -> String {
    format!("run{server}")
}

/// The history of a server that copied others so often.
pub fn replication_id(server: u8, history: u8) -> String {
    format!("repl{server}.{history}")
}
