//! What goes wrong and when, drawn from the seed before anything starts.

use std::time::Duration;

use crate::chance::Chance;
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
}

/// The longest lease of the cluster: short, so that quarantines fit into a run.
pub const MAX_TTL: Duration = Duration::from_secs(2);

/// How far clocks may be apart. Twice this is added to each quarantine.
pub const MAX_SKEW: Duration = Duration::from_millis(200);

/// How far behind a clock may fall in a run that keeps the assumptions.
pub const MOST_BEHIND: Duration = Duration::from_millis(150);

/// Where faults of the same place must not meet: two of them would undo each other.
#[derive(Debug, Clone, Copy)]
enum Place {
    Server,
    Link,
    /// There is one spare server.
    Spare,
}

struct Draw {
    plan: Plan,
    chance: Chance,
    /// Until when each node is hurt already, by place.
    busy: [Vec<Duration>; 3],
}

/// How often a fault is drawn until it is one of those that are wanted. The rarest kind comes once in
/// a hundred draws.
const DRAWS: usize = 500;

/// The schedule of a run, in the order of its beginnings. If `only` names kinds of faults, there are
/// no others.
pub fn schedule(plan: Plan, only: &[String]) -> Vec<Planned> {
    let busy = [plan.nodes, plan.nodes, 1].map(|places| vec![Duration::ZERO; places]);
    let mut draw = Draw { plan, chance: Chance::new(plan.seed), busy };
    let mut planned = Vec::new();
    // The first moments belong to the holders: a lock must be held before it can be taken away.
    let mut at = Duration::from_millis(700);
    while at < plan.time {
        planned.extend(draw.fault(at, only));
        at += draw.chance.millis(120..900);
    }
    for fault in &mut planned {
        fault.to = fault.to.min(plan.time);
    }
    planned
}

impl Draw {
    fn fault(&mut self, at: Duration, only: &[String]) -> Option<Planned> {
        if only.is_empty() {
            return self.any(at);
        }
        let is_wanted =
            |fault: &Fault| only.iter().any(|kind| fault.kind().contains(kind.as_str()));
        for _ in 0..DRAWS {
            let busy = self.busy.clone();
            match self.any(at) {
                Some(planned) if is_wanted(&planned.fault) => return Some(planned),
                // What is not done keeps no node busy.
                _ => self.busy = busy,
            }
        }
        None
    }

    fn any(&mut self, at: Duration) -> Option<Planned> {
        let is_file = self.plan.backend == Backend::Sqlite;
        match self.chance.within(if is_file { 55..100 } else { 0..100 }) {
            0..32 => self.server(at),
            32..51 => self.link(at),
            51..55 => self.route(at),
            55..88 => Some(self.holder(at)),
            _ if is_file => self.grab(at),
            _ => Some(self.holder(at)),
        }
    }

    fn server(&mut self, from: Duration) -> Option<Planned> {
        use NodeFault as N;
        let Plan { nodes, beyond, .. } = self.plan;
        let kind = if beyond {
            let jump = if self.chance.percent(75) { 1 } else { -1 };
            let jump = N::ClockJump { millis: jump * self.chance.within(500..4000) as i64 };
            let kinds = [N::Stop, N::KillClients, N::Full, N::Sleep, N::Evict, N::Evict];
            if self.chance.percent(35) { jump } else { self.chance.pick(&kinds) }
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
                73..79 => N::ClockBack { millis: self.chance.within(20..100) },
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
            N::ClockBack { .. } | N::ClockJump { .. } => Duration::ZERO,
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
        let side = self.chance.pick(&[Side::All, Side::Half, Side::OtherHalf]);
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
        // Most are stopped for longer than any lease lasts.
        let most = MAX_TTL.as_millis() as u64;
        let long = self.chance.percent(80);
        let lasts = self.chance.millis(if long { most..2 * most } else { 50..most });
        Planned { from, to: from + lasts, fault: Fault::Pause { lock, holder } }
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
        Plan { seed, backend, time, nodes: 5, holders: 16, locks: 3, beyond }
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
        assert_eq!(kinds(Backend::Redis, false), 13 + 9 + 2 + 2);
        assert_eq!(kinds(Backend::Redis, true), 6 + 9 + 2);
        assert_eq!(kinds(Backend::Sqlite, false), 3);
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
        let mut until = [Duration::ZERO; 5];
        for planned in schedule(plan(5, Backend::Redis, false), &[]) {
            if let Fault::Node { nodes, .. } = &planned.fault {
                for node in nodes {
                    assert!(until[*node] <= planned.from, "{planned:?}");
                    until[*node] = planned.to;
                }
            }
        }
    }
}
