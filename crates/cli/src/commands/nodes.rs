//! `leasehold nodes`: how each node is.

use std::time::SystemTime;

use leasehold::{NodeHealth, NodeState};
use serde_json::{Value, json};

use crate::context::Context;
use crate::duration::{millis, short};
use crate::exit::{Exit, Failure};
use crate::output::{Tone, heading};

/// Show how each node is
#[derive(Debug, clap::Args)]
#[command(after_help = "`leasehold doctor` says what to do about it.\n\n\
                  Example:\n  leasehold nodes\n  leasehold nodes --json | jq 'select(.state != \"up\")'\n\n\
                  Exit codes: 0 a quorum votes; 69 it does not; 78 bad configuration.")]
pub(crate) struct Args {}

pub(crate) async fn exec(_: &Args, context: &Context) -> Result<Exit, Failure> {
    let (locks, output) = (context.open().await?, context.output);
    let nodes = locks.nodes();
    if output.json {
        for health in &nodes {
            output.object(&node(health))?;
        }
    } else {
        let mut rows =
            vec![heading(["node", "state", "version", "round trip", "clock", "life", "since", ""])];
        rows.extend(nodes.iter().map(row));
        output.text(&output.table(&rows))?;
    }
    let votes = nodes.iter().filter(|health| health.state == NodeState::Up).count();
    let (count, quorum) = (nodes.len(), locks.quorum());
    output.note(&format!("{votes} of {count} nodes vote, {quorum} needed"));
    Ok(if votes >= quorum { Exit::Success } else { Exit::Unavailable })
}

/// `up`, `quarantined`, `refused`, `down` or `unknown`, and why.
pub(super) fn state(health: &NodeHealth) -> (&'static str, Tone, Option<String>) {
    match &health.state {
        NodeState::Up => ("up", Tone::Good, health.warning.clone()),
        NodeState::Quarantined { left, why, .. } => {
            let why = format!("{why}; votes in {}", short(*left));
            ("quarantined", Tone::Warning, Some(why))
        }
        NodeState::Refused { why } => ("refused", Tone::Bad, Some(why.clone())),
        NodeState::Down { error } => ("down", Tone::Bad, Some(error.to_string())),
        _ => ("unknown", Tone::Warning, None),
    }
}

fn row(health: &NodeHealth) -> Vec<(Tone, String)> {
    let (word, tone, why) = state(health);
    let or_dash = |text: Option<String>| (Tone::Plain, text.unwrap_or_else(|| "-".into()));
    let age = |since: SystemTime| short(since.elapsed().unwrap_or_default());
    vec![
        (Tone::Plain, health.node.to_string()),
        (tone, word.into()),
        or_dash(health.version.clone()),
        or_dash(health.round_trip.map(short)),
        or_dash(health.clock_offset_micros.map(offset)),
        or_dash(health.life.as_ref().map(|life| format!("{life:.8}"))),
        or_dash(health.since.map(age)),
        (Tone::Plain, why.unwrap_or_default()),
    ]
}

/// How far a clock is ahead of ours, or behind.
pub(super) fn offset(micros: i64) -> String {
    // Without a zero that has a sign.
    let tenths = (micros as f64 / 100.0).round() + 0.0;
    format!("{:+.1}ms", tenths / 10.0)
}

/// `leasehold/node/v1`.
fn node(health: &NodeHealth) -> Value {
    let (word, _, why) = state(health);
    let left = match &health.state {
        NodeState::Quarantined { left, .. } => Some(millis(*left)),
        _ => None,
    };
    json!({
        "schema": "leasehold/node/v1",
        "node": health.node.as_str(),
        "state": word,
        "why": why,
        "votes_in_ms": left,
        "version": health.version,
        "round_trip_us": health.round_trip.map(|trip| trip.as_micros() as u64),
        "clock_offset_us": health.clock_offset_micros,
        "persists": health.persists,
        "life": health.life,
        "life_since": health.since.map(|since| humantime::format_rfc3339_millis(since).to_string()),
        "run_id": health.run_id,
        "record": health.record,
    })
}
