//! What `doctor` makes of what it learned of each node. No I/O: each check is a function from the
//! node's own words to findings.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use leasehold::{Cause, Drift, NodeError, NodeHealth, NodeReports, NodeState};

use super::SCRATCH;
use super::finding::{Finding, Level};
use super::members::{membership, ttl};
use crate::commands::nodes::offset;
use crate::duration::{short, typed};

/// Everything that was learned.
pub(super) struct Patient {
    pub(super) quorum: usize,
    pub(super) ttl: Duration,
    pub(super) max_ttl: Option<Duration>,
    /// What a node has to answer in.
    pub(super) timeout: Duration,
    pub(super) max_clock_skew: Duration,
    pub(super) drift: Drift,
    /// Whether a node that lost its memory sits out.
    pub(super) quarantine: bool,
    /// How long the clocks were watched.
    pub(super) watched: Duration,
    /// As the nodes were at the beginning of that.
    pub(super) before: Vec<NodeHealth>,
    pub(super) nodes: Vec<NodeHealth>,
    /// As they were at its end, after the rehearsal.
    pub(super) after: Vec<NodeHealth>,
    pub(super) rehearsal: Vec<(&'static str, NodeReports)>,
    pub(super) hosts: BTreeMap<String, Vec<IpAddr>>,
    /// The servers that several connections to each node met.
    pub(super) met: Vec<Vec<Option<String>>>,
}

impl Patient {
    /// Whether no node shows that its cluster was there before: `init` admits first lives only.
    fn may_be_new(&self) -> bool {
        self.nodes.iter().all(|node| match &node.state {
            NodeState::Quarantined { cause, .. } => *cause == Cause::Forgot,
            NodeState::Down { .. } | NodeState::Unknown => true,
            _ => false,
        })
    }
}

/// A ttl should be this many round trips long, or leases are spent on asking.
const TRIPS_PER_TTL: u32 = 10;

/// The time limit should be this many round trips long: to connect takes three of them.
const TRIPS_PER_LIMIT: u32 = 4;

const TIME_SERVICE: &str = "chronyc tracking, on that host and on this one";

pub(super) fn judge(patient: &Patient) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, node) in patient.nodes.iter().enumerate() {
        findings.push(standing(node, patient));
        if matches!(node.state, NodeState::Down { .. } | NodeState::Unknown) {
            continue;
        }
        if let Some(version) = &node.version {
            findings.push(Finding::ok("version", node, version));
        }
        findings.extend(rights(patient, index));
        findings.extend(round_trip(node, patient));
        // What its nodes are like, a lock server knows better: `leasehold doctor` there.
        if is_server(node) {
            continue;
        }
        findings.extend(eviction(node));
        findings.extend(several_servers(patient, index));
        findings.extend(persistence(node, patient));
        findings.extend(clock(patient, index));
        findings.extend(fences(node));
        findings.extend(identity(node));
    }
    findings.extend(membership(patient));
    findings.extend(ttl(patient));
    findings
}

