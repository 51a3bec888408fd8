//! What kind of world a seed makes, and which of the protocol's assumptions it keeps.

use std::time::Duration;

use leasehold_judge::Chance;

use crate::clock::{SECOND, Time};
use crate::lists::Lists;
use crate::server::Persistence;

/// An assumption that can be broken on purpose, to see that the invariants notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Assumption {
    /// Clocks run within the drift allowance
    Drift,
    /// Nodes that forgot sit out a quarantine
    Quarantine,
    /// All clients have the same member list, or are found out
    Fingerprint,
    /// Nodes do not throw keys away for want of memory
    Eviction,
    /// Who hands a lease over is done with it
    Done,
    /// A holder value is not used again once it was released
    Fresh,
    /// A server that copied another tells its clients before it answers anything else
    Pushes,
    /// A server that restarted behind a proxy does not know the scripts of before
    Restarts,
    /// Processes notice that several servers answer at one address
    Turns,
    /// A server answers nobody any more once another one is the member that it was
    Replaced,
}

/// One world.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// How many servers.
    pub nodes: usize,
    /// How many processes.
    pub clients: usize,
    /// How many holders in each.
    pub holders: usize,
    /// How many callers, who hold by what processes tell them.
    pub callers: usize,
    /// How many lock names.
    pub locks: usize,
    /// How long the lease lasts.
    pub ttl: Duration,
    /// Faults happen until then.
    pub trouble: Time,
    /// How long at most until everybody has had the lock once more.
    pub patience: Time,
    /// Between two faults, on average.
    pub fault_every: Time,
    /// The way to a node and back, without trouble.
    pub latency: Time,
    /// Percent of the leases that are handed over inside a process if another holder waits there.
    pub handovers: u64,
    /// What nodes find again when they start.
    pub persistence: Vec<Persistence>,
    /// How many servers there are beside the members'.
    pub spares: usize,
    /// Whether servers can copy one another.
    pub replicates: bool,
    /// What is done to clocks.
    pub clocks: Clocks,
    /// The longest lease that the last process was told to expect, if it was told wrong.
    pub odd_max_ttl: Option<Duration>,
    /// Percent of the faults that are a person who sets the cluster up, once more.
    pub inits: u64,
    /// How the member list is changed, if it is.
    pub lists: Option<Lists>,
    /// Whether nothing happens but what NTP does to clocks, for a day in which one holder holds on.
    pub is_day_of_ntp: bool,
    /// What is done here over and over, and nothing else.
    pub plot: Option<Plot>,
    /// Which assumption does not hold.
    pub broken: Option<Assumption>,
}

/// Several faults in a certain order, which chance alone hardly ever finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plot {
    /// All clocks go back, a node forgets a number that some of the others do not have either, and when
    /// it is back those that have it are away.
    Forgotten,
    /// A node whose clock is behind is put right when it is one of those on which a lease rests, and
    /// processes start that have not seen it behind.
    Behind,
}

/// What is done to the clocks of a world.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clocks {
    /// How many members' clocks are wrong from the start.
    pub wrong: usize,
    /// Percent of the faults that are done to clocks.
    pub faults: u64,
    /// Whether processes start at any time, and not all at the beginning.
    pub late_starts: bool,
}

/// What a caller fixes instead of leaving it to the seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// How many servers.
    pub nodes: Option<usize>,
    /// How many holders in all.
    pub holders: Option<usize>,
    /// A day of what NTP does to clocks, and nothing else.
    pub day_of_ntp: bool,
    /// Have the member list changed in every world.
    pub lists: bool,
    /// Which assumption does not hold.
    pub broken: Option<Assumption>,
}

/// The longest lease of the cluster: short, so that a quarantine fits into a run.
pub const MAX_TTL: Duration = Duration::from_secs(3);

/// How far the clocks of nodes may be apart.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// How far a clock that is right is off the truth at most when it was set, in milliseconds.
pub const RIGHT_WITHIN: u64 = 380;

impl Scenario {
    /// The longest lease of any list.
    pub(crate) fn longest_ttl(&self) -> Duration {
        let lists = self.lists.iter().flat_map(|lists| &lists.all);
        lists.map(|list| list.max_ttl).fold(MAX_TTL, Duration::max)
    }

