//! What goes wrong and when, drawn from the seed before anything starts.

use std::time::Duration;

use leasehold_judge::Chance;

use crate::fault::{Fault, LinkFault, NodeFault, Planned, RouteFault, Side};

/// Which servers are tortured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// Redis servers behind proxies
    Redis,
    /// Valkey servers behind proxies
    Valkey,
    /// One SQLite file
    Sqlite,
}

impl Backend {
    /// As it is said on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
            Self::Sqlite => "sqlite",
        }
    }
}

/// What a server finds again after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    Nothing,
    /// Its append-only file, synced every second.
    EverySecond,
    /// Its append-only file, synced before each answer.
    Always,
}

/// The run that a schedule is for.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// The servers.
    pub backend: Backend,
    /// Faults are made for this long.
    pub time: Duration,
    /// How many nodes.
    pub nodes: usize,
    /// How many holder processes.
    pub holders: usize,
    /// How many locks.
    pub locks: usize,
    /// Whether assumptions of the protocol are broken.
    pub beyond: bool,
    /// Whether most holders are callers of two lock servers, and these are hurt as well.
    pub through_servers: bool,
    /// How many busy loops run beside it for half of the time.
    pub hogs: usize,
}

/// How many lock servers there are.
pub const INSTANCES: usize = 2;

/// The longest lease of the cluster: short, so that quarantines fit into a run.
pub const MAX_TTL: Duration = Duration::from_secs(2);

/// How far clocks may be apart. Twice this is added to each quarantine.
pub const MAX_SKEW: Duration = Duration::from_millis(200);

/// How long a node that forgot waits, about.
const QUARANTINE: Duration = Duration::from_millis(2_500);

/// How far off a clock may be slewed. With the smallest steps it is still within the skew.
pub const MOST_OFF: Duration = Duration::from_millis(100);

/// The largest step, in milliseconds, that any number of clocks may make by the same amount: together
/// with [`MOST_OFF`] it is within the skew.
const SMALL_STEP: u64 = 80;

/// A larger step takes a clock of its own place in time: members are this far apart, more than the
/// skew and what a slow answer blurs, so that no majority agrees upon a wrong time. Steps of the
/// second kind begin above all those of the first.
const APART: [u64; 2] = [450, 1_000];

/// Where faults of the same place must not meet: two of them would undo each other.
#[derive(Debug, Clone, Copy)]
enum Place {
    Server,
    Link,
    /// There is one spare server.
    Spare,
    Clock,
    Instance,
}

struct Draw {
    plan: Plan,
    chance: Chance,
    /// Until when each node is hurt already, by place.
    busy: [Vec<Duration>; 5],
}

/// How often a fault is drawn until it is one of those that are wanted. The rarest kind comes once in
/// a hundred draws.
const DRAWS: usize = 500;

/// The schedule of a run, in the order of its beginnings. If `only` names kinds of faults, there are
/// no others.
pub fn schedule(plan: Plan, only: &[String]) -> Vec<Planned> {
    let nodes = plan.nodes;
    let busy = [nodes, nodes, 1, nodes, INSTANCES].map(|places| vec![Duration::ZERO; places]);
    let mut draw = Draw { plan, chance: Chance::new(plan.seed), busy };
    let mut planned = Vec::new();
    planned.extend(draw.wrong_from_the_start().filter(|planned| is_wanted(&planned.fault, only)));
    // The first moments belong to the holders: a lock must be held before it can be taken away.
    let mut at = Duration::from_millis(700);
    while at < plan.time {
        planned.extend(draw.fault(at, only));
        at += draw.chance.millis(120..900);
    }
    planned.retain(|fault| fault.from < plan.time);
    for fault in &mut planned {
        fault.to = fault.to.min(plan.time);
    }
    planned.sort_by_key(|fault| fault.from);
    planned
}

/// Whether a fault is one of those that are to be made.
fn is_wanted(fault: &Fault, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|kind| fault.kind().contains(kind.as_str()))
}

