//! The world: servers, processes, the network between them, and what is done to all of them, in one
//! queue of events ordered by true time.

mod callers;
mod clocks;
mod lists;
mod outcome;
mod plots;
mod servers;
mod setting_up;
mod traffic;
mod trouble;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Duration;

use leasehold_core::{AdmissionPolicy, Answer, Drift, Fingerprint, Init, LockName, Moment, Ttl};
use leasehold_judge::Chance;

use self::callers::Caller;
use self::lists::Operators;
pub use self::outcome::{Figures, Outcome};
use self::servers::{Change, Start};
use crate::addresses::Addresses;
use crate::client::{Act, Client, Habits, Question, Timer, Told, Wish};
use crate::clock::{Clock, MILLIS, SECOND, Time};
use crate::faults::{Fault, NODE_RATE};
use crate::history::{Given, Happening, Invariant, Violation};
use crate::invariants::{self, Terms};
use crate::lists::List;
use crate::network::Links;
use crate::scenario::{Assumption, MAX_CLOCK_SKEW, MAX_TTL, RIGHT_WITHIN, Scenario};
use crate::server::{Persistence, Server};

/// When the world began, by clocks that are right.
const EPOCH: u64 = 1_800_000_000 * SECOND;

/// How long every second process holds a lock at most where leases are handed over.
const BRIEFLY: Duration = Duration::from_millis(10);

/// What is going to happen.
#[derive(Debug)]
enum Event {
    Arrive(Message),
    Answer { on: Connection, ask: u64, answer: Answer, given: Option<Given> },
    Replaced { on: Connection },
    Wake { client: usize, life: u64, timer: Timer },
    Connect { client: usize, life: u64, node: usize },
    Errand { process: usize, life: u64, caller: usize, request: u64, wish: Wish },
    Told { caller: usize, request: u64, told: Told },
    Caller { caller: usize, ticket: u64 },
    Disconnect { on: Connection },
    NextFault,
    Inflict(Fault),
    Change(Change),
    StartServer { server: usize, start: Start },
    StartClient { client: usize },
    FaultsOver,
    Rest,
}

/// One connection of one life of a process to a member.
#[derive(Debug, Clone, Copy)]
struct Connection {
    client: usize,
    life: u64,
    node: usize,
    generation: u64,
}

/// A request on its way.
#[derive(Debug)]
struct Message {
    on: Connection,
    server: usize,
    stops: u64,
    ask: u64,
    question: Question,
    is_late: bool,
}

