//! A change of the member list: one node more, node by node; anything else behind a barrier.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::stage::{Stage, Whom};
use super::{MemberList, Side, SuccessionStep, TRIES, Told, is_one_server, longest_wait, read};
use crate::{Facts, Fence, Moment, Origin, Record, RecordState, WallMicros};

const CHANGED_MEANWHILE: &str = "its record keeps changing: try again";
const NOT_ADMITTED: &str = "it is not an admitted member of the old list";
const QUICKER: &str = "another change of the member list was quicker: look at `leasehold nodes`";

/// A change of the member list, step by step.
#[derive(Debug, Clone)]
pub struct Succession {
    old: MemberList,
    new: MemberList,
    /// By member of the new list: whether its server is in the old one under no name. All lists of
    /// one have the same fingerprint, so a record does not tell which list it is of.
    joins: Vec<bool>,
    /// By member of the old list: its number in the new one, under whatever name.
    stays: Vec<Option<usize>>,
    /// What the clocks of the new list showed at most, and when they were asked.
    clock: (Moment, WallMicros),
    todo: VecDeque<SuccessionStep>,
    stage: Stage,
}

impl Succession {
    /// A change from `old` to `new` of which nothing is known yet: it may have been begun before.
    pub fn new(old: MemberList, new: MemberList) -> Self {
        let stage = Stage::First { ours: None };
        let clock = (Moment::default(), WallMicros(0));
        let (joins, stays) = (Vec::new(), Vec::new());
        Self { old, new, joins, stays, clock, todo: VecDeque::new(), stage }
    }

    /// What to do next. Steps are done one after the other.
    pub fn step(&mut self) -> SuccessionStep {
        if let Some(step) = self.todo.pop_front() {
            return step;
        }
        match &self.stage {
            Stage::First { ours: None }
            | Stage::Barred { ours: None }
            | Stage::Confirm { ours: None }
            | Stage::Added { .. }
            | Stage::Adding { .. } => SuccessionStep::Ask(Side::New),
            Stage::First { .. } | Stage::Barred { .. } | Stage::Confirm { .. } => {
                SuccessionStep::Ask(Side::Old)
            }
            Stage::Rolling { .. } => SuccessionStep::Ask(Side::Old),
            Stage::Barrier { whom, .. } => SuccessionStep::Ask(whom.of()),
            Stage::Over => SuccessionStep::Done,
        }
    }

    /// Whether the record was written that was to be. If not, somebody else was quicker; what stands
    /// there now is looked at like any other.
    pub fn written(&mut self, is_written: bool) {
        match self.stage {
            Stage::Adding { .. } if is_written => self.stage = Stage::Confirm { ours: None },
            Stage::Adding { tries: 0 } => {
                let member = self.added().unwrap_or_default();
                self.refuse(Side::New, member, CHANGED_MEANWHILE);
            }
            Stage::Adding { tries } => self.stage = Stage::Added { tries: tries - 1 },
            _ => {}
        }
    }