/// Reach, credentials, role and whose node it is: whether it votes.
fn standing(node: &NodeHealth, patient: &Patient) -> Finding {
    let no_vote = "one vote less: fewer failures are survived";
    let cli = redis_cli(node);
    match &node.state {
        NodeState::Up => Finding::ok("vote", node, "it votes"),
        NodeState::Quarantined { left, why, cause } => Finding::bad(
            Level::Warning,
            "vote",
            format!("{why}: it does not vote for another {}", short(*left)),
            no_vote,
            match cause {
                Cause::Clock(_) | Cause::Off { .. } => TIME_SERVICE,
                Cause::Forgot if patient.may_be_new() => {
                    "wait; if all nodes are new and never held a lock: leasehold init"
                }
                Cause::Barred => "finish the change of the member list: docs/operations.md, Changing the member list",
                _ => "wait: it votes by itself, and nobody can tell sooner that it may",
            },
        )
        .at(node),
        NodeState::Refused { why } if why.contains("replica") => Finding::bad(
            Level::Error,
            "role",
            why,
            "a replica forgets what its primary answered: two holders",
            format!("list its primary instead, or make it one: {cli} REPLICAOF NO ONE"),
        )
        .at(node),
        NodeState::Refused { why } if why.contains("cluster mode") => Finding::bad(
            Level::Error,
            "role",
            why,
            "its data move between shards",
            "start an independent server: redis-server --port 7001",
        )
        .at(node),
        NodeState::Refused { why } if why.contains("evict") => Finding::bad(
            Level::Error,
            "eviction",
            why,
            "a lock that is evicted is free while somebody holds it: two holders",
            format!("{cli} CONFIG SET maxmemory-policy noeviction"),
        )
        .at(node),
        NodeState::Refused { why } if why.contains("max_ttl") => Finding::bad(
            Level::Error,
            "max_ttl",
            why,
            "no lock can be had with this setting",
            "give every client the same max_ttl in the backend URL",
        )
        .at(node),
        NodeState::Refused { why } if why.contains("one server") => Finding::bad(
            Level::Error,
            "same server",
            why,
            "one server would be counted twice: two holders",
            "give each member the address of its own server; leasehold config shows the list",
        )
        .at(node),
        NodeState::Refused { why } if why.contains("servers") => Finding::bad(
            Level::Error,
            "several servers",
            why,
            "each of them keeps locks of its own: two holders",
            format!("let the address lead to one server; who answers: {cli} INFO server"),
        )
        .at(node),
        NodeState::Refused { why } if why.contains("its record says") => Finding::bad(
            Level::Error,
            "identity",
            why,
            "a server that is counted for another member, or knows only another's locks",
            format!("correct the address; if its data were copied there: {cli} DEL leasehold:node"),
        )
        .at(node),
        NodeState::Refused { why } => Finding::bad(
            Level::Error,
            "identity",
            why,
            "clients with different member lists do not exclude each other: two holders",
            "give every client the same member list; leasehold config shows this one",
        )
        .at(node),
        NodeState::Down { error: error @ NodeError::Denied { .. } } => Finding::bad(
            Level::Error,
            "credentials",
            error.to_string(),
            no_vote,
            match is_server(node) {
                true => "set LEASEHOLD_TOKEN; on the server: leasehold token new".into(),
                false => format!(
                    "set user and password in the backend URL; try them: {cli} --askpass PING"
                ),
            },
        )
        .at(node),
        NodeState::Down { error } if error.to_string().contains("is too old") => Finding::bad(
            Level::Error,
            "version",
            error.to_string(),
            no_vote,
            format!("upgrade it; what it is: {cli} INFO server"),
        )
        .at(node),
        NodeState::Down { error } => Finding::bad(
            Level::Error,
            "reach",
            error.to_string(),
            no_vote,
            format!("start it, or open the way to it; try: {}", ping(node)),
        )
        .at(node),
        _ => Finding::bad(
            Level::Error,
            "reach",
            "it did not answer yet",
            no_vote,
            format!("try: {}", ping(node)),
        )
        .at(node),
    }
}

/// Every step of a lock's life, tried on a lock of our own.
fn rights(patient: &Patient, index: usize) -> Option<Finding> {
    let node = &patient.nodes[index];
    if node.state != NodeState::Up {
        return None;
    }
    let answer = |reports: &NodeReports| reports.0.get(index).and_then(|r| r.answer.clone());
    let failed = patient.rehearsal.iter().find_map(|(what, reports)| match answer(reports) {
        Some(Err(error)) => Some((what, error)),
        _ => None,
    });
    Some(match failed {
        None => {
            let steps: Vec<_> = patient.rehearsal.iter().map(|(what, _)| *what).collect();
            Finding::ok("rights", node, format!("{} work", steps.join(", ")))
        }
        Some((what, error)) => Finding::bad(
            Level::Error,
            "rights",
            format!("{what}: {error}"),
            "it counts as voting but cannot: fewer failures are survived",
            match error {
                NodeError::Denied { .. } if is_server(node) => {
                    format!("a token that may: leasehold token new --scope 'lock:{SCRATCH}' --scope read")
                }
                _ if is_server(node) => {
                    format!("see what the server says: curl {}/readyz", node.node)
                }
                NodeError::Denied { .. } => {
                    format!("{} ACL SETUSER … as docs/backends/redis.md says", redis_cli(node))
                }
                NodeError::TimedOut { .. } => {
                    format!("see why it is slow: {} SLOWLOG GET 10", redis_cli(node))
                }
                _ => format!("see what keeps it from working: {} INFO", redis_cli(node)),
            },
        )
        .at(node),
    })
}

