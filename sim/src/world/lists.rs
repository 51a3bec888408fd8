//! Operators who change the member list, as [`Succession`] has them do it. What they send is delayed
//! and lost like everything else, and they stop half-way, and begin again.

use std::sync::Arc;

use leasehold_core::{
    Answer, Facts, Fence, MemberList, Moment, Origin, Record, RecordState, Reply, Request, Role,
    Side, Succession, SuccessionStep, Told,
};
use leasehold_judge::Chance;

use super::servers::Change;
use super::{Event, World, member_name};
use crate::clock::{MILLIS, SECOND, Time};
use crate::faults::Fault;
use crate::history::Happening;
use crate::lists::{List, Lists, Plan};
use crate::scenario::Scenario;
use crate::tales::Tale;

/// How long an operator waits for an answer.
const LIMIT: Time = SECOND;

/// So often a change is begun at most.
const TRIES: usize = 12;

/// What happens to a change of the member list.
#[derive(Debug, Clone)]
pub(super) enum ListChange {
    /// An operator begins, or begins again.
    Begin { plan: usize, tries: usize },
    /// A request of an operator arrives.
    Arrive { plan: usize, step: u64, member: usize, node: usize, request: Arc<Request> },
    /// Its answer does.
    Answer { plan: usize, step: u64, member: usize, answer: Answer },
    /// An operator goes on after a pause.
    GoOn { plan: usize, step: u64 },
    /// An operator has waited for an answer for too long.
    Limit { plan: usize, step: u64 },
    /// Nothing more happens to the world, and what was begun is finished.
    Finish,
    /// A process is told another list.
    Tell { client: usize, list: usize },
    /// All servers of a list forget, when all have a vote and everybody uses that list.
    Empty { list: usize },
}

/// All of them, each with a plan of its own.
#[derive(Debug)]
pub(super) struct Operators {
    chance: Chance,
    /// By plan.
    at_work: Vec<Option<Operator>>,
    /// Counts the steps of all.
    step: u64,
    /// The lists to which a change took place.
    done: Vec<usize>,
}

#[derive(Debug)]
struct Operator {
    change: Succession,
    tries: usize,
    step: u64,
    sent: Time,
    told: Vec<Option<Facts>>,
}

impl Operators {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let plans = scenario.lists.as_ref().map_or(0, |lists| lists.plans.len());
        let chance = Chance::new(scenario.seed ^ 0x0be7);
        Self { chance, at_work: (0..plans).map(|_| None).collect(), step: 0, done: Vec::new() }
    }
}

impl World {
    /// Says when the list is to be changed, and tells some processes before that.
    pub(super) fn plan_changes(&mut self) {
        let Some(lists) = self.scenario.lists.clone() else { return };
        for (plan, Plan { at, .. }) in lists.plans.iter().enumerate() {
            let tries = lists.tale.map_or(TRIES, |tale| tale.tries(plan, TRIES));
            self.after(*at, Event::Change(Change::Lists(ListChange::Begin { plan, tries })));
        }
        if let Some(tale) = lists.tale {
            return self.plan_tale(&lists, tale);
        }
        for client in 0..self.scenario.clients {
            let list = 1 + self.operators.chance.index(lists.all.len() - 1);
            let may_be = client > 0 && !lists.is_apart(list);
            if may_be && self.operators.chance.percent(20) {
                let at = self.operators.chance.within(0..20 * SECOND);
                self.after(at, Event::Change(Change::Lists(ListChange::Tell { client, list })));
            }
        }
        for (client, list) in lists.told_early() {
            if client < self.scenario.clients {
                let tell = ListChange::Tell { client, list };
                self.after(SECOND / 100, Event::Change(Change::Lists(tell)));
            }
        }
        for number in (1..lists.all.len()).filter(|_| lists.have_waited) {
            let list = &lists.all[number];
            let added = list.nodes.iter().filter(|node| !lists.all[0].nodes.contains(node));
            for node in added.copied().collect::<Vec<_>>() {
                self.let_wait(list, node);
            }
        }
    }