impl Draw {
    /// A fault, and what comes in its wake.
    fn fault(&mut self, at: Duration, only: &[String]) -> Vec<Planned> {
        for _ in 0..DRAWS {
            let busy = self.busy.clone();
            let mut drawn: Vec<_> = self.any(at).into_iter().collect();
            if let Some(first) = drawn.first().cloned() {
                drawn.extend(self.clock_after(&first));
            }
            for step in drawn.clone() {
                drawn.extend(self.around_step(&step));
            }
            drawn.retain(|planned| is_wanted(&planned.fault, only));
            if !drawn.is_empty() || only.is_empty() {
                return drawn;
            }
            // What is not done keeps no node busy.
            self.busy = busy;
        }
        Vec::new()
    }

    fn any(&mut self, at: Duration) -> Option<Planned> {
        if self.plan.through_servers && self.chance.percent(15) {
            return self.instance(at);
        }
        if self.plan.backend == Backend::Sqlite {
            return match self.chance.within(0..100) {
                0..73 => Some(self.holder(at)),
                _ => self.grab(at),
            };
        }
        match self.chance.within(0..100) {
            0..30 => self.server(at),
            30..38 => self.clock(at),
            38..55 => self.link(at),
            55..59 => self.route(at),
            59..63 => self.person(at),
            _ => Some(self.holder(at)),
        }
    }

    /// Whether clocks go wrong in ways that Leasehold promises to survive. Fences of a single server
    /// that forgets are kept in order by its clock alone, which must not go back.
    fn has_clock_faults(&self) -> bool {
        self.plan.backend != Backend::Sqlite && !self.plan.beyond && self.plan.nodes > 1
    }

    /// In every other run some clocks of a minority are wrong before anybody comes.
    fn wrong_from_the_start(&mut self) -> Option<Planned> {
        let minority = (self.plan.nodes - 1) / 2;
        if !self.has_clock_faults() || minority == 0 || self.chance.percent(50) {
            return None;
        }
        let kind = self.step();
        let (from, to) = (Duration::ZERO, self.chance.millis(1_500..9_000));
        let count = 1 + self.chance.index(minority);
        let nodes = self.free(Place::Clock, count, from, to)?;
        Some(Planned { from, to, fault: Fault::Node { nodes, kind } })
    }

    /// A clock fault of its own.
    fn clock(&mut self, from: Duration) -> Option<Planned> {
        if !self.has_clock_faults() {
            return None;
        }
        if self.chance.percent(25) {
            let ppm = self.chance.within(1_000..5_000) as i64;
            let kind =
                NodeFault::ClockSlew { ppm: if self.chance.percent(50) { ppm } else { -ppm } };
            let to = from + self.chance.millis(1_000..12_000);
            let count = self.count();
            let nodes = self.free(Place::Clock, count, from, to)?;
            return Some(Planned { from, to, fault: Fault::Node { nodes, kind } });
        }
        let kind = self.step();
        // One that ends a lease early needs another that never had it, or ended it as well.
        let majority = self.plan.nodes / 2 + 1;
        let count = if self.chance.percent(25) { majority } else { self.count() };
        // While a majority is off nobody gets a lock, which tells little.
        let is_majority = count > self.plan.nodes / 2;
        let lasts = self.chance.millis(if is_majority { 100..1_500 } else { 100..6_000 });
        let nodes = self.free(Place::Clock, count, from, from + lasts)?;
        Some(Planned { from, to: from + lasts, fault: Fault::Node { nodes, kind } })
    }

    /// A step: some milliseconds, about a second, or up to ten minutes, ahead or behind.
    fn step(&mut self) -> NodeFault {
        let nodes = self.plan.nodes as u64;
        let (size, apart) = match self.chance.within(0..100) {
            0..30 => (self.chance.within(3..SMALL_STEP), 0),
            30..55 => (APART[0], APART[0]),
            kind => {
                let most = if kind < 80 { 10 } else { 600 };
                let turns = self.chance.within(1..(most / nodes).max(2));
                (turns * nodes * APART[1] + 500, APART[1])
            }
        };
        let millis = if self.chance.percent(60) { size as i64 } else { -(size as i64) };
        NodeFault::ClockStep { millis, apart }
    }

