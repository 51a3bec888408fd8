//! `acquire`, `extend`, `release`: a lease that goes from process to process as text.

use std::fs::File;
use std::thread::sleep;
use std::time::Duration;

use leasehold_testkit::{Fault, Proxy, RedisServer, eventually};

use crate::harness::{Desk, Ran, new_servers};

#[test]
fn a_lease_goes_from_process_to_process_until_it_is_released() {
    for desk in Desk::each() {
        let token = desk.acquire("job");
        assert_eq!(token.lines().count(), 1, "{token}");
        desk.run(&["acquire", "job", "--ttl", "5s", "-n"]).fails(75, &["held by ana@"]);
        let again = desk.run(&["extend", &token]).expect(0);
        assert_eq!(again.out.trim(), token);
        assert!(again.err.contains("for another"), "{again:?}");
        let released = desk.run(&["release", &token]).expect(0);
        assert!(released.out.is_empty() && released.err.contains("is free"), "{released:?}");

        let first: u64 = token.split(':').nth(1).unwrap().parse().unwrap();
        let lease = desk.run(&["acquire", "job", "--ttl", "5s", "--json"]).expect(0).object();
        assert_eq!(lease["schema"], "leasehold/lease/v1");
        assert!(lease["fence"].as_u64().unwrap() > first, "{lease}");
        assert_eq!((&lease["name"], &lease["ttl_ms"]), (&"job".into(), &5000.into()));
        let validity = lease["validity_ms"].as_u64().unwrap();
        assert!((1000..=4950).contains(&validity), "the drift is taken off: {lease}");
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let until = lease["until_uptime_ms"].as_f64().unwrap() / 1e3;
        // In hundredths of a second, cut off.
        assert!((0.0..=4.96).contains(&(until - uptime)), "{lease} at {uptime}");
        let released =
            desk.run(&["release", lease["token"].as_str().unwrap(), "--json"]).expect(0).object();
        assert_eq!(released["schema"], "leasehold/release/v1");
        assert_eq!(released["outcome"], "released");
    }
}

#[test]
fn a_token_may_come_from_standard_input_or_a_file_so_that_no_command_line_has_it() {
    for desk in Desk::each() {
        let token = desk.acquire("job");
        let path = desk.home().join("token");
        std::fs::write(&path, format!("{token}\n")).unwrap();
        let file = format!("@{}", path.display());
        let fed = |arguments: &[&str]| {
            let mut command = desk.command(arguments);
            command.stdin(File::open(&path).unwrap());
            Ran::of(command.output().expect("leasehold runs"))
        };
        for extended in [fed(&["extend", "-"]), desk.run(&["extend", &file])] {
            assert_eq!(extended.expect(0).out.trim(), token);
        }
        fed(&["release", "-"]).expect(0);
        let again = desk.acquire("job");
        std::fs::write(&path, &again).unwrap();
        let released = desk.run(&["release", &file]).expect(0);
        assert!(released.err.contains("is free"), "{released:?}");
        // Half a token is a secret, too.
        let half = &again[..again.len() / 2];
        std::fs::write(&path, half).unwrap();
        for refused in [fed(&["release", "-"]), desk.run(&["extend", &file])] {
            let refused = refused.fails(64, &["not a lease token"]);
            assert!(!refused.all().contains(half), "{refused:?}");
        }
        desk.run(&["release", "@/nonexistent"]).fails(69, &["/nonexistent", "No such file"]);
        desk.run(&["release", "nonsense"]).fails(64, &["not one that `acquire` prints"]);
    }
}

#[test]
fn what_lapsed_is_lost_and_what_another_took_over_is_an_error() {
    for desk in Desk::each() {
        let token = desk.acquire_for("job", "200ms");
        sleep(Duration::from_millis(300));
        desk.run(&["extend", &token]).fails(79, &["`job`", "is lost"]);
        let released = desk.run(&["release", &token, "--json"]).expect(0);
        assert_eq!(released.object()["outcome"], "already_expired");
        assert!(released.err.contains("nothing to give back"), "{released:?}");

        let other = desk.run(&["acquire", "job", "--ttl", "20s", "-w", "5s", "--holder", "bob"]);
        let other = other.expect(0).out;
        desk.run(&["release", &token]).fails(79, &["had run out before, and bob holds it now"]);
        desk.run(&["extend", &token]).fails(79, &["is lost"]);
        desk.run(&["extend", other.trim()]).expect(0);
    }
}

#[test]
fn an_extension_for_less_than_is_left_says_that_the_longer_end_stands() {
    for desk in Desk::each() {
        let token = desk.acquire_for("job", "25s");
        let extended = desk.run(&["extend", &token, "-t", "5s"]).expect(0);
        let stands = "its end before was later and stands";
        assert!(extended.err.contains(stands), "{extended:?}");
        let extended = desk.run(&["extend", &token, "-t", "5s", "--json"]).expect(0).object();
        let kept = extended["nodes_keep_ms"].as_u64().unwrap();
        assert!((10_000..25_000).contains(&kept), "{extended}");
        assert!(extended["validity_ms"].as_u64().unwrap() < 5_000, "{extended}");
        let longer = desk.run(&["extend", &token, "-t", "28s"]).expect(0);
        assert!(!longer.err.contains(stands), "{longer:?}");
    }
}

