//! Who changes the list, as `Succession` has it done.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use leasehold_core::{Facts, Moment, Record, RecordState, Side, Succession, SuccessionStep, Told};

use super::state::{Node, State, Written};
use super::world::World;
use super::{Rule, Setup};

/// What is written, and on which node.
type Put = (usize, Arc<Written>);

/// A changer at work.
#[derive(Debug, Clone)]
pub(super) struct Changer {
    machine: Succession,
    /// What it does next.
    pub(super) next: SuccessionStep,
    /// What it was told so far, where it asks.
    told: Vec<Option<Facts>>,
    /// What it believes to stand on nodes, though it was told otherwise.
    believes: Vec<Option<String>>,
    /// How often it asked a whole list.
    asked: u8,
    /// How often it may begin anew.
    pub(super) again: u8,
    lives: u8,
    /// All of that in one number: the machine is compared by what it shows.
    seen: u64,
}

impl PartialEq for Changer {
    fn eq(&self, other: &Self) -> bool {
        self.seen == other.seen
    }
}

impl Eq for Changer {}

impl Hash for Changer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen.hash(state);
    }
}

impl Changer {
    pub(super) fn new(world: &World, change: usize, again: u8) -> Self {
        let (from, to) = world.setup.changes[change];
        let mut machine =
            Succession::new(world.lists[from].list.clone(), world.lists[to].list.clone());
        let next = machine.step();
        let believes = vec![None; world.names.len()];
        let changer =
            Self { machine, next, told: Vec::new(), believes, asked: 0, again, lives: 0, seen: 0 };
        changer.after_a_step(world, change)
    }

    /// Makes room for the answers to what is asked next.
    fn after_a_step(mut self, world: &World, change: usize) -> Self {
        if let (SuccessionStep::Ask(of), true) = (&self.next, self.told.is_empty()) {
            self.told = vec![None; world.nodes_of(change, *of).len()];
        }
        let mut hasher = DefaultHasher::new();
        format!("{:?} {:?}", self.machine, self.next).hash(&mut hasher);
        let told =
            self.told.iter().map(|told| told.as_ref().map(|told| (&told.record, told.highest)));
        told.for_each(|told| told.hash(&mut hasher));
        (&self.believes, self.asked.min(4), self.again, self.lives).hash(&mut hasher);
        Self { seen: hasher.finish(), ..self }
    }

    /// The members that have not answered yet.
    pub(super) fn open(&self, setup: &Setup) -> impl Iterator<Item = usize> {
        let is_asking = matches!(self.next, SuccessionStep::Ask(_));
        let open = (0..self.told.len()).filter(move |at| is_asking && self.told[*at].is_none());
        open.take(if setup.in_turn { 1 } else { usize::MAX })
    }

    /// A member answers.
    pub(super) fn reads(&self, world: &World, state: &State, change: usize, member: usize) -> Self {
        let SuccessionStep::Ask(of) = self.next else { return self.clone() };
        let node = world.nodes_of(change, of)[member];
        let mut next = self.clone();
        next.told[member] = Some(self.believed(world, &state.nodes[node], (change, of, node)));
        if next.told.iter().all(Option::is_some) {
            let facts: Vec<Facts> = std::mem::take(&mut next.told).into_iter().flatten().collect();
            let now = Moment::from_nanos(1);
            let mut lives = next.lives;
            let told = Told { sent: now, received: now, facts: &facts };
            next.machine.told(told, || {
                lives += 1;
                (change as u128 + 1) * 10_000 + u128::from(self.again) * 100 + u128::from(lives)
            });
            (next.lives, next.asked) = (lives, self.asked.saturating_add(1));
            next.next = next.machine.step();
        }
        next.after_a_step(world, change)
    }

    /// What a changer makes of what a node says, where a rule is left out.
    fn believed(
        &self,
        world: &World,
        node: &Node,
        (change, of, at): (usize, Side, usize),
    ) -> Facts {
        let facts = world.facts(at, node);
        let (from, to) = world.setup.changes[change];
        let joins = !world.lists[from].nodes.contains(&at);
        let leaves = !world.lists[to].nodes.contains(&at);
        let is_taken_for = match world.setup.without {
            Some(Rule::LooksAtTheBarrier) if self.asked >= 2 && of == Side::Old && leaves => {
                Some(RecordState::Barred)
            }
            Some(Rule::JoiningFirst) if self.asked == 0 && joins => Some(RecordState::Barred),
            // The first time after the node that is added was barred, there is something to write.
            Some(Rule::AllFollow) if self.asked >= 4 && of == Side::Old => {
                Some(RecordState::Admitted)
            }
            _ => None,
        };
        if let Some(state) = is_taken_for {
            let mut record = world.lists[to].record(&facts, at, state, 77);
            if state == RecordState::Barred {
                // To the letter as a change would have it.
                record.waits = Some(world.lists[to].policy.quarantine_for(record.max_ttl));
                if leaves {
                    record.member = world.lists[from].record(&facts, at, state, 77).member;
                }
            }
            return Facts { record: Some(record.to_string()), ..facts };
        }
        if world.setup.without == Some(Rule::FloorOfAll) && of == Side::Old {
            return Facts { highest: leasehold_core::Fence::ZERO, ..facts };
        }
        match &self.believes[at] {
            Some(text) => Facts { record: Some(text.clone()), ..facts },
            None => facts,
        }
    }

    /// The record that it writes next, where, and whether that is done.
    pub(super) fn writes(
        &self,
        world: &World,
        state: &State,
        change: usize,
    ) -> Option<(usize, Record, bool)> {
        let SuccessionStep::Replace { of, member, expected, record } = &self.next else {
            return None;
        };
        let node = world.nodes_of(change, *of)[*member];
        let stands = state.nodes[node].record.as_ref().map(|written| &written.text);
        Some((node, record.clone(), stands == expected.as_ref()))
    }

    /// Writes, if what stands there is what it read. Says what was written, and where.
    pub(super) fn write(
        &self,
        world: &World,
        state: &State,
        change: usize,
    ) -> Option<(Self, Option<Put>)> {
        let (node, record, mut is_written) = self.writes(world, state, change)?;
        let mut next = self.clone();
        let (from, _) = world.setup.changes[change];
        let joins = !world.lists[from].nodes.contains(&node);
        let mut written = is_written.then(|| (node, Written::new(record.clone())));
        if world.setup.without == Some(Rule::AddedWaits)
            && joins
            && state.nodes[node].record.is_some()
        {
            next.believes[node] = Some(record.to_string());
            (is_written, written) = (true, None);
        }
        if world.setup.without == Some(Rule::LooksAgain) && !is_written {
            next.believes[node] = Some(record.to_string());
            is_written = true;
        }
        next.machine.written(is_written);
        next.next = next.machine.step();
        Some((next.after_a_step(world, change), written))
    }
}
