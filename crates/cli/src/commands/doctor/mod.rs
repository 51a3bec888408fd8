//! `leasehold doctor`: everything that can be found out about the nodes before it hurts, each
//! finding with what it endangers and the command that fixes it.
//!
//! This file asks and prints; `checks` and `members` judge what was learned.

mod checks;
mod finding;
mod members;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use leasehold::{Locks, NodeHealth};
use serde_json::json;

use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use checks::Patient;
use finding::Level;

/// A lock of our own to try everything on. Always the same: each name leaves a fence behind.
const SCRATCH: &str = "leasehold/doctor";

/// Find out what is wrong with the nodes, and how to fix it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Looks at: reach, credentials, rights (on a lock of its own, leasehold/doctor), \
                  version, role, persistence, eviction, identity, clock offset and drift, round \
                  trip against the ttl, the number of nodes, nodes that share a host or are one \
                  server, addresses with several servers behind them.\n\n\
                  Example:\n  leasehold doctor\n  leasehold doctor --ttl 5s --json\n\n\
                  Exit codes: 0 all is well; 1 warnings; 2 errors; 78 bad configuration."
)]
pub(crate) struct Args {
    /// The ttl that round trips are compared with [default: the ttl in force]
    #[arg(short = 't', long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// How long to watch the clocks; longer sees smaller drift
    #[arg(long, value_name = "DURATION", default_value = "1500ms", value_parser = duration::parse)]
    watch: Duration,
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let output = context.output;
    let locks = context.open().await?;
    let patient = examine(&locks, args, context).await?;
    let findings = checks::judge(&patient);
    for finding in &findings {
        if output.json {
            output.object(&finding.json())?;
        } else {
            output.text(&finding.text(output))?;
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    if output.json {
        output.object(&json!({
            "schema": "leasehold/diagnosis/v1",
            "nodes": patient.nodes.len(),
            "quorum": patient.quorum,
            "errors": errors,
            "warnings": warnings,
        }))?;
    } else {
        output.text(&format!("{errors} error(s), {warnings} warning(s)"))?;
    }
    Ok(match (errors, warnings) {
        (0, 0) => Exit::Success,
        (0, _) => Exit::Warnings,
        _ => Exit::Errors,
    })
}

async fn examine(locks: &Locks, args: &Args, context: &Context) -> Result<Patient, Failure> {
    let (start, before) = (Instant::now(), locks.nodes());
    tokio::time::sleep(args.watch).await;
    // Nodes that were slow to connect had time by now.
    let nodes = locks.nodes();
    let denied = |error| Failure::Usage(format!("{error}"));
    let rehearsal = locks.rehearse(SCRATCH).await.map_err(denied)?;
    // The rehearsal read the clocks once more.
    let (watched, after) = (start.elapsed(), locks.nodes());
    let (hosts, met) = tokio::join!(resolve(&nodes), locks.meet_servers());
    let ttl = context.settings.ttl_or(args.ttl);
    Ok(Patient {
        quorum: locks.quorum(),
        ttl,
        max_ttl: locks.max_ttl(),
        timeout: locks.timeout(ttl),
        max_clock_skew: locks.max_clock_skew(),
        drift: locks.drift(),
        quarantine: locks.quarantine(),
        watched,
        before,
        nodes,
        after,
        rehearsal,
        hosts,
        met: met.into_iter().map(|(_, met)| met).collect(),
    })
}

/// The addresses behind each node's host, so that one machine under two names is noticed.
async fn resolve(nodes: &[NodeHealth]) -> BTreeMap<String, Vec<IpAddr>> {
    let mut hosts = BTreeMap::new();
    for health in nodes {
        let Some((host, port)) = checks::address(health.node.as_str()) else {
            continue;
        };
        let lookup = tokio::net::lookup_host((host.trim_matches(['[', ']']), port));
        let found = tokio::time::timeout(Duration::from_secs(1), lookup).await;
        let ips = found.ok().and_then(Result::ok).map(|found| found.map(|a| a.ip()).collect());
        hosts.insert(host.to_owned(), ips.unwrap_or_default());
    }
    hosts
}
