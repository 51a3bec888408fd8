//! `leasehold run`: what goes in, what comes out, and with which code.

mod support;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold_testkit::eventually;
use support::{Place, Running, SOON, code, is_alive, stderr};

#[test]
fn the_command_runs_with_its_fence_and_its_output_and_code_pass_through() {
    let place = Place::new();
    let script = "echo \"$LEASEHOLD_NAME $LEASEHOLD_FENCE\"; exit 7";
    let output = place.run(&["run", "hello", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 7);
    let text = String::from_utf8(output.stdout).unwrap();
    let (name, fence) = text.trim().split_once(' ').unwrap();
    assert_eq!(name, "hello");
    assert!(fence.parse::<u64>().unwrap() > 1_000_000_000_000_000, "{fence}");
    assert!(place.file("leasehold/locks.db").exists(), "the default file");

    let killed = place.run(&["run", "hello", "sh", "-c", "kill -9 $$"]);
    assert_eq!(code(&killed), 137);
    assert!(place.is_free("hello"));
}

#[test]
fn a_second_command_is_refused_while_the_first_runs() {
    let place = Place::new();
    let mut first = place.start(&["run", "job", "--", "sh", "-c", "echo held; read x"]);
    assert_eq!(first.line(), "held");

    for refused in [&["-n"][..], &["-w", "50ms"], &["-w", "0"], &["-w", "0.05"]] {
        let arguments = [&["run"], refused, &["job", "--", "true"]].concat();
        let busy = place.run(&arguments);
        assert_eq!(code(&busy), 75, "{refused:?}");
        assert!(stderr(&busy).contains("held by"), "{busy:?}");
        let busy =
            place.run(&[&["run", "-q", "-E", "3"], refused, &["job", "--", "true"]].concat());
        assert_eq!(code(&busy), 3, "{refused:?}");
        assert_eq!(stderr(&busy), "", "quiet");
    }
    assert!(place.is_free("other"));

    first.close_input();
    first.end();
    assert!(place.is_free("job"));
}

#[test]
fn every_failure_has_its_code_and_its_sentence() {
    let place = Place::new();
    let below_a_file = format!("sqlite:{}/x/locks.db", env!("CARGO_BIN_EXE_leasehold"));
    for (arguments, expected, word) in [
        (&["run", "l", "--", "/nonexistent"][..], 127, "cannot start `/nonexistent`"),
        (&["run", "l", "--", "/etc/passwd"], 126, "cannot start `/etc/passwd`"),
        (&["run", "l"], 64, "required"),
        (&["run", "l", "-c", "true", "--", "true"], 64, "cannot be used"),
        (&["fly"], 64, "unrecognized"),
        (&["run", "", "--", "true"], 64, "empty"),
        (&["run", "--ttl", "1ms", "l", "--", "true"], 64, "at least 100ms"),
        (&["run", "--ttl", "1s", "--grace", "600ms", "l", "--", "true"], 64, "longer --ttl"),
        (&["run", "-w", "soon", "l", "--", "true"], 64, "like 250ms, 30s"),
        (&["run", "--stop-signal", "CONT", "l", "--", "true"], 64, "known are TERM"),
        (&["run", "-n", "-w", "1", "l", "--", "true"], 64, "cannot be used"),
        (&["--backend", "ftp://x", "run", "l", "--", "true"], 78, "unknown scheme"),
        (&["--backend", "sqlite:/", "run", "l", "--", "true"], 78, ""),
        (&["--backend", &below_a_file, "run", "l", "--", "true"], 78, "locks.db"),
        (&["--backend", "redis://127.0.0.1:1", "run", "-n", "l", "--", "true"], 69, "refused"),
    ] {
        let output = place.run(arguments);
        let text = stderr(&output);
        assert_eq!(code(&output), expected, "{arguments:?}: {text}");
        assert!(text.contains(word), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    assert_eq!(code(&place.run(&["--help"])), 0);
    assert_eq!(code(&place.run(&["--version"])), 0);
}

#[test]
fn there_is_no_shell_unless_asked_for() {
    let place = Place::new();
    let output = place.run(&["run", "l", "--", "echo", "$HOME; a  b", "*"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "$HOME; a  b *\n");
    let output = place.run(&["run", "l", "-c", "echo $((6 * 7)); exit 9"]);
    assert_eq!((String::from_utf8_lossy(&output.stdout).trim(), code(&output)), ("42", 9));
    let odd = place.run(&["run", "--", "-odd name", "sh", "-c", "echo $LEASEHOLD_NAME"]);
    assert_eq!(String::from_utf8_lossy(&odd.stdout), "-odd name\n");
}

#[test]
fn input_output_and_errors_are_the_commands_own() {
    let place = Place::new();
    let mut run = place.start(&["run", "l", "--", "sh", "-c", "cat; echo wrong >&2"]);
    run.type_in("one\ntwo\n");
    assert_eq!((run.line(), run.line()), ("one".into(), "two".into()));
    run.close_input();
    assert_eq!(run.end(), Some(0));
    assert_eq!(run.complaints(), "wrong\n");
}

#[test]
fn a_closed_output_is_no_reason_to_panic() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_leasehold");
    for redirection in ["2>&-", ">&-", ">&- 2>&-", "<&-", "2>&1 | true"] {
        let script = format!("{binary} run --json l -- sh -c 'sleep 0.1; exit 5' {redirection}");
        let output = place.leasehold_shell(&script).output().unwrap();
        assert!(!stderr(&output).contains("panicked"), "{redirection}: {output:?}");
        if !redirection.contains('|') {
            assert_eq!(code(&output), 5, "{redirection}");
        }
    }
    // A reader that is gone: the failure is told to nobody, and the code is right all the same.
    let script = format!("({binary} run l -- /nonexistent; echo $? >code) 2>&1 | true; sleep 0.2");
    place.leasehold_shell(&script).status().unwrap();
    eventually(SOON, "the code", || {
        fs::read_to_string(place.file("code")).is_ok_and(|c| c == "127\n")
    });
}

#[test]
fn the_environment_tells_the_lease_and_no_password() {
    let place = Place::new();
    let arguments = ["run", "--ttl", "3s", "--reason", "nightly é", "l", "--", "env"];
    let output = place.run(&arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("LEASEHOLD_TTL_MS=3000\n"), "{text}");
    assert!(text.contains("LEASEHOLD_BACKEND=sqlite:\n"), "{text}");
    let holder = text.lines().find_map(|line| line.strip_prefix("LEASEHOLD_HOLDER=")).unwrap();
    assert!(holder.contains(" (nightly ?):") && holder.contains('@'), "{holder}");

    let long = "x".repeat(500);
    let output = place.run(&["run", "--holder", "me", "--reason", &long, "l", "--", "env"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("LEASEHOLD_HOLDER=me (xxx"));

    let server = leasehold_testkit::RedisServer::redis().password("hush").start();
    let url = format!("redis://:hush@{}?quarantine=false", server.addr());
    let output = place
        .leasehold()
        .env("LEASEHOLD_BACKEND", &url)
        .args(["run", "-w", "20", "l", "-c", "env; cat /proc/$PPID/environ /proc/$PPID/cmdline"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("LEASEHOLD_BACKEND=redis://{}", server.addr())), "{output:?}");
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn min_hold_keeps_the_lock_after_the_command() {
    let place = Place::new();
    let start = Instant::now();
    let mut run = place.start(&["run", "--min-hold", "700ms", "l", "-c", "echo $$; exit 4"]);
    let command = run.pid_line();
    eventually(SOON, "the command ended", || !is_alive(command));
    assert!(!place.is_free("l"), "after {:?}", start.elapsed());
    assert_eq!(run.end(), Some(4));
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    assert!(place.is_free("l"));
}

#[test]
fn max_hold_stops_the_command_with_its_grace() {
    let place = Place::new();
    let start = Instant::now();
    let script = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.02; done";
    let output = place.run(&["run", "--max-hold", "800ms", "--grace", "300ms", "l", "-c", script]);
    assert_eq!(code(&output), 79, "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "asked\n");
    assert!(stderr(&output).contains("max-hold"), "{output:?}");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(450) && took < Duration::from_secs(5), "{took:?}");

    let stubborn = "trap '' TERM; while :; do sleep 0.02; done";
    let output = place.run(&["run", "--max-hold", "400ms", "l", "-c", stubborn]);
    assert_eq!(code(&output), 79, "{output:?}");
    assert!(place.is_free("l"));
}

#[test]
fn what_the_command_leaves_in_its_group_is_ended_before_the_lock_is_given_back() {
    let place = Place::new();
    let script = "sleep 60 & echo $!; (trap '' TERM; echo ready; sleep 60; sleep 60) & \
                  echo $!; sleep 0.2; exit 6";
    let arguments = ["run", "--ttl", "2s", "--grace", "300ms", "l", "-c", script];
    let mut run = Running::new(place.leasehold().args(arguments).stderr(Stdio::null()));
    let lines = [run.line(), run.line(), run.line()];
    let left: Vec<i32> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(left.len(), 2, "{lines:?}");
    assert_eq!(run.end(), Some(6));
    assert!(left.iter().all(|pid| !is_alive(*pid)), "{left:?}");
    assert!(place.is_free("l"));
}

#[test]
fn events_are_json_lines_on_standard_error() {
    let place = Place::new();
    let output = place.run(&["run", "--json", "a\"b", "-c", "exit 2"]);
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, event) in lines.iter().zip(["acquired", "ended", "released"]) {
        let start =
            format!("{{\"schema\":\"leasehold/run/v1\",\"event\":\"{event}\",\"name\":\"a\\\"b\"");
        assert!(line.starts_with(&start) && line.ends_with('}'), "{line}");
    }
    assert!(lines[1].contains("\"code\":2"), "{text}");
}

#[test]
fn a_command_ends_when_its_lock_file_is_replaced() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "30s", "l", "-c", "echo started; sleep 1000"]);
    run.line();
    for suffix in ["", "-wal", "-shm"] {
        let file = |name: &str| place.file(&format!("leasehold/{name}{suffix}"));
        std::fs::rename(file("locks.db"), file("away.db")).unwrap();
    }
    // In the new file the lock is free.
    assert!(place.is_free("l"));
    assert_eq!(run.end(), Some(79));
    assert!(run.complaints().contains("was removed or replaced"));
}

#[test]
fn a_lock_that_another_holds_since_a_forced_release_was_not_released() {
    let place = Place::new();
    let mut run = place.start(&["run", "--json", "l", "-c", "echo $LEASEHOLD_FENCE; cat"]);
    let fence = run.line();
    let force = ["force-release", "l", "--reason", "test", "--yes", "--fence", &fence];
    assert_eq!(code(&place.run(&force)), 0);
    let mut next = place.start(&["hold", "l"]);
    next.line();
    run.close_input();
    run.end();
    let said = run.complaints();
    assert!(said.contains("\"outcome\":\"taken_over\""), "{said}");
    assert!(!place.is_free("l"), "nobody releases another's lock");
}

/// Set for a process that inherits every orphan below it.
const HEIR: &str = "LEASEHOLD_TEST_HEIR";

/// The heir. Not a test, unless it is started as one.
#[test]
fn heir_of_orphans() {
    if std::env::var_os(HEIR).is_none() {
        return;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let place = Place::new();
    for _ in 0..20 {
        assert_eq!(code(&place.run(&["run", "l", "--", "true"])), 0);
    }
    let mut holder = place.start(&["hold", "l"]);
    holder.line();
    assert_eq!(code(&place.run(&["run", "-n", "l", "--", "true"])), 75);
    holder.close_input();
    assert_eq!(holder.end(), Some(0));
    let left = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    assert!(left.is_err(), "an orphan was left: {left:?}");
    println!("nothing inherited");
}

#[test]
fn nobody_else_has_to_bury_the_guardian() {
    // In a container there may be nobody who would.
    let heir = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "heir_of_orphans", "--nocapture"])
        .env(HEIR, "1")
        .output()
        .unwrap();
    assert!(heir.status.success(), "{heir:?}");
    assert!(String::from_utf8_lossy(&heir.stdout).contains("nothing inherited"), "{heir:?}");
}

