//! What the rules and the board ask for is served, under that name and with those labels.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_testkit::{Need, skip};

use crate::files::{board_expressions, rules};
use crate::promql::selectors;
use crate::serve::Server;
use crate::support::five_nodes;

/// The metrics in a text for Prometheus, each with the labels of its series.
fn metrics(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').expect("a value").0;
        // A series is a selector, and nothing but.
        let selector = selectors(series).remove(0);
        found.entry(selector.metric).or_default().extend(selector.labels);
    }
    found
}

#[test]
fn every_metric_and_label_of_the_rules_and_the_board_is_served() {
    if skip(Need::Redis) {
        return;
    }
    let (_nodes, url) = five_nodes();
    let server = Server::start(&url);
    server.bustle();
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.headers.to_lowercase().contains("application/openmetrics-text"));
    let served = metrics(&answer.body);
    let records: BTreeSet<_> =
        rules().into_iter().filter(|rule| !rule.is_alert).map(|rule| rule.name).collect();
    let expressions = rules().into_iter().map(|rule| rule.expression).chain(board_expressions());
    for expression in expressions {
        for selector in selectors(&expression) {
            let metric = selector.metric.as_str();
            // Made by Prometheus itself.
            if metric == "up" || records.contains(metric) {
                continue;
            }
            let labels = served.get(metric);
            let labels = labels.unwrap_or_else(|| panic!("{metric} is not served: {expression}"));
            for label in &selector.labels {
                let is_known = ["job", "instance"].contains(&label.as_str())
                    || labels.contains(label)
                    || label.strip_prefix("exported_").is_some_and(|label| labels.contains(label));
                assert!(is_known, "{metric} has no label {label}, only {labels:?}: {expression}");
            }
        }
    }
}

/// A counter that begins at 1 was never seen to grow: `increase` would be 0.
#[test]
fn what_alerts_count_is_there_from_the_start() {
    let server = Server::start("memory:");
    let text = server.get("/metrics").body;
    for series in [
        r#"redlock_leases_lost_total{reason="expired"} 0"#,
        r#"redlock_leases_lost_total{reason="quorum"} 0"#,
        r#"redlock_leases_lost_total{reason="stolen"} 0"#,
        r#"redlock_renewals_total{outcome="failed"} 0"#,
        r#"redlock_renewals_total{outcome="lost"} 0"#,
        "redlock_wait_duration_seconds_count 0",
    ] {
        assert!(text.lines().any(|line| line == series), "{series} is not in:\n{text}");
    }
    for outcome in ["acquired", "contended", "timeout", "no_quorum", "error", "cancelled"] {
        let series = format!("outcome=\"{outcome}\"}} 0");
        let is_there = |line: &str| {
            line.starts_with("redlock_acquire_attempts_total{") && line.ends_with(&series)
        };
        assert!(text.lines().any(is_there), "{outcome} is not in:\n{text}");
    }
}
