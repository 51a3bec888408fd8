//! What a lock costs over HTTP, and what somebody who waits there costs.

use std::time::{Duration, Instant};

use super::Findings;
use super::contest::Contest;
use crate::args::Args;
use crate::clients::http;
use crate::lock_server::LockServer;
use crate::order::Order;
use crate::report::progress::Progress;
use crate::row::Row;
use crate::servers::Cluster;

const NODES: usize = 5;
const CONCURRENCY: [usize; 2] = [1, 64];
const USUAL: [&str; 4] = ["floor", "leasehold", "leasehold-http", "leasehold-http-client"];
/// As long as a request may wait.
const WAIT: &str = r#"{"wait_ms": 60000}"#;

/// Cycles through a lock server beside those of the library, in the same rounds.
pub(super) fn cycles(args: &Args) -> Result<Findings, String> {
    let chosen = super::contestants(args, &USUAL, |one| !one.in_file && !one.needs_native)?;
    let levels = if args.concurrency.is_empty() { &CONCURRENCY[..] } else { &args.concurrency };
    let cluster = Cluster::start(args.server, NODES)?;
    let progress = Progress::new("server", levels.len() * chosen.len() * args.rounds);
    let scenario = "server";
    let contest = Contest { args, scenario, cluster: &cluster, processes: 1, progress: &progress };
    let mut findings = Findings::default();
    for &concurrency in levels {
        let mut rows = contest.run(&chosen, &Order::distinct(args.turn(), concurrency))?;
        for row in &mut rows {
            (row.jain, row.split_votes) = (None, None);
        }
        findings.facts.extend(share(&rows, concurrency));
        findings.rows.extend(rows);
    }
    Ok(findings)
}

fn share(rows: &[Row], concurrency: usize) -> Option<String> {
    let of = |name: &str| rows.iter().find(|row| row.contestant == name)?.cycles_per_s;
    let (library, server) = (of("leasehold")?, of("leasehold-http")?);
    Some(format!(
        "{concurrency} task(s): {:.2} of the library's cycles a second over HTTP",
        server / library
    ))
}

/// Lets very many requests wait at one server.
pub(super) fn waiters(args: &Args) -> Result<Findings, String> {
    let cluster = Cluster::start(args.server, NODES)?;
    let progress = Progress::new("server-waiters", 1);
    progress.at("waiting");
    let server = LockServer::start(&cluster.addrs())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let count = args.waiters;
    let (empty, full) = runtime.block_on(wait(&server, count))?;
    progress.step();
    let fact = format!(
        "{count} requests wait at one server: {:.1} KB each ({:.1} MB in all, {:.1} MB without any)",
        (full - empty) / count as f64 / 1e3,
        full / 1e6,
        empty / 1e6
    );
    Ok(Findings { rows: Vec::new(), facts: vec![fact] })
}

/// The server's memory before and while they wait.
async fn wait(server: &LockServer, count: usize) -> Result<(f64, f64), String> {
    let mut asking = http::connect(&server.address).await?;
    let held = http::exchange(&mut asking, "POST", "/v1/locks/l/leases", "{}").await?;
    if !held.starts_with("HTTP/1.1 201") {
        return Err(held);
    }
    let empty = crate::player::memory_of(server.pid())?;
    let mut waiters = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = http::connect(&server.address).await?;
        http::send(&mut stream, "POST", "/v1/locks/l/leases", WAIT).await?;
        waiters.push(stream);
    }
    let start = Instant::now();
    let wanted = format!("\"waiters\":{count}");
    loop {
        let seen = http::exchange(&mut asking, "GET", "/v1/locks/l", "").await?;
        if seen.contains(&wanted) {
            break;
        }
        if start.elapsed() > Duration::from_secs(20) {
            return Err(format!("not all wait: {seen}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((empty, crate::player::memory_of(server.pid())?))
}