#[test]
fn who_waits_for_nodes_that_are_down_says_so_once_after_a_second() {
    let place = Place::new();
    let nobody = ["--backend", "redis://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"];
    for command in [&["run", "-w", "2500ms", "l", "--", "true"][..], &["hold", "-w", "2500ms", "l"]]
    {
        let start = Instant::now();
        let mut run = place.start(&[&nobody, command].concat());
        run.remarks("0 of 3 nodes answered, 2 needed: 127.0.0.1:1/0 connection refused");
        let after = start.elapsed();
        assert!(after > Duration::from_secs(1) && after < Duration::from_secs(2), "{after:?}");
        assert_eq!(run.end(), Some(69));
        let text = run.complaints();
        assert!(!text.contains("still waiting"), "twice: {text}");
        assert!(text.contains("127.0.0.1:3/0 connection refused"), "the end: {text}");
    }
    let json = [&nobody[..], &["--json", "run", "-w", "1500ms", "l", "--", "true"]].concat();
    let text = stderr(&place.run(&json));
    assert_eq!(text.matches("\"event\":\"no_quorum\"").count(), 1, "{text}");
    let quiet = [&nobody[..], &["-q", "run", "-w", "1500ms", "l", "--", "true"]].concat();
    assert!(!stderr(&place.run(&quiet)).contains("still waiting"));
    // A holder is no outage.
    let mut holder = place.start(&["hold", "l"]);
    holder.line();
    assert!(!stderr(&place.run(&["run", "-w", "1500ms", "l", "--", "true"])).contains("still"));
}

