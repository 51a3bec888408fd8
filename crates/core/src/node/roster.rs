//! The members of one list, side by side. Memory belongs to a server, so a server that two members
//! show must not be counted twice, and nobody can tell for which of them it may be counted. And a
//! clock is right only as far as others agree with it.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::clock_watch::Bounds;
use crate::{
    Admission, AdmissionPolicy, Cause, ClockSample, Facts, Fence, MemberName, Moment, Quorum,
    Record, RecordState, Standing, WallMicros,
};

/// The members of one list, side by side.
#[derive(Debug, Clone)]
pub struct Roster {
    names: Vec<MemberName>,
    /// The numbers of the members in the order of their names, which is the same for all clients.
    sorted: Vec<usize>,
    max_skew_micros: i64,
    shown: Vec<Option<Shown>>,
    /// Whether a member was tried at all.
    is_tried: Vec<bool>,
    /// When a member that answered was last asked who it is.
    asked: Vec<Option<Moment>>,
    foreign: Vec<bool>,
    /// Whether a member is barred, and how long it has to wait if its record says so.
    waits: Vec<Waits>,
    witnesses: Vec<Option<Witness>>,
}

/// What the record of a member says of a change of the list that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Waits {
    is_barred: bool,
    at_least: Option<Duration>,
}

/// What a member showed when it was last examined.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    run_id: String,
    life: Option<u128>,
}

/// A member whose clock is known, and how far its memory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) clock: Bounds,
    /// The highest fence that it gave or may have forgotten.
    pub(crate) highest: Fence,
    /// When it was asked for these.
    pub(crate) asked: Moment,
}

/// For how long a life has waited, by one member's clock, as far as its last reading tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waited {
    pub(crate) at_least: Duration,
    pub(crate) at_most: Duration,
}

/// How a member's clock stands to those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// At least a quorum, this member included, is within the skew.
    InLine,
    /// Fewer clocks than a quorum are known. Nothing can be decided then, by any votes.
    Unknown,
    /// It is off.
    Off {
        /// How far ahead of the others' median, in microseconds; negative for behind.
        micros: i64,
        /// Whether a quorum of others agrees. If none does, nobody can tell who is wrong.
        is_outvoted: bool,
    },
}

impl Line {
    /// Why a member with such a clock grants nothing.
    pub fn objection(self) -> Option<String> {
        match self {
            Self::Off { micros, .. } => Some(Cause::Off { micros }.to_string()),
            Self::InLine | Self::Unknown => None,
        }
    }
}

/// What an examination of one member needs to know of the others.
#[derive(Debug, Clone)]
pub struct Peers {
    /// The member that shows the same server: neither votes.
    pub twin: Option<MemberName>,
    /// Another member that belongs to another list.
    pub(crate) foreign: Option<MemberName>,
    /// Whether a change of the list keeps another member from voting.
    pub(crate) is_one_barred: bool,
    /// The longest time that the record of another member says it has to wait.
    pub(crate) waits: Option<Duration>,
    /// Whether every other member was tried.
    pub(crate) are_tried: bool,
    /// Of those that answered, when the one was asked that was not asked for longest.
    pub(crate) asked: Option<Moment>,
    witnesses: Vec<Option<Witness>>,
    /// The place of the member itself among them.
    own: usize,
    max_skew_micros: i64,
}

impl Roster {
    /// A list of which nothing is known yet. The members have the names that their records call them.
    pub fn new(names: Vec<MemberName>, policy: &AdmissionPolicy) -> Self {
        let count = names.len();
        let mut sorted: Vec<usize> = (0..count).collect();
        sorted.sort_by(|a, b| names[*a].cmp(&names[*b]));
        Self {
            names,
            sorted,
            max_skew_micros: i64::try_from(policy.max_clock_skew.as_micros()).unwrap_or(i64::MAX),
            shown: vec![None; count],
            is_tried: vec![false; count],
            asked: vec![None; count],
            foreign: vec![false; count],
            waits: vec![Waits::default(); count],
            witnesses: vec![None; count],
        }
    }

