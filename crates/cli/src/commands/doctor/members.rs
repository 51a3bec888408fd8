//! What `doctor` makes of the list of nodes: how many there are, and which of them fail together.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leasehold::NodeHealth;

use super::checks::{Patient, address, is_file, is_server};
use super::finding::{Finding, Level};
use crate::duration::{short, typed};

/// What the list of nodes itself tells.
pub(super) fn membership(patient: &Patient) -> Vec<Finding> {
    let mut findings = Vec::new();
    let count = patient.nodes.len();
    let survived = count - patient.quorum;
    if patient.nodes.iter().all(is_server) {
        // Its nodes are counted where it runs.
    } else if count == 1 && !patient.nodes.iter().all(is_file) {
        findings.push(Finding::bad(
            Level::Warning,
            "nodes",
            "one node survives no failure",
            "no lock can be had while it is down",
            "leasehold plan --nodes 3",
        ));
    } else if count.is_multiple_of(2) {
        findings.push(Finding::bad(
            Level::Warning,
            "nodes",
            format!("{count} nodes survive {survived} failure(s), as {} do", count - 1),
            "the last node costs, and adds nothing but one more that can fail",
            format!("leasehold plan --nodes {}", count + 1),
        ));
    } else {
        findings.push(Finding {
            level: Level::Ok,
            check: "nodes",
            node: None,
            found: format!("{count} node(s), {} needed, {survived} may fail", patient.quorum),
            endangers: None,
            fix: None,
        });
    }
    findings.extend(shared(patient));
    findings
}

/// Nodes that fail together: one host under several names. One server is refused by the library.
fn shared(patient: &Patient) -> Vec<Finding> {
    let mut by_host: BTreeMap<String, Vec<&NodeHealth>> = BTreeMap::new();
    for node in &patient.nodes {
        if let Some((host, _)) = address(node.node.as_str()) {
            let ip = patient.hosts.get(host).and_then(|ips| ips.first());
            let host = ip.map_or_else(|| host.to_owned(), IpAddr::to_string);
            by_host.entry(host).or_default().push(node);
        }
    }
    let names = |nodes: &[&NodeHealth]| {
        nodes.iter().map(|node| node.node.to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut findings = Vec::new();
    for (host, nodes) in by_host.iter().filter(|(_, nodes)| nodes.len() > 1) {
        let lost = if nodes.len() >= patient.quorum { "a quorum is" } else { "several votes are" };
        findings.push(Finding::bad(
            Level::Warning,
            "same host",
            format!("{} are all on {host}", names(nodes)),
            format!("when that machine fails, {lost} gone at once"),
            "put each node on a machine of its own",
        ));
    }
    findings
}

pub(super) fn ttl(patient: &Patient) -> Option<Finding> {
    let max = patient.max_ttl.filter(|max| patient.ttl > *max)?;
    Some(Finding::bad(
        Level::Error,
        "ttl",
        format!("a ttl of {} is above the cluster's max_ttl, {}", short(patient.ttl), short(max)),
        "no lock can be had with it",
        format!("use a shorter ttl: --ttl {}", typed(max)),
    ))
}