struct Scheduled {
    at: Time,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// One run.
pub struct World {
    scenario: Scenario,
    now: Time,
    queue: BinaryHeap<Reverse<Scheduled>>,
    number: u64,
    servers: Vec<Server>,
    clients: Vec<Client>,
    callers: Vec<Caller>,
    paused_until: Vec<Time>,
    frozen_until: Vec<Time>,
    is_dead: Vec<bool>,
    /// Which list each process is told, of those that there are.
    list_of: Vec<usize>,
    /// The addresses that each process knows its members by.
    known: Vec<Vec<usize>>,
    operators: Operators,
    links: Links,
    addresses: Addresses,
    locks: Vec<LockName>,
    invariants: Vec<Box<dyn Invariant>>,
    /// The person who is setting the cluster up.
    setting_up: Option<Init>,
    /// Members of which a server had a vote.
    have_voted: HashSet<usize>,
    chance: Chance,
    acts: Vec<Act>,
    tells: bool,
    is_calm: bool,
    outcome: Outcome,
}

impl World {
    /// The world of a scenario; `tells` keeps the timeline.
    pub fn new(scenario: Scenario, tells: bool) -> Self {
        let mut chance = Chance::new(scenario.seed ^ 0x5eed);
        let servers = (0..scenario.addresses() + scenario.spares)
            .map(|number| {
                let offset = chance.around(RIGHT_WITHIN) * MILLIS as i64;
                let rate = chance.around(node_rate(&scenario));
                let clock = Clock::new(EPOCH.saturating_add_signed(offset), rate);
                let of_member = scenario.persistence.get(number).copied();
                let persistence = of_member.unwrap_or(Persistence::EverySecond);
                Server::new(number, clock, persistence, scenario.replicates)
            })
            .collect();
        let locks: Vec<_> = (0..scenario.locks)
            .map(|lock| LockName::new(format!("lock{lock}")).expect("a name"))
            .collect();
        // Of several lists, that which promises least.
        let sizes = scenario.lists.iter().flat_map(|lists| &lists.all).map(|list| list.nodes.len());
        let smallest = sizes.clone().chain([scenario.nodes]).min().unwrap_or_default();
        let largest = sizes.chain([scenario.nodes]).max().unwrap_or_default();
        let quorum = smallest / 2 + 1;
        // One that was told another longest lease is served by nobody.
        let odd = usize::from(scenario.odd_max_ttl.is_some());
        let holders = (scenario.clients - odd) * scenario.holders;
        // A single node that forgets has nobody to ask, and is not made to.
        let shortest = scenario.lists.iter().flat_map(|it| &it.all).map(|list| list.max_ttl).min();
        let memory = shortest.unwrap_or(MAX_TTL).as_nanos() as Time;
        let memory = if smallest > 1 { memory } else { 0 };
        let mut world = Self {
            now: 0,
            queue: BinaryHeap::new(),
            number: 0,
            servers,
            clients: Vec::new(),
            callers: Vec::new(),
            paused_until: vec![0; scenario.clients],
            frozen_until: vec![0; scenario.clients],
            is_dead: vec![false; scenario.clients],
            list_of: vec![0; scenario.clients],
            known: vec![Vec::new(); scenario.clients],
            operators: Operators::new(&scenario),
            links: Links::new(scenario.clients, scenario.addresses()),
            addresses: Addresses::new(scenario.addresses()),
            locks,
            invariants: invariants::all(Terms {
                nodes: smallest,
                quorum,
                others: largest - largest / 2,
                clients: scenario.clients,
                holders,
                memory,
                max_skew: MAX_CLOCK_SKEW.as_nanos() as Time,
            }),
            setting_up: None,
            have_voted: HashSet::new(),
            chance,
            acts: Vec::new(),
            tells,
            is_calm: false,
            outcome: Outcome::default(),
            scenario,
        };
        for client in 0..world.scenario.clients {
            let fresh = world.new_client(client, 0);
            world.clients.push(fresh);
            world.start_sooner_or_later(client);
        }
        world.start_callers();
        world.set_clocks_wrong();
        world.plan_changes();
        if world.scenario.inits > 0 {
            let pause = world.chance.within(0..2 * SECOND);
            world.after(pause, Event::Inflict(Fault::Init));
        }
        world.after(SECOND, Event::NextFault);
        world.after(world.scenario.trouble, Event::FaultsOver);
        world.after(world.scenario.trouble + world.scenario.patience, Event::Rest);
        world
    }

    fn new_client(&mut self, number: usize, life: u64) -> Client {
        let scenario = &self.scenario;
        let mut chance = Chance::new(self.chance.bits());
        let rate = chance.around(client_rate(scenario));
        // Wall clocks of clients may be wrong by anything: nothing rests on them.
        let wrong = [0, 0, 3_600_000, 86_400_000][chance.index(4)];
        let offset = chance.around(wrong) * MILLIS as i64;
        let list = self.list_told(number);
        let members: Vec<String> = list.nodes.iter().copied().map(member_name).collect();
        let mut policy = self.policy_of(&list);
        let odd = scenario.odd_max_ttl.filter(|_| scenario.odd_client() == Some(number));
        policy.max_ttl = odd.or(policy.max_ttl);
        let ttl = scenario.ttl.min(odd.unwrap_or(scenario.ttl)).min(list.max_ttl);
        let ttl = Ttl::new(ttl).expect("long enough");
        let mut habits = Habits {
            ttl,
            holds_on: scenario.is_day_of_ntp,
            limit: Duration::from_millis(50).min(ttl.get() / 20),
            think: Duration::from_millis([20, 200, 2000][chance.index(3)]),
            work: match chance.index(5) {
                // Longer than a quarantine: while it lasts, nodes forget and come back.
                0 => Duration::from_secs(60),
                other => ttl.get().mul_f64([0.2, 0.2, 1.0, 4.0][other - 1]),
            },
            extends: !chance.percent(20),
            max_hold: chance.percent(20).then(|| ttl.get() * 2),
            drops: [0, 0, 10][chance.index(3)],
            fence_retention: Duration::from_secs([8, 3600][chance.index(2)]),
            handovers: scenario.handovers,
            broken: scenario.broken,
        };
        if scenario.handovers > 0 && number % 2 == 1 {
            // So briefly that a lease is handed on as often as it may.
            habits.work = habits.work.min(BRIEFLY);
        }
        if scenario.is_day_of_ntp {
            // Longer than the day, by any clock.
            let work = Duration::from_nanos(scenario.trouble * 2);
            habits = Habits { work, extends: true, max_hold: None, drops: 0, ..habits };
        }
        let wanted: Vec<_> = (0..scenario.holders)
            .map(|_| self.locks[chance.index(self.locks.len())].clone())
            .collect();
        self.known[number] = list.nodes;
        Client::new(
            number,
            life,
            Clock::new(chance.within(0..1000 * SECOND), rate),
            Clock::new(EPOCH.saturating_add_signed(offset), 0),
            policy,
            &members,
            &wanted,
            habits,
            chance,
        )
    }