    /// The world of a seed.
    pub fn new(seed: u64, wishes: Wishes) -> Self {
        let mut chance = Chance::new(seed);
        let nodes =
            wishes.nodes.unwrap_or_else(|| [1, 2, 3, 3, 4, 5, 5, 5, 6, 7][chance.index(10)]);
        let (clients, holders) = match wishes.holders {
            Some(all) => {
                let clients = chance.within(1..all as u64 + 1).min(16) as usize;
                (clients, all.div_ceil(clients))
            }
            None => [(2, 1), (3, 1), (4, 2), (8, 1), (5, 3), (10, 5)][chance.index(6)],
        };
        let persistence = match chance.index(3) {
            0 => vec![Persistence::Nothing; nodes],
            1 => vec![Persistence::EverySecond; nodes],
            _ => {
                let kinds = [Persistence::Nothing, Persistence::EverySecond, Persistence::Always];
                (0..nodes).map(|_| kinds[chance.index(3)]).collect()
            }
        };
        let is_ordinary = wishes.broken.is_none() && !wishes.day_of_ntp;
        let apart = is_ordinary.then(|| Chance::new(seed ^ 0xc10c));
        let apart = apart.map(|chance| Apart::draw(chance, nodes, clients)).unwrap_or_default();
        let scenario = Self {
            seed,
            nodes,
            clients,
            holders,
            callers: 0,
            locks: [1, 1, 2][chance.index(3)],
            ttl: chance.duration(Duration::from_millis(300)..MAX_TTL),
            trouble: 40 * SECOND,
            patience: 20 * SECOND,
            fault_every: chance.within(SECOND / 8..2 * SECOND),
            latency: chance.within(50_000..2_000_000),
            // By chance of its own: worlds without it stay what they were.
            handovers: [0, 30, 90, 100][Chance::new(!seed).index(4)],
            persistence,
            spares: 2,
            replicates: Chance::new(seed ^ 0xc09e).percent(75),
            clocks: apart.clocks,
            odd_max_ttl: apart.odd_max_ttl,
            inits: apart.inits,
            lists: None,
            is_day_of_ntp: false,
            plot: None,
            broken: wishes.broken,
        };
        // Each by chance of its own: worlds without them stay what they were.
        let mut chance = Chance::new(seed ^ 0x1157);
        let is_free = is_ordinary && wishes.holders.is_none() && !wishes.lists;
        match Plot::draw(Chance::new(seed ^ 0x9107), nodes).filter(|_| is_free) {
            _ if wishes.day_of_ntp => scenario.for_a_day(),
            Some(plot) => scenario.with_plot(plot),
            None if is_ordinary && (chance.percent(25) || wishes.lists) => {
                scenario.with_lists(&mut chance)
            }
            None if is_ordinary => scenario.with_callers(Chance::new(seed ^ 0xca11)),
            None => scenario,
        }
    }

    /// Every second of these worlds. Nobody tells a caller that clocks were set, so they are not.
    fn with_callers(self, mut chance: Chance) -> Self {
        if chance.percent(50) {
            return self;
        }
        let callers = 1 + chance.index(4);
        let clocks = Clocks { late_starts: self.clocks.late_starts, ..Clocks::default() };
        Self { callers, clocks, odd_max_ttl: None, ..self }
    }

    /// Eight holders, and locks that most of them leave alone for a while.
    fn with_plot(self, plot: Plot) -> Self {
        Self {
            clients: 4,
            holders: 2,
            locks: if plot == Plot::Forgotten { 12 } else { 4 },
            ttl: Duration::from_millis(900),
            clocks: Clocks::default(),
            odd_max_ttl: None,
            inits: 0,
            plot: Some(plot),
            ..self
        }
    }

    /// One holder, one lock, and clocks that are looked at about once a minute.
    fn for_a_day(self) -> Self {
        Self {
            clients: 1,
            holders: 1,
            locks: 1,
            ttl: MAX_TTL,
            trouble: 24 * 3600 * SECOND,
            fault_every: 64 * SECOND / self.nodes as Time,
            handovers: 0,
            is_day_of_ntp: true,
            ..self
        }
    }

