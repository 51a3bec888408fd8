//! A person who sets the cluster up, as `init` does: every member must answer and none may know the
//! cluster; then all are admitted at once. Whoever waits because it was a member before is left alone.

use std::sync::Arc;

use leasehold_core::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Facts, Fence, Moment, Origin, Record,
    RecordState, Reply, Request, Role, Roster, Standing,
};

use super::servers::Change;
use super::{Event, World, member_name};
use crate::clock::{MILLIS, SECOND, Time};
use crate::history::Happening;

/// How often a record is read again that another changed meanwhile.
const TRIES: usize = 8;

impl World {
    /// Looks at all members at one moment, and writes to them at others.
    pub(super) fn set_up(&mut self) {
        if self.is_being_set_up || self.is_a_lie() {
            return;
        }
        let Some(steps) = self.decide_to_set_up() else { return };
        self.is_being_set_up = true;
        self.outcome.figures.inits += 1;
        for (node, step) in steps.into_iter().enumerate() {
            if let AdmissionStep::Replace { expected, record } = step {
                let later = self.chance.within(MILLIS..SECOND);
                let record = record.to_string().into();
                let run = self.servers[self.addresses.home(node)].run_id();
                let change = Change::SetUp { node, run, expected, record, tries: TRIES };
                self.after(later, Event::Change(change));
            }
        }
        self.after(2 * SECOND, Event::Change(Change::IsSetUp));
    }

    /// Whoever sets a cluster up says that its servers never held a lock. Where all of them lost all
    /// that they knew, nobody but that person can tell.
    fn is_a_lie(&self) -> bool {
        let mut homes = (0..self.scenario.nodes).map(|node| self.addresses.home(node));
        homes.any(|home| self.servers[home].forgot > 0)
            && (0..self.scenario.nodes).all(|node| {
                let table = &self.servers[self.addresses.home(node)].table;
                let record = table.record().and_then(|text| Record::parse(text).ok());
                record.is_none_or(|record| {
                    record.state == RecordState::Quarantined && record.origin == Origin::First
                })
            })
    }

    fn decide_to_set_up(&mut self) -> Option<Vec<AdmissionStep>> {
        let all: Vec<Facts> =
            (0..self.scenario.nodes).map(|node| self.facts_of(node)).collect::<Option<_>>()?;
        let mut roster = self.roster_of(&all);
        if (0..all.len()).any(|node| roster.line(node).objection().is_some()) {
            return None;
        }
        all.iter().enumerate().for_each(|(node, facts)| _ = roster.show(node, facts));
        let mut steps = Vec::new();
        let (mut known, mut blank) = (0, 0);
        for (node, facts) in all.iter().enumerate() {
            let (admission, step) = self.examine_as_new(node, &mut roster, facts);
            match admission.standing() {
                Standing::Refused { .. } | Standing::Foreign { .. } | Standing::Down(_) => {
                    return None;
                }
                _ => {}
            }
            match facts.record.as_deref().and_then(|text| Record::parse(text).ok()) {
                Some(record) if record.state == RecordState::Admitted => known += 1,
                Some(record) if record.origin != Origin::First => return None,
                _ => blank += 1,
            }
            steps.push(step);
        }
        (known == 0 && blank > 0).then_some(steps)
    }

    /// Writes what was decided, or decides again if the record is another by now.
    pub(super) fn write_set_up(
        &mut self,
        (node, run): (usize, String),
        expected: Option<Arc<str>>,
        record: Arc<str>,
        tries: usize,
    ) {
        let home = self.addresses.home(node);
        if self.servers[home].is_down || self.is_calm {
            return;
        }
        let before = self.servers[home].table.record().map(str::to_owned);
        let request = Request::ReplaceRecord { expected, record };
        let answer = self.servers[home].apply(self.now, 0, None, Some(&run), &request);
        self.tell_admission(home, None, before.as_deref());
        if matches!(answer, Ok(Reply::Record { replaced: false })) && tries > 1 {
            let Some(facts) = self.facts_of(node) else { return };
            let known = facts.record.as_deref().and_then(|text| Record::parse(text).ok());
            if known.is_some_and(|record| record.origin != Origin::First) {
                return;
            }
            let mut roster = self.roster_of(&[]);
            let (_, step) = self.examine_as_new(node, &mut roster, &facts);
            if let AdmissionStep::Replace { expected, record } = step {
                let record = record.to_string().into();
                let change = Change::SetUp { node, run, expected, record, tries: tries - 1 };
                self.after(MILLIS, Event::Change(change));
            }
        }
    }

    fn facts_of(&mut self, node: usize) -> Option<Facts> {
        let home = self.addresses.home(node);
        let server = &mut self.servers[home];
        let is_there = !server.is_down && server.hangs_until <= self.now;
        if !is_there || server.role != Role::Primary || self.addresses.is_shared(node) {
            return None;
        }
        match server.apply(self.now, 0, None, None, &Request::Probe) {
            Ok(Reply::Facts(facts)) => Some(*facts),
            _ => None,
        }
    }

    /// That person's clock.
    fn moment(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    fn roster_of(&self, all: &[Facts]) -> Roster {
        let policy = self.policy(&self.member_names());
        let names = self.member_names().iter().map(|name| policy.member(name)).collect();
        let mut roster = Roster::new(names, &policy);
        for (node, facts) in all.iter().enumerate() {
            roster.show_clock(node, self.sample(facts));
        }
        roster
    }

    fn sample(&self, facts: &Facts) -> ClockSample {
        let (received, sent) = (self.moment(), Moment::from_nanos(self.now.saturating_sub(MILLIS)));
        ClockSample { sent, received, clock: facts.clock }
    }

    /// As if no quarantine were asked for.
    fn examine_as_new(
        &mut self,
        node: usize,
        roster: &mut Roster,
        facts: &Facts,
    ) -> (Admission, AdmissionStep) {
        let policy = self.policy(&self.member_names());
        let policy = AdmissionPolicy { quarantine: false, ..policy };
        let mut admission = Admission::new(policy, &member_name(node));
        let twin = roster.show(node, facts);
        let sample = self.sample(facts);
        let peers = roster.peers(node, twin, sample);
        let life = self.chance.nonce();
        let step = admission.examine(sample.sent, sample.received, facts, life, &peers);
        (admission, step)
    }

    /// Tells that a server was given a vote, if it was.
    pub(super) fn tell_admission(
        &mut self,
        server: usize,
        by: Option<(usize, u64)>,
        before: Option<&str>,
    ) {
        let is_admitted = |text: Option<&str>| {
            let record = text.and_then(|text| Record::parse(text).ok());
            record.is_some_and(|record| record.state == RecordState::Admitted)
        };
        let admitted = |server: &usize| {
            let this = &self.servers[*server];
            is_admitted(this.table.record()) && this.has_a_life()
        };
        if is_admitted(before) || !admitted(&server) {
            return;
        }
        let others = (0..self.scenario.nodes).map(|node| self.addresses.home(node));
        let others = others.filter(|other| *other != server).filter(admitted).collect();
        let forgot: Time = self.servers[server].forgot;
        let record = self.servers[server].table.record().and_then(|text| Record::parse(text).ok());
        let floor = record.map_or(Fence::ZERO, |record| record.floor);
        self.tell(Happening::Admitted { server, by, forgot, others, floor });
    }
}