    /// What a process with the first member list expects of its nodes.
    fn policy(&self) -> AdmissionPolicy {
        self.policy_of(&self.first_list())
    }

    /// What a process with this member list expects of its nodes.
    fn policy_of(&self, list: &List) -> AdmissionPolicy {
        let members: Vec<String> = list.nodes.iter().copied().map(member_name).collect();
        let mixes_lists = self.scenario.breaks(Assumption::Fingerprint);
        let cluster = match mixes_lists {
            true => Fingerprint::of_members(["the same for all"]),
            false if self.scenario.lists.is_some() && members.len() == 1 => Fingerprint::of_one(),
            false => Fingerprint::of_members(members.iter().map(String::as_str)),
        };
        let is_many = match self.scenario.lists {
            Some(_) => members.len() > 1,
            None => self.scenario.nodes > 1,
        };
        AdmissionPolicy {
            cluster,
            nodes: if mixes_lists { 0 } else { members.len() },
            max_ttl: Some(list.max_ttl),
            max_ttl_default: list.max_ttl,
            drift: Drift::DEFAULT,
            max_clock_skew: MAX_CLOCK_SKEW,
            quarantine: is_many && !self.scenario.breaks(Assumption::Quarantine),
            strict: false,
        }
    }

    /// The list as it is at the beginning.
    fn first_list(&self) -> List {
        List { nodes: (0..self.scenario.nodes).collect(), max_ttl: MAX_TTL }
    }

    /// The list that a process is told. With two member lists in use against all rules, the odd
    /// clients know only some of the nodes.
    fn list_told(&self, client: usize) -> List {
        if let Some(lists) = &self.scenario.lists {
            return lists.all[self.list_of[client]].clone();
        }
        let mut list = self.first_list();
        if self.scenario.breaks(Assumption::Fingerprint) && client % 2 == 1 {
            list.nodes.truncate((self.scenario.nodes / 2).max(1));
        }
        list
    }

    /// The place of an address in the list that a process is told.
    fn member_of(&self, client: usize, node: usize) -> Option<usize> {
        self.known[client].iter().position(|known| *known == node)
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Time, event: Event) {
        self.number += 1;
        self.queue.push(Reverse(Scheduled { at, number: self.number, event }));
    }

    /// Runs to the end, or to the first violation while all assumptions hold.
    pub fn run(mut self) -> Outcome {
        while let Some(Reverse(Scheduled { at, event, .. })) = self.queue.pop() {
            self.now = at;
            self.outcome.figures.events += 1;
            if matches!(event, Event::Rest) {
                self.rest();
                break;
            }
            self.happen(event);
            // Where an assumption is broken, the others' promises are worth watching on.
            if !self.outcome.violations.is_empty() && self.scenario.broken.is_none() {
                break;
            }
        }
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(message) => self.arrive(message),
            Event::Answer { on, ask, answer, given } => {
                if !self.stands(on) {
                    return;
                }
                if let Some(later) = self.is_paused(on.client) {
                    return self.at(later, Event::Answer { on, ask, answer, given });
                }
                self.with(on.client, |this, now, acts| {
                    this.answered(now, ask, answer, given, acts);
                });
            }
            Event::Replaced { on } => {
                if !self.stands(on) {
                    return;
                }
                if let Some(later) = self.is_paused(on.client) {
                    return self.at(later, Event::Replaced { on });
                }
                if let Some(member) = self.member_of(on.client, on.node) {
                    self.with(on.client, |this, now, acts| this.replaced(now, member, acts));
                }
            }
            Event::Wake { client, life, timer } => {
                if !self.is_current(client, life) {
                    return;
                }
                if let Some(later) = self.is_paused(client) {
                    return self.at(later, Event::Wake { client, life, timer });
                }
                self.with(client, |this, now, acts| this.woken(now, timer, acts));
            }
            Event::Connect { client, life, node } => self.connect(client, life, node),
            Event::Errand { process, life, caller, request, wish } => {
                self.errand((process, life), (caller, request), wish);
            }
            Event::Told { caller, request, told } => self.told(caller, request, told),
            Event::Caller { caller, ticket } => self.caller_wakes(caller, ticket),
            Event::Disconnect { on } if self.stands(on) => self.cut(on.client, on.node),
            Event::Disconnect { .. } => {}
            Event::NextFault => self.next_fault(),
            Event::Inflict(_) if self.is_calm => {}
            Event::Inflict(fault) => self.inflict(fault),
            Event::Change(change) => self.change(change),
            Event::StartServer { server, start } => self.start_server(server, start),
            Event::StartClient { client } => {
                let life = self.clients[client].life + 1;
                let is_last = self.clients[client].is_last_round;
                self.clients[client] = self.new_client(client, life);
                self.clients[client].is_last_round = is_last;
                self.is_dead[client] = false;
                self.start_client(client);
            }
            Event::FaultsOver => self.calm_down(),
            Event::Rest => unreachable!("ends the run"),
        }
    }

