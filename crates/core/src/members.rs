//! Setting up a member list, and changing it. Two lists have disjoint majorities, so clients of the
//! old one must be unable to decide anything before those of the new one can.
//!
//! * One node more: majorities of the old and of the new list still meet in a node that remembers,
//!   so the nodes are told of the new list one after the other, and none of them waits. The node that is
//!   added is barred before that, and waits when all others serve the new list: with its vote, half of
//!   an even list would be enough, and two changes at once have half each.
//! * Anything else: a barrier. Every node of both lists first refuses the old list; only when all
//!   have confirmed that does the quarantine of the new list begin. The nodes that join are barred
//!   first: a change that ends half-way then leaves nobody of the new list who could decide without
//!   those of the old one, which may still keep leases.
//!
//! Asking and writing is the driver's work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::no_single_server;
use crate::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Facts, Fence, Moment, NodeError,
    Origin, Record, RecordState, Roster, Standing, WallMicros,
};

/// A record that another client changes meanwhile is read again, and so often at most.
const TRIES: usize = 8;

const CHANGED_MEANWHILE: &str = "its record keeps changing: try again";
const NOT_ADMITTED: &str = "it is not an admitted member of the old list";
const QUICKER: &str = "another change of the member list was quicker: look at `leasehold nodes`";

/// A member list, and what its clients expect of its nodes.
#[derive(Debug, Clone)]
pub struct MemberList {
    policy: AdmissionPolicy,
    names: Vec<String>,
}

/// What all members of a list said when they were asked at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// When they were asked.
    pub sent: Moment,
    /// When all had answered.
    pub received: Moment,
    /// What they said, in the order of the list.
    pub facts: &'a [Facts],
}

/// One of the two lists of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The list as it was.
    Old,
    /// The list as it shall be.
    New,
}

/// What to do next for a change of the member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuccessionStep {
    /// Ask all members of this list, and go on with what they told. If one does not answer, the change
    /// stops here; it may be begun anew.
    Ask(Side),
    /// Write this record if the old one is still there, and go on with whether it was.
    Replace {
        /// The list that has the member.
        of: Side,
        /// Its number there.
        member: usize,
        /// What stands there now.
        expected: Option<Arc<str>>,
        /// What shall stand there.
        record: Record,
    },
    /// The change took place.
    Done,
    /// It did not, because of this member.
    Refused {
        /// The list that has the member.
        of: Side,
        /// Its number there.
        member: usize,
        /// Why.
        reason: String,
    },
}

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

/// What is to be asked when everything is written.
#[derive(Debug, Clone)]
enum Stage {
    /// Who they are: first those of the new list, then the others.
    First { ours: Option<Vec<Facts>> },
    /// Whether all of the old list serve the new one, now that the node that is added is barred.
    Rolling { tries: usize },
    /// The node that is added.
    Added { tries: usize },
    /// That node, if its record was not written.
    Adding { tries: usize },
    /// Whether all of these refuse the old list.
    Barrier { whom: Whom, tries: usize, waits: Duration },
    /// What they remember, now that all do: first those of the new list, then the others.
    Barred { ours: Option<Vec<Facts>> },
    /// Whether the change took place, as somebody else may have made another one meanwhile: first those of the new list, then the others.
    Confirm { ours: Option<Vec<Facts>> },
    /// Nothing.
    Over,
}

/// Who is barred, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// Those of the new list that the old one does not know.
    Joining,
    /// The node that is added to a list that stays as it is.
    Added,
    /// All of the old list.
    Old,
    /// All of the new list.
    New,
}

impl Whom {
    fn of(self) -> Side {
        match self {
            Self::Joining | Self::Added | Self::New => Side::New,
            Self::Old => Side::Old,
        }
    }
}