    /// Clocks of servers that lost their memory: they are stepped while those wait, or the servers
    /// come back with clocks that are behind and are put right while they wait.
    fn clock_after(&mut self, first: &Planned) -> Option<Planned> {
        let Fault::Node { nodes, .. } = &first.fault else { return None };
        if !self.has_clock_faults() || !first.fault.forgets() || self.chance.percent(50) {
            return None;
        }
        let waits = QUARANTINE.as_millis() as u64;
        let (from, to, kind) = if self.chance.percent(50) {
            let kind = match self.step() {
                NodeFault::ClockStep { millis, apart } if millis > 0 => {
                    NodeFault::ClockStep { millis: -millis, apart }
                }
                kind => kind,
            };
            // While leases live that it forgot.
            let lasts = self.chance.millis(50..MAX_TTL.as_millis() as u64);
            (first.from + Duration::from_millis(1), first.to + lasts, kind)
        } else {
            let from = first.to + self.chance.millis(50..waits);
            (from, from + self.chance.millis(100..waits), self.step())
        };
        let busy = &mut self.busy[Place::Clock as usize];
        if nodes.iter().any(|node| busy[*node] > from) {
            return None;
        }
        nodes.iter().for_each(|node| busy[*node] = to);
        Some(Planned { from, to, fault: Fault::Node { nodes: nodes.clone(), kind } })
    }

    /// Holders that start right after a clock went ahead, and one that stands still meanwhile and
    /// cannot notice it.
    fn around_step(&mut self, step: &Planned) -> Vec<Planned> {
        let Fault::Node { kind: NodeFault::ClockStep { millis, .. }, .. } = step.fault else {
            return Vec::new();
        };
        let ahead = if millis > 0 { step.from } else { step.to };
        let mut drawn = Vec::new();
        if self.chance.percent(60) {
            for _ in 0..self.chance.within(1..4) {
                let from = ahead.saturating_sub(self.chance.millis(10..60));
                let to = ahead + self.chance.millis(5..80);
                let holder = self.chance.index(self.plan.holders);
                drawn.push(Planned { from, to, fault: Fault::Late { holder } });
            }
        }
        if self.chance.percent(30) {
            let from = ahead.saturating_sub(self.chance.millis(10..100));
            let to = ahead + self.chance.millis(200..1_500);
            let lock = self.chance.index(self.plan.locks);
            let holder = self.chance.index(self.plan.holders);
            let fault = Fault::Pause { lock, holder, missed: false };
            drawn.push(Planned { from, to, fault });
        }
        drawn
    }

    /// Somebody who does what the others do not.
    fn person(&mut self, from: Duration) -> Option<Planned> {
        if self.plan.beyond {
            return None;
        }
        if self.chance.percent(50) {
            let max_ttl = *self.chance.pick(&[500, 1_000, 4_000, 30_000]);
            let to = from + self.chance.millis(500..2_000);
            return Some(Planned { from, to, fault: Fault::Stranger { max_ttl } });
        }
        // No server may lose its memory meanwhile, because the last one that has some tells whether
        // the word of that person is wrong.
        let to = from + Duration::from_millis(1_500);
        let are_free = self.busy[Place::Server as usize].iter().all(|busy| *busy <= from);
        if !are_free {
            return None;
        }
        self.free(Place::Server, self.plan.nodes, from, to)?;
        Some(Planned { from, to, fault: Fault::Trust })
    }

