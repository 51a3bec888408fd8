//! What kind of world a seed makes, and which of the protocol's assumptions it keeps.

use std::time::Duration;

use crate::chance::Chance;
use crate::clock::{SECOND, Time};
use crate::server::Persistence;

/// An assumption that can be broken on purpose, to see that the invariants notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Assumption {
    /// Clocks run within the drift allowance
    Drift,
    /// Clocks of nodes do not jump
    Jumps,
    /// Clocks of nodes are within the largest skew of each other
    Skew,
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
    /// Which assumption does not hold.
    pub broken: Option<Assumption>,
}

/// What a caller fixes instead of leaving it to the seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// How many servers.
    pub nodes: Option<usize>,
    /// How many holders in all.
    pub holders: Option<usize>,
    /// Which assumption does not hold.
    pub broken: Option<Assumption>,
}

/// The longest lease of the cluster: short, so that a quarantine fits into a run.
pub const MAX_TTL: Duration = Duration::from_secs(3);

impl Scenario {
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
        Self {
            seed,
            nodes,
            clients,
            holders,
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
            broken: wishes.broken,
        }
    }

    /// Whether servers change behind the members' addresses: copied, moved, restarted unseen. Not
    /// where something else is broken, of which it would hide the consequences.
    pub fn changes_servers(&self) -> bool {
        use Assumption::{Pushes, Replaced, Restarts, Turns};
        self.nodes > 1 && matches!(self.broken, None | Some(Pushes | Replaced | Restarts | Turns))
    }

    /// Whether this assumption does not hold here.
    pub fn breaks(&self, assumption: Assumption) -> bool {
        self.broken == Some(assumption)
    }
}
