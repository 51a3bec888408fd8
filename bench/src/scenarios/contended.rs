//! One lock and many who want it: how fast it changes hands, how evenly, and at what price.
//!
//! Everybody holds for a millisecond and asks again at once. `p50_us` and its like are how long an
//! acquire waits. `ideal` holds one time after another without any lock, and ratios are to it.

use super::contest::Contest;
use crate::args::Args;
use crate::contestants::Nodes;
use crate::order::{Names, Order};
use crate::report::progress::Progress;
use crate::row::Row;
use crate::servers::Cluster;

/// Just below a millisecond, so that the ideal is just above 1000 a second.
const HOLD_US: u64 = 999;
const NODES: usize = 5;
const USUAL: [&str; 7] = [
    "ideal",
    "leasehold",
    "leasehold-thread",
    "rslock",
    "rslock-5ms",
    "redlock",
    "redis-semaphore",
];

pub(super) fn run(
    args: &Args,
    scenario: &str,
    processes: usize,
    waiters: usize,
) -> Result<Vec<Row>, String> {
    let chosen = super::contestants(args, &USUAL, |contestant| {
        contestant.waits && !contestant.in_file && contestant.nodes == Nodes::Any
    })?;
    let cluster = Cluster::start(args.server, NODES)?;
    let progress = Progress::new(scenario, chosen.len() * args.rounds);
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let order = Order {
        secs: args.turn(),
        concurrency: waiters,
        names: Names::One,
        hold_us: HOLD_US,
        serve: false,
        inside: Some(dir.path().join("inside")),
    };
    Contest { args, scenario, cluster: &cluster, processes, progress: &progress }
        .run(&chosen, &order)
}
