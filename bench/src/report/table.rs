//! Rows for people: a table per setting.

use std::fmt::Write as _;

use crate::row::Row;

/// Name, width, and how a row fills it.
type Column = (&'static str, fn(&Row) -> Option<f64>);

const COLUMNS: [Column; 10] = [
    ("cycles/s", |row| row.cycles_per_s),
    ("× floor", |row| row.ratio_to_floor),
    ("p50 µs", |row| row.p50_us),
    ("p99 µs", |row| row.p99_us),
    ("p99.9 µs", |row| row.p999_us),
    ("client µs", |row| row.client_cpu_us),
    ("server µs", |row| row.server_cpu_us),
    ("commands", |row| row.commands_per_cycle),
    ("jain", |row| row.jain),
    ("splits", |row| row.split_votes),
];

/// The rows in the order given, under a heading whenever the setting changes.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut setting = None;
    let width = rows.iter().map(|row| row.contestant.chars().count()).max().unwrap_or(0);
    for row in rows {
        let this = (&row.scenario, row.nodes, row.concurrency);
        if setting != Some(this) {
            setting = Some(this);
            heading(&mut out, row, width);
        }
        let _ = write!(out, "{:width$}", row.contestant);
        for (_, value) in COLUMNS {
            let _ = write!(out, " {:>9}", cell(value(row)));
        }
        out.push('\n');
    }
    out
}

fn heading(out: &mut String, row: &Row, width: usize) {
    let nodes = if row.nodes == 1 { "node" } else { "nodes" };
    let tasks = if row.concurrency == 1 { "task" } else { "tasks" };
    let _ = writeln!(out, "\n{}, {} {nodes}, {} {tasks}", row.scenario, row.nodes, row.concurrency);
    let _ = write!(out, "{:width$}", "");
    for (name, _) in COLUMNS {
        let _ = write!(out, " {name:>9}");
    }
    out.push('\n');
}

fn cell(value: Option<f64>) -> String {
    match value.filter(|value| value.is_finite()) {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_apart_and_what_has_no_meaning_is_a_dash() {
        let row = |concurrency| Row {
            scenario: "single".into(),
            contestant: "floor".into(),
            nodes: 1,
            concurrency,
            cycles_per_s: Some(14583.4),
            ratio_to_floor: Some(1.0),
            p50_us: Some(29.13),
            ..Row::default()
        };
        let text = table(&[row(1), row(1), row(16)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "single, 1 node, 1 task");
        assert!(lines[2].contains("cycles/s   × floor"), "{text}");
        assert!(lines[3].starts_with("floor     14583     1.000      29.1         –"), "{text}");
        assert_eq!(lines[6], "single, 1 node, 16 tasks");
        assert_eq!(lines.len(), 9, "{text}");
    }
}
