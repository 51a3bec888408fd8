//! Five nodes at 2, 4, 6, 8 and 10 ms: the third fastest decides.

use std::time::Duration;

use leasehold_testkit::{Fault, Proxy};

use super::contest::Contest;
use crate::args::Args;
use crate::contestants::Nodes;
use crate::order::Order;
use crate::report::progress::Progress;
use crate::rounds::{Team, report_trouble, rounds, rows};
use crate::row::Row;
use crate::servers::Cluster;

/// There and back.
const ROUND_TRIPS_MS: [u64; 5] = [2, 4, 6, 8, 10];
const CONCURRENCY: [usize; 2] = [1, 16];
const USUAL: [&str; 5] = ["floor", "leasehold", "leasehold-thread", "rslock", "redlock"];

pub(super) fn run(args: &Args) -> Result<Vec<Row>, String> {
    let scenario = "delays";
    let chosen = super::contestants(args, &USUAL, |contestant| {
        !contestant.needs_native && !contestant.in_file && contestant.nodes == Nodes::Any
    })?;
    let levels = if args.concurrency.is_empty() { &CONCURRENCY[..] } else { &args.concurrency };
    let cluster = Cluster::start(args.server, ROUND_TRIPS_MS.len())?;
    let proxies: Vec<Proxy> = cluster.addrs().into_iter().map(Proxy::to).collect();
    for (proxy, round_trip) in proxies.iter().zip(ROUND_TRIPS_MS) {
        proxy.set(Fault::Delay(Duration::from_millis(round_trip) / 2));
    }
    let addrs: Vec<String> = proxies.iter().map(Proxy::addr).collect();
    let progress = Progress::new(scenario, levels.len() * chosen.len() * args.rounds);
    let contest = Contest { args, scenario, cluster: &cluster, processes: 1, progress: &progress };
    let mut result = Vec::new();
    for &concurrency in levels {
        let order = Order::distinct(args.turn(), concurrency);
        let mut teams = chosen
            .iter()
            .map(|one| Team::start(*one, Some(&cluster), &contest.role(one, addrs.clone()), 1))
            .collect::<Result<Vec<_>, _>>()?;
        let measures = rounds(&mut teams, &order, args.rounds, &progress)?;
        report_trouble(scenario, &teams, &measures, &progress)?;
        result.extend(rows(&contest.setting(&order), &teams, &measures, |m| m.acquire_us));
    }
    for row in &mut result {
        (row.jain, row.split_votes) = (None, None);
    }
    Ok(result)
}
