//! `leasehold hold`: until the input ends, a signal comes, the time is over or the lease is lost.

mod support;

use std::time::{Duration, Instant};

use support::{Place, Running, Signal, code};

fn holding(place: &Place, arguments: &[&str]) -> Running {
    let mut hold = place.start(arguments);
    let line = hold.line();
    assert!(
        line.starts_with("{\"schema\":\"leasehold/hold/v1\",\"name\":\"l\",\"fence\":1"),
        "{line}"
    );
    assert!(line.contains("\"holder\":\"") && line.ends_with("\"ttl_ms\":10000}"), "{line}");
    hold
}

#[test]
fn it_holds_until_its_input_ends() {
    let place = Place::new();
    let mut hold = holding(&place, &["hold", "l"]);
    hold.type_in("noise\n");
    let busy = place.run(&["hold", "-n", "-E", "9", "l"]);
    assert_eq!(code(&busy), 9);
    assert!(busy.stdout.is_empty(), "nothing is said to be held");
    hold.close_input();
    assert_eq!(hold.end(), Some(0));
    assert!(place.is_free("l"));
}

#[test]
fn it_holds_until_a_signal_or_for_a_time() {
    let place = Place::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut hold = holding(&place, &["hold", "l"]);
        hold.signal(signal);
        assert_eq!(hold.end(), Some(0));
        assert!(place.is_free("l"));
    }
    let start = Instant::now();
    let mut hold = holding(&place, &["hold", "--for", "300ms", "l"]);
    assert_eq!(hold.end(), Some(0));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(place.is_free("l"));
}

#[test]
fn a_stop_longer_than_the_lease_is_a_loss() {
    let place = Place::new();
    let mut hold = place.start(&["hold", "--ttl", "300ms", "l"]);
    hold.line();
    hold.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(600));
    assert!(place.is_free("l"), "its lease ran out");
    hold.signal(Signal::CONT);
    assert_eq!(hold.end(), Some(79));
    assert!(hold.complaints().contains("is lost"));
}

#[test]
fn nobody_holds_a_lock_for_a_reader_that_is_gone() {
    let place = Place::new();
    let script = format!("{} hold l </dev/zero | true", env!("CARGO_BIN_EXE_leasehold"));
    let output = place.leasehold_shell(&script).output().unwrap();
    assert!(!support::stderr(&output).contains("panicked"), "{output:?}");
    // The writer may notice it late, so not at once.
    let start = Instant::now();
    while !place.is_free("l") {
        assert!(start.elapsed() < support::SOON);
    }
}

#[test]
fn on_a_file_nothing_touches_the_network() {
    let place = Place::new();
    let mut hold = holding(&place, &["hold", "l"]);
    let fds = std::fs::read_dir(format!("/proc/{}/fd", hold.pid())).unwrap();
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let sockets: Vec<String> = targets
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        // Without IPv6 there is no such table.
        let table = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let inodes = table.lines().filter_map(|line| line.split_whitespace().nth(9));
        for inode in inodes {
            assert!(!sockets.iter().any(|socket| socket == inode), "{inode} is on the network");
        }
    }
    hold.close_input();
    assert_eq!(hold.end(), Some(0));
}
