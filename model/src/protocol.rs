//! The world as a `stateright::Model`: what may happen next in a state, and the state after it.
//!
//! Every request may arrive at any later moment, in any order, or never; every answer may be seen at
//! any later moment or never; a holder that crashed or stalls is one that takes no further step.
//! What the attempts do is in `attempt`, what befalls the nodes in `fault`.

use stateright::{Model, Property};

use crate::happening::Happening;
use crate::holders::Holders;
use crate::memo::Cache;
use crate::nodes::{Nodes, Step, View};
use crate::setup::Setup;
use crate::state::{Node, State};
use crate::trace;

/// A case's world.
pub struct Protocol {
    /// The bounds.
    pub setup: Setup,
    /// The nodes' side.
    pub nodes: Nodes,
    /// The holders' side.
    pub holders: Holders,
    /// The replies that matter to a round.
    pub(crate) heard: Cache<8>,
    /// What may become of a lease that is handed off.
    pub(crate) hand_offs: Cache<16>,
}

impl Protocol {
    /// The world within these bounds.
    pub fn new(setup: Setup) -> Self {
        let (nodes, holders) = (Nodes::new(&setup), Holders::new(&setup));
        Self { setup, nodes, holders, heard: Cache::new(), hand_offs: Cache::new() }
    }

    /// Whether every promise that is checked holds in `state`.
    pub fn is_sound(&self, state: &State) -> bool {
        self.setup.checks.iter().all(|promise| promise.holds(self, state))
    }

    /// What a node shows.
    pub fn view(&self, node: &Node) -> View {
        self.nodes.view(node.table)
    }

    /// Lets something happen to a node's table; the number of the reply.
    pub(crate) fn apply(&self, node: &mut Node, step: Step) -> u8 {
        let (table, reply) = self.nodes.apply(node.table, step);
        node.table = table;
        reply
    }

    fn initial(&self) -> State {
        let mut state = State {
            now: self.setup.clock.map_or(0, |clock| clock.from),
            wipes_left: self.setup.wipes,
            drops_left: self.setup.drops,
            copies_left: self.setup.copies,
            misleads_left: self.setup.misleads,
            ..State::default()
        };
        for place in 0..self.setup.nodes {
            let node = &mut state.nodes[place];
            let list = self.setup.lists.map_or(2, |lists| lists.served[place]);
            node.class = match self.setup.has_names() {
                true => place as u8,
                false => u8::from(self.setup.lists.is_some_and(|lists| place >= lists.shorter)),
            };
            node.table = self.nodes.blank();
            if list > 0 {
                let (members, server) = (self.setup.list_len(list), self.server(node));
                let record = self.nodes.admitted(list, members, 0, 0, server);
                self.apply(node, Step::Write(record));
            }
        }
        state
    }

    /// The state after `happening`, its nodes not yet in order; `None` if nothing comes of it.
    pub fn after(&self, state: &State, happening: Happening) -> Option<State> {
        let mut next = *state;
        match happening {
            Happening::Start { agent, proposal, list } => {
                let one = &mut next.agents[usize::from(agent)];
                (one.holder, one.list) = (agent, list);
                self.start(&mut next, agent, proposal);
            }
            Happening::HandOver { from, to, proposal } => {
                self.hand_over(&mut next, from, to, proposal);
            }
            Happening::TakeReserved { from, to } => self.take_reserved(&mut next, from, to),
            Happening::Arrive(arrival) => return self.arrive(next, arrival),
            Happening::Decide { agent, decision } => self.decide(&mut next, agent, decision),
            Happening::Extend { agent, to } => self.extend(&mut next, agent, to),
            Happening::Claim { agent, lowest, highest } => {
                self.claim(&mut next, agent, lowest, highest);
            }
            Happening::Force { agent } => self.force(&mut next, agent),
            Happening::Release { agent } => self.end(&mut next, agent),
            Happening::Expire { node } => self.expire(&mut next, node),
            Happening::Wipe { node } => self.wipe(&mut next, node),
            Happening::Replicate { node } => self.replicate(&mut next, node),
            Happening::Copy { node, from } => self.copy(&mut next, node, from),
            Happening::Mislead { agent } => self.mislead(&mut next, agent),
            Happening::Rejoin { node } => self.rejoin(&mut next, node),
            Happening::Examine { node, clock } => return self.examine(next, node, clock),
            Happening::Judge { node, ahead } => return self.judge(next, node, ahead),
            Happening::Tick => next.now += 1,
            Happening::RaiseFloor { node, to } => self.raise_floor(&mut next, node, to),
            Happening::Forget { node, expired } => return self.forget(next, node, expired),
            Happening::Switch { node } => self.switch(&mut next, node),
            Happening::Bar { node } => self.bar(&mut next, node),
            Happening::SwitchAll { floor } => self.switch_all(&mut next, floor),
        }
        Some(next)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Happening;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial().in_order(self.setup.nodes).0]
    }

    fn actions(&self, state: &State, happenings: &mut Vec<Happening>) {
        if state.turn > 0 {
            return self.arrivals(state, state.turn - 1, happenings);
        }
        self.attempts(state, happenings);
        self.faults(state, happenings);
    }

    fn next_state(&self, state: &State, happening: Happening) -> Option<State> {
        let mut next = self.after(state, happening)?;
        if !self.setup.plain {
            next.drop_questions();
        }
        Some(next.in_order(self.setup.nodes).0)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(trace::PROPERTY, |protocol: &Self, state| protocol.is_sound(state))]
    }
}
