//! Chaos itself, for as long as `./test` can wait: every promise is kept, and nothing stays behind.
//!
//! For longer, and with figures: `cargo run --release -p leasehold-chaos -- --seconds 3600`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_chaos::check::Outcome;
use leasehold_chaos::history::{HOLDERS, STORE};
use leasehold_chaos::report::Report;
use leasehold_testkit::{Need, eventually, skip};
use rustix::process::{Pid, Signal, kill_process};

/// One run has more processes than the machine has cores; two would only wait for each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn chaos() -> Command {
    Command::new(env!("CARGO_BIN_EXE_leasehold-chaos"))
}

/// Processes of a run, told by the folder that each of them was told of.
fn processes(mark: &str) -> usize {
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    let is_marked = |entry: &std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(mark)
    };
    all.flatten().filter(is_marked).count()
}

fn run(arguments: &[&str]) -> Report {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::Builder::new().prefix("chaos-run-").tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let output = chaos().args(arguments).args(["--report", dir]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}{text}");
    assert_eq!(output.status.code(), Some(0), "{said}{text}");
    assert_eq!(processes(dir), 0, "nobody stays behind");
    let json = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
    let report: Report = serde_json::from_str(&json).unwrap();
    assert!(report.kept);
    let failed: Vec<_> = report.faults.keys().filter(|kind| kind.contains("failed")).collect();
    assert!(failed.is_empty(), "faults that could not be made: {failed:?}");
    // What was kept is judged alike.
    let again = chaos().args(["check", dir]).output().unwrap();
    assert_eq!(again.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&again.stdout), text);
    report
}

fn verdicts(report: &Report, outcome: Outcome) -> usize {
    report.findings.iter().filter(|finding| finding.outcome == outcome).count()
}

#[test]
fn five_redis_nodes_keep_every_promise_for_a_minute() {
    if skip(Need::Redis) {
        return;
    }
    let report = run(&["--seconds", "60", "--seed", "1"]);
    assert!(verdicts(&report, Outcome::Kept) >= 8, "at most late writes may be missing");
    assert!(report.faults.len() >= 10, "{:?}", report.faults);
}

#[test]
fn five_valkey_nodes_keep_every_promise() {
    if skip(Need::Valkey) {
        return;
    }
    let report = run(&["--backend", "valkey", "--seconds", "15", "--seed", "2"]);
    assert!(report.versions[1].starts_with("valkey"), "{:?}", report.versions);
}

#[test]
fn a_sqlite_file_keeps_every_promise() {
    let report = run(&["--backend", "sqlite", "--seconds", "15", "--seed", "3"]);
    assert!(report.faults.contains_key("holder stopped"), "{:?}", report.faults);
}

#[test]
fn fences_hold_where_clocks_jump_and_locks_are_evicted() {
    if skip(Need::Redis) {
        return;
    }
    let report = run(&["--beyond", "--seconds", "15", "--seed", "4"]);
    assert!(report.faults.contains_key("eviction"), "{:?}", report.faults);
    assert!(verdicts(&report, Outcome::NotJudged) >= 2, "exclusion is only told");
}

/// Starts a run, sends it a signal when it is at work, and says how it ended.
fn interrupted(signal: Signal) -> Option<i32> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::Builder::new().prefix("chaos-cut-").tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let arguments = ["--seconds", "60", "--backend", "sqlite", "--report", dir];
    let mut run = chaos()
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let history = folder.path().join("history");
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    eventually(Duration::from_secs(60), "holders are at work", || {
        history.join(HOLDERS).exists() && size(&history.join(STORE)) > 0
    });
    kill_process(Pid::from_child(&run), signal).unwrap();
    let status = run.wait().unwrap();
    eventually(Duration::from_secs(30), "everybody is gone", || processes(dir) == 0);
    status.code()
}

#[test]
fn a_run_that_is_asked_to_end_takes_everybody_with_it() {
    assert_eq!(interrupted(Signal::TERM), Some(128 + 15));
    assert_eq!(interrupted(Signal::INT), Some(128 + 2));
}

#[test]
fn a_run_that_is_killed_takes_everybody_with_it() {
    assert_eq!(interrupted(Signal::KILL), None);
}

#[test]
fn what_cannot_be_tried_is_said_and_ends_with_two() {
    for (arguments, word) in [
        (&["--backend", "floppy"][..], "floppy"),
        (&["--backend", "sqlite", "--beyond"][..], "no assumptions to break"),
        (&["--holders", "1"][..], "2..=500"),
        (&["check", "/nowhere"][..], "/nowhere"),
    ] {
        let output = chaos().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
