//! The nodes of one run and the clients that open them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Drift, LockName, LockTable};
use tokio::runtime::Handle;

use super::address::Address;
use super::memory::FarMemory;
use super::server::dial;
use super::site::{Flavor, Kind, Redis, Site, Sky};
use super::timepieces::{ClientClock, WallClock};
use super::world::World;
use crate::node::{Node, NodeId};
use crate::nodes::memory::MemoryNode;
use crate::nodes::redis::{DEFAULT_PREFIX, RedisConfig, RedisNode};
use crate::{Background, Locks};

/// How long a node may take, unless a scenario says otherwise.
pub(super) const LIMIT: Duration = Duration::from_millis(50);
/// The longest lease: short, so that runs with quarantines are short.
pub(super) const MAX_TTL: Duration = Duration::from_secs(4);
pub(super) const TTL: Duration = Duration::from_secs(2);
pub(super) const SKEW: Duration = Duration::from_millis(100);

/// The two kinds of nodes that everything is tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    Memory,
    Redis,
}

/// How a client is opened.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    /// Those of the town, unless others are given.
    pub(super) addresses: Option<&'a [Arc<Address>]>,
    pub(super) max_ttl: Duration,
    pub(super) trusts_new_nodes: bool,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self { addresses: None, max_ttl: MAX_TTL, trusts_new_nodes: true }
    }
}

pub(super) struct Town {
    pub(super) world: Arc<World>,
    pub(super) sites: Vec<Arc<Site>>,
    /// One for each member of the list.
    pub(super) addresses: Vec<Arc<Address>>,
    backend: Backend,
}

const VERSIONS: [(&str, bool); 4] = [
    ("redis_version:7.0.15", true),
    ("redis_version:8.4.0", true),
    ("redis_version:7.2.4\r\nvalkey_version:9.0.0", true),
    ("redis_version:6.2.0", false),
];

impl Town {
    pub(super) fn new(world: &Arc<World>, backend: Backend, nodes: usize) -> Self {
        let site = |index| Self::new_site(world, backend, format!("node{index}"));
        let sites: Vec<_> = (0..nodes).map(site).collect();
        let addresses = sites.iter().map(Address::of).collect();
        Self { world: world.clone(), sites, addresses, backend }
    }

    fn new_site(world: &Arc<World>, backend: Backend, name: String) -> Arc<Site> {
        let clock = Arc::new(WallClock::new(world));
        let kind = match backend {
            Backend::Memory => Kind::Memory(MemoryNode::new(NodeId::new(&name), clock.clone())),
            Backend::Redis => {
                let (version, knows_hello) = VERSIONS[world.below(4) as usize];
                Kind::Redis(Mutex::new(Redis {
                    flavor: Flavor {
                        version,
                        knows_hello,
                        durable: world.chance(50),
                        has_replicas: false,
                    },
                    table: LockTable::new(),
                    saved: LockTable::new(),
                    life: 0,
                    replication_id: 0,
                    is_replica: false,
                    scripts: Default::default(),
                    bystanders: Default::default(),
                }))
            }
        };
        Site::new(clock, world, name, kind)
    }

    /// The same, with servers that all speak RESP3.
    pub(super) fn of_new_servers(world: &Arc<World>, nodes: usize) -> Self {
        let town = Self::new(world, Backend::Redis, nodes);
        town.sites.iter().for_each(|site| site.redis().flavor.knows_hello = true);
        town
    }

    /// A client, with connections of its own, now and then by RESP2.
    pub(super) async fn open(&self, label: &str) -> Locks {
        self.open_by(label, self.backend == Backend::Redis && self.world.chance(30)).await
    }

    /// The same, by RESP3.
    pub(super) async fn open_with_hints(&self, label: &str) -> Locks {
        self.open_by(label, false).await
    }

    pub(super) async fn open_by(&self, label: &str, resp2: bool) -> Locks {
        match self.backend {
            Backend::Memory => {
                let node = |site| -> Arc<dyn Node> { Arc::new(FarMemory::new(site)) };
                self.open_nodes(label, self.sites.iter().map(node).collect()).await
            }
            Backend::Redis => self.open_at(label, resp2, &self.addresses).await,
        }
    }

    /// A client whose members have addresses of their own.
    pub(super) async fn open_at(
        &self,
        label: &str,
        resp2: bool,
        addresses: &[Arc<Address>],
    ) -> Locks {
        self.open_nodes(label, nodes_at(label, resp2, addresses)).await
    }

    async fn open_nodes(&self, label: &str, nodes: Vec<Arc<dyn Node>>) -> Locks {
        let clock = ClientClock::new(&self.world, label);
        open(nodes, &clock, MAX_TTL, true).await
    }

    /// A client with a clock of its own that a scenario can stop.
    pub(super) async fn open_with(&self, clock: &Arc<ClientClock>, plan: Plan<'_>) -> Locks {
        let resp2 = self.world.chance(30);
        let nodes = nodes_at(clock.label(), resp2, plan.addresses.unwrap_or(&self.addresses));
        open(nodes, clock, plan.max_ttl, plan.trusts_new_nodes).await
    }

    /// Another server, which is no member as long as no address leads to it.
    pub(super) fn add_server(&mut self, name: &str) -> Arc<Site> {
        let site = Self::new_site(&self.world, self.backend, name.to_owned());
        self.sites.push(site.clone());
        site
    }

    /// How long a node that forgot must not vote.
    pub(super) fn quarantine() -> Duration {
        MAX_TTL + Drift::DEFAULT.allowance(MAX_TTL) + 2 * SKEW
    }

    /// Every way is good again, and everything on its way has arrived.
    pub(super) async fn calm(&self) {
        self.sites.iter().for_each(|site| site.change(|sky| *sky = Sky::fair()));
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }

    /// On how many nodes `lock` has an owner.
    pub(super) fn owners(&self, lock: &str) -> usize {
        let lock = LockName::new(lock).expect("a name");
        self.sites.iter().filter(|site| site.owner(&lock).is_some()).count()
    }
}

fn nodes_at(label: &str, resp2: bool, addresses: &[Arc<Address>]) -> Vec<Arc<dyn Node>> {
    let node = |address| -> Arc<dyn Node> {
        let config = RedisConfig::simulated(dial(address), resp2).labelled(label);
        let prefix = DEFAULT_PREFIX.into();
        let node = RedisNode::connect(config, prefix, LIMIT, Handle::current());
        Arc::new(node.expect("no files are needed"))
    };
    addresses.iter().map(node).collect()
}

async fn open(
    nodes: Vec<Arc<dyn Node>>,
    clock: &Arc<ClientClock>,
    max_ttl: Duration,
    trusts_new_nodes: bool,
) -> Locks {
    let builder = Locks::builder().nodes(nodes).clock(clock.clone()).holder(clock.label());
    let builder = builder.background(Background::CurrentRuntime).timeout(LIMIT);
    let builder = builder.max_ttl(max_ttl).max_clock_skew(SKEW);
    let builder = if trusts_new_nodes { builder.trust_new_nodes() } else { builder };
    // Never within a run: the simulated servers have no ZRANGEBYSCORE.
    let builder = builder.forget_every(Duration::from_secs(1 << 40));
    builder.open().await.expect("settings that can be opened")
}
