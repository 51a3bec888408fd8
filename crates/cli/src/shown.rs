//! A lock as people and programs see it: one view, used by `status`, `list` and `watch`.

use std::time::{Duration, SystemTime};

use leasehold::{LockState, LockStatus, NodeError, Owner, Sighting};
use serde_json::{Value, json};

use crate::duration::{millis, short};
use crate::output::{Output, Tone, heading};

/// What the nodes say of a lock, summed up.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    status: &'a LockStatus,
    now: SystemTime,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(status: &'a LockStatus, now: SystemTime) -> Self {
        Self { status, now }
    }

    pub(crate) fn state(&self) -> LockState {
        self.status.state()
    }

    /// Who has it on most nodes.
    pub(crate) fn owner(&self) -> Option<String> {
        self.status.owner().map(|(owner, _)| owner.to_string())
    }

    /// The fence of whoever has it on most nodes, or else the highest that any node remembers.
    pub(crate) fn fence(&self) -> Option<u64> {
        let owners = self.status.owner().and_then(|(owner, _)| self.status.fence_of(owner));
        owners.or_else(|| self.status.fence()).map(leasehold::Fence::get)
    }

    pub(crate) fn since(&self) -> Option<SystemTime> {
        self.status.since(self.now)
    }

    fn held_for(&self) -> Option<Duration> {
        Some(self.now.duration_since(self.since()?).unwrap_or_default())
    }

    fn votes(&self) -> usize {
        self.status.owner().map_or(0, |(_, votes)| votes)
    }

    /// `leasehold/lock/v1`.
    pub(crate) fn json(&self) -> Value {
        let node = |(id, seen): &(_, Result<Sighting, NodeError>)| match seen {
            Ok(seen) => json!({
                "node": format!("{id}"),
                "holder": seen.owner.as_ref().map(Owner::to_string),
                "fence": seen.fence.map(leasehold::Fence::get),
                "expires_in_ms": seen.expires_in.map(millis),
            }),
            Err(error) => json!({"node": format!("{id}"), "error": error.to_string()}),
        };
        json!({
            "schema": "leasehold/lock/v1",
            "name": self.status.name.as_str(),
            "state": self.state().as_str(),
            "holder": self.owner(),
            "since": self.since().map(time),
            "held_ms": self.held_for().map(millis),
            "expires_in_ms": self.status.expires_in().map(millis),
            "fence": self.fence(),
            "highest_fence": self.status.fence().map(leasehold::Fence::get),
            "votes": self.votes(),
            "answered": self.status.answered(),
            "quorum": self.status.quorum(),
            "waiters": Value::Null,
            "nodes": self.status.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }

    /// Several lines for people.
    pub(crate) fn text(&self, output: Output) -> String {
        let mut lines = vec![format!(
            "{}  {}",
            output.paint(Tone::Plain, self.status.name.as_str()),
            output.paint(tone(self.state()), self.state().as_str())
        )];
        let mut line = |name: &str, text: String| {
            lines.push(format!("  {}  {}", output.paint(Tone::Dim, &format!("{name:<7}")), text));
        };
        if let Some(owner) = self.owner() {
            line("holder", output.paint(Tone::Plain, &owner));
            line("since", self.since_text());
            line("left", self.left_text());
        }
        if let Some(fence) = self.fence() {
            line("fence", fence.to_string());
        }
        if let Some(highest) = self.status.fence().filter(|f| Some(f.get()) != self.fence()) {
            line("", format!("{highest} on a node where another attempt did not succeed"));
        }
        let (votes, nodes) = (self.votes(), self.status.nodes.len());
        line(
            "votes",
            format!(
                "{votes} of {nodes}, {} needed; {} answered",
                self.status.quorum(),
                self.status.answered()
            ),
        );
        line(
            "waiters",
            "not known: a node tells a place in line only to whoever stands there".into(),
        );
        let table = output.table(&self.node_rows());
        lines.push(table.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"));
        lines.join("\n")
    }

    fn since_text(&self) -> String {
        match (self.since(), self.held_for()) {
            (Some(since), Some(held)) => format!("{} ({} ago)", time(since), short(held)),
            _ => "not known: the fence does not tell the time".into(),
        }
    }

    pub(crate) fn left_text(&self) -> String {
        match (self.status.expires_in(), self.state()) {
            (Some(left), _) => short(left),
            (None, LockState::Held) => "no end: it has no TTL".into(),
            (None, _) => "-".into(),
        }
    }

    fn node_rows(&self) -> Vec<Vec<(Tone, String)>> {
        let mut rows = vec![heading(["node", "owner", "left", "fence"])];
        for (node, seen) in &self.status.nodes {
            let node = (Tone::Plain, node.to_string());
            rows.push(match seen {
                Ok(seen) => vec![
                    node,
                    (Tone::Plain, seen.owner.as_ref().map_or("-".into(), Owner::to_string)),
                    (Tone::Plain, seen.expires_in.map_or("-".into(), short)),
                    (Tone::Plain, seen.fence.map_or("-".into(), |fence| fence.to_string())),
                ],
                Err(error) => vec![node, (Tone::Bad, error.to_string())],
            });
        }
        rows
    }
}

/// The colour of a state.
pub(crate) fn tone(state: LockState) -> Tone {
    match state {
        LockState::Free => Tone::Dim,
        LockState::Held => Tone::Good,
        LockState::Split => Tone::Warning,
    }
}

/// A moment, in UTC.
pub(crate) fn time(moment: SystemTime) -> String {
    humantime::format_rfc3339_millis(moment).to_string()
}
