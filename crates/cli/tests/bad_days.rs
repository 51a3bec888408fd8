//! Bad days of a command under a lock: clocks that jump.

mod support;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use leasehold_testkit::{Need, WallClock, eventually, skip};
use support::{Place, Running, SOON, Signal, send, state};
use support::{code, five_nodes, stderr};

const HOUR: f64 = 3600.0;

const TTL: Duration = Duration::from_secs(1);

/// Says its pid and fence, and runs until its input ends.
const PATIENT: &str = "echo $$; echo $LEASEHOLD_FENCE; read x; exit 3";

/// A command that runs, its pid and its fence.
struct Held {
    run: Running,
    pid: i32,
    fence: u64,
}

impl Held {
    fn new(command: &mut Command, script: &str) -> Self {
        command.args(["run", "--ttl", "1s", "l", "-c", script]);
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
fn a_command_whose_lease_is_over_before_it_starts_is_not_started() {
    let place = Place::new();
    let mut other = place.start(&["hold", "l"]);
    other.line();
    let script = format!("touch {}", place.file("started").display());
    let mut run = place.start(&["run", "--json", "--ttl", "1s", "l", "-c", &script]);
    let guardian = run.guardian();
    eventually(SOON, "the guardian is at work", || {
        fs::read_to_string(format!("/proc/{guardian}/comm"))
            .is_ok_and(|name| name.starts_with("lease"))
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
