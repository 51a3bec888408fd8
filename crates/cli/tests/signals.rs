//! Signals, stops and sudden deaths: whatever happens to the supervisor, the guardian or the nodes,
//! the command does not outlive its lease.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use leasehold_testkit::{Need, eventually, skip};
use support::{Place, Running, SOON, Signal, boot_nanos, five_nodes, is_alive, send, state};

const MS: u64 = 1_000_000;

/// A command that says its own pid and that of a child in the same group, both deaf to SIGTERM.
const FAMILY: &str =
    "trap '' TERM; sh -c 'while :; do sleep 0.05; done' & echo $$; echo $!; wait; wait; wait";

fn family(run: &mut Running) -> [i32; 2] {
    [run.pid_line(), run.pid_line()]
}

fn gone(pids: [i32; 2]) -> bool {
    pids.iter().all(|pid| !is_alive(*pid))
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let place = Place::new();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::CONT, "CONT"),
        (Signal::WINCH, "WINCH"),
    ] {
        // Whoever started the tests may ignore it, as `nohup` does; then so do all below.
        if is_ignored(signal) {
            continue;
        }
        let script =
            format!("trap 'echo got; exit 9' {name}; echo $$; while :; do sleep 0.02; done");
        let mut run = place.start(&["run", "l", "-c", &script]);
        run.pid_line();
        run.signal(signal);
        assert_eq!(run.line(), "got", "{name}");
        assert_eq!(run.end(), Some(9), "{name}");
    }
    let mut run = place.start(&["run", "l", "-c", "echo $$; exec sleep 60"]);
    run.pid_line();
    run.signal(Signal::TERM);
    assert_eq!(run.end(), Some(143), "128 + 15");
    assert!(place.is_free("l"));
}

fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    u64::from_str_radix(mask, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn ignored_signals_stay_ignored() {
    let place = Place::new();
    let script = format!(
        "trap '' HUP; exec {} run l -c 'grep SigIgn /proc/$$/status'",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let output = place.leasehold_shell(&script).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mask = text.trim().rsplit(['\t', ' ']).next().unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(mask & 1, 1, "SIGHUP: {text}");
    // And nothing of ours is handed down: neither what we ignore nor what we block.
    let plain = place.run(&["run", "l", "--", "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"]);
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    let ours = fs::read_to_string("/proc/self/status").unwrap();
    let of = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        let mask = line.rsplit('\t').next().unwrap().to_owned();
        // Rust programs ignore SIGPIPE themselves and hand down the default, and the C library has
        // its own ways with real-time signals.
        u64::from_str_radix(&mask, 16).unwrap() & 0x7fff_ffff & !(1 << 12)
    };
    assert_eq!(of(&text, "SigBlk"), of(&ours, "SigBlk"));
    assert_eq!(of(&text, "SigIgn"), of(&ours, "SigIgn"));
}

#[test]
fn a_killed_supervisor_leaves_no_command_within_a_second() {
    let place = Place::new();
    let mut run = place.start(&["run", "l", "-c", FAMILY]);
    let pids = family(&mut run);
    let guardian = run.guardian();
    run.signal(Signal::KILL);
    eventually(Duration::from_secs(1), "the group is gone", || gone(pids));
    eventually(SOON, "the guardian, too", || !is_alive(guardian));
    // Nobody gave the lock back, and nobody could: it stays until its ttl.
    assert!(!place.is_free("l"));
}

#[test]
fn a_supervisor_killed_while_it_waits_leaves_no_guardian() {
    let place = Place::new();
    let mut first = place.start(&["run", "l", "-c", "echo $$; read x"]);
    first.pid_line();
    let waiter = place.start(&["run", "l", "--", "true"]);
    let guardian = waiter.guardian();
    waiter.signal(Signal::KILL);
    eventually(SOON, "the guardian is gone", || !is_alive(guardian));
}

#[test]
fn a_stopped_supervisor_cannot_keep_its_command_past_the_lease() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "1s", "l", "-c", FAMILY]);
    let pids = family(&mut run);
    run.signal(Signal::STOP);
    // Whatever was extended before, one ttl from now on is the end.
    let end = boot_nanos() + 1000 * MS;
    eventually(SOON, "the group is gone", || gone(pids));
    let late = boot_nanos().saturating_sub(end);
    assert!(late == 0, "{} ms late", late / MS);
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(79));
}

#[test]
fn a_short_stop_harms_nobody() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "2s", "l", "-c", "echo $$; read x; exit 3"]);
    run.pid_line();
    run.signal(Signal::STOP);
    eventually(SOON, "stopped", || state(run.pid()) == Some('T'));
    std::thread::sleep(Duration::from_millis(300));
    run.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(2));
    run.close_input();
    assert_eq!(run.end(), Some(3));
}

#[test]
fn a_command_that_ended_in_time_has_ended_in_time() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "500ms", "l", "-c", "echo $$; read x; exit 3"]);
    let command = run.pid_line();
    run.signal(Signal::STOP);
    run.close_input();
    eventually(SOON, "the command ended", || !is_alive(command));
    std::thread::sleep(Duration::from_millis(700));
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(3), "although the supervisor heard of it after the deadline");
}