    fn plan_tale(&mut self, lists: &Lists, tale: Tale) {
        let at = lists.plans[0].at;
        // Whoever is told half-way meets barred nodes.
        for client in (1..self.scenario.clients).filter(|_| tale == Tale::Emptied) {
            let later = at + self.operators.chance.within(0..10 * SECOND);
            if self.operators.chance.percent(50) {
                let tell = ListChange::Tell { client, list: 1 };
                self.after(later, Event::Change(Change::Lists(tell)));
            }
        }
        let leaves = |node: &&usize| tale == Tale::Ahead && !lists.all[1].nodes.contains(node);
        for node in lists.all[0].nodes.iter().filter(leaves).copied() {
            let before = at - self.operators.chance.within(0..4 * SECOND);
            let by = 3600 * SECOND as i64;
            self.after(before, Event::Inflict(Fault::Step { node, by }));
        }
    }

    /// A client of a list that is to be met a server that nobody uses yet, and nobody else.
    fn let_wait(&mut self, list: &List, node: usize) {
        let policy = self.policy_of(list);
        let life = self.operators.chance.nonce();
        let server = &mut self.servers[node];
        let record = Record {
            cluster: policy.cluster,
            nodes: policy.nodes,
            member: policy.member(&member_name(node)),
            max_ttl: list.max_ttl,
            life,
            run_id: server.run_id(),
            replication_id: server.replication_id().to_owned(),
            origin: Origin::First,
            state: RecordState::Quarantined,
            floor: Fence::ZERO,
            born: server.wall(0),
            waits: None,
            clocks: Vec::new(),
        };
        let request = Request::ReplaceRecord { expected: None, record: record.to_string().into() };
        // If there is a record already, it belongs to another plan.
        let _ = server.apply(0, 0, None, None, &request);
    }

    /// Whether the server of this address must not be emptied.
    pub(super) fn keeps_memory(&self, node: usize) -> bool {
        self.scenario.lists.as_ref().is_some_and(|lists| lists.keeps_memory(node))
    }

    pub(super) fn change_list(&mut self, change: ListChange) {
        match change {
            // By then everybody has been told which list it is.
            ListChange::Begin { .. } | ListChange::Tell { .. } | ListChange::Empty { .. }
                if self.is_calm => {}
            ListChange::Begin { plan, tries } => self.begin_to_change(plan, tries),
            ListChange::Arrive { plan, step, member, node, request } => {
                self.asked_by_operator(plan, step, member, node, request);
            }
            ListChange::Answer { plan, step, member, answer } => {
                self.answer_operator(plan, step, member, answer);
            }
            ListChange::GoOn { plan, step } if self.is_at(plan, step) => self.take_step(plan),
            ListChange::Limit { plan, step } if self.is_at(plan, step) => {
                self.stop_half_way(plan, "no answer");
            }
            ListChange::GoOn { .. } | ListChange::Limit { .. } => {}
            ListChange::Finish => self.finish(),
            ListChange::Tell { client, list } => self.tell_list(client, list),
            ListChange::Empty { list } => self.empty_list(list),
        }
    }

    fn is_at(&self, plan: usize, step: u64) -> bool {
        self.operators.at_work[plan].as_ref().is_some_and(|operator| operator.step == step)
    }

    fn tale(&self) -> Option<Tale> {
        self.scenario.lists.as_ref().and_then(|lists| lists.tale)
    }

    fn is_apart(&self, list: usize) -> bool {
        self.scenario.lists.as_ref().is_some_and(|lists| lists.is_apart(list))
    }

    fn record_of(&self, node: usize) -> Option<Record> {
        let text = self.servers[self.addresses.home(node)].table.record();
        text.and_then(|text| Record::parse(text).ok())
    }

    fn plan(&self, plan: usize) -> Plan {
        self.scenario.lists.as_ref().expect("lists").plans[plan]
    }

