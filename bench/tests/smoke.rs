//! The bench really measures: on real servers, with processes of its own, every figure there.

use std::process::Command;

use leasehold_bench::row::Row;
use leasehold_testkit::{Need, skip};

#[test]
fn a_short_run_fills_every_row() {
    if skip(Need::Redis) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(["uncontended", "--secs", "0.1", "--rounds", "2", "--concurrency", "1"])
        .args(["--only", "floor,leasehold", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert_eq!(said, "", "nothing failed, and no progress is shown to a pipe");
    let table = String::from_utf8(run.stdout).unwrap();
    assert!(table.contains("uncontended, 5 nodes, 1 task"), "{table}");

    let rows: Vec<Row> = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let who: Vec<_> = rows.iter().map(|row| row.contestant.as_str()).collect();
    assert_eq!(who, ["floor", "leasehold"]);
    for row in &rows {
        assert_eq!((row.nodes, row.concurrency), (5, 1));
        let figures = [
            row.cycles_per_s,
            row.ratio_to_floor,
            row.p50_us,
            row.p99_us,
            row.p999_us,
            row.client_cpu_us,
            row.server_cpu_us,
            row.commands_per_cycle,
        ];
        assert!(figures.iter().all(|figure| figure.is_some_and(|it| it > 0.0)), "{row:?}");
        assert_eq!((row.jain, row.split_votes), (None, None), "nobody waited for anybody");
    }
    assert_eq!(rows[0].ratio_to_floor, Some(1.0));
    // SET, EVALSHA, GET and DEL on each of five nodes, and what idle Leasehold asks meanwhile.
    let commands = rows[0].commands_per_cycle.unwrap();
    assert!((20.0..25.0).contains(&commands), "{commands} commands a cycle");
}

#[test]
fn an_unknown_contestant_is_named_with_those_there_are() {
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(["single", "--only", "floor,etcd"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        said.starts_with(
            "leasehold-bench: no contestant is called `etcd`; there are floor, floor-native,"
        ),
        "{said}"
    );
}
