//! Bad days of a command under a lock: clocks that jump, a machine that sleeps, a disk that is full.

mod support;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use leasehold_testkit::{Need, RedisServer, WallClock, eventually, skip};
use rustix::process::{Pid, Resource, Rlimit, kill_process, prlimit};
use support::{Place, Running, SOON, Signal, boot_nanos, is_alive, send, state};
use support::{code, five_nodes, five_of, stderr};

const HOUR: f64 = 3600.0;

const TTL: Duration = Duration::from_secs(1);

/// Says its pid and fence, and runs until its input ends.
const PATIENT: &str = "echo $$; echo $LEASEHOLD_FENCE; read x; exit 3";

/// Says its pid and fence, and runs until it is asked to stop, or nobody asks.
const POLITE: &str = "trap 'echo asked; exit 0' TERM; echo $$; echo $LEASEHOLD_FENCE; \
                      for i in $(seq 500); do sleep 0.02; done";

/// A command that runs, its pid and its fence.
struct Held {
    run: Running,
    pid: i32,
    fence: u64,
}

impl Held {
    fn new(command: &mut Command, script: &str) -> Self {
        Self::for_ttl("1s", command, script)
    }

    fn for_ttl(ttl: &str, command: &mut Command, script: &str) -> Self {
        command.args(["run", "--ttl", ttl, "l", "-c", script]);
        // What the nodes do, as far as it is worth a warning.
        let mut run = Running::new(command.env("LEASEHOLD_LOG", "leasehold=warn"));
        let pid = run.pid_line();
        let fence = run.line().parse().expect("a fence");
        Self { run, pid, fence }
    }

    /// It was never in danger: neither it nor its supervisor noticed anything.
    fn ends_by_itself(mut self) {
        self.run.close_input();
        let code = self.run.end();
        let complaints = self.run.complaints();
        assert_eq!((code, complaints.contains("lock `l`")), (Some(3), false), "{complaints}");
    }

    fn ends_by_force(mut self) {
        eventually(SOON, "the command is gone", || !is_alive(self.pid));
        assert_eq!(self.run.end(), Some(79), "{}", self.run.complaints());
    }
}

/// The fence that `command` gets, as soon as it gets the lock.
fn fence_of(command: &mut Command) -> u64 {
    let output = command.args(["run", "-w", "20s", "l", "-c", "echo $LEASEHOLD_FENCE"]).output();
    let output = output.unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Long enough that a lease that is not extended is over. There is nothing else to wait for.
fn outlast_the_lease() {
    thread::sleep(2 * TTL);
}

fn our_own_clock_jumps(backend: &str) {
    for by in [HOUR, -HOUR] {
        let place = Place::new();
        let clock = WallClock::new(place.file("clock")).unwrap();
        let leasehold = || {
            let mut command = place.leasehold();
            clock.preload(command.args(["--backend", backend]));
            command
        };
        let held = Held::new(&mut leasehold(), PATIENT);
        for process in [held.run.pid(), held.run.guardian(), held.pid] {
            let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
            assert!(maps.contains("clock-shim"), "it reads the clock that jumps");
        }
        clock.jump(by);
        outlast_the_lease();
        let mut by_the_right_time = place.leasehold();
        by_the_right_time.args(["--backend", backend, "run", "-n", "l", "-c", "true"]);
        assert_eq!(code(&by_the_right_time.output().unwrap()), 75, "it is still held");
        let fence = held.fence;
        held.ends_by_itself();
        assert!(fence_of(&mut leasehold()) > fence, "also by a clock that went back");
    }
}

#[test]
fn a_jump_of_our_own_clock_harms_no_command_on_a_file() {
    our_own_clock_jumps("sqlite:");
}

#[test]
fn a_jump_of_our_own_clock_harms_no_command_on_five_nodes() {
    if skip(Need::Redis) {
        return;
    }
    let (_servers, url) = five_nodes();
    our_own_clock_jumps(&url);
}

#[test]
fn a_jump_of_one_nodes_clock_harms_no_command() {
    if skip(Need::Redis) {
        return;
    }
    let (servers, url) = five_of(RedisServer::redis().with_clock_shim());
    let place = Place::new();
    for (server, by) in [(&servers[0], HOUR), (&servers[1], -HOUR)] {
        let mut held = Held::new(place.leasehold().args(["--backend", &url]), PATIENT);
        server.jump_clock(by);
        // A majority started the command. A node that was not met by then is only seen to be off.
        held.run.remarks("its clock ");
        outlast_the_lease();
        held.ends_by_itself();
    }
}

#[test]
fn a_command_is_ended_at_once_when_the_clocks_of_a_majority_jump_ahead() {
    if skip(Need::Redis) {
        return;
    }
    let (servers, url) = five_of(RedisServer::redis().with_clock_shim());
    let place = Place::new();
    let leasehold = || {
        let mut command = place.leasehold();
        command.args(["--backend", &url]);
        command
    };
    // It is looked at long before it is extended.
    let held = Held::for_ttl("20s", &mut leasehold(), PATIENT);
    servers[..3].iter().for_each(|server| server.jump_clock(HOUR));
    let fence = held.fence;
    held.ends_by_force();
    assert!(fence_of(&mut leasehold()) > fence);
}

#[test]
fn a_command_goes_on_when_the_clocks_of_a_majority_go_back() {
    if skip(Need::Redis) {
        return;
    }
    let (servers, url) = five_of(RedisServer::redis().with_clock_shim());
    let place = Place::new();
    let held = Held::new(place.leasehold().args(["--backend", &url]), PATIENT);
    servers[..3].iter().for_each(|server| server.jump_clock(-HOUR));
    outlast_the_lease();
    held.ends_by_itself();
}

#[test]
fn a_command_that_slept_through_its_lease_is_ended_when_it_wakes_up() {
    let place = Place::new();
    for first_awake in 0..3 {
        let held = Held::new(&mut place.leasehold(), POLITE);
        // As near as one gets to a machine that sleeps: all of them, and at once.
        let mut all = [held.run.pid(), held.run.guardian(), held.pid];
        all.iter().for_each(|pid| send(*pid, Signal::STOP));
        eventually(SOON, "all stand still", || all.iter().all(|pid| state(*pid) == Some('T')));
        // Elsewhere time goes on.
        let next = Held::new(&mut place.leasehold(), PATIENT);
        assert!(next.fence > held.fence);
        all.rotate_left(first_awake);
        for pid in all {
            // Those that are awake already may have ended it.
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT);
        }
        held.ends_by_force();
        assert!(!place.is_free("l"), "the next one's lock was not given back");
        next.ends_by_itself();
    }
}