    /// Member number `member` shows the server that `facts` tell of. Returns the member that shows
    /// the same one, if there is one: neither votes.
    pub fn show(&mut self, member: usize, facts: &Facts) -> Option<usize> {
        let record = facts.record.as_deref().and_then(|text| Record::parse(text).ok());
        // A record that another server wrote is a copy, and not this server's life.
        let own = record.filter(|record| record.is_by(&facts.server));
        let shown =
            Shown { run_id: facts.server.run_id.clone(), life: own.map(|record| record.life) };
        let twin = self.shown.iter().enumerate().find_map(|(other, seen)| {
            let is_same = |seen: &Shown| {
                seen.run_id == shown.run_id || (seen.life.is_some() && seen.life == shown.life)
            };
            (other != member && seen.as_ref().is_some_and(is_same)).then_some(other)
        });
        if let Some(slot) = self.shown.get_mut(member) {
            *slot = Some(shown);
        }
        twin
    }

    /// Member number `member` did not answer: it shows nobody, and is examined before it votes.
    pub fn hide(&mut self, member: usize) {
        self.shown[member] = None;
        self.witnesses[member] = None;
        self.is_tried[member] = true;
        self.asked[member] = None;
        self.foreign[member] = false;
        self.waits[member] = Waits::default();
    }

    /// What the examination of member number `member` needs to know of the others, and of what it
    /// says of its own clock now.
    pub fn peers(&self, member: usize, twin: Option<usize>, sample: ClockSample) -> Peers {
        let others = || (0..self.names.len()).filter(|other| *other != member);
        let own = Witness { clock: Bounds::of(sample), highest: Fence::ZERO, asked: sample.sent };
        let witness = |index: &usize| {
            if *index == member { Some(own) } else { self.witnesses[*index] }
        };
        Peers {
            twin: twin.map(|twin| self.names[twin].clone()),
            foreign: others().find(|other| self.foreign[*other]).map(|o| self.names[o].clone()),
            is_one_barred: others().any(|other| self.waits[other].is_barred),
            waits: others().filter_map(|other| self.waits[other].at_least).max(),
            are_tried: others().all(|other| self.is_tried[other]),
            asked: others().filter_map(|other| self.asked[other]).min(),
            witnesses: self.sorted.iter().map(witness).collect(),
            own: self.sorted.iter().position(|index| *index == member).unwrap_or_default(),
            max_skew_micros: self.max_skew_micros,
        }
    }

    /// Notes what the examination of member number `member` came to. The clock of a server that is not
    /// the member, or not this list's, is no witness.
    pub fn note(&mut self, member: usize, asked: Moment, admission: &Admission, facts: &Facts) {
        self.is_tried[member] = true;
        self.asked[member] = Some(asked);
        // A node without a record is nobody's yet, whatever keeps it from being ours.
        self.foreign[member] =
            matches!(admission.standing(), Standing::Foreign { .. }) && facts.record.is_some();
        let record = facts.record.as_deref().and_then(|text| Record::parse(text).ok());
        let ours = record.filter(|_| !self.foreign[member]);
        self.waits[member] = ours.map_or_else(Waits::default, |record| Waits {
            is_barred: record.state == RecordState::Barred,
            at_least: record.waits,
        });
        let is_witness = match admission.standing() {
            Standing::Voting(_) | Standing::Waiting { .. } => true,
            // It waits for the others, as a new one does.
            Standing::Unknown => facts.record.is_none(),
            Standing::Refused { .. } | Standing::Foreign { .. } | Standing::Down(_) => false,
        };
        self.witnesses[member] = admission.clock().filter(|_| is_witness).map(|clock| Witness {
            clock,
            highest: facts.remembers(),
            asked,
        });
    }

    /// Member number `member` showed this clock, to somebody who only wants to compare clocks.
    pub fn show_clock(&mut self, member: usize, sample: ClockSample) {
        self.is_tried[member] = true;
        let (clock, highest) = (Bounds::of(sample), Fence::ZERO);
        self.witnesses[member] = Some(Witness { clock, highest, asked: sample.sent });
    }