    fn list(&self, number: usize) -> &List {
        &self.scenario.lists.as_ref().expect("lists").all[number]
    }

    fn member_list(&self, number: usize) -> MemberList {
        let list = self.list(number);
        let names = list.nodes.iter().copied().map(member_name).collect();
        MemberList::new(self.policy_of(list), names)
    }

    fn begin_to_change(&mut self, plan: usize, tries: usize) {
        if self.operators.at_work[plan].is_some() {
            return;
        }
        let Plan { from, to, .. } = self.plan(plan);
        if self.is_apart(from) && !self.operators.done.contains(&from) {
            // Nobody uses that list yet.
            let later = match self.is_calm {
                true => ListChange::Finish,
                false => ListChange::Begin { plan, tries },
            };
            return self.after(SECOND / 4, Event::Change(Change::Lists(later)));
        }
        self.outcome.figures.successions += 1;
        self.tell_change(plan, "is begun");
        self.operators.at_work[plan] = Some(Operator {
            change: Succession::new(self.member_list(from), self.member_list(to)),
            tries,
            step: 0,
            sent: self.now,
            told: Vec::new(),
        });
        self.take_step(plan);
    }

    fn tell_change(&mut self, plan: usize, what: &str) {
        let Plan { from, to, .. } = self.plan(plan);
        let (from, to) = (self.list(from), self.list(to));
        let what = format!(
            "the change from {:?} with {:?} to {:?} with {:?} {what}",
            from.nodes, from.max_ttl, to.nodes, to.max_ttl
        );
        self.tell(Happening::Fault(what));
    }

    /// Does what is next for a change.
    fn take_step(&mut self, plan: usize) {
        self.operators.step += 1;
        let number = self.operators.step;
        let Plan { from, to, .. } = self.plan(plan);
        let (old, new) = (self.list(from).nodes.clone(), self.list(to).nodes.clone());
        let nodes_of = |of| if of == Side::Old { &old } else { &new };
        let now = self.now;
        let Some(operator) = &mut self.operators.at_work[plan] else { return };
        (operator.step, operator.sent) = (number, now);
        match operator.change.step() {
            SuccessionStep::Ask(of) => {
                let nodes = nodes_of(of);
                operator.told = vec![None; nodes.len()];
                for (member, node) in nodes.iter().enumerate() {
                    self.send_of_operator(plan, member, *node, Request::Probe);
                }
            }
            SuccessionStep::Replace { of, member, expected, record } => {
                let node = nodes_of(of)[member];
                let record = record.to_string().into();
                let request = Request::ReplaceRecord { expected, record };
                self.send_of_operator(plan, member, node, request);
            }
            SuccessionStep::Done => return self.list_is_changed(plan),
            SuccessionStep::Refused { member, reason, .. } => {
                return self.stop_half_way(plan, &format!("member {member}: {reason}"));
            }
        }
        let limit = ListChange::Limit { plan, step: number };
        self.after(LIMIT, Event::Change(Change::Lists(limit)));
    }

    /// The way of what an operator sends, or of its answer; `None` if it is lost.
    fn way_of_operator(&mut self, server: usize) -> Option<Time> {
        let base = self.scenario.latency;
        let chance = &mut self.operators.chance;
        let jitter = chance.within(0..base / 2 + 1);
        let (is_lost, is_late) = (chance.within(0..300) == 0, chance.within(0..30) == 0);
        let late = chance.within(0..400 * MILLIS);
        let way = base / 2 + jitter + self.servers[server].slow_by;
        match self.is_calm {
            true => Some(way),
            false => (!is_lost).then_some(way + if is_late { late } else { 0 }),
        }
    }

    fn send_of_operator(&mut self, plan: usize, member: usize, node: usize, request: Request) {
        let Some(way) = self.way_of_operator(self.addresses.home(node)) else { return };
        let (step, request) = (self.operators.step, Arc::new(request));
        let arrive = ListChange::Arrive { plan, step, member, node, request };
        self.after(way, Event::Change(Change::Lists(arrive)));
    }