#[test]
fn a_command_whose_lease_is_over_before_it_starts_is_not_started() {
    let place = Place::new();
    let mut other = place.start(&["hold", "l"]);
    other.line();
    let script = format!("touch {}", place.file("started").display());
    let mut run = place.start(&["run", "--json", "--ttl", "1s", "l", "-c", &script]);
    let guardian = run.guardian();
    eventually(SOON, "the guardian is at work", || {
        fs::read_to_string(format!("/proc/{guardian}/comm"))
            .is_ok_and(|is| is == "lease-guardian\n")
    });
    // It hears that it may start the command when another has the lock.
    send(guardian, Signal::STOP);
    eventually(SOON, "it stands still", || state(guardian) == Some('T'));
    other.close_input();
    run.remarks("acquired");
    run.signal(Signal::STOP);
    let next = Held::new(&mut place.leasehold(), PATIENT);
    send(guardian, Signal::CONT);
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(79));
    let complaints = run.complaints();
    assert!(complaints.contains("before the command could be started"), "{complaints}");
    assert!(!place.file("started").exists());
    next.ends_by_itself();
}

/// From now on no file may grow by a write of this process, as on a disk that is full.
fn fill_the_disk(run: &Running, is_full: bool) {
    let current = is_full.then_some(0);
    let pid = Pid::from_raw(run.pid());
    prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
}

/// The binary, for which a write that is not allowed is an error and not its death.
fn on_a_small_disk(place: &Place) -> Command {
    let script = "trap '' XFSZ; exec \"$0\" \"$@\"";
    let mut command = place.leasehold_shell(script);
    command.arg(env!("CARGO_BIN_EXE_leasehold"));
    command
}

#[test]
fn on_a_full_disk_a_command_does_not_start_and_the_file_is_named() {
    let place = Place::new();
    // With this the file is open and in use; otherwise already opening it would fail.
    let mut other = place.start(&["hold", "other"]);
    other.line();
    for patience in [&["-n"][..], &["-w", "300ms"]] {
        let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
        let mut command = place.leasehold_shell(script);
        command.arg(env!("CARGO_BIN_EXE_leasehold")).arg("run").args(patience);
        let output = command.args(["l", "--", "echo", "started"]).output().unwrap();
        let text = stderr(&output);
        assert_eq!(code(&output), 69, "{text}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(text.contains("locks.db SQLite: disk I/O error"), "{text}");
    }
    assert!(place.is_free("l"));
}

#[test]
fn a_command_is_asked_to_stop_when_the_disk_is_full_and_goes_on_when_it_was_not_for_long() {
    let place = Place::new();
    let mut held = Held::new(&mut on_a_small_disk(&place), POLITE);
    let guardian = held.run.guardian();
    fill_the_disk(&held.run, true);
    let nodes_forget = boot_nanos() + TTL.as_nanos() as u64;
    assert_eq!(held.run.line(), "asked", "{}", held.run.complaints());
    assert!(boot_nanos() < nodes_forget, "while the lease was good");
    let fence = held.fence;
    held.ends_by_force();
    eventually(SOON, "nothing is left", || !is_alive(guardian));
    assert!(fence_of(&mut place.leasehold()) > fence);

    let mut held = Held::new(&mut on_a_small_disk(&place), PATIENT);
    fill_the_disk(&held.run, true);
    held.run.remarks("could not be extended");
    fill_the_disk(&held.run, false);
    held.run.remarks("extended again");
    held.ends_by_itself();
}