    fn is_current(&self, client: usize, life: u64) -> bool {
        !self.is_dead[client] && self.clients[client].life == life
    }

    /// Whether both ends of a connection still know of it.
    fn stands(&self, on: Connection) -> bool {
        self.is_current(on.client, on.life) && self.links.is(on.client, on.node, on.generation)
    }

    /// Until when a process stands still, if it does.
    fn is_paused(&self, client: usize) -> Option<Time> {
        Some(self.paused_until[client]).filter(|until| *until > self.now)
    }

    /// Lets a process do something, and does what it wants.
    fn with(&mut self, client: usize, act: impl FnOnce(&mut Client, Time, &mut Vec<Act>)) {
        let mut acts = std::mem::take(&mut self.acts);
        act(&mut self.clients[client], self.now, &mut acts);
        for act in acts.drain(..) {
            match act {
                Act::Send { member, ask, question } => {
                    self.send(client, self.known[client][member], ask, question);
                }
                Act::Wake { at, timer } => {
                    let this = &self.clients[client];
                    let life = this.life;
                    let at = this.clock.when(Moment::as_nanos(at), self.now);
                    self.at(at, Event::Wake { client, life, timer });
                }
                Act::Answer { caller, request, told } => self.answer_caller(caller, request, told),
                Act::Tell(happening) => self.tell(happening),
            }
        }
        self.acts = acts;
    }

    fn tell(&mut self, happening: Happening) {
        let figures = &mut self.outcome.figures;
        match &happening {
            Happening::Acquired { who, value, reserved, .. } => {
                figures.acquired += 1;
                figures.handed_over += u64::from(who != value);
                figures.reserved += u64::from(*reserved);
            }
            Happening::Extended { refreshed, .. } => {
                figures.extended += 1;
                figures.refreshed += u64::from(*refreshed);
            }
            Happening::Lost { .. } => figures.lost += 1,
            Happening::Stepped { .. } => figures.clocks += 1,
            Happening::StoodStill { .. } => figures.frozen += 1,
            Happening::Fault(_) | Happening::Paused { .. } | Happening::Crashed { .. } => {
                figures.faults += 1;
            }
            _ => {}
        }
        for invariant in &mut self.invariants {
            let promise = invariant.promise();
            if let Err(story) = invariant.watch(self.now, &happening)
                && self.outcome.violations.iter().all(|(_, known)| known.promise != promise)
            {
                self.outcome.violations.push((self.now, Violation { promise, story }));
            }
        }
        if self.tells {
            self.outcome.timeline.push((self.now, happening));
        }
    }
}

/// The name of a member.
fn member_name(member: usize) -> String {
    format!("node{member}")
}

/// How many millionths a node's clock may be too fast or too slow. Together with a client's it
/// stays within the allowance of one per cent, unless that is what is broken.
fn node_rate(scenario: &Scenario) -> u64 {
    if scenario.breaks(Assumption::Drift) { 60_000 } else { NODE_RATE }
}

fn client_rate(scenario: &Scenario) -> u64 {
    if scenario.breaks(Assumption::Drift) { 60_000 } else { 4_000 }
}