#[test]
fn with_few_files_there_is_a_sentence_and_no_panic() {
    let place = Place::new();
    let binary = place.leasehold().get_program().display().to_string();
    for files in 4..24 {
        for command in ["run l -- true", "hold --for 0 l"] {
            // Whatever was inherited counts, too.
            let alone = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";
            let script = format!("{alone}; ulimit -n {files}; exec {binary} {command}");
            let output = place.leasehold_shell(&script).output().unwrap();
            let text = stderr(&output);
            assert!(!text.contains("panicked"), "{files} files, {command}: {text}");
            match code(&output) {
                0 => {}
                69 | 78 => assert!(text.starts_with("leasehold: cannot "), "{files}: {text}"),
                code => panic!("{files} files, {command}: {code}: {text}"),
            }
            assert!(files > 8 || text.contains("`ulimit -n` forbids it"), "{files}: {text}");
        }
    }
}

/// What becomes of a command under a limit that `sh` sets.
fn limited(mut shell: std::process::Command, case: &str) -> i32 {
    let output = shell.output().unwrap();
    let text = stderr(&output);
    assert!(!text.contains("panicked"), "{case}: {text}");
    let code = output.status.code().unwrap_or_else(|| panic!("{case}: {output:?}"));
    match code {
        0 => {}
        69 | 126 => assert!(text.starts_with("leasehold: cannot start"), "{case}: {text}"),
        code => panic!("{case}: {code}: {text}"),
    }
    code
}

