//! One process with very many leases, or very many waiters.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Connection, Value};

use super::Findings;
use crate::args::Args;
use crate::contestants;
use crate::interrupt;
use crate::order::{Beside, Order, Outcome, Role};
use crate::player::Player;
use crate::report::progress::Progress;
use crate::rounds::Latency;
use crate::row::Row;
use crate::servers::Cluster;

const NODES: usize = 5;
const WAITED_FOR: usize = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const DEFAULT_SECS: f64 = 60.0;

/// How the leases were kept.
struct Kept {
    /// Memory of a process without leases, with all of them, and at the end.
    memory: [f64; 3],
    /// To all nodes.
    connections: f64,
    /// Extensions in each 100 ms on one node, from when the last lease was taken.
    looks: Vec<f64>,
    /// The first of these looks after another node restarted.
    restarted: usize,
    outcome: Outcome,
}

/// Keeps leases for a while, during which one node restarts without its memory.
pub(super) fn leases(args: &Args) -> Result<Findings, String> {
    let secs = args.secs.unwrap_or(DEFAULT_SECS);
    let kept = keep(args, secs)?;
    let row = Row {
        scenario: "many-leases".to_owned(),
        contestant: "leasehold".to_owned(),
        nodes: NODES,
        concurrency: args.leases,
        client_cpu_us: Some(kept.outcome.cpu_us / kept.looks.iter().sum::<f64>().max(1.0)),
        ..Row::default()
    };
    Ok(Findings { rows: vec![row], facts: kept.facts(args.leases, secs) })
}

fn keep(args: &Args, secs: f64) -> Result<Kept, String> {
    let cluster = Cluster::start(args.server, NODES)?;
    let progress = Progress::new("many-leases", 3);
    progress.at("taking leases");
    let spare = Beside::default();
    let empty = start(args, &cluster, spare)?.memory()?;
    let before = connections(&cluster)?;
    let mut player = start(args, &cluster, Beside { leases: args.leases, ..spare })?;
    let connections = connections(&cluster)? - before;
    let full = player.memory()?;
    progress.step();

    progress.at("keeping them");
    let order = Order::distinct(secs, 0);
    let spy = Connection::to(&cluster.servers[0].addr()).map_err(|error| error.to_string())?;
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (outcome, restarted, looks) = thread::scope(|scope| {
        let looks = scope.spawn(|| watch(spy, &count, &done));
        let half = Duration::from_secs_f64(secs / 2.0);
        let outcome = player.order(&order).and_then(|()| interrupt::sleep(half)).and_then(|()| {
            progress.step();
            progress.at("a node restarted");
            let restarted = count.load(Ordering::Relaxed);
            cluster.servers[NODES - 1].restart_empty();
            Ok((player.outcome(&order)?, restarted))
        });
        done.store(true, Ordering::Relaxed);
        let looks = looks.join().map_err(|_| "the watcher panicked".to_owned())??;
        let (outcome, restarted) = outcome?;
        Ok::<_, String>((outcome, restarted, looks))
    })?;
    let memory = [empty, full, player.memory()?];
    Ok(Kept { memory, connections, looks, restarted, outcome })
}

impl Kept {
    fn facts(&self, leases: usize, secs: f64) -> Vec<String> {
        let [empty, full, after] = self.memory;
        let each = |memory: f64| (memory - empty) / leases as f64;
        let (before, after_restart) = self.looks.split_at(self.restarted.min(self.looks.len()));
        let mut facts = vec![
            format!(
                "{leases} leases of one process: {:.0} bytes each when taken, {:.0} after {secs} s \
                 ({:.1} MB in all, {:.1} MB without any)",
                each(full),
                each(after),
                after / 1e6,
                empty / 1e6,
            ),
            format!("{:.1} connections per node", self.connections / NODES as f64),
            format!("from when the last was taken to the restart: {}", bursts(before)),
            format!("from then on: {}", bursts(after_restart)),
            format!("{} lost in {secs} s; one node restarted empty half-way", self.outcome.lost),
        ];
        facts.extend(
            self.outcome.loss.iter().map(|loss| format!("the first that was lost: {loss}")),
        );
        facts
    }
}

