//! What is in deploy/, as data.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// A file's path, told from the repository's root.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

pub(crate) fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The documents of a YAML file.
pub(crate) fn yaml(name: &str) -> Vec<Value> {
    text(name)
        .split("\n---\n")
        .map(|part| serde_norway::from_str(part).unwrap_or_else(|bad| panic!("{name}: {bad}")))
        .collect()
}

/// `text` with `from` replaced everywhere; it must be there.
pub(crate) fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from:?} is not in:\n{text}");
    text.replace(from, to)
}

/// An alert or a record of the rules.
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) is_alert: bool,
    pub(crate) expression: String,
    pub(crate) value: Value,
}

pub(crate) fn rules() -> Vec<Rule> {
    let groups = yaml("deploy/prometheus/alerts.yml").remove(0)["groups"].take();
    let groups = groups.as_array().expect("groups").clone();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .map(|rule| {
            let alert = rule["alert"].as_str();
            let name = alert.or(rule["record"].as_str()).expect("an alert or a record");
            Rule {
                name: name.to_owned(),
                is_alert: alert.is_some(),
                expression: rule["expr"].as_str().expect("an expression").to_owned(),
                value: rule.clone(),
            }
        })
        .collect()
}

pub(crate) fn alerts() -> Vec<Rule> {
    rules().into_iter().filter(|rule| rule.is_alert).collect()
}

/// Every expression of the board, wherever it stands, with its variables filled in.
pub(crate) fn board_expressions() -> Vec<String> {
    let board: Value = serde_json::from_str(&text("deploy/grafana/leasehold.json")).expect("JSON");
    let mut found = Vec::new();
    collect(&board, "expr", &mut found);
    found
        .iter()
        .map(|expression| {
            ["$job", "$instance"]
                .iter()
                .fold(expression.clone(), |text, variable| text.replace(variable, ".+"))
                .replace("$__rate_interval", "1m")
        })
        .inspect(|expression| assert!(!expression.contains('$'), "a variable: {expression}"))
        .collect()
}

/// The texts under `key` at any depth.
fn collect(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == key => found.push(text.to_owned()),
                    _ => collect(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, found)),
        _ => {}
    }
}
