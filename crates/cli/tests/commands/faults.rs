//! Bad input and bad days: the right sentence, the right code, never a panic.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::harness::{Desk, Ran};

#[test]
fn bad_input_is_a_usage_error_with_a_sentence() {
    let desk = Desk::sqlite();
    for (arguments, word) in [
        (&["statsu", "x"][..], "'status'"),
        (&["fly"], "unrecognized"),
        (&[], "Usage"),
        (&["status"], "required"),
        (&["status", ""], "empty"),
        (&["status", "a\nb"], "control"),
        (&["acquire", "x", "--ttl", "5x"], "`5x` is not a duration"),
        (&["acquire", "x", "--ttl", "5s", "-n", "-w", "1s"], "cannot be used with"),
        (&["acquire", "x", "--ttl", "1ms"], "at least 100ms"),
        (&["watch", "x", "--interval", "soon"], "is not a duration"),
        (&["watch", "x", "--count", "0"], "--count"),
        (&["plan", "--availability", "110%"], "is not an availability"),
        (&["plan", "--nodes", "0"], "--nodes"),
        (&["plan", "--price=-1"], "not an amount"),
        (&["completions", "tcsh"], "tcsh"),
    ] {
        desk.run(arguments).fails(64, &[word]);
    }
    for arguments in [&["--help"][..], &["help"], &["--version"], &["status", "--help"]] {
        assert!(desk.run(arguments).expect(0).out.contains("leasehold"), "{arguments:?}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    let desk = Desk::sqlite();
    for command in [
        "acquire",
        "extend",
        "release",
        "status",
        "list",
        "watch",
        "force-release",
        "init",
        "nodes",
        "doctor",
        "plan",
        "config",
        "completions",
        "man",
    ] {
        let help = desk.run(&[command, "--help"]).expect(0).out;
        assert!(help.contains("Example") && help.contains("Exit codes"), "{help}");
        assert!(desk.run(&["--help"]).out.contains(&format!("  {command} ")));
    }
    assert!(!desk.run(&["--help"]).out.contains("__names"));
}

#[test]
fn a_name_may_begin_with_a_dash() {
    let desk = Desk::sqlite();
    desk.run(&["acquire", "--ttl", "5s", "--", "-x"]).expect(0);
    assert!(desk.run(&["status", "--", "-x"]).expect(0).out.starts_with("-x  held"));
}

#[test]
fn a_backend_that_cannot_be_is_a_bad_configuration() {
    for (backend, words) in [
        ("ftp://x", &["unknown scheme `ftp`"][..]),
        ("redis://a?prefx=1", &["unknown parameter `prefx`", "known are prefix, timeout"]),
        ("redis://a,a", &["listed twice"]),
        ("redis://a?timeout=5", &["like 50ms"]),
        ("sqlite:/", &["/"]),
        ("sqlite:/etc/passwd", &["not a SQLite database", "give another path"]),
    ] {
        for command in [&["list"][..], &["nodes"], &["doctor"]] {
            Desk::with(backend).run(command).fails(78, words);
        }
    }
}

#[test]
fn a_data_folder_that_cannot_be_written_is_named() {
    let desk = Desk::sqlite();
    // Nobody, not even root, makes folders in /proc.
    let ran = desk.command(&["list"]).env("XDG_DATA_HOME", "/proc/none").output().unwrap();
    Ran::of(ran).fails(78, &["cannot create the folder /proc/none", "give another path"]);
    let ran = desk.command(&["list"]).env("XDG_DATA_HOME", "/dev/null").output().unwrap();
    Ran::of(ran).fails(78, &["/dev/null"]);
    let mut homeless = desk.command(&["list"]);
    homeless.env_remove("HOME").env_remove("XDG_DATA_HOME");
    Ran::of(homeless.output().unwrap()).fails(78, &["XDG_DATA_HOME", "HOME"]);
}

/// Runs in a shell that forbids files to grow: as near as one gets to a full disk without root.
fn on_a_full_disk(desk: &Desk, blocks: u32, arguments: &[&str]) -> Ran {
    let plain = desk.command(arguments);
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""));
    shell.arg(plain.get_program()).args(plain.get_args()).env_clear();
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    Ran::of(shell.output().unwrap())
}

#[test]
fn a_full_disk_is_a_sentence_that_names_the_file() {
    let desk = Desk::sqlite();
    let new = on_a_full_disk(&desk, 1, &["acquire", "job", "--ttl", "5s", "-n"]);
    new.fails(78, &["locks.db"]);
    desk.run(&["list"]).expect(0);
    let known = on_a_full_disk(&desk, 0, &["acquire", "job", "--ttl", "5s", "-n"]);
    known.fails(78, &["cannot use the lock file", "locks.db"]);
    desk.acquire("job");
}

#[test]
fn a_full_standard_output_is_an_error_and_a_closed_one_ends_quietly() {
    let desk = Desk::sqlite();
    desk.acquire("job");
    for arguments in [
        &["status", "job"][..],
        &["list", "--json"],
        &["watch", "job", "--for", "5s"],
        &["nodes"],
        &["doctor", "--watch", "10ms"],
        &["init"],
        &["plan"],
        &["config"],
        &["completions", "bash"],
        &["man"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = desk.command(arguments).stdout(full).output().unwrap();
        Ran::of(ran).fails(74, &["cannot write to the standard output"]);

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = desk.command(arguments).stdout(writer).output().unwrap();
        assert_eq!(ran.status.code(), Some(141), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.is_empty(), "{arguments:?}: {ran:?}");

        // Nor does it matter that nobody reads the remarks.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = desk.command(arguments).stderr(writer).stdout(Stdio::null()).status().unwrap();
        assert!(status.code().is_some_and(|code| code < 2), "{arguments:?}: {status}");
        assert_eq!(status.signal(), None);
    }
}
