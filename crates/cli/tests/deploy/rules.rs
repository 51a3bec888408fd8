//! The alert rules: accepted and tried by promtool, each with a case that fires and one that does
//! not, and each with its entry in the runbook.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold_testkit::{Need, skip};
use serde_json::Value;

use crate::files::{alerts, path, rules, text, yaml};
use crate::promql::selectors;

/// As users have them already: not a letter may change.
const AS_GIVEN: &str = r#"  - name: redlock_alerts
    rules:
      - alert: RedLockHighContention
        expr: redlock_contention_rate > 0.1
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: "High lock contention detected"

      - alert: RedLockQuorumLoss
        expr: redis_instances_available < 3
        for: 1m
        labels:
          severity: critical
        annotations:
          summary: "RedLock quorum lost"

"#;
const GIVEN: [&str; 2] = ["RedLockHighContention", "RedLockQuorumLoss"];
const RUNBOOK: &str = "docs/operations.md";

#[track_caller]
fn promtool(arguments: &[&str], file: impl AsRef<Path>) {
    let mut command = Command::new(Need::Promtool.path());
    let output = command.args(arguments).arg(file.as_ref()).output().expect("promtool runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn promtool_accepts_the_rules_and_every_case_comes_out_as_told() {
    if skip(Need::Promtool) {
        return;
    }
    promtool(&["check", "rules"], path("deploy/prometheus/alerts.yml"));
    promtool(&["test", "rules"], path("deploy/prometheus/alerts_test.yml"));
}

#[test]
fn promtool_accepts_the_configuration() {
    if skip(Need::Promtool) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    for file in ["prometheus.yml", "alerts.yml"] {
        fs::copy(path("deploy/prometheus").join(file), place.path().join(file)).unwrap();
    }
    fs::create_dir(place.path().join("secrets")).unwrap();
    fs::write(place.path().join("secrets/leasehold.token"), "lh_secret\n").unwrap();
    promtool(&["check", "config"], place.path().join("prometheus.yml"));
}

#[test]
fn the_alerts_that_users_had_before_are_unchanged() {
    assert!(text("deploy/prometheus/alerts.yml").contains(AS_GIVEN));
}

#[test]
fn every_alert_has_a_case_that_fires_and_one_that_has_its_metrics_and_does_not() {
    let tests = yaml("deploy/prometheus/alerts_test.yml").remove(0)["tests"].take();
    for alert in alerts() {
        let (mut fires, mut stays_silent) = (false, false);
        for group in tests.as_array().expect("tests") {
            let cases = group["alert_rule_test"].as_array().expect("cases").iter();
            for case in cases.filter(|case| case["alertname"] == *alert.name) {
                let is_silent = case["exp_alerts"].as_array().expect("a list").is_empty();
                fires |= !is_silent;
                stays_silent |= is_silent && has_metrics(group, &alert.expression);
            }
        }
        assert!(fires, "{}: no case in which it fires", alert.name);
        assert!(stays_silent, "{}: no case with its metrics in which it is silent", alert.name);
    }
}

fn has_metrics(group: &Value, expression: &str) -> bool {
    let series = group["input_series"].as_array().expect("series");
    let given: BTreeSet<&str> =
        series.iter().filter_map(|series| series["series"].as_str()?.split('{').next()).collect();
    selectors(expression).iter().all(|selector| given.contains(selector.metric.as_str()))
}

#[test]
fn every_case_is_of_an_alert_that_exists() {
    let names: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    let tests = yaml("deploy/prometheus/alerts_test.yml").remove(0)["tests"].take();
    for group in tests.as_array().expect("tests") {
        for case in group["alert_rule_test"].as_array().expect("cases") {
            let name = case["alertname"].as_str().expect("a name");
            assert!(names.contains(name), "{name} is tried, and is not there");
        }
    }
}

#[test]
fn every_alert_says_how_bad_it_is_what_happened_and_where_to_read_on() {
    for alert in alerts() {
        let (name, rule) = (&alert.name, &alert.value);
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
        let annotations = &rule["annotations"];
        assert!(annotations["summary"].is_string(), "{name}");
        if GIVEN.contains(&name.as_str()) {
            continue;
        }
        assert!(annotations["description"].is_string(), "{name}");
        let runbook = format!("{RUNBOOK}#{}", name.to_lowercase());
        assert_eq!(annotations["runbook_url"], *runbook, "{name}");
    }
}

#[test]
fn every_alert_has_its_entry_in_the_runbook_and_every_entry_its_alert() {
    let text = text(RUNBOOK);
    let entries = text.split("\n## ").skip(1).filter(|entry| entry.starts_with("RedLock"));
    let mut described = BTreeSet::new();
    for entry in entries {
        let (name, what) = entry.split_once('\n').expect("a text");
        for part in ["**Means**", "**Look**", "**Do**", "**Do not**"] {
            assert!(what.contains(part), "{name}: {part} is missing");
        }
        assert!(described.insert(name.to_owned()), "{name} is there twice");
    }
    let alerts: BTreeSet<_> = alerts().into_iter().map(|alert| alert.name).collect();
    assert_eq!(described, alerts);
}

#[test]
fn every_record_that_is_used_is_made() {
    let records: BTreeSet<_> =
        rules().into_iter().filter(|rule| !rule.is_alert).map(|rule| rule.name).collect();
    assert!(!records.is_empty());
    let expressions = rules().into_iter().map(|rule| rule.expression);
    for expression in expressions.chain(crate::files::board_expressions()) {
        for selector in selectors(&expression) {
            let is_record = selector.metric.contains(':');
            assert!(!is_record || records.contains(&selector.metric), "{expression}");
        }
    }
}
