//! A person who sets the cluster up, as `init` does: every member must answer and none may know the
//! cluster; then all are admitted at once. Whoever waits because it was a member before is left alone.

use std::sync::Arc;

use leasehold_core::{
    AdmissionStep, Facts, Fence, Init, MemberList, Moment, Origin, Record, RecordState, Reply,
    Request, Role, Told,
};

use super::servers::Change;
use super::{Event, World, member_name};
use crate::clock::{MILLIS, SECOND, Time};
use crate::history::Happening;

impl World {
    /// Looks at all members at one moment, and writes to them at others.
    pub(super) fn set_up(&mut self) {
        if self.setting_up.is_some() || self.is_a_lie() {
            return;
        }
        let Some((init, steps)) = self.decide_to_set_up() else { return };
        self.setting_up = Some(init);
        self.outcome.figures.inits += 1;
        for (node, step) in steps.into_iter().enumerate() {
            if let AdmissionStep::Replace { expected, record } = step {
                let later = self.chance.within(MILLIS..SECOND);
                let record = record.to_string().into();
                let run = self.servers[self.addresses.home(node)].run_id();
                let change = Change::SetUp { node, run, expected, record, tries: Init::TRIES };
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

    fn decide_to_set_up(&mut self) -> Option<(Init, Vec<AdmissionStep>)> {
        let nodes = 0..self.scenario.nodes;
        let names = nodes.clone().map(member_name).collect();
        let all: Vec<Facts> = nodes.map(|node| self.facts_of(node)).collect::<Option<_>>()?;
        let (sent, received) = self.asked();
        let list = MemberList::new(self.policy(), names);
        let told = Told { sent, received, facts: &all };
        let begun = Init::new(list, told, || self.chance.nonce()).ok();
        begun.filter(|(_, steps)| !steps.is_empty())
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
        let now = Moment::from_nanos(self.now);
        let is_stale = self.setting_up.as_ref().is_none_or(|init| init.is_stale(now));
        if self.servers[home].is_down || self.is_calm || is_stale {
            return;
        }
        let before = self.servers[home].table.record().map(str::to_owned);
        let request = Request::ReplaceRecord { expected, record };
        let answer = self.servers[home].apply(self.now, 0, None, Some(&run), &request);
        self.tell_admission(home, None, before.as_deref());
        if matches!(answer, Ok(Reply::Record { replaced: false })) && tries > 1 {
            let Some(facts) = self.facts_of(node) else { return };
            let (asked, life) = (self.asked(), self.chance.nonce());
            let Some(init) = &mut self.setting_up else { return };
            let step = init.again(node, asked, &facts, life);
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

    /// When that person asked and was answered, by their clock.
    fn asked(&self) -> (Moment, Moment) {
        let sent = Moment::from_nanos(self.now.saturating_sub(MILLIS));
        (sent, Moment::from_nanos(self.now))
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
        let others = (0..self.scenario.addresses()).map(|node| self.addresses.home(node));
        let others = others.filter(|other| *other != server).filter(admitted).collect();
        let forgot: Time = self.servers[server].forgot;
        let record = self.servers[server].table.record().and_then(|text| Record::parse(text).ok());
        let is_carried = record.as_ref().is_some_and(|r| r.origin == Origin::Succession);
        let floor = record.map_or(Fence::ZERO, |record| record.floor);
        let nodes =
            (0..self.scenario.addresses()).filter(|node| self.addresses.home(*node) == server);
        let nodes: Vec<_> = nodes.collect();
        let is_first = nodes.iter().all(|node| !self.have_voted.contains(node));
        self.have_voted.extend(nodes);
        self.tell(Happening::Admitted { server, by, forgot, others, floor, is_carried, is_first });
    }
}