fn eviction(node: &NodeHealth) -> Option<Finding> {
    let warning = node.warning.as_ref().filter(|_| node.state == NodeState::Up)?;
    if !warning.contains("evict") {
        return None;
    }
    let endangers = "a lock that is evicted is free while somebody holds it: two holders";
    let fix = format!("{} CONFIG SET maxmemory-policy noeviction", redis_cli(node));
    Some(Finding::bad(Level::Error, "eviction", warning, endangers, fix).at(node))
}

/// Fences that no clock of now explains.
fn fences(node: &NodeHealth) -> Option<Finding> {
    let warning = node.warning.as_ref().filter(|warning| warning.contains("fence"))?;
    let (endangers, fix) = match warning.contains("used up") {
        true => ("that lock: every acquire of it is refused", "rename the lock in your program"),
        false => (
            "nothing while they are remembered; if a majority forgets, fences may repeat",
            "restart or replace one node at a time: docs/operations.md, Fences ahead of the clocks",
        ),
    };
    Some(Finding::bad(Level::Warning, "fences", warning, endangers, fix).at(node))
}

/// Whether the node's name leads to one server: over several connections, and by its addresses.
fn several_servers(patient: &Patient, index: usize) -> Option<Finding> {
    let node = &patient.nodes[index];
    let cli = redis_cli(node);
    let met: BTreeSet<_> = patient.met.get(index)?.iter().flatten().collect();
    if met.len() > 1 {
        let count = patient.met[index].len();
        return Some(
            Finding::bad(
                Level::Error,
                "several servers",
                format!("{count} connections to it met {} servers", met.len()),
                "each of them keeps locks of its own: two holders",
                format!("let the address lead to one server; who answers: {cli} INFO server"),
            )
            .at(node),
        );
    }
    let host = address(node.node.as_str()).map(|(host, _)| host)?;
    let ips = patient.hosts.get(host)?;
    let most =
        |is_v4: bool| ips.iter().filter(|ip| ip.is_ipv4() == is_v4).collect::<BTreeSet<_>>().len();
    let count = most(true).max(most(false));
    if count > 1 {
        return Some(
            Finding::bad(
                Level::Warning,
                "several addresses",
                format!("{host} has {count} addresses"),
                "behind each may be another server with locks of its own: two holders",
                "give the member a name that leads to one address",
            )
            .at(node),
        );
    }
    let silent = patient.met[index].iter().filter(|met| met.is_none()).count();
    if silent > 0 {
        return Some(
            Finding::bad(
                Level::Warning,
                "several servers",
                format!("{silent} of {} connections to it met nobody", patient.met[index].len()),
                "a new client does not count it before two further connections were answered",
                format!("see how many it takes: {cli} CONFIG GET maxclients"),
            )
            .at(node),
        );
    }
    (!met.is_empty()).then(|| {
        let count = patient.met[index].len();
        Finding::ok("several servers", node, format!("{count} connections met one server"))
    })
}

fn persistence(node: &NodeHealth, patient: &Patient) -> Option<Finding> {
    let persists = node.persists?;
    Some(if is_file(node) {
        Finding::ok(
            "persistence",
            node,
            "a power cut may forget the last locks, and ends their holders with them",
        )
    } else if patient.quarantine {
        let keeps = if persists { "a restart keeps its data" } else { "a restart loses its data" };
        let found = format!("{keeps}; in any case it then sits out the longest lease");
        Finding::ok("persistence", node, found)
    } else if persists {
        let found = "it keeps a log on disk; what a restart forgets depends on appendfsync";
        Finding::ok("persistence", node, found)
    } else {
        Finding::bad(
            Level::Warning,
            "persistence",
            "it keeps no log on disk, and there is no other node",
            "a restart forgets locks that are held: two holders",
            format!(
                "{0} CONFIG SET appendonly yes; {0} CONFIG SET appendfsync always",
                redis_cli(node)
            ),
        )
        .at(node)
    })
}