/// What looks at one node saw.
fn bursts(looks: &[f64]) -> String {
    let mean = looks.iter().sum::<f64>() / looks.len().max(1) as f64;
    let most = looks.iter().copied().fold(0.0, f64::max);
    format!(
        "{:.0} extensions a second on one node; per 100 ms {mean:.0} on average and {most:.0} at \
         most, {:.2} times the average",
        mean / LOOK_EVERY.as_secs_f64(),
        most / mean.max(f64::MIN_POSITIVE)
    )
}

/// Lets very many tasks wait, and then serves them.
pub(super) fn waiters(args: &Args) -> Result<Findings, String> {
    let cluster = Cluster::start(args.server, NODES)?;
    let progress = Progress::new("many-waiters", 2);
    progress.at("waiting");
    let count = args.waiters;
    let empty = start(args, &cluster, Beside::default())?.memory()?;
    let beside = Beside { leases: 0, waiters: count, waited_for: WAITED_FOR.min(count) };
    let mut player = start(args, &cluster, beside)?;
    // Carried out behind the first question of every waiter.
    let settle = Order::distinct(LOOK_EVERY.as_secs_f64(), 0);
    player.order(&settle)?;
    player.outcome(&settle)?;
    let full = player.memory()?;
    progress.step();
    progress.at("serving");
    let order = Order { serve: true, secs: count as f64 / 100.0, ..settle };
    player.order(&order)?;
    let mut outcome = player.outcome(&order)?;
    progress.step();
    let served = outcome.cycles();
    let facts = vec![
        format!(
            "{count} waiters for {} locks: {:.0} bytes each ({:.1} MB in all, {:.1} MB without any)",
            beside.waited_for,
            (full - empty) / count as f64,
            full / 1e6,
            empty / 1e6
        ),
        format!("{served} were served, {} of them out of order", outcome.out_of_order),
    ];
    let wait = Latency::of(&mut outcome.acquire_ns);
    let row = Row {
        scenario: "many-waiters".to_owned(),
        contestant: "leasehold".to_owned(),
        nodes: NODES,
        concurrency: count,
        cycles_per_s: Some(served as f64 / outcome.elapsed_s),
        p50_us: Some(wait.p50),
        p99_us: Some(wait.p99),
        p999_us: Some(wait.p999),
        jain: crate::stats::jain(&outcome.per_worker),
        ..Row::default()
    };
    Ok(Findings { rows: vec![row], facts })
}

fn start(args: &Args, cluster: &Cluster, beside: Beside) -> Result<Player, String> {
    let [leasehold] = contestants::named(&["leasehold".to_owned()])?[..] else {
        return Err("no leasehold".to_owned());
    };
    let role = Role {
        contestant: leasehold.name.to_owned(),
        addrs: cluster.addrs(),
        realm: "bench".to_owned(),
        process: 0,
        native_release: cluster.has_native_release(),
        threads: args.runtime.threads(),
        beside,
    };
    Player::start(&leasehold, &role)
}

/// How many scripts the server ran in each 100 ms, until `done`: nothing but extensions once all
/// leases are taken. Counts the looks in `count`.
fn watch(mut spy: Connection, count: &AtomicUsize, done: &AtomicBool) -> Result<Vec<f64>, String> {
    let mut looks = Vec::new();
    let (mut last, mut at) = (scripts(&mut spy)?, Instant::now());
    while !done.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY.saturating_sub(at.elapsed()));
        let (now, span) = (scripts(&mut spy)?, at.elapsed());
        at += span;
        // Looks that come late count for what they span.
        looks.push((now - last) * LOOK_EVERY.as_secs_f64() / span.as_secs_f64());
        last = now;
        count.store(looks.len(), Ordering::Relaxed);
    }
    Ok(looks)
}

fn scripts(spy: &mut Connection) -> Result<f64, String> {
    let Value::Text(stats) = spy.call(&["INFO", "commandstats"])? else {
        return Err("INFO answered no text".to_owned());
    };
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = calls.and_then(|calls| calls.split(',').next()?.parse().ok());
    Ok(calls.unwrap_or(0.0))
}

fn connections(cluster: &Cluster) -> Result<f64, String> {
    let mut sum = 0;
    for server in &cluster.servers {
        match server.command(&["CLIENT", "LIST"])? {
            Value::Text(list) => sum += list.lines().count(),
            other => return Err(format!("CLIENT LIST answered {other:?}")),
        }
    }
    Ok(sum as f64)
}