/// Why nobody was admitted by a person's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitRefusal {
    /// This member must not be.
    Refused {
        /// Its number in the list.
        member: usize,
        /// Why.
        reason: String,
    },
    /// This member is not there.
    Down {
        /// Its number in the list.
        member: usize,
        /// How that showed.
        error: NodeError,
    },
    /// Some know the cluster, and some do not.
    NotNew {
        /// One that does.
        known: usize,
        /// One that does not.
        blank: usize,
    },
}

/// The nodes of a new cluster, which are admitted at once on the word of a person that they never held
/// a lock.
#[derive(Debug, Clone)]
pub struct Init {
    list: MemberList,
    roster: Roster,
}

impl MemberList {
    /// The list of these names.
    pub fn new(policy: AdmissionPolicy, names: Vec<String>) -> Self {
        Self { policy, names }
    }

    /// Holds the clocks of the nodes against each other. What they show becomes a floor, so none may be
    /// far off. Says which one is, and how.
    fn compare_clocks(&self, told: Told<'_>) -> Result<Roster, (usize, String)> {
        let names = self.names.iter().map(|name| self.policy.member(name)).collect();
        let mut roster = Roster::new(names, &self.policy);
        let Told { sent, received, facts } = told;
        for (member, facts) in facts.iter().enumerate() {
            roster.show_clock(member, ClockSample { sent, received, clock: facts.clock });
        }
        let off = |member| Some((member, roster.line(member).objection()?));
        match (0..facts.len()).find_map(off) {
            Some(off) => Err(off),
            None => Ok(roster),
        }
    }

    /// Whether the name of each node leads to one server, and whether their clocks agree. A server that
    /// only some connections meet must not become a member.
    fn compare(&self, told: Told<'_>) -> Result<(), (usize, String)> {
        let odd = |(member, facts)| Some((member, no_single_server(facts)?));
        match told.facts.iter().enumerate().find_map(odd) {
            Some(odd) => Err(odd),
            None => self.compare_clocks(told).map(|_| ()),
        }
    }

    fn is_known_to(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| self.policy.is_list_of(&record))
    }

    /// Whether the change to this list is over for this node.
    fn is_served_by(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.policy.is_list_of(&record) && record.state != RecordState::Barred
        })
    }

    /// Whether a node of this list may go on in the next one with what it remembers.
    fn can_roll(&self, facts: &Facts) -> bool {
        read(facts).is_some_and(|(_, record)| {
            self.policy.is_list_of(&record)
                && record.state == RecordState::Admitted
                && !record.is_of_the_format_before()
                && record.is_by(&facts.server)
        })
    }

    /// The longest Ttl that anybody may have used with this list.
    fn longest_ttl(&self, facts: &[Facts]) -> Duration {
        let of_node = |facts| read(facts).map_or(self.policy.longest_ttl(), |(_, r)| r.max_ttl);
        facts.iter().map(of_node).chain(self.policy.max_ttl).max().unwrap_or_default()
    }

    /// The record of a node that comes from another list, or from none.
    fn record_of_a_change(
        &self,
        name: &str,
        facts: &Facts,
        state: RecordState,
        life: u128,
    ) -> Record {
        Record {
            cluster: self.policy.cluster,
            nodes: self.policy.nodes,
            member: self.policy.member(name),
            max_ttl: self.policy.longest_ttl(),
            life,
            run_id: facts.server.run_id.clone(),
            replication_id: facts.server.replication_id.clone(),
            origin: Origin::Succession,
            state,
            floor: Fence::ZERO,
            born: facts.clock,
            waits: None,
            clocks: Vec::new(),
        }
    }
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