fn clock(patient: &Patient, index: usize) -> Option<Finding> {
    let (before, after) = (&patient.before[index], &patient.after[index]);
    let now = after.clock_offset_micros?;
    let (skew, max) = (Duration::from_micros(now.unsigned_abs()), patient.max_clock_skew);
    if skew > max / 2 {
        let level = if skew > max { Level::Error } else { Level::Warning };
        let endangers = "fences that follow wrong clocks; a restarted node may vote too soon";
        let max = short(max);
        let found = format!("its clock is {} from ours, max_clock_skew is {max}", offset(now));
        return Some(Finding::bad(level, "clock", found, endangers, TIME_SERVICE).at(after));
    }
    let moved = before.clock_offset_micros.map(|offset| now - offset);
    let allowed = patient.drift.allowance(patient.watched).as_micros() as i64;
    // An offset is known to half a round trip, before and after.
    let trips = after.round_trip.unwrap_or_default() + before.round_trip.unwrap_or_default();
    let blur = trips.as_micros() as i64;
    let watched = short(patient.watched);
    Some(match moved {
        Some(moved) if moved.abs() > allowed + blur => {
            let found = format!("its clock moved {} against ours in {watched}", offset(moved));
            let endangers = "leases end earlier or later than their holders believe: two holders";
            Finding::bad(Level::Error, "drift", found, endangers, TIME_SERVICE).at(after)
        }
        Some(moved) => {
            let (now, moved) = (offset(now), offset(moved));
            Finding::ok("clock", after, format!("{now} from ours, moved {moved} in {watched}"))
        }
        None => Finding::ok("clock", after, format!("{} from ours", offset(now))),
    })
}

fn round_trip(node: &NodeHealth, patient: &Patient) -> Option<Finding> {
    let (trip, ttl, limit) = (node.round_trip?, patient.ttl, patient.timeout);
    let share = format!("round trip {} for a ttl of {}", short(trip), short(ttl));
    Some(if trip * TRIPS_PER_TTL > ttl {
        let fix = format!("use a longer ttl: --ttl {}", typed(trip * TRIPS_PER_TTL * 2));
        let endangers = "leases are spent on asking, and lost upon the first delay";
        Finding::bad(Level::Error, "round trip", share, endangers, fix).at(node)
    } else if trip * TRIPS_PER_LIMIT > limit && !is_file(node) {
        let fix = format!(
            "put a longer limit into the backend URL: ?timeout={}",
            typed(trip * TRIPS_PER_LIMIT * 2)
        );
        let endangers =
            format!("it misses the time limit of {} now and then: one vote less", short(limit));
        Finding::bad(Level::Warning, "round trip", share, endangers, fix).at(node)
    } else {
        Finding::ok("round trip", node, share)
    })
}

fn identity(node: &NodeHealth) -> Option<Finding> {
    let record = node.record.as_deref()?;
    let field = |name: &str| field(record, name).unwrap_or("?");
    let found = format!(
        "cluster {} of {} node(s), life {:.8}, {}",
        field("cluster"),
        field("nodes"),
        field("life"),
        field("state")
    );
    (node.state == NodeState::Up).then(|| Finding::ok("identity", node, found))
}

/// A value of an identity record.
fn field<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    record.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Host and port of a node that is reached by TCP.
pub(super) fn address(node: &str) -> Option<(&str, u16)> {
    let (host, port) =
        node.split_once('/').map_or(node, |(address, _)| address).rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// Holders of its locks are on the same machine, and fail with it.
pub(super) fn is_file(node: &NodeHealth) -> bool {
    ["sqlite:", "memory:"].iter().any(|scheme| node.node.as_str().starts_with(scheme))
}

/// Whether it stands for nodes of its own.
pub(super) fn is_server(node: &NodeHealth) -> bool {
    ["http://", "https://"].iter().any(|scheme| node.node.as_str().starts_with(scheme))
}

/// A command that tells whether it is there.
fn ping(node: &NodeHealth) -> String {
    match is_server(node) {
        true => format!("curl {}/healthz", node.node),
        false => format!("{} PING", redis_cli(node)),
    }
}

fn redis_cli(node: &NodeHealth) -> String {
    let name = node.node.as_str();
    match (address(name), name.strip_prefix("unix:").and_then(|path| path.rsplit_once('/'))) {
        (Some((host, port)), _) => format!("redis-cli -h {host} -p {port}"),
        (None, Some((path, _))) => format!("redis-cli -s {path}"),
        (None, None) => "redis-cli".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_taken_apart_as_they_are_named() {
        assert_eq!(address("10.0.0.1:6379/0"), Some(("10.0.0.1", 6379)));
        assert_eq!(address("[::1]:7000/2"), Some(("[::1]", 7000)));
        assert_eq!(address("unix:/run/redis.sock/0"), None);
        assert_eq!(address("https://10.0.0.1:7717"), None);
        let record = "leasehold1 cluster=ab nodes=3 max_ttl=30000 life=00 run=f00 state=admitted";
        assert_eq!((field(record, "run"), field(record, "born")), (Some("f00"), None));
    }
}
