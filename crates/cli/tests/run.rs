//! The real binary, as a real process, on a SQLite file of its own.

use std::path::Path;
use std::process::{Command, Output};

fn leasehold(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env("XDG_DATA_HOME", folder).env_remove("LEASEHOLD_BACKEND");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    leasehold(folder).args(arguments).output().expect("leasehold runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it exits by itself")
}

#[test]
fn the_command_runs_with_its_fence_and_its_output_and_code_pass_through() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo \"$LEASEHOLD_NAME $LEASEHOLD_FENCE\"; exit 7";
    let output = run(folder.path(), &["run", "hello", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 7);
    let text = String::from_utf8(output.stdout).unwrap();
    let (name, fence) = text.trim().split_once(' ').unwrap();
    assert_eq!(name, "hello");
    assert!(fence.parse::<u64>().unwrap() > 1_000_000_000_000_000, "{fence}");
    assert!(folder.path().join("leasehold/locks.db").exists(), "the default file");

    let killed = run(folder.path(), &["run", "hello", "sh", "-c", "kill -9 $$"]);
    assert_eq!(code(&killed), 137);
}

#[test]
fn a_second_command_is_refused_while_the_first_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = leasehold(folder.path())
        .args(["run", "job", "--", "sh", "-c", "echo held; read x"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = first.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert_eq!(line, "held\n");

    let busy = run(folder.path(), &["run", "-n", "job", "--", "true"]);
    assert_eq!(code(&busy), 75);
    let busy = run(folder.path(), &["run", "-w", "50ms", "job", "--", "true"]);
    assert_eq!(code(&busy), 75);
    assert!(String::from_utf8_lossy(&busy.stderr).contains("held by"), "{busy:?}");
    assert_eq!(code(&run(folder.path(), &["run", "-n", "other", "--", "true"])), 0);

    drop(first.stdin.take());
    first.wait().unwrap();
    assert_eq!(code(&run(folder.path(), &["run", "-n", "job", "--", "true"])), 0);
}

#[test]
fn every_failure_has_its_code_and_its_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected, word) in [
        (&["run", "l", "--", "/nonexistent"][..], 127, "cannot start"),
        (&["run", "l", "--", "/etc/passwd"], 126, "cannot start"),
        (&["run", "l"], 64, "required"),
        (&["fly"], 64, "unrecognized"),
        (&["run", "", "--", "true"], 64, "empty"),
        (&["run", "--ttl", "1ms", "l", "--", "true"], 64, "at least 100ms"),
        (&["--backend", "ftp://x", "run", "l", "--", "true"], 78, "unknown scheme"),
        (&["--backend", "sqlite:/", "run", "l", "--", "true"], 78, ""),
        (&["--backend", "redis://127.0.0.1:1", "run", "-n", "l", "--", "true"], 69, "refused"),
    ] {
        let output = run(folder.path(), arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), expected, "{arguments:?}: {text}");
        assert!(text.contains(word), "{arguments:?}: {text}");
    }
    assert_eq!(code(&run(folder.path(), &["--help"])), 0);
    assert_eq!(code(&run(folder.path(), &["--version"])), 0);
}