    fn server(&mut self, from: Duration) -> Option<Planned> {
        use NodeFault as N;
        let Plan { nodes, beyond, .. } = self.plan;
        let kind = if beyond {
            let jump = if self.chance.percent(75) { 1 } else { -1 };
            let jump = N::ClockJump { millis: jump * self.chance.within(500..4000) as i64 };
            let kinds = [N::Stop, N::KillClients, N::Full, N::Sleep, N::Evict, N::Evict];
            if self.chance.percent(35) { jump } else { *self.chance.pick(&kinds) }
        } else {
            match self.chance.within(0..100) {
                0..15 => N::Kill,
                15..24 => N::Empty,
                24..33 => N::Stop,
                33..43 => N::Flush,
                43..48 => N::KillClients,
                48..52 => N::ForgetScripts,
                52..61 => N::Replica { of: self.chance.index(nodes) },
                61..67 => N::Full,
                67..73 => N::Sleep,
                73..79 if nodes > 1 => N::ClockBack { millis: self.chance.within(20..100) },
                79..87 => return self.failover(from),
                87..93 => return self.others_files(from),
                _ => N::OldFiles,
            }
        };
        // Most often a minority, so that work goes on; but a broken assumption must meet a majority
        // to show.
        let count = match kind {
            N::ClockJump { .. } | N::Evict => nodes / 2 + 1,
            // What a majority forgot at once is what quarantines are for.
            N::Empty | N::Flush if self.chance.percent(35) => nodes / 2 + 1,
            _ => self.count(),
        };
        let lasts = match kind {
            N::Flush | N::KillClients | N::ForgetScripts => Duration::ZERO,
            N::ClockBack { .. } => Duration::ZERO,
            N::Kill if self.chance.percent(40) => Duration::ZERO,
            N::Kill | N::Empty => self.chance.millis(0..1200),
            N::Sleep => self.chance.millis(50..1500),
            // Meanwhile nothing can be written there; the next holder comes right after.
            N::Evict => self.chance.millis(20..150),
            _ => self.chance.millis(100..2500),
        };
        let free = self.free(Place::Server, count, from, from + lasts)?;
        let nodes = match kind {
            N::Replica { of } => free.into_iter().filter(|node| *node != of).collect(),
            _ => free,
        };
        if nodes.is_empty() {
            return None;
        }
        Some(Planned { from, to: from + lasts, fault: Fault::Node { nodes, kind } })
    }

    fn failover(&mut self, from: Duration) -> Option<Planned> {
        let kind = NodeFault::Failover { moves: self.chance.percent(40) };
        let to = from + self.chance.millis(300..2500);
        let nodes = self.free(Place::Server, 1, from, to)?;
        self.free(Place::Spare, 1, from, to)?;
        Some(Planned { from, to, fault: Fault::Node { nodes, kind } })
    }

    fn others_files(&mut self, from: Duration) -> Option<Planned> {
        let to = from + self.chance.millis(0..1200);
        let pair = self.free(Place::Server, 2, from, to)?;
        let [node, of] = pair[..] else { return None };
        let (node, of) = if self.chance.percent(50) { (node, of) } else { (of, node) };
        let fault = Fault::Node { nodes: vec![node], kind: NodeFault::OthersFiles { of } };
        Some(Planned { from, to, fault })
    }

    fn route(&mut self, from: Duration) -> Option<Planned> {
        if self.plan.beyond {
            // The spare server has no memory, and no node forgets in such a run.
            return None;
        }
        let turns = self.plan.nodes == 1 || self.chance.percent(40);
        // Shorter than a quarantine, where the other server would vote after it.
        let to = from + self.chance.millis(if turns { 300..1500 } else { 300..4000 });
        let node = self.free(Place::Link, 1, from, to)?[0];
        let kind = if turns {
            self.free(Place::Spare, 1, from, to)?;
            RouteFault::Turns
        } else {
            let other = (node + 1 + self.chance.index(self.plan.nodes - 1)) % self.plan.nodes;
            RouteFault::Move { to: other }
        };
        Some(Planned { from, to, fault: Fault::Route { node, kind } })
    }

    fn link(&mut self, from: Duration) -> Option<Planned> {
        use LinkFault as L;
        let kind = match self.chance.within(0..100) {
            0..20 => L::Delay { millis: self.chance.within(5..250) },
            20..30 => L::Stall,
            30..45 => L::BlackHole,
            45..55 => L::HalfOpen,
            55..68 => L::LoseReplies,
            68..73 => L::LoseRequests,
            73..82 => L::Refuse,
            82..92 => L::Cut,
            _ => L::Drip,
        };
        let side = *self.chance.pick(&[Side::All, Side::Half, Side::OtherHalf]);
        let lasts = self.chance.millis(100..2500);
        let count = self.count();
        let nodes = self.free(Place::Link, count, from, from + lasts)?;
        Some(Planned { from, to: from + lasts, fault: Fault::Link { nodes, side, kind } })
    }

