//! The bench really measures: on real servers, with processes of its own, every figure there.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_bench::row::Row;
use leasehold_testkit::{Need, bound_command, eventually, skip, spawn};
use rustix::process::{Pid, Signal, kill_process};

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
    assert!(!said.contains('\r'), "no progress is shown to a pipe: {said}");
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

#[test]
fn what_was_measured_before_can_be_drawn_and_anything_else_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, picture) = (dir.path().join("rows.json"), dir.path().join("chart.svg"));
    let draw = || {
        Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
            .arg("draw")
            .arg(&rows)
            .arg("--svg")
            .arg(&picture)
            .output()
            .unwrap()
    };
    let row = Row {
        scenario: "single".into(),
        contestant: "floor".into(),
        cycles_per_s: Some(7.0),
        ..Row::default()
    };
    std::fs::write(&rows, leasehold_bench::report::json::json(&[row])).unwrap();
    assert!(draw().status.success());
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("single: cycles per second") && drawn.contains(">floor<"), "{drawn}");
    std::fs::write(&rows, "[1]").unwrap();
    let refused = draw();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("rows.json is not what --json writes"), "{said}");
}

/// The rows of a run with these arguments.
fn rows_of(arguments: &[&str]) -> (Vec<Row>, String) {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("rows.json");
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(arguments)
        .args(["--secs", "0.3", "--rounds", "1", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!said.contains("inside at once") && !said.contains("is out"), "{said}");
    (serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap(), said)
}

#[test]
fn every_library_takes_part() {
    if skip(Need::Redis) || skip(Need::NodePeers) || skip(Need::PythonPeers) {
        return;
    }
    let names = "leasehold-thread,rslock,redlock,redis-semaphore,pottery,redlock-py,redis-py";
    let (rows, _) = rows_of(&["single", "--concurrency", "2", "--only", names]);
    let who: Vec<_> = rows.iter().map(|row| row.contestant.as_str()).collect();
    assert_eq!(who.join(","), names);
    for row in &rows {
        assert!(row.cycles_per_s.is_some_and(|speed| speed > 0.0), "{row:?}");
        assert!(row.client_cpu_us.is_some_and(|cpu| cpu > 0.0), "{row:?}");
        assert_eq!(row.ratio_to_floor, None, "the floor was left out");
    }
}

#[test]
fn every_mode_of_the_floor_takes_and_gives_back() {
    if skip(Need::Redis) || skip(Need::Valkey) {
        return;
    }
    for (server, modes) in [
        ("redis", "floor,floor-script,floor-p2"),
        ("valkey", "floor,floor-native,floor-script,floor-p2"),
    ] {
        let (rows, said) =
            rows_of(&["single", "--server", server, "--concurrency", "4", "--only", modes]);
        assert_eq!(said, "", "every question was answered with yes");
        let who: Vec<_> = rows.iter().map(|row| row.contestant.as_str()).collect();
        assert_eq!(who.join(","), modes);
    }
}

#[test]
fn waiters_of_one_lock_never_meet_inside() {
    if skip(Need::Redis) || skip(Need::NodePeers) || skip(Need::PythonPeers) {
        return;
    }
    let (rows, _) =
        rows_of(&["contended-1x8", "contended-8x1", "--only", "ideal,leasehold,redis-semaphore"]);
    assert_eq!(rows.len(), 6);
    for row in &rows {
        assert!(row.cycles_per_s.is_some_and(|speed| speed > 0.0), "{row:?}");
        // Holding takes what it takes, and one after another.
        assert!(row.cycles_per_s.is_some_and(|speed| speed < 1001.1), "{row:?}");
        // To one who shares the machine with others: what it comes to is the machine's business.
        assert!(row.ratio_to_floor.is_some_and(|ratio| ratio > 0.0), "{row:?}");
        assert!(row.jain.is_some_and(|jain| (0.125..1.0001).contains(&jain)), "{row:?}");
        assert_eq!(row.split_votes.is_some(), row.contestant == "leasehold", "{row:?}");
    }
}

#[test]
fn a_peer_that_is_not_installed_is_an_error_that_helps() {
    if skip(Need::Redis) {
        return;
    }
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(["uncontended", "--secs", "0.1"])
        .env("LEASEHOLD_TEST_NODE_PEERS", "/none")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        said.contains("redlock cannot take part: node with the peer libraries not found"),
        "{said}"
    );
    assert!(said.contains("run ./test once, it fetches it, or leave it out with --only"), "{said}");
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    if skip(Need::Redis) {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let mut command = bound_command(env!("CARGO_BIN_EXE_leasehold-bench"));
    command.args(["single", "--secs", "600", "--only", "floor"]);
    command.env("TMPDIR", temporary.path()).stderr(Stdio::piped());
    let mut bench = spawn(command).unwrap();
    let entries = || std::fs::read_dir(temporary.path()).unwrap().count();
    // The server's folder and the contestant's.
    eventually(Duration::from_secs(30), "it is at work", || entries() == 2);
    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    eventually(Duration::from_secs(30), "it ends", || bench.try_wait().unwrap().is_some());
    let ended = bench.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "leasehold-bench: interrupted\n");
    assert_eq!(entries(), 0);
}
