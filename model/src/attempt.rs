//! What attempts do: start, hear answers, decide, extend, end. All decisions are the core's.

use leasehold_judge::rules;

use crate::happening::{Arrival, Happening};
use crate::holders::{Decision, Late, Round};
use crate::mutation::Mutation;
use crate::nodes::Step;
use crate::protocol::Protocol;
use crate::setup::Identity;
use crate::state::{Agent, NODES_MAX, Node, Question, Stage, State};

impl Protocol {
    /// What the attempts may do next, and which of their questions may arrive.
    pub(crate) fn attempts(&self, state: &State, happenings: &mut Vec<Happening>) {
        for i in 0..self.setup.agents {
            let (agent, one) = (i as u8, &state.agents[i]);
            match one.stage {
                Stage::Idle => {
                    self.starts(state, agent, happenings);
                    self.hand_overs(state, agent, happenings);
                    // Attempts are alike, so they may as well begin in the order of their letters.
                    break;
                }
                Stage::Acquiring | Stage::Extending | Stage::Claiming => {
                    self.decisions(state, agent, happenings);
                }
                Stage::Held | Stage::Over if self.setup.has_claims() => {
                    self.claims(state, agent, happenings);
                }
                Stage::Held => self.extends(one, agent, happenings),
                Stage::Over => {}
            }
            if self.may_force(state, agent) {
                happenings.push(Happening::Force { agent });
            }
            if self.setup.releases && one.holds() && !one.ended {
                happenings.push(Happening::Release { agent });
            }
            self.arrivals(state, agent, happenings);
        }
    }

    fn starts(&self, state: &State, agent: u8, happenings: &mut Vec<Happening>) {
        let lists = if self.setup.lists.is_some() { 1..=2 } else { 2..=2 };
        for list in lists {
            for proposal in self.setup.first_proposals(state.now) {
                happenings.push(Happening::Start { agent, proposal, list });
            }
        }
    }

    fn decisions(&self, state: &State, agent: u8, happenings: &mut Vec<Happening>) {
        let one = &state.agents[usize::from(agent)];
        let replies = state.nodes.map(|node| node.lanes[usize::from(agent)].reply);
        for decision in self.holders.decisions(&self.nodes, self.round(one), replies) {
            let is_taken_at_once = decision.believes() && !self.setup.plain;
            if !is_taken_at_once && self.matters(one, *decision) {
                happenings.push(Happening::Decide { agent, decision: *decision });
            }
        }
    }

    /// As `core::Keeper::round`: once a refresh was sent, only a larger one can keep the lease.
    fn extends(&self, one: &Agent, agent: u8, happenings: &mut Vec<Happening>) {
        if self.may_extend(one) {
            happenings.push(Happening::Extend { agent, to: one.token });
        }
        if self.may_refresh(one) {
            for to in one.token.max(one.refreshing) + 1..=self.setup.proposals {
                happenings.push(Happening::Extend { agent, to });
            }
        }
    }

    /// Which questions of an attempt may arrive: its latest one, if it is its turn.
    pub(crate) fn arrivals(&self, state: &State, agent: u8, happenings: &mut Vec<Happening>) {
        let one = &state.agents[usize::from(agent)];
        let asked = usize::from(one.asked);
        let first = if state.turn > 0 { asked - 1 } else { 0 };
        for (n, node) in state.nodes[..self.setup.nodes].iter().enumerate() {
            let met = self.met(state, usize::from(agent), n);
            let owner = self.view(&state.nodes[met]).owner;
            let may_expire = self.setup.expiry && owner.is_some() && !self.setup.plain;
            let pending = node.lanes[usize::from(agent)].pending;
            for place in (first..asked).filter(|place| pending[*place] > 0) {
                let (question, node) = (place as u8, n as u8);
                let arrival = Arrival { agent, question, node, expired: false, seen: true };
                let in_time = self.hear(state, arrival, happenings);
                if may_expire {
                    let late = Arrival { expired: true, ..arrival };
                    // A node that takes its own owner back ends as it would have been.
                    if owner != Some(one.holder) || self.answer(state, late).0 != in_time {
                        self.hear(state, late, happenings);
                    }
                }
            }
        }
    }

    /// Adds an arrival, with the answer seen, and not seen if that makes a difference.
    fn hear(&self, state: &State, arrival: Arrival, happenings: &mut Vec<Happening>) -> u16 {
        let (table, reply) = self.answer(state, arrival);
        let one = &state.agents[usize::from(arrival.agent)];
        let changes = table != self.asked_node(state, arrival).table;
        let may_hear = !self.is_told(state, arrival.agent, arrival.node);
        let is_heard = may_hear && self.heard(one, usize::from(arrival.question), reply) > 0;
        let believes = may_hear && self.belief(state, arrival, reply).is_some();
        // What changes nothing, and what nobody waits for, might as well never have arrived.
        let is_end = self.is_end(one, usize::from(arrival.question));
        if is_heard || changes || believes || is_end || self.setup.plain {
            happenings.push(Happening::Arrive(arrival));
        }
        if changes && believes && self.may_do_otherwise(one) {
            happenings.push(Happening::Arrive(Arrival { seen: false, ..arrival }));
        }
        table
    }