impl Init {
    /// Judges the members of a new cluster, and says what is to be written to each: nothing where the
    /// cluster is admitted already. Every one must be there and none may know the cluster. Whoever
    /// waits because it restarted, lost some of its memory, or comes from another list, is refused.
    /// `lives` gives 128 fresh random bits each time.
    pub fn new(
        list: MemberList,
        told: Told<'_>,
        mut lives: impl FnMut() -> u128,
    ) -> Result<(Self, Vec<AdmissionStep>), InitRefusal> {
        let off = |(member, reason)| InitRefusal::Refused { member, reason };
        let mut roster = list.compare_clocks(told).map_err(off)?;
        let Told { sent, received, facts: all } = told;
        all.iter().enumerate().for_each(|(member, facts)| _ = roster.show(member, facts));
        let mut init = Self { list, roster };
        let (mut steps, mut is_known) = (Vec::new(), Vec::new());
        for (member, facts) in all.iter().enumerate() {
            let (admission, step) = init.examine(member, (sent, received), facts, lives());
            match admission.standing() {
                Standing::Refused { reason } | Standing::Foreign { reason } => {
                    return Err(InitRefusal::Refused { member, reason: reason.clone() });
                }
                Standing::Down(error) => {
                    return Err(InitRefusal::Down { member, error: error.clone() });
                }
                _ => {}
            }
            let record = read(facts).map(|(_, record)| record);
            is_known.push(record.as_ref().is_some_and(|r| r.state == RecordState::Admitted));
            if let Some(record) = record
                && record.state != RecordState::Admitted
                && record.origin != Origin::First
            {
                let reason = "it was a member before, and waits until everything that it may have \
                              granted is over; init is for servers that never held a lock"
                    .to_owned();
                return Err(InitRefusal::Refused { member, reason });
            }
            steps.push(step);
        }
        let known = is_known.iter().position(|is_known| *is_known);
        let blank = is_known.iter().position(|is_known| !is_known);
        match (known, blank) {
            (Some(known), Some(blank)) => Err(InitRefusal::NotNew { known, blank }),
            (Some(_), None) => Ok((init, Vec::new())),
            _ => Ok((init, steps)),
        }
    }

    /// So often at most a record is written that another client changes meanwhile.
    pub const TRIES: usize = TRIES;

    /// A member whose record was not written, because another client had changed it, tells this: a
    /// client that looks at the same node wrote down that it waits, which changes nothing.
    pub fn again(
        &mut self,
        member: usize,
        asked: (Moment, Moment),
        facts: &Facts,
        life: u128,
    ) -> AdmissionStep {
        match read(facts) {
            Some((_, record)) if record.origin != Origin::First => AdmissionStep::Settled,
            _ => self.examine(member, asked, facts, life).1,
        }
    }

    /// Examines a member as if no quarantine were asked for.
    fn examine(
        &mut self,
        member: usize,
        (sent, received): (Moment, Moment),
        facts: &Facts,
        life: u128,
    ) -> (Admission, AdmissionStep) {
        let policy = AdmissionPolicy { quarantine: false, ..self.list.policy.clone() };
        let mut admission = Admission::new(policy, &self.list.names[member]);
        let twin = self.roster.show(member, facts);
        let sample = ClockSample { sent, received, clock: facts.clock };
        let peers = self.roster.peers(member, twin, sample);
        let step = admission.examine(sent, received, facts, life, &peers);
        (admission, step)
    }
}

/// The longest time that a record of either list says its node has to wait.
fn longest_wait(ours: &[Facts], theirs: &[Facts]) -> Duration {
    let waits = |facts| read(facts).and_then(|(_, record)| record.waits);
    ours.iter().chain(theirs).filter_map(waits).max().unwrap_or_default()
}

/// Whether these facts are of one server. One that copied another shows that one's record, and two
/// files on one machine show one run id.
fn is_one_server(a: &Facts, b: &Facts) -> bool {
    let life = |facts| read(facts).map(|(_, record)| record.life);
    life(a).is_some() && life(a) == life(b) && a.server.run_id == b.server.run_id
}