    /// How the clock of member number `member` stands to those of the others.
    pub fn line(&self, member: usize) -> Line {
        line(&self.witnesses, member, self.max_skew_micros)
    }
}

impl Peers {
    /// A list of one, or one of which nothing is known: for a caller that examines a node by itself.
    pub fn none(sample: ClockSample) -> Self {
        let own = Witness { clock: Bounds::of(sample), highest: Fence::ZERO, asked: sample.sent };
        Self {
            twin: None,
            foreign: None,
            is_one_barred: false,
            waits: None,
            are_tried: true,
            asked: None,
            witnesses: vec![Some(own)],
            own: 0,
            max_skew_micros: 0,
        }
    }

    /// The same, with a twin.
    #[must_use]
    pub fn with_twin(self, twin: Option<MemberName>) -> Self {
        Self { twin, ..self }
    }

    /// The same, with all that is known of the member's own clock: a slow answer tells less.
    pub(crate) fn knowing(&self, own: Option<Bounds>) -> Self {
        let mut peers = self.clone();
        if let (Some(clock), Some(Some(witness))) = (own, peers.witnesses.get_mut(self.own)) {
            witness.clock = witness.clock.sharper(clock);
        }
        peers
    }

    /// How many members there are.
    pub(crate) fn count(&self) -> usize {
        self.witnesses.len()
    }

    /// How many of them are a quorum.
    pub(crate) fn quorum(&self) -> usize {
        self.witnesses.len() / 2 + 1
    }

    /// For how long a life has waited at `now` that began when the members' clocks showed `began`, by
    /// each of those that are known.
    pub(crate) fn waited(&self, began: &[Option<WallMicros>], now: Moment) -> Vec<Waited> {
        let waited = |(began, witness): (&Option<WallMicros>, &Option<Witness>)| {
            let (began, clock) = (began.as_ref()?, witness.as_ref()?.clock);
            let since = |clock: WallMicros| Duration::from_micros(clock.0.saturating_sub(began.0));
            let (at_least, at_most) = (since(clock.earliest(now)), since(clock.latest(now)));
            Some(Waited { at_least, at_most })
        };
        began.iter().zip(&self.witnesses).filter_map(waited).collect()
    }

    /// How the member's own clock stands to those of the others.
    pub(crate) fn line(&self) -> Line {
        line(&self.witnesses, self.own, self.max_skew_micros)
    }

    /// What all clocks show at `now`, at most, by the order of names; for a record.
    pub(crate) fn clocks(&self, now: Moment) -> Vec<Option<WallMicros>> {
        let latest = |witness: &Option<Witness>| Some(witness.as_ref()?.clock.latest(now));
        self.witnesses.iter().map(latest).collect()
    }

    /// The other members that are known.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Witness> {
        let is_other = |(index, _): &(usize, _)| *index != self.own;
        self.witnesses.iter().enumerate().filter(is_other).filter_map(|(_, w)| w.as_ref())
    }
}

fn line(witnesses: &[Option<Witness>], member: usize, max_skew_micros: i64) -> Line {
    let Some(nodes) = NonZeroUsize::new(witnesses.len()) else { return Line::Unknown };
    let needed = Quorum::majority_of(nodes).needed();
    let Some(own) = witnesses.get(member).copied().flatten() else { return Line::Unknown };
    let known = || witnesses.iter().flatten();
    if known().count() < needed {
        return Line::Unknown;
    }
    let is_in_line = |one: &Witness| {
        let apart = |other: &Witness| one.clock.ahead_of(other.clock).unsigned_abs();
        known().filter(|other| apart(other) <= max_skew_micros as u64).count() >= needed
    };
    if is_in_line(&own) {
        return Line::InLine;
    }
    // Its own zero is one of them: what is told is how far it is off the next in the middle.
    let mut ahead: Vec<i64> = known().map(|other| own.clock.ahead_of(other.clock)).collect();
    ahead.sort_unstable_by_key(|ahead| ahead.unsigned_abs());
    Line::Off { micros: ahead[needed - 1], is_outvoted: known().any(is_in_line) }
}
