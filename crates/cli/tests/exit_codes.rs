//! An exit code never claims a lock that was lost: what counts is when the command ended, and not
//! when `leasehold` heard of it.

mod support;

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use leasehold_testkit::eventually;
use support::{Place, Running, SOON, Signal, code, is_alive, send, state, stderr};

const TTL: Duration = Duration::from_millis(400);

/// Stops the process, and comes back when its lease is over.
fn stop_past_the_lease(place: &Place, run: &Running) {
    run.signal(Signal::STOP);
    eventually(SOON, "stopped", || state(run.pid()) == Some('T'));
    eventually(SOON, "the lease is over", || place.is_free("l"));
}

#[test]
fn a_command_that_went_on_past_the_lease_is_told_however_late_we_hear_of_it() {
    let place = Place::new();
    let options =
        ["run", "--ttl", "400ms", "--on-lost", "warn", "l", "-c", "echo $$; read x; exit 0"];
    let mut run = place.start(&options);
    let command = run.pid_line();
    stop_past_the_lease(&place, &run);
    run.close_input();
    eventually(SOON, "the command ended", || !is_alive(command));
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(79));
    let text = run.complaints();
    assert!(text.contains("is lost") && text.contains("went on without it"), "{text}");
}

#[test]
fn a_command_that_ended_within_the_lease_keeps_its_code_with_warn_as_well() {
    let place = Place::new();
    let script = "echo $$; read x; exit 3";
    let mut run = place.start(&["run", "--ttl", "2s", "--on-lost", "warn", "l", "-c", script]);
    let command = run.pid_line();
    run.signal(Signal::STOP);
    run.close_input();
    eventually(SOON, "the command ended", || !is_alive(command));
    eventually(SOON, "the lease is over", || place.is_free("l"));
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(3));
}

#[test]
fn a_lock_that_another_has_at_the_release_is_told() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "400ms", "l", "-c", "echo $$; read x; exit 0"]);
    let command = run.pid_line();
    run.signal(Signal::STOP);
    run.close_input();
    eventually(SOON, "the command ended", || !is_alive(command));
    let other = place.run(&["acquire", "l", "--ttl", "1m", "--wait", "10s"]);
    assert_eq!(code(&other), 0, "{}", stderr(&other));
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(79));
    let text = run.complaints();
    assert!(text.contains("lock `l` was not held any more when it was given back: "), "{text}");
}

#[test]
fn a_lock_that_was_taken_away_is_told_though_whoever_had_it_next_is_gone() {
    let place = Place::new();
    let mut run = place.start(&["run", "--ttl", "1m", "l", "-c", "echo $LEASEHOLD_FENCE; read x"]);
    let mut hold = place.start(&["hold", "--ttl", "1m", "m"]);
    let held: serde_json::Value = serde_json::from_str(&hold.line()).unwrap();
    for (name, fence) in [("l", run.line()), ("m", held["fence"].to_string())] {
        let force = ["force-release", name, "--reason", "x", "--yes", "--fence", &fence];
        assert_eq!(code(&place.run(&force)), 0);
        assert_eq!(code(&place.run(&["run", "-n", name, "--", "true"])), 0);
    }
    for mut holder in [run, hold] {
        holder.close_input();
        assert_eq!(holder.end(), Some(79));
        let text = holder.complaints();
        assert!(text.contains("was not held any more when it was given back: "), "{text}");
        assert!(text.contains("taken away by force, or others had it since"), "{text}");
    }
}

/// A pipe that takes nothing more, and the end to read from.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

/// Whether a thread of the process writes to its standard output, by the call that it is in.
fn is_printing(process: u32) -> bool {
    const WRITE: [&str; 2] = ["1 0x1 ", "64 0x1 "];
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.flatten().any(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        WRITE.iter().any(|write| call.starts_with(write))
    })
}

#[test]
fn a_lease_that_is_over_when_its_token_is_out_is_given_back_and_no_success() {
    let place = Place::new();
    let long = place.run(&["acquire", "b", "--ttl", "1m"]);
    let token = String::from_utf8(long.stdout).unwrap();
    for (name, arguments) in [
        ("a", &["acquire", "a", "--ttl", "400ms"][..]),
        ("b", &["extend", token.trim(), "--ttl", "400ms"]),
    ] {
        let (mut reader, writer) = full_pipe();
        let mut command = place.leasehold();
        let child = command.args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        // The writing end in here keeps the pipe open.
        drop(command);
        eventually(SOON, "it prints", || is_printing(child.id()));
        thread::sleep(TTL);
        let reading = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let output = child.wait_with_output().unwrap();
        reading.join().unwrap().unwrap();
        let text = stderr(&output);
        assert_eq!(code(&output), 79, "{text}");
        assert!(text.contains("was over before it could be handed out"), "{text}");
        assert!(place.is_free(name), "{name} is given back");
    }
}

#[test]
fn a_lock_that_is_lost_before_its_min_hold_is_over_is_told() {
    let place = Place::new();
    let options = ["run", "--ttl", "400ms", "--min-hold", "500ms", "l", "-c", "echo $$"];
    let mut run = place.start(&options);
    let command = run.pid_line();
    eventually(SOON, "the command is buried", || state(command).is_none());
    stop_past_the_lease(&place, &run);
    thread::sleep(TTL);
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(79));
    let text = run.complaints();
    assert!(text.contains("--min-hold was not over"), "{text}");
}

#[test]
fn no_command_starts_whose_lease_is_over() {
    let place = Place::new();
    for on_lost in ["warn", "term"] {
        let mut holder = place.start(&["hold", "l"]);
        holder.line();
        let options = ["--json", "run", "--ttl", "400ms", "--on-lost", on_lost, "l", "-c"];
        let script = format!("touch {}", place.file("started").display());
        let mut run = place.start(&[&options[..], &[&script]].concat());
        let guardian = run.guardian();
        send(guardian, Signal::STOP);
        holder.close_input();
        run.remarks("\"acquired\"");
        stop_past_the_lease(&place, &run);
        send(guardian, Signal::CONT);
        // With the order to start, which it now has read, or with the end of the supervisor.
        thread::sleep(Duration::from_millis(100));
        run.signal(Signal::CONT);
        assert_eq!(run.end(), Some(79), "{on_lost}");
        assert!(!place.file("started").exists(), "{on_lost}: started without a lease");
        let text = run.complaints();
        assert!(text.contains("over before the command could be started"), "{on_lost}: {text}");
    }
}

#[test]
fn a_hold_that_was_stopped_past_its_lease_is_lost_also_if_its_input_ended_meanwhile() {
    let place = Place::new();
    for _ in 0..8 {
        let mut hold = place.start(&["hold", "--ttl", "200ms", "l"]);
        hold.line();
        hold.signal(Signal::STOP);
        hold.close_input();
        eventually(SOON, "the lease is over", || place.is_free("l"));
        hold.signal(Signal::CONT);
        assert_eq!(hold.end(), Some(79));
        assert!(hold.complaints().contains("is lost"));
    }
}