#[test]
fn with_little_memory_there_is_a_sentence_and_no_panic() {
    let place = Place::new();
    let binary = place.leasehold().get_program().display().to_string();
    let with = |kib: u32, command: &str| {
        let script = format!("ulimit -c 0; ulimit -v {kib}; exec {binary} {command}");
        place.leasehold_shell(&script)
    };
    // Below that it cannot even be loaded, which is not ours to tell.
    let starts = |kib: &u32| {
        let code = with(*kib, "--version").output().unwrap().status.code();
        [Some(0), Some(69)].contains(&code)
    };
    let least = (1..4096).map(|mib| mib * 1024).find(starts).expect("it starts some day");
    let mut codes = Vec::new();
    for kib in (least..least + 24 * 1024).step_by(1024) {
        for command in ["run -n l -- true", "hold -n --for 0 l"] {
            codes.push(limited(with(kib, command), &format!("{kib} KiB, {command}")));
        }
    }
    assert!(codes.starts_with(&[69, 69]) && codes.ends_with(&[0, 0]), "{codes:?}");
}

#[test]
fn with_few_processes_there_is_a_sentence_and_no_panic() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // Whose processes are all ours: the limit counts those of a user, and root's are not limited.
    const LONELY: u32 = 61_217;
    let Some(place) = Place::within(Path::new("/tmp")) else { panic!("no place") };
    if !rustix::process::getuid().is_root() {
        let line = "SKIPPED: with_few_processes: a user of its own not found\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        return;
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = place.file("leasehold-copy");
    fs::copy(place.leasehold().get_program(), &copy).unwrap();
    let mut codes = Vec::new();
    for processes in 1..12 {
        for command in ["run -n l -- true", "hold -n --for 0 l"] {
            // By another name in dash.
            let limit = format!("ulimit -u {processes} 2>/dev/null || ulimit -p {processes}");
            let script = format!("{{ {limit}; }} && exec {} {command}", copy.display());
            let mut shell = place.leasehold_shell(&script);
            shell.uid(LONELY).gid(LONELY).current_dir(place.path());
            codes.push(limited(shell, &format!("{processes} processes, {command}")));
        }
    }
    assert!(codes.starts_with(&[69, 69]) && codes.ends_with(&[0, 0]), "{codes:?}");
}