/// The record of a node, as text and as read.
fn read(facts: &Facts) -> Option<(String, Record)> {
    let text = facts.record.clone()?;
    let record = Record::parse(&text).ok()?;
    Some((text, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Fingerprint, Role, ServerFacts};

    const TTL: Duration = Duration::from_secs(30);

    fn list(names: &[&str]) -> MemberList {
        let policy = AdmissionPolicy {
            cluster: match names {
                [_] => Fingerprint::of_one(),
                _ => Fingerprint::of_members(names.iter().copied()),
            },
            nodes: names.len(),
            max_ttl: Some(TTL),
            max_ttl_default: TTL,
            drift: Drift::DEFAULT,
            max_clock_skew: Duration::from_secs(1),
            quarantine: names.len() > 1,
            strict: false,
        };
        MemberList::new(policy, names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// What a node says that has this record of `list`.
    fn facts(list: &MemberList, name: &str, origin: Origin, state: RecordState) -> Facts {
        let mut facts = Facts {
            generation: 1,
            clock: WallMicros(50_000_000),
            record: None,
            highest: Fence::ZERO,
            has_spent: false,
            server: ServerFacts {
                version: "redis 7.0.15".into(),
                run_id: format!("run-{name}"),
                replication_id: "repl".into(),
                role: Role::Primary,
                evicts: None,
                persists: false,
                expires_by_wall: true,
            },
            others: Vec::new(),
            unmet: 0,
            addresses: 1,
        };
        let life = u128::from(name.as_bytes()[0]);
        let record = list.record_of_a_change(name, &facts, state, life);
        let waits = (state == RecordState::Barred).then(|| list.policy.quarantine_for(TTL));
        facts.record = Some(Record { origin, waits, ..record }.to_string());
        facts
    }

    fn tell(change: &mut Succession, facts: &[Facts]) -> SuccessionStep {
        let now = Moment::from_nanos(1);
        change.told(Told { sent: now, received: now, facts }, || 7);
        change.step()
    }

    #[test]
    fn a_member_whose_name_leads_to_several_servers_or_to_none_joins_no_list() {
        let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "c", "d"]));
        let all = ["a", "b", "c", "d"];
        let ours = all.map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
        let refusal = |ours: &[Facts]| {
            let mut change = Succession::new(old.clone(), new.clone());
            assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
            match tell(&mut change, ours) {
                SuccessionStep::Refused { of: Side::New, member: 3, reason } => Some(reason),
                step => {
                    assert_eq!(step, SuccessionStep::Ask(Side::Old));
                    None
                }
            }
        };
        let met = |others: &[&str], unmet| {
            let mut ours = ours.clone();
            ours[3].others = others.iter().map(|run_id| (*run_id).to_owned()).collect();
            ours[3].unmet = unmet;
            refusal(&ours)
        };
        assert_eq!(met(&["run-d", "run-d"], 0), None);
        assert!(met(&["run-d", "run-e"], 1).unwrap().contains("answered by several servers"));
        assert!(met(&["run-d"], 1).unwrap().contains("1 further connection(s) met nobody"));
    }

    /// A change was stopped before the added node began to wait, which had waited before.
    #[test]
    fn a_repeated_change_has_the_added_node_begin_to_wait() {
        use RecordState::Admitted;
        let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "c", "d"]));
        let theirs = ["a", "b", "c"].map(|name| facts(&new, name, Origin::First, Admitted));
        for (origin, is_over) in [(Origin::First, false), (Origin::Succession, true)] {
            let mut ours = theirs.to_vec();
            ours.push(facts(&new, "d", origin, Admitted));
            let mut change = Succession::new(old.clone(), new.clone());
            tell(&mut change, &ours);
            let step = tell(&mut change, &theirs);
            assert_eq!(step == SuccessionStep::Done, is_over, "{step:?}");
            if !is_over {
                let SuccessionStep::Replace { of: Side::New, member: 3, record, .. } = step else {
                    panic!("{step:?}")
                };
                assert_eq!(record.state, RecordState::Barred);
                assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
                ours[3].record = Some(record.to_string());
                assert_eq!(tell(&mut change, &ours), SuccessionStep::Ask(Side::Old));
                assert_eq!(tell(&mut change, &theirs), SuccessionStep::Ask(Side::New));
                let step = tell(&mut change, &ours);
                let SuccessionStep::Replace { of: Side::New, member: 3, record, .. } = step else {
                    panic!("{step:?}")
                };
                assert_eq!((record.state, record.life), (RecordState::Quarantined, 7));
            }
        }
    }

    /// Two add different nodes to a list of two, and each has one of the two: with the node that it
    /// added, each would have a quorum.
    #[test]
    fn a_node_that_is_added_does_not_vote_before_all_others_follow() {
        use RecordState::{Admitted, Barred, Quarantined};
        let (old, new) = (list(&["a", "b"]), list(&["a", "b", "c"]));
        let (rival, first) = (list(&["a", "b", "d"]), Origin::First);
        let theirs = ["a", "b"].map(|name| facts(&old, name, first, Admitted));
        // A client of the new list met it before the change.
        let early = facts(&new, "c", first, Admitted);
        let mut change = Succession::new(old, new.clone());
        tell(&mut change, &[theirs[0].clone(), theirs[1].clone(), early]);
        let step = tell(&mut change, &theirs);
        let SuccessionStep::Replace { of: Side::New, member: 2, record, .. } = &step else {
            panic!("{step:?}")
        };
        assert_eq!(record.state, Barred);
        assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
        let barred = facts(&new, "c", Origin::Succession, Barred);
        let ours = [theirs[0].clone(), theirs[1].clone(), barred.clone()];
        assert_eq!(tell(&mut change, &ours), SuccessionStep::Ask(Side::Old));
        let steps = [tell(&mut change, &theirs), change.step()];
        for (step, rolls) in steps.iter().zip([0, 1]) {
            let SuccessionStep::Replace { of: Side::Old, member, record, .. } = step else {
                panic!("{step:?}")
            };
            assert_eq!((*member, record.state), (rolls, Admitted));
        }
        assert_eq!(change.step(), SuccessionStep::Ask(Side::Old));
        let followed = ["a", "b"].map(|name| facts(&new, name, first, Admitted));
        let taken = [followed[0].clone(), facts(&rival, "b", first, Admitted)];
        let mut beaten = change.clone();
        let step = tell(&mut beaten, &taken);
        assert!(
            matches!(step, SuccessionStep::Refused { of: Side::Old, member: 1, .. }),
            "{step:?}"
        );
        assert_eq!(tell(&mut change, &followed), SuccessionStep::Ask(Side::New));
        let step = tell(&mut change, &[followed[0].clone(), followed[1].clone(), barred]);
        assert!(
            matches!(&step, SuccessionStep::Replace { of: Side::New, member: 2, record, .. }
                if record.state == Quarantined),
            "{step:?}"
        );
    }

    #[test]
    fn the_nodes_that_join_are_barred_before_any_other() {
        use RecordState::{Admitted, Barred};
        let (old, new) = (list(&["a", "b", "c"]), list(&["a", "d", "e"]));
        let theirs = ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, Admitted));
        let joining = |name, state| facts(&new, name, Origin::Succession, state);
        let blank = |name| Facts { record: None, ..joining(name, Barred) };
        let mut change = Succession::new(old, new.clone());
        tell(&mut change, &[theirs[0].clone(), blank("d"), blank("e")]);
        let steps = [tell(&mut change, &theirs), change.step()];
        for (step, joins) in steps.iter().zip([1, 2]) {
            let SuccessionStep::Replace { of: Side::New, member, record, .. } = step else {
                panic!("{step:?}")
            };
            assert_eq!((*member, record.state), (joins, Barred));
        }
        // One of them did not follow: it is asked to again, and nobody else is.
        assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
        let step = tell(&mut change, &[theirs[0].clone(), joining("d", Barred), blank("e")]);
        assert!(
            matches!(step, SuccessionStep::Replace { of: Side::New, member: 2, .. }),
            "{step:?}"
        );
        assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
        let barred = [theirs[0].clone(), joining("d", Barred), joining("e", Barred)];
        assert_eq!(tell(&mut change, &barred), SuccessionStep::Ask(Side::Old));
        let step = tell(&mut change, &theirs);
        assert!(
            matches!(step, SuccessionStep::Replace { of: Side::Old, member: 0, .. }),
            "{step:?}"
        );
    }

    /// All lists of one look alike: what stands on the old node does not tell that it was left.
    #[test]
    fn a_change_from_one_node_to_another_bars_the_first() {
        let (old, new) = (list(&["a"]), list(&["b"]));
        let theirs = [facts(&old, "a", Origin::First, RecordState::Admitted)];
        let ours = [facts(&new, "b", Origin::First, RecordState::Admitted)];
        let mut change = Succession::new(old.clone(), new.clone());
        tell(&mut change, &ours);
        let step = tell(&mut change, &theirs);
        let SuccessionStep::Replace { of: Side::New, member: 0, record, .. } = step else {
            panic!("{step:?}")
        };
        assert_eq!(record.state, RecordState::Barred);
        assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
        let barred = [facts(&new, "b", Origin::Succession, RecordState::Barred)];
        assert_eq!(tell(&mut change, &barred), SuccessionStep::Ask(Side::Old));
        let step = tell(&mut change, &theirs);
        let SuccessionStep::Replace { of: Side::Old, member: 0, record, .. } = step else {
            panic!("{step:?}")
        };
        assert_eq!(record.state, RecordState::Barred);
        // The same node under another name, which nobody has to leave.
        let mut change = Succession::new(old.clone(), new.clone());
        tell(&mut change, &theirs);
        assert_eq!(tell(&mut change, &theirs), SuccessionStep::Done);
        // Another one, which copied the first.
        let mut copy = theirs[0].clone();
        copy.server.run_id = "run-b".into();
        let mut change = Succession::new(old, new);
        tell(&mut change, &[copy]);
        let step = tell(&mut change, &theirs);
        assert!(matches!(step, SuccessionStep::Replace { of: Side::New, .. }), "{step:?}");
    }

    /// A client met the next node before the change, and the change ended when the first node was barred.
    #[test]
    fn a_change_to_one_node_that_was_begun_before_has_it_wait_all_the_same() {
        use RecordState::{Admitted, Barred, Quarantined};
        let (old, new) = (list(&["a"]), list(&["b"]));
        let theirs = [facts(&new, "a", Origin::Succession, Barred)];
        for state in [Quarantined, Admitted] {
            for (origin, is_over) in [(Origin::First, false), (Origin::Succession, true)] {
                let ours = [facts(&new, "b", origin, state)];
                let mut change = Succession::new(old.clone(), new.clone());
                tell(&mut change, &ours);
                let step = tell(&mut change, &theirs);
                assert_eq!(step == SuccessionStep::Done, is_over, "{step:?}");
            }
        }
    }

    /// The next record that a change wants written, of which list and which member.
    fn next_record(step: SuccessionStep) -> (Side, usize, Record) {
        match step {
            SuccessionStep::Replace { of, member, record, .. } => (of, member, record),
            other => panic!("{other:?}"),
        }
    }

    fn with(facts: Facts, change: impl FnOnce(Record) -> Record) -> Facts {
        let record = Record::parse(facts.record.as_deref().unwrap_or_default()).unwrap();
        Facts { record: Some(change(record).to_string()), ..facts }
    }

    /// The first change is from a list with far longer leases, and nobody has waited for them yet.
    #[test]
    fn two_changes_in_a_row_wait_for_as_long_as_the_first_must() {
        let day = Duration::from_secs(86_400);
        let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "d"]));
        let theirs = ["a", "b", "c"].map(|name| {
            let facts = facts(&old, name, Origin::Succession, RecordState::Quarantined);
            with(facts, |record| Record { waits: Some(day), ..record })
        });
        let d = Facts { record: None, ..facts(&new, "d", Origin::First, RecordState::Admitted) };
        let ours = [theirs[0].clone(), theirs[1].clone(), d];
        let mut change = Succession::new(old, new);
        tell(&mut change, &ours);
        let (_, member, record) = next_record(tell(&mut change, &theirs));
        assert_eq!((member, record.waits), (2, Some(day)));
    }

    /// Two nodes were barred by a change that was given up, when leases were shorter.
    #[test]
    fn a_node_that_was_barred_to_wait_for_less_is_barred_again() {
        let (old, new) = (list(&["a", "b", "c"]), list(&["a", "d", "e"]));
        let theirs =
            ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
        let joining = |name, waits| {
            let facts = facts(&new, name, Origin::Succession, RecordState::Barred);
            with(facts, |record| Record { waits, ..record })
        };
        let short = Some(Duration::from_secs(4));
        let mut change = Succession::new(old, new.clone());
        tell(&mut change, &[theirs[0].clone(), joining("d", short), joining("e", None)]);
        let steps = [tell(&mut change, &theirs), change.step()];
        let waits = steps.map(|step| next_record(step).2.waits.unwrap());
        assert!(waits.iter().all(|waits| *waits > TTL), "{waits:?}");
        // One that must wait for longer than this change asks for, goes on doing so.
        let long = Some(Duration::from_secs(600));
        assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
        let ours = [theirs[0].clone(), joining("d", long), joining("e", long)];
        assert_eq!(tell(&mut change, &ours), SuccessionStep::Ask(Side::Old));
    }

    #[test]
    fn a_server_that_gets_another_name_is_called_by_it() {
        let (old, new) = (list(&["a", "b", "c"]), list(&["x", "b", "z"]));
        let theirs =
            ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
        let mut change = Succession::new(old.clone(), new.clone());
        tell(&mut change, &theirs);
        let mut steps = vec![tell(&mut change, &theirs)];
        steps.extend([change.step(), change.step()]);
        let names = steps.into_iter().map(|step| {
            let (of, member, record) = next_record(step);
            (of, member, record.member.to_string())
        });
        let expected = ["x", "b", "z"].map(str::to_owned);
        let all = expected.into_iter().enumerate().map(|(at, name)| (Side::Old, at, name));
        assert_eq!(names.collect::<Vec<_>>(), all.collect::<Vec<_>>());
        // A change that left the old names there is not over.
        let left = ["a", "b", "c"]
            .map(|name| facts(&new, name, Origin::Succession, RecordState::Admitted));
        let mut change = Succession::new(old, new);
        tell(&mut change, &left);
        assert_ne!(tell(&mut change, &left), SuccessionStep::Done);
    }

    /// It leaves because its clock is a year ahead.
    #[test]
    fn a_clock_that_leaves_is_no_floor_for_those_that_stay() {
        let year = 365 * 86_400 * 1_000_000;
        let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "d"]));
        let mut theirs =
            ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
        theirs[2].clock = WallMicros(theirs[2].clock.0 + year);
        let barred = facts(&new, "d", Origin::Succession, RecordState::Barred);
        let mut change = Succession::new(old, new);
        tell(&mut change, &[theirs[0].clone(), theirs[1].clone(), barred]);
        let steps = [tell(&mut change, &theirs), change.step(), change.step()];
        let floors = steps.map(|step| next_record(step).2.floor.get());
        let right = 50_000_000;
        assert_eq!(floors[..2], [right; 2]);
        assert!((right..=right + 1_000_001).contains(&floors[2]), "{floors:?}");
    }

    /// It left by an earlier change, which barred it for the list that is the old one now.
    #[test]
    fn a_server_that_left_may_join_again() {
        let (old, new) = (list(&["a", "b", "d"]), list(&["a", "b", "c"]));
        let theirs =
            ["a", "b", "d"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
        let left = facts(&old, "c", Origin::Succession, RecordState::Barred);
        let mut change = Succession::new(old, new);
        tell(&mut change, &[theirs[0].clone(), theirs[1].clone(), left]);
        let (of, member, record) = next_record(tell(&mut change, &theirs));
        assert_eq!((of, member, record.member.as_str()), (Side::New, 2, "c"));
    }
}
