//! Locks and nodes as JSON. What stands here goes to everybody with the scope `read`: never the random
//! part of a holder, with which a lease could be released.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use leasehold::{
    Fence, LockStatus, Locks, NodeError, NodeHealth, NodeReports, NodeState, Owner, Sighting,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Whole milliseconds, rounded down: what is left of a lease must not grow on its way.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds to three places.
pub(crate) fn fine_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// A moment, for people.
pub(crate) fn time(moment: SystemTime) -> String {
    humantime::format_rfc3339_millis(moment).to_string()
}

/// Tells holders apart without telling their secret.
pub(crate) fn holder_id(owner: &Owner) -> String {
    let value = match owner {
        Owner::Holder(holder) => holder.as_str().to_owned(),
        other => other.to_string(),
    };
    hex(&Sha256::digest(value)[..16])
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What each node had to say.
pub(crate) fn reports(nodes: &NodeReports) -> Value {
    let report = |report: &leasehold::NodeReport| {
        let (key, words) = match &report.answer {
            None => ("answer", "not waited for".to_owned()),
            Some(Ok(reply)) => ("answer", reply.to_string()),
            Some(Err(error)) => ("error", error.to_string()),
        };
        json!({"node": report.node.as_str(), key: words, "after_ms": fine_millis(report.after)})
    };
    nodes.0.iter().map(report).collect()
}

/// One lock, in short.
pub(crate) fn lock(status: &LockStatus, now: SystemTime, waiters: usize) -> Value {
    let owner = status.owner();
    let fence = owner.and_then(|(owner, _)| status.fence_of(owner));
    json!({
        "name": status.name.as_str(),
        "state": status.state().as_str(),
        "holder": owner.map(|(owner, _)| owner.to_string()),
        "holder_id": owner.map(|(owner, _)| holder_id(owner)),
        "fence": fence.map(Fence::get),
        "held_for_ms": held_for(status, now).map(millis),
        "expires_in_ms": status.expires_in().map(millis),
        "votes": owner.map_or(0, |(_, votes)| votes),
        "answered": status.answered(),
        "quorum": status.quorum(),
        "waiters": waiters,
    })
}

/// How long its holder has it, if the fence tells.
pub(crate) fn held_for(status: &LockStatus, now: SystemTime) -> Option<Duration> {
    Some(now.duration_since(status.since(now)?).unwrap_or_default())
}

/// What each node says of a lock.
pub(crate) fn votes(status: &LockStatus) -> Value {
    let node = |(id, seen): &(_, Result<Sighting, NodeError>)| match seen {
        Ok(seen) => json!({
            "node": format!("{id}"),
            "holder": seen.owner.as_ref().map(Owner::to_string),
            "fence": seen.fence.map(Fence::get),
            "expires_in_ms": seen.expires_in.map(millis),
        }),
        Err(error) => json!({"node": format!("{id}"), "error": error.to_string()}),
    };
    status.nodes.iter().map(node).collect()
}

/// The nodes, and whether they are enough.
pub(crate) fn cluster(locks: &Locks, backend: &str) -> Value {
    let nodes = locks.nodes();
    let available = available(&nodes);
    json!({
        "backend": backend,
        "quorum": locks.quorum(),
        "configured": nodes.len(),
        "available": available,
        "ready": available >= locks.quorum(),
        "max_ttl_ms": locks.max_ttl().map(millis),
        "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

/// How many nodes vote.
pub(crate) fn available(nodes: &[NodeHealth]) -> usize {
    nodes.iter().filter(|node| node.state == NodeState::Up).count()
}

fn node(health: &NodeHealth) -> Value {
    let (state, why) = state(&health.state);
    let left = match &health.state {
        NodeState::Quarantined { left, .. } => Some(millis(*left)),
        _ => None,
    };
    json!({
        "node": health.node.as_str(),
        "state": state,
        "votes": health.state == NodeState::Up,
        "why": why,
        "quarantine_left_ms": left,
        "round_trip_ms": health.round_trip.map(fine_millis),
        "clock_offset_ms": health.clock_offset_micros.map(|micros| micros as f64 / 1e3),
        "version": health.version,
        "persists": health.persists,
        "life": health.life,
        "life_since": health.since.map(time),
        "run_id": health.run_id,
        "warning": health.warning,
    })
}

/// A node's state in a word, and why.
pub(crate) fn state(state: &NodeState) -> (&'static str, Option<String>) {
    match state {
        NodeState::Up => ("up", None),
        NodeState::Quarantined { why, .. } => ("quarantined", Some(why.clone())),
        NodeState::Refused { why } => ("refused", Some(why.clone())),
        NodeState::Down { error } => ("down", Some(error.to_string())),
        _ => ("unknown", None),
    }
}
