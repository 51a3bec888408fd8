//! The clock that leases are judged by counts the time that the machine slept. Nobody puts the
//! machine to sleep for a test; but in a time namespace the clock that counts sleep is ahead of the
//! one that does not, as it is after a sleep.
#![cfg(target_os = "linux")]

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use leasehold_core::Moment;

const SLEPT: Duration = Duration::from_secs(100_000);

/// Set for the process in the namespace, which says what time it is.
const ROLE: &str = "LEASEHOLD_TEST_TELL_THE_TIME";

fn in_a_namespace(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--time", "--fork"]);
    command.arg("--boottime").arg(SLEPT.as_secs().to_string()).arg(program);
    command
}

#[test]
fn the_lease_clock_counts_the_time_that_the_machine_slept() {
    if std::env::var_os(ROLE).is_some() {
        println!("now={}", SystemClock.now().as_nanos());
        return;
    }
    if !in_a_namespace("true").output().is_ok_and(|run| run.status.success()) {
        let line = "SKIPPED: the lease clock during sleep: no time namespaces here\n";
        // Not eprintln!, which the test harness captures: `./test` counts these lines.
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let before = SystemClock.now();
    let name = std::thread::current().name().expect("tests have names").to_owned();
    let run = in_a_namespace(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let now = said.lines().find_map(|line| line.split_once("now=")?.1.parse().ok());
    let now = Moment::from_nanos(now.unwrap_or_else(|| panic!("{run:?}")));
    assert!(now.since(before) >= SLEPT, "{:?} later", now.since(before));
}
