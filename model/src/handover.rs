//! Handing over inside a process: a holder is done, releases nothing, and another attempt begins with
//! the same holder value. To a node both are one owner; here each is an attempt of its own, with a
//! fence of its own. What the former user sent may still arrive, at any later moment.
//!
//! Whether the next waiter gets a reserved fence or asks, and above what, the core says: `handoff`.

use leasehold_core::Reply;
use leasehold_judge::rules;

use crate::handoff::HandOff;
use crate::happening::{Arrival, Happening};
use crate::mutation::Mutation;
use crate::protocol::Protocol;
use crate::state::{Agent, Node, Stage, State};

impl Protocol {
    /// Who may hand over to an attempt that has not begun.
    pub(crate) fn hand_overs(&self, state: &State, to: u8, happenings: &mut Vec<Happening>) {
        let begun = &state.agents[..usize::from(to)];
        let handed_over = begun.iter().enumerate().filter(|(i, one)| is_successor(*i, one));
        if handed_over.count() >= usize::from(self.setup.handovers) {
            return;
        }
        let may: Vec<_> =
            begun.iter().enumerate().map(|(i, one)| self.may(begun, i, one)).collect();
        let reserved = may.iter().enumerate().filter(|(_, may)| may.reserved.is_some());
        happenings.extend(reserved.map(|(i, _)| Happening::TakeReserved { from: i as u8, to }));
        for (i, above) in may.iter().enumerate().filter_map(|(i, may)| Some((i, may.above?))) {
            for proposal in self.setup.first_proposals(state.now).filter(|p| *p > above) {
                happenings.push(Happening::HandOver { from: i as u8, to, proposal });
            }
        }
    }

    /// What the next waiter may do with what `one` has, which is one of those that have begun.
    fn may(&self, begun: &[Agent], place: usize, one: &Agent) -> HandOff {
        let keeps_grants = self.setup.mutation == Some(Mutation::HandOverKeepsGrants);
        let mut may = match one.stage {
            Stage::Held | Stage::Extending => self.hand_off(one, times(begun, place, one)),
            Stage::Acquiring if keeps_grants && is_successor(place, one) => {
                HandOff { above: Some(self.holders.proposal(one.round)), ..HandOff::default() }
            }
            _ => HandOff::default(),
        };
        if self.setup.mutation == Some(Mutation::HandOverAnyProposal) {
            may.above = may.above.map(|_| 0);
        }
        may
    }

    pub(crate) fn hand_over(&self, state: &mut State, from: u8, to: u8, proposal: u8) {
        let former = state.agents[usize::from(from)];
        match self.setup.mutation {
            Some(Mutation::HandOverGoesOn) => {}
            Some(Mutation::HandOverAfterRelease) => self.end(state, from),
            Some(Mutation::HandOverCountsExtends | Mutation::HandOverKeepsGrants) => {
                self.inherit(state, from, to);
                state.agents[usize::from(from)].stop();
            }
            _ => {
                state.drop_replies(usize::from(from));
                state.agents[usize::from(from)].stop();
            }
        }
        let next = &mut state.agents[usize::from(to)];
        (next.holder, next.list) = (former.holder, former.list);
        self.start(state, to, proposal);
    }

    /// The next waiter was there when the refresh was sent, so nobody who completed later came before it;
    /// unless late comers are let in.
    pub(crate) fn take_reserved(&self, state: &mut State, from: u8, to: u8) {
        let begun = &state.agents[..usize::from(to)];
        let former = state.agents[usize::from(from)];
        let may = self.may(begun, from.into(), &former);
        let Some((fence, token)) = may.reserved else { return };
        let late = state.agents.iter().map(|agent| agent.fence).max().unwrap_or(0);
        state.drop_replies(usize::from(from));
        let one = &mut state.agents[usize::from(from)];
        one.stop();
        // The numbers above its own are the next waiter's now.
        (one.token, one.refreshing) = (one.fence, 0);
        let next = &mut state.agents[usize::from(to)];
        (next.holder, next.list, next.missed) = (former.holder, former.list, former.missed);
        (next.stage, next.fence) = (Stage::Held, fence);
        next.token = match self.setup.mutation {
            Some(Mutation::ReservedBeyondToken) => former.highest().max(fence),
            _ => token,
        };
        next.before = if may.is_for_late_comers { late } else { former.before };
        if to >= self.setup.keepers {
            (next.extends, next.refreshes) = (self.setup.extends, self.setup.refreshes);
        }
        state.broke_f2 |= !rules::grows(next.fence, next.before);
    }

    /// Lets an attempt count as its own what nodes answered to another.
    fn inherit(&self, state: &mut State, from: u8, to: u8) {
        for node in &mut state.nodes {
            let reply = std::mem::take(&mut node.lanes[usize::from(from)].reply);
            let is_yes = reply > 0
                && matches!(
                    self.nodes.reply(reply),
                    Reply::Granted | Reply::Extended { .. } | Reply::Healed { .. }
                );
            if is_yes {
                node.lanes[usize::from(to)].reply = self.nodes.number_of_reply(Reply::Granted);
            }
        }
    }

    /// The fence that an attempt is given in place of its own, if that is what is wrong.
    pub(crate) fn former_fence(&self, state: &State, agent: u8) -> Option<u8> {
        let one = &state.agents[usize::from(agent)];
        let keeps = self.setup.mutation == Some(Mutation::HandOverKeepsFence)
            && is_successor(agent.into(), one);
        keeps.then(|| state.agents[usize::from(one.holder)].fence)
    }

    /// The attempt whose lease stands on a node: of those with the owner's holder value the last
    /// whose former users can not have written the fence.
    pub(crate) fn tenant(&self, state: &State, node: &Node) -> Option<usize> {
        let view = self.view(node);
        let first = usize::from(view.owner?);
        let mut tenant = first;
        for i in first + 1..self.setup.agents {
            let is_next = is_successor(i, &state.agents[i])
                && usize::from(state.agents[i].holder) == first
                && view.fence > state.agents[tenant].highest();
            if is_next {
                tenant = i;
            }
        }
        Some(tenant)
    }

    /// Whether an arrival is a late one of a former user and changes a node that granted the lease
    /// to a later one.
    pub(crate) fn disturbs(&self, state: &State, arrival: Arrival, table: u16) -> bool {
        let node = &state.nodes[usize::from(arrival.node)];
        let (view, i) = (self.view(node), usize::from(arrival.agent));
        let holder = state.agents[i].holder;
        let is_later = |(_, one): &(usize, &Agent)| one.holder == holder && one.holds();
        let later = state.agents.iter().enumerate().skip(i + 1).find(is_later);
        let has_granted =
            |fence: u8| view.owner == Some(holder) && view.fence >= fence && table != node.table;
        later.is_some_and(|(_, later)| has_granted(later.fence))
    }
}

/// How often the lease of an attempt was handed on before.
fn times(begun: &[Agent], place: usize, one: &Agent) -> u8 {
    let before = begun[..=place].iter().enumerate();
    before.filter(|(i, other)| other.holder == one.holder && is_successor(*i, other)).count() as u8
}

/// Whether an attempt began with the holder value of another.
fn is_successor(place: usize, one: &Agent) -> bool {
    usize::from(one.holder) != place && one.stage != Stage::Idle
}