    fn holder(&mut self, from: Duration) -> Planned {
        let (lock, holder) =
            (self.chance.index(self.plan.locks), self.chance.index(self.plan.holders));
        if self.chance.percent(20) {
            let to = from + self.chance.millis(0..500);
            return Planned { from, to, fault: Fault::Crash { lock, holder } };
        }
        let missed = self.has_clock_faults() && self.chance.percent(25);
        // Most are stopped for longer than any lease lasts.
        let most = MAX_TTL.as_millis() as u64;
        let long = self.chance.percent(80);
        let lasts = self.chance.millis(if long { most..2 * most } else { 50..most });
        Planned { from, to: from + lasts, fault: Fault::Pause { lock, holder, missed } }
    }

    /// At times both lock servers are hurt at once.
    fn instance(&mut self, from: Duration) -> Option<Planned> {
        let killed = self.chance.percent(50);
        let to = from + self.chance.millis(if killed { 0..1000 } else { 100..3000 });
        let instance = self.free(Place::Instance, 1, from, to)?[0];
        Some(Planned { from, to, fault: Fault::Instance { instance, killed } })
    }

    fn grab(&mut self, from: Duration) -> Option<Planned> {
        let to = from + self.chance.millis(20..1500);
        self.free(Place::Server, 1, from, to)?;
        Some(Planned { from, to, fault: Fault::Grab })
    }

    fn count(&mut self) -> usize {
        let most = self.plan.nodes;
        match self.chance.within(0..100) {
            0..75 => 1,
            75..90 => 2.min(most),
            90..97 => (most / 2 + 1).min(most),
            _ => most,
        }
    }

    /// Some nodes that nothing is done to at that time, or none if there are too few.
    fn free(
        &mut self,
        at: Place,
        count: usize,
        from: Duration,
        to: Duration,
    ) -> Option<Vec<usize>> {
        let busy = &mut self.busy[at as usize];
        let mut free: Vec<usize> = (0..busy.len()).filter(|node| busy[*node] <= from).collect();
        while free.len() > count {
            free.remove(self.chance.index(free.len()));
        }
        // A server that starts takes a moment.
        free.iter().for_each(|node| busy[*node] = to + Duration::from_millis(300));
        (!free.is_empty()).then_some(free)
    }
}

/// What a node keeps on disk: mixed, but all of it where nothing may be forgotten.
pub fn persistence(plan: &Plan, node: usize) -> Persistence {
    use Persistence as P;
    match plan.beyond {
        true => P::Always,
        false => [P::Nothing, P::EverySecond, P::Always][(plan.seed as usize + node) % 3],
    }
}

