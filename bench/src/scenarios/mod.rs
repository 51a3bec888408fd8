//! What can be measured.

mod contended;
mod contest;
mod delays;
mod failure;
mod growth;
mod many;
mod server;
mod server_killed;
mod sqlite;
mod uncontended;

use clap::ValueEnum;

use crate::args::Args;
use crate::contestants::{self, Contestant};
use crate::row::Row;
use crate::servers::Harm;

/// A situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Everybody has locks of their own, on five nodes; 1 to 1024 tasks
    Uncontended,
    /// The same on one node
    Single,
    /// One lock, held for 1 ms: 8 tasks of one process want it
    #[value(name = "contended-1x8")]
    Contended1x8,
    /// The same with 64 tasks
    #[value(name = "contended-1x64")]
    Contended1x64,
    /// The same with 8 processes of one task each
    #[value(name = "contended-8x1")]
    Contended8x1,
    /// The same with 8 processes of 8 tasks each
    #[value(name = "contended-8x8")]
    Contended8x8,
    /// Two of five nodes are killed, beside five that are not
    Killed,
    /// Two of five nodes hang (SIGSTOP), beside five that do not
    Hung,
    /// Five nodes at 2, 4, 6, 8 and 10 ms
    Delays,
    /// A lock in a file against the bare statements, and 8 processes on one file
    Sqlite,
    /// One process keeps 50,000 leases while a node restarts
    ManyLeases,
    /// 10,000 tasks of one process wait for 100 locks
    ManyWaiters,
    /// Through a lock server over HTTP, beside the library
    Server,
    /// 5,000 requests wait at one lock server
    ServerWaiters,
    /// One of two lock servers behind HAProxy is killed under load, and comes back
    ServerKilled,
    /// The cost with 1, 3, 5 and 7 nodes
    GrowthNodes,
    /// The cost beside 1 to 50,000 leases
    GrowthLeases,
    /// The cost beside 1 to 10,000 waiters
    GrowthWaiters,
    /// The cost with up to 10 million fences on record, on one node
    GrowthFences,
}

/// What came of a scenario.
#[derive(Debug, Default)]
pub struct Findings {
    /// Figures.
    pub rows: Vec<Row>,
    /// Sentences about what has no column.
    pub facts: Vec<String>,
}

impl From<Vec<Row>> for Findings {
    fn from(rows: Vec<Row>) -> Findings {
        Findings { rows, facts: Vec::new() }
    }
}

/// Measures one scenario.
pub fn run(scenario: Scenario, args: &Args) -> Result<Findings, String> {
    let rows = match scenario {
        Scenario::Uncontended => uncontended::run(args, "uncontended", 5),
        Scenario::Single => uncontended::run(args, "single", 1),
        Scenario::Contended1x8 => contended::run(args, "contended-1x8", 1, 8),
        Scenario::Contended1x64 => contended::run(args, "contended-1x64", 1, 64),
        Scenario::Contended8x1 => contended::run(args, "contended-8x1", 8, 1),
        Scenario::Contended8x8 => contended::run(args, "contended-8x8", 8, 8),
        Scenario::Killed => failure::run(args, "killed", Harm::Kill),
        Scenario::Hung => failure::run(args, "hung", Harm::Hang),
        Scenario::Delays => delays::run(args),
        Scenario::Sqlite => return sqlite::run(args),
        Scenario::ManyLeases => return many::leases(args),
        Scenario::ManyWaiters => return many::waiters(args),
        Scenario::Server => return server::cycles(args),
        Scenario::ServerWaiters => return server::waiters(args),
        Scenario::ServerKilled => return server_killed::run(args),
        Scenario::GrowthNodes => growth::nodes(args),
        Scenario::GrowthLeases => growth::leases(args),
        Scenario::GrowthWaiters => growth::waiters(args),
        Scenario::GrowthFences => growth::fences(args),
    };
    rows.map(Findings::from)
}

/// Those asked for by `--only`, else `usual`, as far as they fit; each checked for what it needs.
fn contestants(
    args: &Args,
    usual: &[&str],
    fits: impl Fn(&Contestant) -> bool,
) -> Result<Vec<Contestant>, String> {
    let usual: Vec<String> = usual.iter().map(|name| (*name).to_owned()).collect();
    let names = if args.only.is_empty() { &usual } else { &args.only };
    let mut chosen = contestants::named(names)?;
    let has_ideal = usual.iter().any(|name| name == contestants::IDEAL);
    chosen.retain(|one| fits(one) && (has_ideal || !one.is_ideal()));
    chosen.iter().try_for_each(Contestant::check)?;
    match chosen.is_empty() {
        true => Err("nobody is left to measure".to_owned()),
        false => Ok(chosen),
    }
}
