//! One of two lock servers behind HAProxy dies under load: the bench itself is the judge of what may be
//! seen then, so the run must succeed, and have shown something.

use std::process::{Command, Output};

use leasehold_bench::row::Row;
use leasehold_testkit::{Need, skip};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"));
    command.arg("server-killed").args(arguments);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn no_lock_is_lost_and_no_two_hold_one_when_a_server_is_killed_and_clients_go_on() {
    if skip(Need::Redis) || skip(Need::Haproxy) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let mut command = bench(&["--secs", "2", "--rounds", "1", "--concurrency", "16", "--json"]);
    let run = command.arg(&json).output().unwrap();
    assert!(run.status.success(), "{}", said(&run));
    let facts = String::from_utf8(run.stdout).unwrap();
    assert!(facts.contains("14 take turns at 4 locks, 2 keep one each"), "{facts}");
    assert!(facts.contains("a server was killed 1 time(s)"), "{facts}");
    assert!(facts.contains(", 0 of them wrongly"), "{facts}");
    let rows: Vec<Row> = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let phases: Vec<_> = rows.iter().map(|row| row.scenario.as_str()).collect();
    assert_eq!(phases, ["server-killed/before", "server-killed/dead", "server-killed/back"]);
    for row in &rows {
        assert!(row.cycles_per_s.is_some_and(|speed| speed > 0.0), "{row:?}\n{facts}");
        assert!(row.p999_us.is_some_and(|wait| wait > 0.0), "{row:?}\n{facts}");
    }
}

#[test]
fn a_balancer_that_is_not_there_is_an_error_that_helps() {
    let run = bench(&[]).env("LEASEHOLD_TEST_HAPROXY", "/none").output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    let expected = "leasehold-bench: haproxy not found: run ./test once, it fetches it\n";
    assert_eq!(said(&run), expected);
}

#[test]
fn too_few_clients_are_refused_before_anything_is_started() {
    let run = bench(&["--concurrency", "3"]).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    let expected = "leasehold-bench: server-killed needs 4 clients at least, not 3\n";
    assert_eq!(said(&run), expected);
}