    fn asked_by_operator(
        &mut self,
        plan: usize,
        step: u64,
        member: usize,
        node: usize,
        request: Arc<Request>,
    ) {
        let home = self.addresses.home(node);
        let server = &mut self.servers[home];
        if server.is_down || server.role != Role::Primary {
            return;
        }
        if server.hangs_until > self.now {
            let until = server.hangs_until;
            let arrive = ListChange::Arrive { plan, step, member, node, request };
            return self.at(until, Event::Change(Change::Lists(arrive)));
        }
        let record = server.table.record().map(str::to_owned);
        let answer = server.apply(self.now, 0, None, None, &request);
        if let Ok(reply) = &answer
            && !matches!(*request, Request::Probe)
        {
            let reply = reply.clone();
            let (before, after) = (None, None);
            self.tell(Happening::Applied { node: home, request, reply, before, after });
            self.tell_admission(home, None, record.as_deref());
        }
        if let Some(way) = self.way_of_operator(home) {
            let answer = ListChange::Answer { plan, step, member, answer };
            self.after(way, Event::Change(Change::Lists(answer)));
        }
    }

    fn answer_operator(&mut self, plan: usize, step: u64, member: usize, answer: Answer) {
        if !self.is_at(plan, step) {
            return;
        }
        let tale = self.tale();
        let is_written = matches!(answer, Ok(Reply::Record { .. }));
        let Operators { at_work, chance, .. } = &mut self.operators;
        let Some(operator) = &mut at_work[plan] else { return };
        match answer {
            Ok(Reply::Facts(facts)) => {
                operator.told[member] = Some(*facts);
                let Some(facts) = operator.told.iter().cloned().collect::<Option<Vec<_>>>() else {
                    return;
                };
                let sent = Moment::from_nanos(operator.sent);
                let received = Moment::from_nanos(self.now);
                let told = Told { sent, received, facts: &facts };
                operator.change.told(told, || chance.nonce());
            }
            Ok(Reply::Record { replaced }) => operator.change.written(replaced),
            _ => return self.stop_half_way(plan, "garbled"),
        }
        let stops = self.scenario.lists.as_ref().map_or(0, |lists| lists.stops);
        let stops = tale.map_or(stops, |tale| if is_written { tale.stops(plan) } else { 0 });
        if !self.is_calm && chance.percent(stops) {
            return self.stop_half_way(plan, "the operator dies");
        }
        // Now and then somebody looks twice before the next step.
        let pause = match chance.index(30) {
            0 if !self.is_calm => chance.within(0..4 * SECOND),
            _ => chance.within(0..2 * MILLIS),
        };
        self.operators.step += 1;
        let step = self.operators.step;
        if let Some(operator) = &mut self.operators.at_work[plan] {
            operator.step = step;
        }
        self.after(pause, Event::Change(Change::Lists(ListChange::GoOn { plan, step })));
    }

    /// An operator gives up, and mostly begins again.
    fn stop_half_way(&mut self, plan: usize, why: &str) {
        let Some(operator) = self.operators.at_work[plan].take() else { return };
        self.tell_change(plan, &format!("stops: {why}"));
        if self.is_calm {
            return self.after(SECOND, Event::Change(Change::Lists(ListChange::Finish)));
        }
        if self.tale() == Some(Tale::Emptied) {
            let (nodes, old) = (self.list(1).nodes.clone(), self.list(0).nodes.clone());
            for node in nodes.into_iter().filter(|node| !old.contains(node)) {
                let later = self.operators.chance.within(0..SECOND);
                self.after(later, Event::Inflict(Fault::Flush { node }));
            }
        }
        if operator.tries > 1 && self.operators.chance.percent(85) {
            let most = self.tale().map_or(4 * SECOND, Tale::pause);
            let pause = self.operators.chance.within(50 * MILLIS..most);
            let begin = ListChange::Begin { plan, tries: operator.tries - 1 };
            self.after(pause, Event::Change(Change::Lists(begin)));
        }
    }

