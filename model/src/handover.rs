//! Handing over inside a process: a holder is done, releases nothing, and another attempt begins with
//! the same holder value. To a node both are one owner; here each is an attempt of its own, with a
//! fence of its own. What the former user sent may still arrive, at any later moment.
//!
//! Where numbers are reserved, the heir asks nobody: the former user raised the token by a refresh
//! before, and the heir, who waited then already, takes the next number up to it.

use leasehold_core::Reply;
use leasehold_judge::rules;

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
        if self.setup.reserves {
            let heirs = begun.iter().enumerate().filter(|(_, one)| self.may_bequeath(one));
            happenings.extend(heirs.map(|(i, _)| Happening::Bequeath { from: i as u8, to }));
        }
        for (i, one) in begun.iter().enumerate().filter(|(i, one)| self.may_hand_over(*i, one)) {
            for proposal in self
                .setup
                .first_proposals(state.now)
                .filter(|proposal| self.is_above(one, *proposal))
            {
                happenings.push(Happening::HandOver { from: i as u8, to, proposal });
            }
        }
    }

    fn may_hand_over(&self, place: usize, one: &Agent) -> bool {
        let keeps_grants = self.setup.mutation == Some(Mutation::HandOverKeepsGrants);
        let failed = one.stage == Stage::Acquiring && is_successor(place, one);
        one.holds() || (keeps_grants && failed)
    }

    /// Whether a proposal is above all that was sent with the holder value, so that nothing of it can
    /// change a node that grants the proposal.
    fn is_above(&self, former: &Agent, proposal: u8) -> bool {
        let highest = match former.stage {
            Stage::Acquiring => self.holders.proposal(former.round),
            _ => former.highest(),
        };
        self.setup.mutation == Some(Mutation::HandOverAnyProposal) || proposal > highest
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

    /// Whether there is a number left up to a token that a quorum has, and nothing higher was sent.
    fn may_bequeath(&self, one: &Agent) -> bool {
        let (token, is_won) = match self.setup.mutation {
            Some(Mutation::BequeathBeforeWon) => (one.highest(), true),
            Some(Mutation::BequeathBeyondToken) => (self.setup.proposals, true),
            _ => (one.token, one.refreshing == 0),
        };
        one.holds() && is_won && one.fence < token
    }

    /// The heir waited when the refresh was sent, so nobody who completed later came before it.
    pub(crate) fn bequeath(&self, state: &mut State, from: u8, to: u8) {
        let late = state.agents.iter().map(|agent| agent.fence).max().unwrap_or(0);
        state.drop_replies(usize::from(from));
        let former = state.agents[usize::from(from)];
        let one = &mut state.agents[usize::from(from)];
        one.stop();
        // The numbers above its own are the heir's now.
        (one.token, one.refreshing) = (one.fence, 0);
        let next = &mut state.agents[usize::from(to)];
        (next.holder, next.list, next.missed) = (former.holder, former.list, former.missed);
        (next.stage, next.fence) = (Stage::Held, former.fence + 1);
        next.token = match self.setup.mutation {
            Some(Mutation::BequeathBeyondToken) => former.highest().max(next.fence),
            _ => former.highest(),
        };
        next.before = match self.setup.mutation {
            Some(Mutation::BequeathToLateComer) => late,
            _ => former.before,
        };
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

/// Whether an attempt began with the holder value of another.
fn is_successor(place: usize, one: &Agent) -> bool {
    usize::from(one.holder) != place && one.stage != Stage::Idle
}