#[test]
fn a_killed_guardian_takes_the_command_with_it() {
    let place = Place::new();
    let mut run = place.start(&["run", "l", "-c", FAMILY]);
    let pids = family(&mut run);
    send(run.guardian(), Signal::KILL);
    eventually(SOON, "the group is gone", || gone(pids));
    assert_eq!(run.end(), Some(137));
    assert!(run.complaints().contains("guardian"));
    assert!(place.is_free("l"), "given back, as nothing is left");
}

#[test]
fn a_stopped_guardian_does_not_save_the_command() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "500ms", "--max-hold", "1s", "l", "-c", FAMILY]);
    let pids = family(&mut run);
    let guardian = run.guardian();
    send(guardian, Signal::STOP);
    eventually(Duration::from_millis(2700), "the group is gone", || gone(pids));
    assert_eq!(run.end(), Some(79));
    eventually(SOON, "the lease runs out", || place.is_free("l"));
    eventually(SOON, "the guardian is gone", || !is_alive(guardian));
}

#[test]
fn a_guardian_that_ends_with_an_order_unread_is_still_heard() {
    let place = Place::new();
    let script = "echo $$; read x; exit 3";
    let mut run = place.start(&["run", "--ttl", "9s", "--grace", "0", "l", "-c", script]);
    let command = run.pid_line();
    let guardian = run.guardian();
    send(guardian, Signal::STOP);
    // A third of the ttl and a bit: the lease was extended, and the guardian not told.
    std::thread::sleep(Duration::from_millis(3600));
    run.close_input();
    eventually(SOON, "the command ended", || !is_alive(command));
    run.signal(Signal::STOP);
    send(guardian, Signal::CONT);
    eventually(SOON, "the guardian ended", || !is_alive(guardian));
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(3), "{}", run.complaints());
}

#[test]
fn the_guardian_does_not_listen_to_signals_for_others() {
    // As when a service manager ends all processes of a service.
    let place = Place::new();
    let script = "trap 'sleep 0.3; echo tidy; exit 4' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = place.start(&["run", "l", "-c", script]);
    let command = run.pid_line();
    let guardian = run.guardian();
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TERM]
    {
        send(guardian, signal);
    }
    send(command, Signal::TERM);
    assert_eq!(run.line(), "tidy");
    assert_eq!(run.end(), Some(4));
}

#[test]
fn without_a_quorum_the_command_is_asked_and_gone_before_the_nodes_forget() {
    if skip(Need::Redis) {
        return;
    }
    let (servers, url) = five_nodes();
    let place = Place::new();
    let asked = place.file("asked");
    let polite = format!(
        "trap 'cut -d\" \" -f1 /proc/uptime >{}; exit 0' TERM; echo $$; while :; do sleep 0.02; done",
        asked.display()
    );
    for (on_lost, script, is_asked) in
        [("term", polite.as_str(), true), ("term", FAMILY, false), ("kill", polite.as_str(), false)]
    {
        let _ = fs::remove_file(&asked);
        let ttl = ["--ttl", "2s", "--grace", "700ms", "--on-lost", on_lost];
        let arguments = [&["--backend", &url, "run"], &ttl[..], &["l", "-c", script]].concat();
        let mut run = place.start(&arguments);
        let command = run.pid_line();
        servers[..3].iter().for_each(leasehold_testkit::RedisServer::pause);
        // No node was asked to extend after this, so none keeps it longer than a ttl from now.
        let nodes_forget = boot_nanos() + 2000 * MS;
        eventually(SOON, "the command is gone", || !is_alive(command));
        assert!(boot_nanos() < nodes_forget, "{on_lost}: too late");
        assert_eq!(run.end(), Some(79), "{on_lost}");
        assert_eq!(asked.exists(), is_asked, "{on_lost}");
        servers[..3].iter().for_each(leasehold_testkit::RedisServer::resume);
    }
}

#[test]
fn a_short_outage_of_the_nodes_is_survived() {
    if skip(Need::Redis) {
        return;
    }
    let (servers, url) = five_nodes();
    let place = Place::new();
    let arguments = ["--backend", &url, "run", "--ttl", "3s", "l", "-c", "echo $$; read x; exit 3"];
    let mut run = place.start(&arguments);
    run.pid_line();
    servers[..3].iter().for_each(leasehold_testkit::RedisServer::pause);
    std::thread::sleep(Duration::from_millis(1300));
    servers[..3].iter().for_each(leasehold_testkit::RedisServer::resume);
    std::thread::sleep(Duration::from_secs(3));
    run.close_input();
    assert_eq!(run.end(), Some(3));
    let text = run.complaints();
    assert!(!text.contains("sent to the command"), "{text}");
}

#[test]
fn with_warn_the_command_goes_on_and_the_code_tells() {
    let place = Place::new();
    let start = Instant::now();
    let script = "echo $$; sleep 1; echo done";
    let arguments = ["run", "--on-lost", "warn", "--max-hold", "300ms", "l", "-c", script];
    let mut run = place.start(&arguments);
    run.pid_line();
    assert_eq!(run.line(), "done");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(run.end(), Some(79));
    assert!(run.complaints().contains("goes on without it"));
}