    /// What the node makes of a question that arrives: its table, and the number of the reply.
    pub(crate) fn answer(&self, state: &State, arrival: Arrival) -> (u16, u8) {
        let i = usize::from(arrival.agent);
        let (one, node) = (&state.agents[i], &state.nodes[usize::from(arrival.node)]);
        let place = usize::from(arrival.question);
        let record = match self.setup.identity {
            Identity::Unchecked => self.pass(state, usize::from(arrival.node), i),
            _ => node.lanes[i].pending[place] - 1,
        };
        let table = self.asked_node(state, arrival).table;
        let table = match arrival.expired {
            true => self.nodes.apply(table, Step::Expire).0,
            false => table,
        };
        self.nodes.apply(table, Step::Asked(one.holder, one.questions[place], record))
    }

    /// The node that a question reaches, whatever name it was sent to.
    fn asked_node<'a>(&self, state: &'a State, arrival: Arrival) -> &'a Node {
        &state.nodes[self.met(state, usize::from(arrival.agent), usize::from(arrival.node))]
    }

    /// The reply to the question at `place`, as far as a decision may come of it; 0 if none can.
    fn heard(&self, agent: &Agent, place: usize, reply: u8) -> u8 {
        if !self.waits_for(agent, place) {
            return 0;
        }
        if self.setup.plain {
            return reply;
        }
        let more = agent.stage == Stage::Acquiring && self.may_ask_again(agent);
        let flags = [agent.outdated, agent.refreshing > 0, self.may_go_on(agent), more];
        let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
        let key = self.round(agent).key() << 12 | u64::from(reply) << 4 | flags;
        self.heard.get(key, || self.weigh(agent, reply, more).into()) as u8
    }

    fn weigh(&self, agent: &Agent, reply: u8, more: bool) -> u8 {
        let (reply, shows_fence) = self.nodes.without_fence(reply, !more);
        let mut all = [0; NODES_MAX];
        all[..self.setup.list_len(agent.list)].fill(reply);
        let decisions = self.holders.decisions(&self.nodes, self.round(agent), all);
        let matters = decisions.iter().any(|decision| self.matters(agent, *decision));
        let is_free = self.setup.has_claims() && self.is_free(reply);
        if matters || shows_fence || is_free { reply } else { 0 }
    }

    fn waits_for(&self, agent: &Agent, place: usize) -> bool {
        match (agent.stage, self.setup.mutation) {
            (Stage::Acquiring, Some(Mutation::AddUpRounds)) => true,
            (Stage::Acquiring, Some(Mutation::OldRoundCompletes)) => place == 0,
            _ => agent.waits() && place + 1 == usize::from(agent.asked),
        }
    }

    fn round(&self, agent: &Agent) -> Round {
        match agent.stage {
            Stage::Acquiring => Round::Acquire(agent.round),
            _ if self.setup.has_claims() => Round::Claim(self.setup.list_len(agent.list) as u8),
            _ => Round::Extend(self.setup.list_len(agent.list) as u8),
        }
    }

    /// What the attempt may believe with one more reply, if anything.
    fn belief(&self, state: &State, arrival: Arrival, reply: u8) -> Option<Decision> {
        let (i, place) = (usize::from(arrival.agent), usize::from(arrival.question));
        let one = &state.agents[i];
        let mut replies = state.nodes.map(|node| node.lanes[i].reply);
        let mut late = None;
        if self.setup.plain || !one.waits() {
            return None;
        } else if self.waits_for(one, place) {
            replies[usize::from(arrival.node)] = match self.heard(one, place, reply) {
                0 => return None,
                heard => heard,
            };
        } else if one.stage == Stage::Acquiring && place < usize::from(one.asked) - 1 {
            late = Some(Late { round: arrival.question + 1, reply });
        }
        let round = self.round(one);
        let mut decisions = self.holders.decisions_with(&self.nodes, round, replies, late).iter();
        decisions.find(|decision| decision.believes() && self.matters(one, **decision)).copied()
    }

    /// Whether anything can come of a decision within the bounds.
    fn matters(&self, agent: &Agent, decision: Decision) -> bool {
        match decision {
            Decision::Acquired(_) => true,
            Decision::AskAgain(..) => self.may_ask_again(agent),
            Decision::GiveUp => self.setup.gives_up(),
            Decision::Extended | Decision::Failed if self.setup.plain => true,
            // What is given back after a claim may do harm.
            Decision::Extended if self.setup.has_claims() => true,
            Decision::Failed if self.setup.mutation == Some(Mutation::HealUnconfirmed) => true,
            Decision::Extended => agent.outdated || agent.refreshing > 0 || self.may_go_on(agent),
            Decision::Failed => self.may_go_on(agent),
        }
    }

    fn may_ask_again(&self, agent: &Agent) -> bool {
        let sent_already =
            self.setup.mutation == Some(Mutation::OldRoundCompletes) && agent.asked > 1;
        self.holders.ordinal(agent.round) <= self.setup.more_rounds.into() && !sent_already
    }

    /// Whether a holder that could believe might do something else that it can not do afterwards.
    fn may_do_otherwise(&self, agent: &Agent) -> bool {
        match agent.stage {
            Stage::Acquiring => self.may_ask_again(agent),
            _ => agent.refreshing > 0 && self.may_refresh(agent),
        }
    }

    fn may_extend(&self, agent: &Agent) -> bool {
        agent.extends < self.setup.extends && agent.refreshing == 0
    }

    fn may_refresh(&self, agent: &Agent) -> bool {
        agent.refreshes < self.setup.refreshes
    }

    fn may_go_on(&self, agent: &Agent) -> bool {
        agent.extends < self.setup.extends || self.may_refresh(agent)
    }

    /// Begins, as one of the list and with the holder value that were set before.
    pub(crate) fn start(&self, state: &mut State, agent: u8, proposal: u8) {
        let before = highest_completed(state, agent);
        let one = &mut state.agents[usize::from(agent)];
        (one.stage, one.before) = (Stage::Acquiring, before);
        if agent >= self.setup.keepers {
            (one.extends, one.refreshes) = (self.setup.extends, self.setup.refreshes);
        }
        let members = self.setup.list_len(one.list);
        one.round = self.holders.first(&self.nodes, one.holder, members, proposal);
        self.send(state, agent, Question::Acquire(proposal));
        // With a clock, the proposal tells when it was made.
        if self.setup.clock.is_none() && !self.setup.gives_up() {
            self.defer(state, agent);
        }
    }

    /// Lets the latest question arrive somewhere before anything else happens.
    ///
    /// Nobody notices a question before it first arrives, and to put it only then gives others more
    /// to break: more of them have completed. But the attempt must not have a way to do something
    /// else in between, such as to give up.
    fn defer(&self, state: &mut State, agent: u8) {
        if !self.setup.plain {
            state.turn = agent + 1;
        }
    }

    /// Puts a question to every node of the attempt's list that votes for it, as far as it knows.
    pub(crate) fn send(&self, state: &mut State, agent: u8, question: Question) {
        let i = usize::from(agent);
        let place = state.agents[i].ask(question);
        let one = state.agents[i];
        let reads = match self.setup.identity {
            Identity::Unchecked | Identity::Reread => true,
            Identity::Pinned => place == 0,
            Identity::RereadByExtends => place == 0 || matches!(question, Question::Extend(..)),
        };
        let pins = place == 0
            && matches!(self.setup.identity, Identity::Pinned | Identity::RereadByExtends);
        for member in 0..self.setup.list_len(one.list) {
            let pinned = state.nodes[member].lanes[i].pinned;
            let record = if reads { self.pass(state, member, i) } else { pinned };
            let node = &mut state.nodes[member];
            node.told &= !(1 << i);
            let lane = &mut node.lanes[i];
            if pins {
                lane.pinned = record;
            }
            lane.pending[place] = match (question, self.setup.identity) {
                (Question::Release, _) | (_, Identity::Unchecked) => 1,
                _ if record > 0 => record + 1,
                _ => 0,
            };
        }
    }

    /// The record to show to a member, if it votes for the attempt; 0 if it does not.
    fn pass(&self, state: &State, member: usize, i: usize) -> u8 {
        let agent = &state.agents[i];
        let record = self.view(&state.nodes[self.met(state, i, member)]).record;
        if self.setup.has_names() {
            return if self.is_voter(state, i, member) { record } else { 0 };
        }
        let view = self.nodes.record(record);
        let serves = self.setup.lists.is_none()
            || view.list == agent.list
            || self.setup.mutation == Some(Mutation::NoFingerprint);
        if view.admitted && serves { record } else { 0 }
    }

    pub(crate) fn arrive(&self, mut state: State, arrival: Arrival) -> Option<State> {
        let (i, place) = (usize::from(arrival.agent), usize::from(arrival.question));
        let (table, reply) = self.answer(&state, arrival);
        self.note(&mut state, arrival, table);
        let may_hear = !self.is_told(&state, arrival.agent, arrival.node);
        let (belief, reply) = match arrival.seen && may_hear {
            true => {
                let heard = self.heard(&state.agents[i], place, reply);
                (self.belief(&state, arrival, reply), heard)
            }
            false => (None, 0),
        };
        let met = self.met(&state, i, usize::from(arrival.node));
        if arrival.expired {
            self.miss(&mut state, met as u8);
        } else {
            state.broke_h |= self.disturbs(&state, arrival, table);
        }
        state.nodes[met].table = table;
        let node = &mut state.nodes[usize::from(arrival.node)];
        node.lanes[i].pending[place] = 0;
        state.turn = 0;
        let node = &mut state.nodes[usize::from(arrival.node)];
        if reply > 0 {
            node.lanes[i].reply = reply;
        }
        if let Some(belief) = belief {
            self.decide(&mut state, arrival.agent, belief);
        }
        Some(state)
    }

    pub(crate) fn decide(&self, state: &mut State, agent: u8, decision: Decision) {
        let i = usize::from(agent);
        if let Decision::AskAgain(round, proposal) = decision {
            return self.ask_again(state, agent, round, proposal);
        }
        let given_back = self.given_back(state, agent, decision == Decision::Extended);
        state.drop_replies(i);
        let former_fence = self.former_fence(state, agent);
        let one = &mut state.agents[i];
        match decision {
            Decision::Acquired(fence) => {
                let fence = former_fence.unwrap_or(fence);
                state.broke_f2 |= !rules::grows(fence, one.before);
                (one.fence, one.token) = (fence, fence);
                (one.stage, one.round, one.before) = (Stage::Held, 0, 0);
            }
            Decision::Extended => {
                state.broke_f5 |= one.outdated;
                if let Question::Extend(_, next) = one.questions[usize::from(one.asked) - 1] {
                    one.token = next;
                }
                (one.stage, one.outdated, one.refreshing) = (Stage::Held, false, 0);
            }
            Decision::Failed => {
                one.stage = if one.holds() { Stage::Held } else { Stage::Over };
                one.outdated = false;
            }
            Decision::GiveUp | Decision::AskAgain(..) => self.end(state, agent),
        }
        if let Some(given_back) = given_back {
            self.give_back(state, agent, given_back);
        }
    }

    fn ask_again(&self, state: &mut State, agent: u8, round: u8, proposal: u8) {
        let i = usize::from(agent);
        match self.setup.mutation {
            // The answers to the old round go on being counted, as answers to the old round.
            Some(Mutation::OldRoundCompletes) => {}
            // They go on being counted, as answers to the new round.
            Some(Mutation::AddUpRounds) => state.agents[i].round = round,
            _ => {
                state.agents[i].round = round;
                state.drop_replies(i);
            }
        }
        self.send(state, agent, Question::Acquire(proposal));
        if !self.setup.gives_up() {
            self.defer(state, agent);
        }
    }

    pub(crate) fn extend(&self, state: &mut State, agent: u8, to: u8) {
        let later = highest_completed(state, agent);
        let one = &mut state.agents[usize::from(agent)];
        let token = one.token;
        (one.stage, one.outdated) = (Stage::Extending, rules::supersedes(later, one.fence));
        if to > token {
            if self.setup.reserves {
                one.before = later.max(one.fence);
            }
            one.refreshing = to;
            one.refreshes += 1;
        } else {
            one.extends += 1;
        }
        self.send(state, agent, Question::Extend(token, to));
        let may_go_on = self.may_go_on(&state.agents[usize::from(agent)]);
        // A holder that hands over leaves its question under way.
        if !self.setup.gives_up() && !may_go_on && self.setup.handovers == 0 {
            self.defer(state, agent);
        }
    }

    /// Gives up, or releases: to all nodes, also those that never answered.
    pub(crate) fn end(&self, state: &mut State, agent: u8) {
        state.drop_replies(usize::from(agent));
        state.agents[usize::from(agent)].stop();
        if self.setup.releases {
            state.agents[usize::from(agent)].ended = self.setup.has_claims();
            self.send(state, agent, Question::Release);
            // To hold on for longer gives others more to break, unless somebody waits for the end.
            if !self.setup.waits_for_attempts() {
                self.defer(state, agent);
            }
        }
    }
}

/// The highest fence that anybody else was given.
fn highest_completed(state: &State, except: u8) -> u8 {
    let others = state.agents.iter().enumerate().filter(|(i, _)| *i != usize::from(except));
    others.map(|(_, agent)| agent.fence).max().unwrap_or(0)
}