/// Whether a proxy that pools connections stands before a node and hides its restarts: before a
/// minority of them, in every other run.
pub fn is_pooled(plan: &Plan, node: usize) -> bool {
    plan.seed % 2 == 1 && node % 3 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64, backend: Backend, beyond: bool) -> Plan {
        let time = Duration::from_secs(600);
        let through_servers = false;
        let (nodes, holders, locks, hogs) = (5, 16, 3, 0);
        Plan { seed, backend, time, nodes, holders, locks, beyond, through_servers, hogs }
    }

    #[test]
    fn a_seed_makes_the_same_schedule_again_and_another_seed_another() {
        let of = |seed| schedule(plan(seed, Backend::Redis, false), &[]);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn every_kind_of_fault_comes_within_ten_minutes() {
        let kinds = |backend, beyond| {
            let all = schedule(plan(1, backend, beyond), &[]);
            let set: std::collections::BTreeSet<_> =
                all.iter().map(|planned| planned.fault.kind()).collect();
            set.len()
        };
        assert_eq!(kinds(Backend::Redis, false), 13 + 2 + 9 + 2 + 4 + 2);
        assert_eq!(kinds(Backend::Redis, true), 6 + 9 + 2);
        assert_eq!(kinds(Backend::Sqlite, false), 3);
        let through = Plan { through_servers: true, ..plan(1, Backend::Redis, false) };
        let kinds: std::collections::BTreeSet<_> =
            schedule(through, &[]).iter().map(|planned| planned.fault.kind()).collect();
        assert_eq!(kinds.len(), 13 + 2 + 9 + 2 + 4 + 2 + 2);
    }

    #[test]
    fn only_what_is_wanted_comes_and_it_comes_often() {
        let only = ["kill -9".to_owned(), "take turns".to_owned()];
        let all = schedule(plan(1, Backend::Redis, false), &only);
        let kinds: std::collections::BTreeSet<_> =
            all.iter().map(|planned| planned.fault.kind()).collect();
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["kill -9", "servers take turns"]);
        assert!(all.len() > 300, "{} in ten minutes", all.len());
        let short = Plan { time: Duration::from_secs(10), ..plan(1, Backend::Redis, false) };
        assert_eq!(schedule(short, &["a bad day".into()]), []);
    }

    #[test]
    fn nothing_is_forgotten_where_clocks_jump() {
        let plan = plan(3, Backend::Redis, true);
        for planned in schedule(plan, &[]) {
            if let Fault::Node { kind, .. } = planned.fault {
                use NodeFault as N;
                let remembers =
                    matches!(kind, N::Stop | N::KillClients | N::Full | N::Sleep | N::Evict)
                        || matches!(kind, N::ClockJump { .. });
                assert!(remembers, "{kind:?}");
            }
        }
        assert!((0..5).all(|node| persistence(&plan, node) == Persistence::Always));
    }

    #[test]
    fn faults_of_one_place_do_not_meet() {
        let mut until = [[Duration::ZERO; 5]; 2];
        for planned in schedule(plan(5, Backend::Redis, false), &[]) {
            if let Fault::Node { nodes, kind } = &planned.fault {
                use NodeFault as N;
                let is_of_clock = matches!(kind, N::ClockStep { .. } | N::ClockSlew { .. });
                let until = &mut until[usize::from(is_of_clock)];
                for node in nodes {
                    assert!(until[*node] <= planned.from, "{planned:?}");
                    until[*node] = planned.to;
                }
            }
        }
    }

    #[test]
    fn no_majority_of_clocks_agrees_upon_a_wrong_time() {
        for (seed, nodes) in [(1, 3), (2, 5), (3, 5), (4, 7)] {
            let plan = Plan { nodes, ..plan(seed, Backend::Redis, false) };
            let all = schedule(plan, &[]);
            let skew = MAX_SKEW.as_millis() as i64;
            let is_step = |planned: &&Planned| {
                matches!(&planned.fault, Fault::Node { kind: NodeFault::ClockStep { .. }, .. })
            };
            for at in all.iter().filter(is_step).flat_map(|planned| [planned.from, planned.to]) {
                let mut offsets = vec![0; nodes];
                for planned in all.iter().filter(is_step) {
                    let Fault::Node { nodes, kind } = &planned.fault else { continue };
                    if planned.from <= at && at < planned.to {
                        nodes.iter().for_each(|node| offsets[*node] = kind.step_of(*node));
                    }
                }
                for wrong in offsets.iter().filter(|offset| offset.abs() > skew) {
                    let agree = offsets.iter().filter(|other| (*other - wrong).abs() <= skew);
                    assert!(agree.count() <= nodes / 2, "{offsets:?} at {at:?}");
                }
            }
        }
    }

    #[test]
    fn clocks_are_wrong_from_the_start_step_while_nodes_wait_and_holders_come_late() {
        let all = schedule(plan(1, Backend::Redis, false), &[]);
        let wrong = |seed: u64| schedule(plan(seed, Backend::Redis, false), &[])[0].from.is_zero();
        assert!((0..20).any(wrong) && !(0..20).all(wrong));
        let steps = |planned: &&Planned| {
            matches!(&planned.fault, Fault::Node { kind: NodeFault::ClockStep { .. }, .. })
        };
        let forgot = |step: &Planned| {
            all.iter().filter(|planned| planned.fault.forgets()).any(|planned| {
                let (Fault::Node { nodes: a, .. }, Fault::Node { nodes: b, .. }) =
                    (&planned.fault, &step.fault)
                else {
                    return false;
                };
                a == b && planned.to < step.from && step.from < planned.to + QUARANTINE
            })
        };
        let in_quarantine = all.iter().filter(steps).filter(|step| forgot(step)).count();
        assert!(in_quarantine > 20, "{in_quarantine} in ten minutes");
    }
}
