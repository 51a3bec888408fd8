//! How the cost of a cycle grows: with nodes, with leases kept beside it, with waiters, with fences
//! on record. The floor is measured in the same rounds.

use super::contest::Contest;
use crate::args::Args;
use crate::contestants::{Contestant, Nodes};
use crate::order::{Beside, Order, Role};
use crate::report::progress::Progress;
use crate::rounds::{Team, report_trouble, rounds, rows};
use crate::row::Row;
use crate::servers::Cluster;

const NODES: usize = 5;
const WAITED_FOR: usize = 100;
const NODE_COUNTS: [usize; 4] = [1, 3, 5, 7];
const STEPS: [usize; 6] = [1, 100, 1_000, 10_000, 50_000, 100_000];
const FENCES: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

pub(super) fn nodes(args: &Args) -> Result<Vec<Row>, String> {
    let chosen = able(args, &["floor", "leasehold", "leasehold-thread", "rslock"])?;
    let progress = Progress::new("growth-nodes", NODE_COUNTS.len() * chosen.len() * args.rounds);
    let mut result = Vec::new();
    for count in NODE_COUNTS {
        let cluster = Cluster::start(args.server, count)?;
        result.extend(measure(args, "growth-nodes", &cluster, &chosen, &progress)?);
    }
    Ok(result)
}

pub(super) fn leases(args: &Args) -> Result<Vec<Row>, String> {
    beside(args, "growth-leases", args.leases, |leases| Beside { leases, ..Beside::default() })
}

pub(super) fn waiters(args: &Args) -> Result<Vec<Row>, String> {
    beside(args, "growth-waiters", args.waiters, |waiters| Beside {
        leases: 0,
        waiters,
        waited_for: WAITED_FOR.min(waiters),
    })
}

/// One node is enough: a fence is looked up on each by itself.
pub(super) fn fences(args: &Args) -> Result<Vec<Row>, String> {
    let chosen = able(args, &["floor", "leasehold"])?;
    let levels = up_to(&FENCES, args.fences);
    let progress = Progress::new("growth-fences", levels.len() * chosen.len() * args.rounds);
    let cluster = Cluster::start(args.server, 1)?;
    let (mut there, mut result) = (0, Vec::new());
    for fences in levels {
        let scenario = format!("growth-fences/{fences}");
        let contest = contest(args, &scenario, &cluster, &progress);
        // Fences belong to a record, which the node has once somebody uses it.
        let teams = contest.teams(&chosen)?;
        progress.at("recording fences");
        record_fences(&cluster, there, fences)?;
        there = fences;
        result.extend(play(args, &contest, teams)?);
        check_fences(&cluster, fences)?;
    }
    Ok(result)
}

fn beside(
    args: &Args,
    scenario: &str,
    most: usize,
    company: impl Fn(usize) -> Beside,
) -> Result<Vec<Row>, String> {
    let chosen = able(args, &["floor", "leasehold"])?;
    let levels = up_to(&STEPS, most);
    let progress = Progress::new(scenario, levels.len() * chosen.len() * args.rounds);
    let mut result = Vec::new();
    for level in levels {
        let cluster = Cluster::start(args.server, NODES)?;
        let scenario = format!("{scenario}/{level}");
        let contest = contest(args, &scenario, &cluster, &progress);
        progress.at("taking leases");
        let start = |one: &Contestant| {
            let role = contest.role(one, cluster.addrs());
            Team::start(*one, Some(&cluster), &Role { beside: company(level), ..role }, 1)
        };
        let teams = chosen.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        result.extend(play(args, &contest, teams)?);
    }
    Ok(result)
}

fn able(args: &Args, usual: &[&str]) -> Result<Vec<Contestant>, String> {
    super::contestants(args, usual, |one| {
        !one.in_file && !one.needs_native && one.nodes == Nodes::Any
    })
}

/// The levels below `most`, and `most` itself.
fn up_to(levels: &[usize], most: usize) -> Vec<usize> {
    levels.iter().copied().filter(|level| *level < most).chain([most]).collect()
}

fn contest<'a>(
    args: &'a Args,
    scenario: &'a str,
    cluster: &'a Cluster,
    progress: &'a Progress,
) -> Contest<'a> {
    Contest { args, scenario, cluster, processes: 1, progress }
}

fn measure(
    args: &Args,
    scenario: &str,
    cluster: &Cluster,
    chosen: &[Contestant],
    progress: &Progress,
) -> Result<Vec<Row>, String> {
    let contest = contest(args, scenario, cluster, progress);
    let teams = contest.teams(chosen)?;
    play(args, &contest, teams)
}

fn play(args: &Args, contest: &Contest<'_>, mut teams: Vec<Team<'_>>) -> Result<Vec<Row>, String> {
    let order = Order::distinct(args.turn(), args.concurrency.first().copied().unwrap_or(1));
    let measures = rounds(&mut teams, &order, args.rounds, contest.progress)?;
    report_trouble(contest.scenario, &teams, &measures, contest.progress)?;
    let mut result = rows(&contest.setting(&order), &teams, &measures, |m| m.acquire_us);
    for row in &mut result {
        (row.jain, row.split_votes) = (None, None);
    }
    Ok(result)
}

/// Fences of names that nobody uses any more, as many as a page at a time, by the server itself.
const RECORD: &str = "for i = ARGV[1], ARGV[2] do \
     redis.call('ZADD', KEYS[1], string.format('%.0f', ARGV[3] + i), 'leasehold:lock:old/' .. i) end";
/// Done in some milliseconds, also by a server that is kept waiting for a processor.
const PAGE: usize = 10_000;
const AN_HOUR_MICROS: u128 = 3_600_000_000;

fn record_fences(cluster: &Cluster, from: usize, to: usize) -> Result<(), String> {
    for server in &cluster.servers {
        let key = server.fences_key();
        for first in (from + 1..=to).step_by(PAGE) {
            let last = (first + PAGE - 1).min(to);
            // Younger than what is forgotten for its age, older than what is measured.
            let age = std::time::UNIX_EPOCH.elapsed().map_err(|error| error.to_string())?;
            let base = age.as_micros().saturating_sub(AN_HOUR_MICROS).to_string();
            server.command(&[
                "EVAL",
                RECORD,
                "1",
                &key,
                &first.to_string(),
                &last.to_string(),
                &base,
            ])?;
        }
    }
    Ok(())
}

/// Those of the locks that were measured stand beside the old ones, or it was all in vain.
fn check_fences(cluster: &Cluster, recorded: usize) -> Result<(), String> {
    for server in &cluster.servers {
        let count = server.command(&["ZCARD", &server.fences_key()])?.as_int().unwrap_or(0);
        if count <= recorded as i64 {
            return Err(format!("Leasehold keeps its fences elsewhere: {count} of {recorded}"));
        }
    }
    Ok(())
}
