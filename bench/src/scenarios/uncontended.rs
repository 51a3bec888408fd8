//! Everybody has locks of their own: what a cycle of acquire and release costs.

use super::contest::Contest;
use crate::args::{Args, ServerKind};
use crate::contestants::{Contestant, Nodes};
use crate::order::Order;
use crate::report::progress::Progress;
use crate::row::Row;
use crate::servers::Cluster;

const CONCURRENCY: [usize; 5] = [1, 16, 64, 256, 1024];
const USUAL: [&str; 9] = [
    "floor",
    "leasehold",
    "leasehold-thread",
    "rslock",
    "redlock",
    "redis-semaphore",
    "pottery",
    "redlock-py",
    "redis-py",
];

pub(super) fn run(args: &Args, scenario: &str, nodes: usize) -> Result<Vec<Row>, String> {
    let chosen = super::contestants(args, &USUAL, |contestant| {
        (nodes == 1 || contestant.nodes == Nodes::Any)
            && !contestant.in_file
            && (args.server == ServerKind::Valkey || !contestant.needs_native)
    })?;
    let levels = if args.concurrency.is_empty() { &CONCURRENCY[..] } else { &args.concurrency };
    let able = |level: usize| -> Vec<Contestant> {
        chosen.iter().filter(|contestant| contestant.most >= level).copied().collect()
    };
    let turns: usize = levels.iter().map(|level| able(*level).len()).sum();
    let cluster = Cluster::start(args.server, nodes)?;
    let progress = Progress::new(scenario, turns * args.rounds);
    let contest = Contest { args, scenario, cluster: &cluster, processes: 1, progress: &progress };
    let mut rows = Vec::new();
    for &concurrency in levels {
        let order = Order::distinct(args.turn(), concurrency);
        rows.extend(contest.run(&able(concurrency), &order)?);
    }
    // Fairness and split votes are about locks that somebody waits for.
    for row in &mut rows {
        (row.jain, row.split_votes) = (None, None);
    }
    Ok(rows)
}