    /// Some processes are told the new list, sooner or later.
    fn list_is_changed(&mut self, plan: usize) {
        self.operators.at_work[plan] = None;
        self.outcome.figures.succeeded += 1;
        self.tell_change(plan, "is done");
        let list = self.plan(plan).to;
        self.operators.done.push(list);
        let slow = if self.tale().is_some() { SECOND } else { 5 * SECOND };
        let most = [SECOND / 4, slow][self.operators.chance.index(2)];
        let is_for_all = self.tale() == Some(Tale::Ahead);
        if is_for_all {
            self.after(6 * SECOND, Event::Change(Change::Lists(ListChange::Empty { list })));
        }
        for client in 0..self.scenario.clients {
            let later = self.operators.chance.within(0..most);
            if self.is_calm {
                self.tell_list(client, list);
            } else if self.operators.chance.percent(50) || is_for_all {
                self.after(later, Event::Change(Change::Lists(ListChange::Tell { client, list })));
            }
        }
    }

    fn empty_list(&mut self, list: usize) {
        let nodes = self.list(list).nodes.clone();
        let votes = |node: &usize| {
            self.record_of(*node).is_some_and(|record| record.state == RecordState::Admitted)
        };
        if nodes.iter().all(votes) && self.list_of.iter().all(|told| *told == list) {
            self.tell(Happening::Fault("all servers are emptied".to_owned()));
            for node in nodes {
                let home = self.addresses.home(node);
                self.servers[home].flush(self.now);
            }
        } else {
            self.after(SECOND, Event::Change(Change::Lists(ListChange::Empty { list })));
        }
    }

    /// A process is started anew with another list.
    fn tell_list(&mut self, client: usize, list: usize) {
        if self.list_of[client] == list {
            return;
        }
        self.list_of[client] = list;
        if !self.is_dead[client] {
            self.end_client(client);
            let time = self.operators.chance.within(MILLIS..SECOND / 2);
            self.after(time, Event::StartClient { client });
        }
    }

    /// After the last fault whoever is at work begins anew, if that is needed.
    pub(super) fn finish_changes(&mut self) {
        if self.scenario.lists.is_some() {
            self.operators.at_work.iter_mut().for_each(|operator| *operator = None);
            // Clocks were put right just now. Who holds a lock sees that within a second or so, and who
            // starts before that cannot know.
            self.after(4 * SECOND, Event::Change(Change::Lists(ListChange::Finish)));
        }
    }

    /// Everybody is told the list that its nodes serve. If there is none, what was begun is finished.
    fn finish(&mut self) {
        let lists = self.scenario.lists.as_ref().map_or(0, |lists| lists.all.len());
        if let Some(list) = (0..lists).rev().find(|list| self.is_served(*list)) {
            (0..self.scenario.clients).for_each(|client| self.tell_list(client, list));
        } else if self.now < self.scenario.trouble + 25 * SECOND {
            let plan = (self.now / SECOND) as usize % self.operators.at_work.len();
            self.begin_to_change(plan, 1);
        } else {
            self.outcome.figures.no_list += 1;
            self.tell(Happening::NoList);
        }
    }

    /// Whether all its nodes serve a list, or wait to. One that has no record will be given one.
    /// One that shares too few nodes with the first list looks served before a change to it.
    fn is_served(&self, list: usize) -> bool {
        if self.is_apart(list) && !self.operators.done.contains(&list) {
            return false;
        }
        let policy = self.policy_of(self.list(list));
        let record_of = |node: &usize| self.record_of(*node);
        let mut records = self.list(list).nodes.iter().filter_map(record_of).peekable();
        let is_served = |it: Record| policy.is_list_of(&it) && it.state != RecordState::Barred;
        records.peek().is_some() && records.all(is_served)
    }
}
