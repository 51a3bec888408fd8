//! Two of five nodes are killed or hang: does anybody notice?
//!
//! Everybody plays twice, on five good servers and on five of which two are gone, in the same rounds.
//! A second set of rows, `…-release`, is about how long a release takes.

use super::contest::Contest;
use crate::args::Args;
use crate::contestants::Nodes;
use crate::order::Order;
use crate::report::progress::Progress;
use crate::rounds::{report_trouble, rounds, rows};
use crate::row::Row;
use crate::servers::{Cluster, Harm};

const NODES: usize = 5;
const GONE: usize = 2;
const CONCURRENCY: [usize; 2] = [1, 16];
/// Others hang for minutes when a node does.
const USUAL: [&str; 5] = ["floor", "leasehold", "leasehold-thread", "rslock", "redlock"];

pub(super) fn run(args: &Args, scenario: &str, harm: Harm) -> Result<Vec<Row>, String> {
    let chosen = super::contestants(args, &USUAL, |contestant| {
        !contestant.needs_native && !contestant.in_file && contestant.nodes == Nodes::Any
    })?;
    let levels = if args.concurrency.is_empty() { &CONCURRENCY[..] } else { &args.concurrency };
    let progress = Progress::new(scenario, levels.len() * chosen.len() * 2 * args.rounds);
    let mut result = Vec::new();
    for &concurrency in levels {
        let order = Order::distinct(args.turn(), concurrency);
        let (good, bad) =
            (Cluster::start(args.server, NODES)?, Cluster::start(args.server, NODES)?);
        let contest =
            |cluster| Contest { args, scenario, cluster, processes: 1, progress: &progress };
        let (good, bad_contest) = (contest(&good), contest(&bad));
        let mut teams = good.teams(&chosen)?;
        teams.extend(bad_contest.teams(&chosen)?);
        // Everybody knows all nodes before two of them go, and has a turn to get over it.
        for team in &mut teams[chosen.len()..] {
            team.play(&order)?;
        }
        bad.harm(harm, GONE);
        for team in &mut teams[chosen.len()..] {
            team.try_play(&order, &progress)?;
        }
        let measures = rounds(&mut teams, &order, args.rounds, &progress)?;
        report_trouble(scenario, &teams, &measures, &progress)?;
        let halves = [("healthy", 0..chosen.len()), (scenario, chosen.len()..teams.len())];
        for (state, half) in halves {
            let (teams, measures) = (&teams[half.clone()], &measures[half]);
            let named = |what| Row {
                scenario: format!("{scenario}{what}/{state}"),
                ..good.setting(&order)
            };
            result.extend(rows(&named(""), teams, measures, |measure| measure.acquire_us));
            let releases = rows(&named("-release"), teams, measures, |measure| measure.release_us);
            result.extend(releases.into_iter().map(only_latency));
        }
    }
    for row in &mut result {
        (row.jain, row.split_votes) = (None, None);
    }
    // Those about one question stand together.
    result.sort_by_key(|row| (row.concurrency, row.scenario.contains("-release")));
    Ok(result)
}

/// The rest is told of the acquires, and is about whole cycles.
fn only_latency(row: Row) -> Row {
    let Row { scenario, contestant, nodes, concurrency, p50_us, p99_us, p999_us, .. } = row;
    Row { scenario, contestant, nodes, concurrency, p50_us, p99_us, p999_us, ..Row::default() }
}