#[test]
fn waiting_ends_when_the_lock_is_free_or_the_time_is_over() {
    for desk in Desk::each() {
        desk.acquire_for("job", "800ms");
        let busy = desk.run(&["acquire", "job", "--ttl", "5s", "-w", "50ms"]);
        busy.fails(75, &["held by ana@"]);
        desk.run(&["acquire", "job", "--ttl", "5s", "-w", "0"]).fails(75, &["held by"]);
        desk.run(&["acquire", "job", "--ttl", "5s", "-w", "20s"]).expect(0);
    }
}

#[test]
fn an_extension_may_change_the_ttl_within_the_limits() {
    for desk in Desk::each() {
        let token = desk.acquire("job");
        let lease = desk.run(&["extend", &token, "--ttl", "25s", "--json"]).expect(0).object();
        assert_eq!(lease["ttl_ms"], 25_000);
        let token = lease["token"].as_str().unwrap().to_owned();
        let left = desk.run(&["status", "job", "--json"]).expect(0).object();
        assert!(left["expires_in_ms"].as_u64().unwrap() > 20_000, "{left}");
        desk.run(&["extend", &token, "--ttl", "1ms"]).fails(64, &["at least 100ms"]);
        desk.run(&["extend", &token, "--ttl", "48h"]).fails(64, &["max_ttl"]);
        desk.run(&["acquire", "other", "--ttl", "48h"]).fails(64, &["max_ttl"]);
        desk.run(&["release", &token]).expect(0);
    }
}

#[test]
fn holder_and_reason_are_seen_by_others() {
    let desk = Desk::sqlite();
    desk.run(&["acquire", "a", "--ttl", "9s", "--holder", "bob", "--reason", "moving"]).expect(0);
    let status = desk.run(&["status", "a"]).expect(0);
    assert!(status.out.contains("holder   bob (moving)"), "{status:?}");
    desk.run(&["acquire", "b", "--ttl", "9s", "--reason", "moving"]).expect(0);
    let status = desk.run(&["status", "b", "--json"]).expect(0).object();
    let holder = status["holder"].as_str().unwrap();
    assert!(holder.starts_with("ana@") && holder.ends_with(" (moving)"), "{holder}");
    desk.run(&["acquire", "c", "--ttl", "9s", "--holder", "é"]).fails(64, &["é"]);
}

#[test]
fn a_ttl_must_come_from_somebody() {
    let desk = Desk::sqlite();
    desk.run(&["acquire", "a"]).fails(64, &["acquire needs --ttl"]);
    let ran = desk.command(&["acquire", "a", "--json"]).env("LEASEHOLD_TTL", "7s").output();
    assert_eq!(Ran::of(ran.unwrap()).expect(0).object()["ttl_ms"], 7000);
}

#[test]
fn a_token_that_nobody_got_is_given_back() {
    for desk in Desk::each() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = desk.command(&["acquire", "job", "--ttl", "20s"]).stdout(full).output().unwrap();
        Ran::of(ran).fails(74, &["cannot write to the standard output", "No space left"]);
        desk.acquire("job");
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let desk = Desk::sqlite();
    for command in ["extend", "release"] {
        desk.run(&[command, "lease1:nonsense"]).fails(64, &["not one that `acquire` prints"]);
        desk.run(&[command]).fails(64, &["required"]);
    }
}

#[test]
fn nothing_is_left_on_any_node_when_a_command_ends() {
    let Some(desk) = Desk::redis(5) else { return };
    let held = || desk.servers.iter().filter(|server| server.exists("leasehold:lock:job")).count();
    for _ in 0..10 {
        let token = desk.acquire("job");
        assert_eq!(held(), 5);
        desk.run(&["release", &token]).expect(0);
        assert_eq!(held(), 0, "released everywhere, not only by a quorum");
        // A lapsed lease is taken back by the nodes for a moment.
        desk.run(&["extend", &token]).fails(79, &["is lost"]);
        assert_eq!(held(), 0, "given back everywhere");
    }
    for server in &desk.servers[..3] {
        server.command(&["SET", "leasehold:lock:job", "another", "PX", "60000"]).unwrap();
    }
    for _ in 0..10 {
        let ran = desk.run(&["acquire", "job", "--ttl", "20s", "-n"]);
        ran.fails(75, &["held by another library's lock `another`"]);
        assert_eq!(held(), 3, "what two nodes granted is given back");
    }
}

#[test]
fn a_release_waits_for_the_slow_nodes_too() {
    let Some(servers) = new_servers(3) else { return };
    let slow = Proxy::to(servers[2].addr());
    let (a, b) = (servers[0].addr(), servers[1].addr());
    let desk = Desk::with(format!("redis://{a},{b},{}?timeout=1s", slow.addr()));
    desk.run(&["init"]).expect(0);
    let is_held = |server: &RedisServer| server.exists("leasehold:lock:job");
    let token = desk.acquire("job");
    eventually(Duration::from_secs(10), "all nodes have it", || servers.iter().all(is_held));
    // Far less than the second for which a command waits at its end, also where all of it takes long.
    slow.set(Fault::Delay(Duration::from_millis(10)));
    desk.run(&["release", &token]).expect(0);
    assert!(!is_held(&servers[2]));
}
