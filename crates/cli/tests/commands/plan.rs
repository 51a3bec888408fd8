//! `plan`: figures against those computed by hand.

use serde_json::Value;

use crate::harness::Desk;

fn plan(arguments: &[&str]) -> Vec<Value> {
    let words = [&["plan", "--json"], arguments].concat();
    Desk::sqlite().run(&words).expect(0).objects()
}

fn near(value: &Value, expected: f64) {
    let found = value.as_f64().expect("a number");
    assert!((found / expected - 1.0).abs() < 1e-9, "{found:e} is not {expected:e}");
}

#[test]
fn the_figures_are_those_computed_by_hand() {
    let rows = plan(&["--nodes", "5", "--availability", "99.9%", "--price", "480", "--ttl", "10s"]);
    let by = |nodes: u64| rows.iter().find(|row| row["nodes"] == nodes).expect("a row").clone();
    let five = by(5);
    assert_eq!(five["schema"], "leasehold/plan/v1");
    assert_eq!((&five["chosen"], &five["quorum"]), (&true.into(), &3.into()));
    assert_eq!(five["failures_survived"], 2);
    // 10p³ - 15p⁴ + 6p⁵ with p = 0.001, and that share of 31 536 000 s.
    near(&five["no_quorum_probability"], 9.985006e-9);
    near(&five["downtime_seconds_per_year"], 0.314887149216);
    // 1 % of 10 s and 2 ms; a round trip of 1 ms.
    near(&five["drift_allowance_ms"], 102.0);
    near(&five["validity_ms"], 9897.0);
    near(&five["cost_per_month"], 2400.0);
    // 3p² - 2p³, and 6p² - 8p³ + 3p⁴: four nodes are worse than three, and dearer.
    near(&by(3)["no_quorum_probability"], 2.998e-6);
    near(&by(4)["no_quorum_probability"], 5.992003e-6);
    assert_eq!((&by(4)["quorum"], &by(4)["failures_survived"]), (&3.into(), &1.into()));
    near(&by(1)["downtime_seconds_per_year"], 31_536.0);
    // 30 s, 1 % and 2 ms of drift, and twice a second of skew; one node alone sits nothing out.
    assert_eq!((&five["quarantine_ms"], &by(1)["quarantine_ms"]), (&32_302.into(), &Value::Null));
}

#[test]
fn tiny_probabilities_and_large_clusters_are_exact() {
    let rows = plan(&["--nodes", "9", "--availability", "99.99999%"]);
    let nine = rows.last().unwrap();
    assert_eq!((&nine["nodes"], &nine["chosen"]), (&9.into(), &true.into()));
    // C(9,5) p⁵ (1 - …): 126e-35, less a share of 4 · 5/6 · 1e-7.
    let found = nine["no_quorum_probability"].as_f64().unwrap();
    assert!((found / 126e-35 - 1.0).abs() < 1e-6, "{found:e}");
    near(&nine["node_unavailability"], 1e-7);
}

#[test]
fn a_ttl_that_leaves_nothing_is_said_to() {
    let rows = plan(&["--ttl", "100ms", "--round-trip", "97ms"]);
    assert_eq!(rows[0]["validity_ms"], Value::Null);
    assert_eq!(rows[0]["cost_per_month"], Value::Null);
    let desk = Desk::sqlite();
    let ran = desk.run(&["plan", "--ttl", "100ms", "--round-trip", "97ms"]).expect(0);
    assert!(ran.out.contains("nothing left to work with"), "{ran:?}");
    assert!(ran.err.contains("use a longer --ttl"), "{ran:?}");
}

#[test]
fn people_get_a_table_and_no_chart_without_a_terminal() {
    let ran = Desk::sqlite().run(&["plan", "--price", "480"]).expect(0);
    assert!(ran.out.contains("2400.00") && ran.out.contains("this plan"), "{}", ran.out);
    assert!(ran.out.contains("survives no more than 3"), "{}", ran.out);
    assert!(!ran.out.contains('█'), "{}", ran.out);
    assert!(ran.err.contains("independently"), "{ran:?}");
    assert!(ran.out.contains("does not vote for 32.3s"), "{}", ran.out);
}