    /// The member list is changed. Nothing else is done that only people do, to lists or to servers: it
    /// would hide the consequences.
    fn with_lists(mut self, chance: &mut Chance) -> Self {
        let mut apart = Chance::new(self.seed ^ 0x7a1e);
        let lists = match apart.percent(40) {
            true => Lists::tale(&mut apart, &mut self.nodes),
            false => Lists::draw(chance, &mut self.nodes),
        };
        self.persistence = lists.persistence(&self.persistence);
        // Long leases are what a change has to wait for.
        if chance.percent(70) {
            self.ttl = lists.all[0].max_ttl.mul_f64(0.95);
        }
        if lists.tale.is_some() {
            // Of the list that has the longest; the others use less.
            self.ttl =
                lists.all.iter().map(|list| list.max_ttl).max().unwrap_or(MAX_TTL).mul_f64(0.95);
            // Else its changes hardly ever come through in time.
            self.fault_every = self.fault_every.max(SECOND);
        }
        if self.nodes == 1 || lists.tale.is_some() {
            self.clocks = Clocks { late_starts: self.clocks.late_starts, ..Clocks::default() };
        }
        self.clocks.wrong = self.clocks.wrong.min(self.nodes);
        (self.odd_max_ttl, self.inits, self.patience) = (None, 0, 50 * SECOND);
        Self { lists: Some(lists), ..self }
    }

    /// How many addresses there are: those of all members of all lists.
    pub fn addresses(&self) -> usize {
        self.lists.as_ref().map_or(self.nodes, Lists::addresses)
    }

    /// Whether servers change behind the members' addresses: copied, moved, restarted unseen. Not
    /// where something else is broken, of which it would hide the consequences.
    pub fn changes_servers(&self) -> bool {
        use Assumption::{Pushes, Replaced, Restarts, Turns};
        self.nodes > 1
            && self.lists.is_none()
            && matches!(self.broken, None | Some(Pushes | Replaced | Restarts | Turns))
    }

    /// The process that was told another longest lease than all others, if there is one.
    pub fn odd_client(&self) -> Option<usize> {
        self.odd_max_ttl.map(|_| self.clients - 1)
    }

    /// Whether this assumption does not hold here.
    pub fn breaks(&self, assumption: Assumption) -> bool {
        self.broken == Some(assumption)
    }
}

/// What is drawn by chance of its own, and only where no assumption is broken: it would hide the
/// consequences.
#[derive(Debug, Default)]
struct Apart {
    clocks: Clocks,
    odd_max_ttl: Option<Duration>,
    inits: u64,
}

impl Plot {
    /// In every tenth world in which two quorums may share a single node.
    fn draw(mut chance: Chance, nodes: usize) -> Option<Self> {
        let is_thin = nodes > 1 && nodes % 2 == 1;
        let plot = [Self::Forgotten, Self::Behind][chance.index(2)];
        (is_thin && chance.percent(10)).then_some(plot)
    }

    /// How long it lasts.
    pub fn lasts(self) -> Time {
        match self {
            Self::Forgotten => 12 * SECOND,
            Self::Behind => 7 * SECOND,
        }
    }
}

impl Apart {
    fn draw(mut chance: Chance, nodes: usize, clients: usize) -> Self {
        let wrong = match chance.index(10) {
            0..6 => 0,
            6..9 => chance.index(nodes.div_ceil(2)),
            _ => nodes / 2 + 1,
        };
        let faults = [0, 10, 30, 60][chance.index(4)];
        let late_starts = chance.percent(30);
        let is_odd = nodes > 1 && clients > 2 && chance.percent(15);
        // Shorter by far, so that its quarantine would be as well; or longer.
        let odd = Duration::from_millis([300, 10_000][chance.index(2)]);
        Self {
            clocks: Clocks { wrong, faults, late_starts },
            odd_max_ttl: is_odd.then_some(odd),
            inits: [0, 0, 5][chance.index(3)],
        }
    }
}
