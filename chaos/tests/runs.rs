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

/// A run keeps all its files in this folder, the servers' too.
fn chaos_in(dir: &str) -> Command {
    let mut command = chaos();
    command.args(["--report", dir]).env("TMPDIR", dir);
    command
}

/// Processes of a run: each was told of its folder, or lives in it.
fn processes(dir: &str) -> usize {
    let is_of_run = |entry: &std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let home = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(dir) || home.starts_with(dir)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_of_run).count()
}

/// What a run left behind in its folder.
fn left_in(dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn run(arguments: &[&str]) -> Report {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::Builder::new().prefix("chaos-run-").tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let output = chaos_in(dir).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}{text}");
    assert_eq!(output.status.code(), Some(0), "{said}{text}");
    assert_eq!(processes(dir), 0, "nobody stays behind");
    assert_eq!(left_in(dir), ["history", "report.json", "report.md"]);
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
    assert!(verdicts(&report, Outcome::Kept) >= 11, "at most late writes may be missing");
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
    assert!(
        report.again.ends_with("-- --backend sqlite --holders 16 --locks 3 --seconds 15 --seed 3")
    );
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

/// The program that callers call lies beside chaos.
fn build_leasehold() {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--offline", "--quiet", "-p", "leasehold-cli"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let target = Path::new(env!("CARGO_BIN_EXE_leasehold-chaos"));
    let target = target.ancestors().nth(2).expect("a target folder");
    assert!(build.env("CARGO_TARGET_DIR", target).status().unwrap().success());
}

fn callers_were_told_the_truth(report: &Report) {
    for kind in ["lock server killed", "lock server stopped"] {
        assert!(report.faults.contains_key(kind), "{:?}", report.faults);
    }
    let of_callers = ["no caller is told", "told to be over", "told to hold", "a lie changes"];
    for promise in of_callers {
        let is_meant =
            |finding: &&leasehold_chaos::check::Finding| finding.promise.contains(promise);
        let finding = report.findings.iter().find(is_meant).expect(promise);
        assert_eq!(finding.outcome, Outcome::Kept);
        assert!(!finding.story.starts_with("0 "), "nothing was told: {finding:?}");
    }
}

#[test]
fn callers_of_two_lock_servers_are_told_nothing_that_is_not_so() {
    if skip(Need::Redis) {
        return;
    }
    build_leasehold();
    let report = run(&["--through-servers", "--seconds", "15", "--seed", "7", "--holders", "12"]);
    callers_were_told_the_truth(&report);
    assert!(report.again.ends_with("--seed 7 --through-servers"), "{}", report.again);
}

#[test]
fn callers_of_servers_over_a_file_are_told_nothing_that_is_not_so_on_a_busy_machine() {
    build_leasehold();
    let busy = ["--backend", "sqlite", "--through-servers", "--hogs", "2", "--holders", "32"];
    let report = run(&[&busy[..], &["--seconds", "15", "--seed", "6"]].concat());
    callers_were_told_the_truth(&report);
    assert_eq!(report.faults["busy loops"], 2, "twice four seconds of fifteen");
    assert!(report.again.ends_with("--seed 6 --through-servers --hogs 2"), "{}", report.again);
}

/// Starts a run, sends it a signal when it is at work, and says how it ended and what it left.
fn interrupted(backend: &str, signal: Signal) -> (Option<i32>, Vec<String>) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::Builder::new().prefix("chaos-cut-").tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let mut run = chaos_in(dir)
        .args(["--seconds", "60", "--backend", backend])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let history = folder.path().join("history");
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    eventually(Duration::from_secs(60), "holders are at work", || {
        history.join(HOLDERS).exists() && size(&history.join(STORE)) > 0
    });
    assert!(processes(dir) > 16, "holders, a store and the run itself");
    kill_process(Pid::from_child(&run), signal).unwrap();
    let status = run.wait().unwrap();
    eventually(Duration::from_secs(30), "everybody is gone", || processes(dir) == 0);
    (status.code(), left_in(dir))
}

#[test]
fn a_run_that_is_asked_to_end_takes_everybody_with_it() {
    if skip(Need::Redis) {
        return;
    }
    for (signal, code) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2)] {
        assert_eq!(interrupted("redis", signal), (Some(code), vec!["history".to_owned()]));
    }
}

#[test]
fn a_run_that_is_killed_takes_everybody_with_it() {
    if skip(Need::Redis) {
        return;
    }
    assert_eq!(interrupted("redis", Signal::KILL).0, None);
}

#[test]
fn what_cannot_be_tried_is_said_and_ends_with_two() {
    for (arguments, word) in [
        (&["--backend", "floppy"][..], "floppy"),
        (&["--backend", "sqlite", "--beyond"][..], "no assumptions to break"),
        (&["--holders", "1"][..], "2..=500"),
        (&["check", "/nowhere"][..], "/nowhere"),
        (&["--backend", "sqlite", "--only", "a bad day"][..], "no fault is called"),
        (&[][..], "redis-server not found: run ./test once"),
    ] {
        let output =
            chaos().args(arguments).env("LEASEHOLD_TEST_REDIS", "/nowhere").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