    /// The members of the list that was to be asked told this. `lives` gives 128 fresh random bits each
    /// time.
    pub fn told(&mut self, told: Told<'_>, lives: impl FnMut() -> u128) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::First { ours: None } => match self.new.compare(told) {
                Ok(()) => {
                    let shown = told.facts.iter().map(|facts| facts.clock).max();
                    self.clock = (told.sent, shown.unwrap_or_default());
                    self.stage = Stage::First { ours: Some(told.facts.to_vec()) };
                }
                Err((member, reason)) => self.refuse(Side::New, member, &reason),
            },
            Stage::First { ours: Some(ours) } => self.decide(&ours, told, lives),
            Stage::Rolling { tries } => self.roll(tries, told),
            Stage::Added { tries } | Stage::Adding { tries } => {
                self.begin_to_wait(tries, told, lives);
            }
            Stage::Barrier { whom, tries, waits } => {
                self.look_at_the_barrier((whom, tries, waits), told, lives);
            }
            Stage::Barred { ours: None } => {
                self.stage = Stage::Barred { ours: Some(told.facts.to_vec()) };
            }
            Stage::Barred { ours: Some(ours) } => self.begin_quarantine(&ours, told.facts),
            Stage::Confirm { ours: None } => {
                let is_another = |it: &Facts| read(it).is_some() && !self.new.is_served_by(it);
                match told.facts.iter().position(is_another) {
                    Some(index) => self.refuse(Side::New, index, QUICKER),
                    None => self.stage = Stage::Confirm { ours: Some(told.facts.to_vec()) },
                }
            }
            Stage::Confirm { ours: Some(ours) } => {
                let has_followed = |at: &usize| self.has_followed(*at, &told.facts[*at], &ours);
                if let Some(index) = (0..told.facts.len()).find(|at| !has_followed(at)) {
                    self.refuse(Side::Old, index, QUICKER);
                }
            }
            Stage::Over => {}
        }
    }

    fn refuse(&mut self, of: Side, member: usize, reason: &str) {
        self.stage = Stage::Over;
        self.todo.push_back(SuccessionStep::Refused { of, member, reason: reason.to_owned() });
    }

    fn replace(&mut self, of: Side, member: usize, expected: Option<String>, record: Record) {
        let expected = expected.map(Arc::from);
        self.todo.push_back(SuccessionStep::Replace { of, member, expected, record });
    }

    fn adds_one_node(&self) -> bool {
        self.new.names.len() == self.old.names.len() + 1
            && self.old.names.iter().all(|name| self.new.names.contains(name))
            && self.new.policy.max_ttl == self.old.policy.max_ttl
    }

    /// The node that is added, where one is.
    fn added(&self) -> Option<usize> {
        self.new.names.iter().position(|name| !self.old.names.contains(name))
    }

    fn decide(&mut self, ours: &[Facts], told: Told<'_>, lives: impl FnMut() -> u128) {
        let theirs = told.facts;
        let name_of = |name| self.new.names.iter().position(|it| it == name);
        let stays = |(name, facts)| {
            name_of(name).or_else(|| ours.iter().position(|it| is_one_server(facts, it)))
        };
        self.stays = self.old.names.iter().zip(theirs).map(stays).collect();
        self.joins = (0..ours.len()).map(|index| !self.stays.contains(&Some(index))).collect();
        let is_known = |facts: &Facts| self.new.is_known_to(facts);
        let have_followed =
            theirs.iter().enumerate().all(|(at, it)| self.has_followed(at, it, ours));
        let are_served = ours.iter().all(|facts| self.new.is_served_by(facts));
        if are_served && have_followed && self.has_begun_to_wait(ours) {
            return;
        }
        let longest = self.new.longest_ttl(ours).max(self.old.longest_ttl(theirs));
        // Also for what a list before the old one granted, if that is waited for still.
        let waits = self.new.policy.quarantine_for(longest).max(longest_wait(ours, theirs));
        if self.adds_one_node() {
            match theirs.iter().position(|facts| !self.can_follow(facts)) {
                None if self.not_barred(Whom::Added, waits, ours).is_empty() => {
                    return self.roll(TRIES, told);
                }
                None => {
                    return self.bar(
                        (Whom::Added, TRIES, waits),
                        Told { facts: ours, ..told },
                        lives,
                    );
                }
                // Nothing was begun yet, so nothing is: a node that has to wait needs the others for it.
                Some(index) if theirs.iter().all(|facts| !is_known(facts)) => {
                    return self.refuse(Side::Old, index, NOT_ADMITTED);
                }
                // Half of them know the new list, and this one can no longer follow: all begin anew.
                Some(_) => {}
            }
        }
        match self.not_barred(Whom::Joining, waits, ours).is_empty() {
            true => self.bar((Whom::Old, TRIES, waits), told, lives),
            false => self.bar((Whom::Joining, TRIES, waits), Told { facts: ours, ..told }, lives),
        }
    }

    /// Whether a node of the old list serves the new one, or nobody any more if it leaves. All lists of
    /// one have the same fingerprint, so the record alone does not tell; and the node of such a list may
    /// have another name in the next, and be the same.
    fn has_followed(&self, index: usize, facts: &Facts, ours: &[Facts]) -> bool {
        read(facts).is_some_and(|(_, record)| {
            let is_itself = |of: usize| {
                record.member == self.new.policy.member(&self.new.names[of])
                    && (self.old.names[index] == self.new.names[of]
                        || is_one_server(facts, &ours[of]))
            };
            let has_left = record.state == RecordState::Barred;
            let follows = self.stays[index].map_or(has_left, |of| is_itself(of) || has_left);
            self.new.policy.is_list_of(&record) && follows
        })
    }

    /// Whether the node that is added, where one is, was told to wait: one that began before all others
    /// knew of it began too early. So did the only node of a list, whose record may be that of a client
    /// which was started before the change.
    fn has_begun_to_wait(&self, ours: &[Facts]) -> bool {
        let must_be_told = |index: &usize| {
            self.adds_one_node() || (self.new.names.len() == 1 && self.joins[*index])
        };
        self.added().filter(must_be_told).is_none_or(|index| {
            read(&ours[index]).is_some_and(|(_, record)| record.origin != Origin::First)
        })
    }

    /// Whether a node of the old list serves the new one, or may without waiting.
    fn can_follow(&self, facts: &Facts) -> bool {
        self.new.is_served_by(facts) || self.old.can_roll(facts)
    }

    /// Tells the nodes of the old list of the new one. Each keeps its memory and its vote; its floor
    /// goes up, so that the next change finds no number that only a removed node remembers. When all
    /// were seen to serve the new list, the new node begins to wait: what the old list granted may have
    /// been granted until now, and a later change must not find this node without its quarantine.
    fn roll(&mut self, tries: usize, told: Told<'_>) {
        let theirs = told.facts;
        match theirs.iter().position(|facts| !self.new.is_served_by(facts)) {
            None => return self.stage = Stage::Added { tries: TRIES - 1 },
            Some(index) if tries == 0 => return self.refuse(Side::Old, index, CHANGED_MEANWHILE),
            Some(_) => {}
        }
        if let Some(index) = theirs.iter().position(|facts| !self.can_follow(facts)) {
            let is_ours = self.old.is_known_to(&theirs[index]);
            return self.refuse(Side::Old, index, if is_ours { NOT_ADMITTED } else { QUICKER });
        }
        for (index, facts) in theirs.iter().enumerate() {
            let Some((text, record)) = read(facts).filter(|_| self.old.can_roll(facts)) else {
                continue;
            };
            let floor = record.floor.max(self.floor_by_clock(told.received, facts));
            let to = &self.new.policy;
            let member = to.member(self.name_of(Side::Old, index));
            let record = Record { cluster: to.cluster, nodes: to.nodes, member, floor, ..record };
            self.replace(Side::Old, index, Some(text), record);
        }
        self.stage = Stage::Rolling { tries: tries - 1 };
    }

    /// Has the node that was added to the list begin its quarantine now.
    fn begin_to_wait(&mut self, tries: usize, told: Told<'_>, mut lives: impl FnMut() -> u128) {
        let ours = told.facts;
        self.stage = Stage::Adding { tries };
        let Some(index) = self.added() else {
            return self.stage = Stage::Confirm { ours: None };
        };
        let facts = &ours[index];
        let old = read(facts);
        if old.as_ref().is_some_and(|(_, record)| !self.new.policy.is_list_of(record)) {
            return self.refuse(Side::New, index, "it belongs to another list");
        }
        let (floor, waits) =
            old.as_ref().map_or((Fence::ZERO, None), |(_, it)| (it.floor, it.waits));
        let name = &self.new.names[index];
        let state = RecordState::Quarantined;
        let record = self.new.record_of_a_change(name, facts, state, lives());
        let record = Record { floor, waits, ..record };
        self.replace(Side::New, index, old.map(|(text, _)| text), record);
    }

    /// Makes these nodes refuse all lists but the new one, and that one for now. What is barred waits
    /// for `waits` when it is let in. A record that somebody else changes meanwhile is not replaced: so
    /// they are looked at again.
    fn bar(
        &mut self,
        (whom, tries, waits): (Whom, usize, Duration),
        told: Told<'_>,
        mut lives: impl FnMut() -> u128,
    ) {
        self.stage = Stage::Barrier { whom, tries: tries - 1, waits };
        let of = whom.of();
        for index in self.not_barred(whom, waits, told.facts) {
            let facts = &told.facts[index];
            let old = read(facts);
            if let Some((_, record)) = &old
                && !self.new.policy.is_list_of(record)
                && !self.old.policy.is_list_of(record)
            {
                return self.refuse(of, index, "it belongs to neither list");
            }
            let name = self.name_of(of, index);
            let record = self.new.record_of_a_change(name, facts, RecordState::Barred, lives());
            let (floor, waited) =
                old.as_ref().map_or((Fence::ZERO, None), |(_, it)| (it.floor, it.waits));
            let floor = floor.max(self.floor_by_clock(told.received, facts));
            let record = Record { floor, waits: waited.max(Some(waits)), ..record };
            self.replace(of, index, old.map(|(text, _)| text), record);
        }
    }

    /// The name of a member as the new list has it, or as the old one has it if it leaves.
    fn name_of(&self, of: Side, index: usize) -> &str {
        match of {
            Side::New => &self.new.names[index],
            Side::Old => match self.stays[index] {
                Some(stays) => &self.new.names[stays],
                None => &self.old.names[index],
            },
        }
    }

    /// The floor that a node's clock gives where nobody remembers. One that is ahead of all clocks of the
    /// new list may be wrong, and it may leave for that.
    fn floor_by_clock(&self, now: Moment, facts: &Facts) -> Fence {
        let (asked, shown) = self.clock;
        let most = now.since(asked).saturating_add(self.new.policy.max_clock_skew).as_micros();
        let latest = shown.0.saturating_add(u64::try_from(most).unwrap_or(u64::MAX));
        Fence::from_clock(WallMicros(facts.clock.0.min(latest)))
    }

    /// Which of these nodes are to be barred. Also one that knows the new list but waits already: it must
    /// begin to wait again. And one that an earlier change barred under another name, or to wait less.
    fn not_barred(&self, whom: Whom, waits: Duration, facts: &[Facts]) -> Vec<usize> {
        let is_meant = |index: usize| match whom {
            Whom::Joining => self.joins[index],
            Whom::Added => self.added() == Some(index),
            Whom::Old | Whom::New => true,
        };
        let is_barred = |index: usize| {
            let name = self.new.policy.member(self.name_of(whom.of(), index));
            read(&facts[index]).is_some_and(|(_, record)| {
                self.new.policy.is_list_of(&record)
                    && record.state == RecordState::Barred
                    && record.member == name
                    && record.waits >= Some(waits)
            })
        };
        let is_open = |index: &usize| is_meant(*index) && !is_barred(*index);
        (0..facts.len()).filter(is_open).collect()
    }

    fn look_at_the_barrier(
        &mut self,
        (whom, tries, waits): (Whom, usize, Duration),
        told: Told<'_>,
        lives: impl FnMut() -> u128,
    ) {
        let next = |whom| Stage::Barrier { whom, tries: TRIES, waits };
        match (self.not_barred(whom, waits, told.facts).first(), whom) {
            (None, Whom::Joining) => self.stage = next(Whom::Old),
            (None, Whom::Added) => self.stage = Stage::Rolling { tries: TRIES },
            (None, Whom::Old) => self.stage = next(Whom::New),
            (None, Whom::New) => self.stage = Stage::Barred { ours: None },
            (Some(index), _) if tries == 0 => self.refuse(whom.of(), *index, CHANGED_MEANWHILE),
            (Some(_), _) => self.bar((whom, tries, waits), told, lives),
        }
    }

    /// All nodes of both lists refuse the old one. From now on, the quarantine counts; and no number
    /// is given any more that is above what they remember, also those that leave.
    fn begin_quarantine(&mut self, ours: &[Facts], theirs: &[Facts]) {
        let remembered = ours.iter().chain(theirs).map(Facts::remembers).max();
        let waits = Some(longest_wait(ours, theirs));
        for (index, facts) in ours.iter().enumerate() {
            let Some((text, record)) = read(facts) else {
                continue;
            };
            if record.state == RecordState::Barred {
                let born = facts.clock;
                let state = RecordState::Quarantined;
                let floor = record.floor.max(remembered.unwrap_or(Fence::ZERO));
                let waits = record.waits.max(waits);
                let record = Record { state, born, floor, waits, clocks: Vec::new(), ..record };
                self.replace(Side::New, index, Some(text), record);
            }
        }
        self.stage = Stage::Confirm { ours: None };
    }
}
