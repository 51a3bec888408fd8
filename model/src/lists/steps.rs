//! What may happen next, and what comes of it.

use std::sync::Arc;

use leasehold_core::{Fence, Record, RecordState, SuccessionStep};
use stateright::Path;

use super::Rule;
use super::changer::Changer;
use super::state::{Phase, State, Written, bit};
use super::world::World;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A member answers a changer.
    Read { change: usize, member: usize },
    /// A changer writes.
    Write { change: usize },
    /// A changer begins anew.
    Again { change: usize },
    /// A client of a list meets a node without a record.
    FirstLife { node: usize, list: usize },
    /// A server restarts.
    Restart { node: usize },
    /// A server that joins restarts without anything.
    Empty { node: usize },
    /// A client looks at a server that restarted.
    LaterLife { node: usize },
    /// A node has waited.
    Admit { node: usize },
    /// A node votes for a client.
    Vote { client: usize, node: usize },
    /// A client gives up, or releases.
    End { client: usize },
}

impl World {
    pub(super) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (change, changer) in state.changers.iter().enumerate() {
            steps.extend(changer.open(&self.setup).map(|member| Step::Read { change, member }));
            if matches!(changer.next, SuccessionStep::Replace { .. }) {
                steps.push(Step::Write { change });
            }
            if changer.again > 0 {
                steps.push(Step::Again { change });
            }
        }
        for (at, node) in state.nodes.iter().enumerate() {
            let lists = (0..self.lists.len()).filter(|list| self.may_begin(state, at, *list));
            steps.extend(lists.map(|list| Step::FirstLife { node: at, list }));
            let Some(written) = &node.record else { continue };
            let is_by = written.record.is_by(&self.facts(at, node).server);
            if !is_by {
                steps.push(Step::LaterLife { node: at });
            } else if written.record.state == RecordState::Quarantined {
                steps.push(Step::Admit { node: at });
            }
            if state.restarts > 0 {
                steps.push(Step::Restart { node: at });
                let joins = !self.lists[0].nodes.contains(&at);
                steps.extend((self.setup.empties && joins).then_some(Step::Empty { node: at }));
            }
        }
        for (client, lease) in state.leases.iter().enumerate() {
            let may_ask = match lease.phase {
                Phase::Idle | Phase::Asks => true,
                Phase::Holds => self.setup.renews,
                Phase::Over => false,
            };
            let nodes = 0..self.names.len();
            let votes = nodes.filter(|node| may_ask && self.may_vote(state, client, *node));
            steps.extend(votes.map(|node| Step::Vote { client, node }));
            if lease.is_alive() {
                steps.push(Step::End { client });
            }
        }
    }

    /// Whether a client of this list gives this node its first record: it does not while it sees
    /// another member that belongs to another list.
    fn may_begin(&self, state: &State, node: usize, number: usize) -> bool {
        let list = &self.lists[number];
        let is_blank = state.nodes[node].record.is_none() && list.nodes.contains(&node);
        let is_foreign = |other: &usize| {
            let record = state.nodes[*other].record.as_ref();
            record.is_some_and(|written| !list.policy.is_list_of(&written.record))
        };
        let is_barred = |other: &usize| {
            let record = state.nodes[*other].record.as_ref();
            record.is_some_and(|written| {
                list.policy.is_list_of(&written.record)
                    && written.record.state == RecordState::Barred
            })
        };
        // Who joins last would be kept out by that rule alone.
        let left_out = [Rule::NoneBesideBarred, Rule::JoiningFirst].map(Some);
        let minds_barred = !left_out.contains(&self.setup.without);
        let keeps_out = |other: &usize| is_foreign(other) || minds_barred && is_barred(other);
        let sees_nobody = self.setup.early.contains(&(self.names[node], number));
        let is_used = self.setup.clients.contains(&number) && list.nodes.len() > 1;
        is_blank && (sees_nobody || is_used && !list.nodes.iter().any(keeps_out))
    }

    pub(super) fn after(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Read { change, member } => {
                let changer = state.changers[change].reads(self, state, change, member);
                next.changers[change] = Arc::new(changer);
            }
            Step::Write { change } => {
                let (changer, written) = state.changers[change].write(self, state, change)?;
                next.changers[change] = Arc::new(changer);
                if let Some((node, written)) = written {
                    self.put(&mut next, node, written);
                }
            }
            Step::Again { change } => {
                let again = state.changers[change].again - 1;
                next.changers[change] = Arc::new(Changer::new(self, change, again));
            }
            Step::FirstLife { node, list } => {
                let facts = self.facts(node, &state.nodes[node]);
                let life = 700_000 + node as u128;
                let waits = RecordState::Quarantined;
                let record = self.lists[list].record(&facts, node, waits, life);
                self.put(&mut next, node, Written::new(record));
            }
            Step::Restart { node } => {
                next.restarts -= 1;
                next.nodes[node].run += 1;
                next.leases.iter_mut().for_each(|lease| lease.passes &= !bit(node));
                // A single node that may forget is no quorum: it is taken to keep what it has.
                let record = state.nodes[node].record.as_ref().map(|written| &written.record);
                let keeps = record.is_some_and(|it| it.nodes == 1 && it.waits.is_none());
                if !keeps {
                    next.leases.iter_mut().for_each(|lease| lease.owns &= !bit(node));
                }
            }
            Step::Empty { node } => {
                next.restarts -= 1;
                next.nodes[node].run += 1;
                (next.nodes[node].record, next.nodes[node].highest) = (None, 0);
                next.leases.iter_mut().for_each(|lease| {
                    lease.passes &= !bit(node);
                    lease.owns &= !bit(node);
                });
            }
            Step::LaterLife { node } => {
                let record = self.later_life(node, &state.nodes[node])?;
                self.put(&mut next, node, Written::new(record));
            }
            Step::Admit { node } => {
                self.has_waited(&mut next, node);
                let record = state.nodes[node].record.as_ref()?.record.clone();
                let floor = Fence::new(self.floor_after_waiting(state, node))?;
                let (state, clocks) = (RecordState::Admitted, Vec::new());
                let record = Record { state, floor, waits: None, clocks, ..record };
                self.put(&mut next, node, Written::new(record));
            }
            Step::Vote { client, node } => self.vote(&mut next, client, node),
            Step::End { client } => self.end(&mut next.leases[client]),
        }
        Some(next)
    }

    fn put(&self, next: &mut State, node: usize, written: Arc<Written>) {
        next.nodes[node].record = Some(written);
        self.is_written(next, node);
    }

    /// What a record says, in short.
    fn words(&self, record: &Record) -> String {
        let is_of = |at: &usize| self.lists[*at].policy.is_list_of(record);
        let list = (0..self.lists.len()).find(is_of).map_or("?", |at| self.setup.lists[at]);
        format!("{list} {:?}", record.state)
    }

    fn sentence(&self, state: &State, step: Step) -> String {
        let list_of = |change: usize| {
            let (from, to) = self.setup.changes[change];
            format!("the change {}→{}", self.setup.lists[from], self.setup.lists[to])
        };
        let client = |client: usize| {
            let letter = char::from(b'A' + client as u8);
            format!("{letter} of {}", self.setup.lists[self.setup.clients[client]])
        };
        let stands = |node: usize| match &state.nodes[node].record {
            Some(written) => self.words(&written.record),
            None => "nothing".to_owned(),
        };
        match step {
            Step::Read { change, member } => {
                let SuccessionStep::Ask(of) = state.changers[change].next else {
                    return "nothing".to_owned();
                };
                let node = self.nodes_of(change, of)[member];
                format!("{} reads {}: {}", list_of(change), self.names[node], stands(node))
            }
            Step::Write { change } => match state.changers[change].writes(self, state, change) {
                Some((node, record, is_written)) => {
                    let how = if is_written { "" } else { ", in vain" };
                    let words = self.words(&record);
                    format!("{} writes {}: {words}{how}", list_of(change), self.names[node])
                }
                None => "nothing".to_owned(),
            },
            Step::Again { change } => format!("{} begins anew", list_of(change)),
            Step::FirstLife { node, list } => {
                let list = self.setup.lists[list];
                format!("a client of {list} has {} begin its first life", self.names[node])
            }
            Step::Restart { node } => format!("{} restarts ({})", self.names[node], stands(node)),
            Step::Empty { node } => format!("{} restarts without anything", self.names[node]),
            Step::LaterLife { node } => {
                let record = self.later_life(node, &state.nodes[node]);
                let words = record.map_or("nothing".to_owned(), |record| self.words(&record));
                format!("{} begins a later life: {words}", self.names[node])
            }
            Step::Admit { node } => {
                format!("{} has waited, and is admitted ({})", self.names[node], stands(node))
            }
            Step::Vote { client: who, node } => {
                let quorum = self.lists[self.setup.clients[who]].quorum();
                let holds = state.leases[who].votes.count_ones() + 1 == quorum;
                let holds = if holds { ", and it holds" } else { "" };
                format!("{} votes for {}{holds}", self.names[node], client(who))
            }
            Step::End { client: who } => format!("{} ends", client(who)),
        }
    }
}

/// How it came to the end of `path`.
pub(super) fn tell(world: &World, path: Path<State, Step>) -> Vec<String> {
    let steps = path.into_vec();
    steps.iter().filter_map(|(state, step)| Some(world.sentence(state, (*step)?))).collect()
}
