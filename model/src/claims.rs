//! Leases that are not tied to a process: somebody was told the id of one, or makes one up, and hands it
//! in to keep the lease. Each such claim names a lowest and a highest fence. Once a quorum has confirmed
//! it, the core gives the lease back to nodes that have no owner; that request may be carried out late.
//!
//! Here are forced releases as well, because they are what a claim must not undo.

use leasehold_core::Reply;

use crate::happening::{Arrival, Happening};
use crate::holders::{heals, quorum};
use crate::mutation::Mutation;
use crate::nodes::Step;
use crate::protocol::Protocol;
use crate::setup::Claims;
use crate::state::{Agent, Node, Question, Stage, State};

impl Protocol {
    /// The claims that may be made of an attempt's lease, with any fences.
    pub(crate) fn claims(&self, state: &State, agent: u8, happenings: &mut Vec<Happening>) {
        if !self.may_claim(state, agent) {
            return;
        }
        for lowest in 1..=self.setup.proposals {
            for highest in lowest..=self.setup.proposals {
                happenings.push(Happening::Claim { agent, lowest, highest });
            }
        }
    }

    fn may_claim(&self, state: &State, agent: u8) -> bool {
        let one = &state.agents[usize::from(agent)];
        let may_more = self.setup.has_claims() && one.extends < self.setup.extends;
        let is_replay = one.stage == Stage::Over
            && self.setup.claims == Claims::Replayed
            && self.has_quorum(state, |node| node.released >> agent & 1 == 1);
        may_more && (one.stage == Stage::Held || is_replay)
    }

    fn has_quorum(&self, state: &State, wanted: impl Fn(&Node) -> bool) -> bool {
        let nodes = &state.nodes[..self.setup.nodes];
        nodes.iter().filter(|node| wanted(node)).count() >= quorum(nodes.len()).needed()
    }

    /// Whether the lease of an attempt may be taken from it.
    pub(crate) fn may_force(&self, state: &State, agent: u8) -> bool {
        let one = &state.agents[usize::from(agent)];
        let is_kept = agent < self.setup.keepers;
        self.setup.forces && is_kept && one.stage == Stage::Held && !one.ended
    }

    pub(crate) fn claim(&self, state: &mut State, agent: u8, lowest: u8, highest: u8) {
        let later = state.agents.iter().enumerate().filter(|(i, _)| *i != usize::from(agent));
        let later = later.map(|(_, one)| one.fence).max().unwrap_or(0);
        let is_forced = self.has_quorum(state, |node| node.forced >> agent & 1 == 1);
        let one = &mut state.agents[usize::from(agent)];
        let is_held = one.stage == Stage::Held;
        one.stage = if is_held { Stage::Extending } else { Stage::Claiming };
        one.outdated = later > one.fence || is_forced || !one.completed();
        one.extends += 1;
        self.send(state, agent, Question::Claim(lowest, highest));
    }

    pub(crate) fn force(&self, state: &mut State, agent: u8) {
        let one = &mut state.agents[usize::from(agent)];
        one.ended = true;
        let seen = one.fence;
        self.send(state, agent, Question::Force(seen));
    }

    /// What is given back to whom after a claim, by the answers so far.
    pub(crate) fn given_back(
        &self,
        state: &State,
        agent: u8,
        won: bool,
    ) -> Option<((u8, u8), Vec<usize>)> {
        let one = &state.agents[usize::from(agent)];
        let Question::Claim(lowest, highest) = one.questions[usize::from(one.asked) - 1] else {
            return None;
        };
        let replies = state.nodes.map(|node| node.lanes[usize::from(agent)].reply);
        let members = self.setup.list_len(one.list);
        match self.setup.mutation {
            Some(Mutation::HealUnconfirmed) if !won => {
                let free = (0..members).filter(|node| self.is_free(replies[*node]));
                Some(((lowest, lowest), free.collect()))
            }
            Some(Mutation::HealHighest) => {
                let (_, free) = heals(&self.nodes, members, (lowest, highest), replies)?;
                Some(((highest, highest), free))
            }
            _ => heals(&self.nodes, members, (lowest, highest), replies),
        }
    }

    /// Whether a reply says that the node has no owner.
    pub(crate) fn is_free(&self, reply: u8) -> bool {
        reply > 0 && matches!(self.nodes.reply(reply), Reply::NotHeld { owner: None })
    }

    /// Sends what is given back: as far as there is room for one more question.
    pub(crate) fn give_back(
        &self,
        state: &mut State,
        agent: u8,
        ((token, next), free): ((u8, u8), Vec<usize>),
    ) {
        let place = usize::from(state.agents[usize::from(agent)].asked);
        self.send(state, agent, Question::Extend(token, next));
        for (member, node) in state.nodes.iter_mut().enumerate() {
            if !free.contains(&member) {
                node.lanes[usize::from(agent)].pending[place] = 0;
            }
        }
    }

    /// Whether a question ends a lease, which is followed also where it changes nothing.
    pub(crate) fn is_end(&self, one: &Agent, place: usize) -> bool {
        let is_end = matches!(one.questions[place], Question::Release | Question::Force(_));
        self.setup.has_claims() && is_end
    }

    /// Notes what a question did to a node that showed `table` after it.
    pub(crate) fn note(&self, state: &mut State, arrival: Arrival, table: u16) {
        if !self.setup.has_claims() {
            return;
        }
        let i = usize::from(arrival.agent);
        let one = state.agents[i];
        let node = &mut state.nodes[usize::from(arrival.node)];
        let before = match arrival.expired {
            true => self.nodes.apply(node.table, Step::Expire).0,
            false => node.table,
        };
        match one.questions[usize::from(arrival.question)] {
            Question::Release => {
                node.released |= 1 << i;
                // A connection keeps its order: no acquire follows its release.
                let asked = one.questions.iter().enumerate();
                for (place, _) in asked.filter(|(_, it)| matches!(it, Question::Acquire(_))) {
                    node.lanes[i].pending[place] = 0;
                }
            }
            Question::Force(_) => {
                let is_freed = self.nodes.view(table).owner.is_none();
                node.forced |= u8::from(is_freed) << i;
            }
            Question::Claim(..) => state.broke_c |= table != before,
            Question::Extend(..) => {
                state.broke_c |= table != before && self.nodes.view(table).fence > one.fence;
            }
            Question::Acquire(_) | Question::None => {}
        }
    }
}
