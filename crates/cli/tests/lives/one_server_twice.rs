//! Two member names lead one client to one server: a stale name, a reused address, a wrong line in a
//! proxy. The server must not be counted twice, least of all when a lease is extended.
//!
//! The first client's connections stay with the wrong server after the name is put right. The third
//! member is out of its reach, and comes back while it is stopped, which is how one client alone can
//! reach it.

use std::process::Output;

use leasehold_testkit::{Fault, Need, eventually, skip};

use crate::stage::{Cluster, LOCK, key};
use crate::support::{Running, SOON, Signal, code, stderr};

/// Of the first client, which extends at a third of it.
const TTL_MS: i64 = 3000;

fn holder(cluster: &Cluster, patience: &str) -> Running {
    let ttl = format!("{TTL_MS}ms");
    let usual = ["run", "--ttl", &ttl, "-w", patience, LOCK, "--"];
    cluster.client().start(&[&usual[..], &["sh", "-c", "echo $$; exec sleep 60"]].concat())
}

/// The third member cannot be reached until it has forgotten the holder. Then another client acquires,
/// at the beginning of what the holder takes for its lease; its command looks whether that of the
/// holder runs. Returns the other's output.
#[track_caller]
fn only_one_works(cluster: &Cluster, holder: &mut Running, command: i32) -> Output {
    cluster.proxies[2].set(Fault::Refuse);
    eventually(SOON, "the third member forgets the holder, or the holder gives up", || {
        !cluster.servers[2].exists(&key(LOCK)) || holder.has_ended()
    });
    // Just extended, so that the other has a whole lease to come in.
    eventually(SOON, "an extension, or the holder gives up", || {
        cluster.servers[0].pttl(&key(LOCK)) > TTL_MS - 200 || holder.has_ended()
    });
    let is_stopped = !holder.has_ended();
    if is_stopped {
        holder.signal(Signal::STOP);
    }
    cluster.proxies[2].set(Fault::Pass);
    let look = format!("cat /proc/{command}/stat");
    let output = cluster.client().run(&["run", "--ttl", "2s", "-n", LOCK, "-c", &look]);
    if is_stopped {
        holder.signal(Signal::CONT);
    }
    let seen = String::from_utf8_lossy(&output.stdout);
    let runs = seen.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']));
    assert!(!runs, "two holders: the other's command saw that of the first: {seen}");
    output
}

/// What became of the holder, if there were not two.
#[track_caller]
fn is_lost_or_kept(mut holder: Running, other: &Output) {
    if holder.has_ended() {
        assert_eq!(holder.end(), Some(79));
    } else {
        assert_eq!(code(other), 75, "held by the first: {}", stderr(other));
    }
}

#[test]
fn a_server_that_a_new_client_finds_under_two_names_is_not_counted_twice() {
    if skip(Need::Redis) {
        return;
    }
    let cluster = Cluster::of_three();
    let [first, second, _] = &cluster.proxies[..] else { unreachable!() };
    second.retarget(cluster.servers[0].addr());
    let mut holder = holder(&cluster, "2s");
    let first_line = holder.line();
    second.retarget(cluster.servers[1].addr());
    match first_line.parse() {
        // Granted before the second member was looked at: by the first and the third, which is right.
        Ok(command) => {
            let other = only_one_works(&cluster, &mut holder, command);
            is_lost_or_kept(holder, &other);
        }
        Err(_) => assert_eq!(holder.end(), Some(69)),
    }
    second.retarget(cluster.servers[0].addr());
    for member in [first, second] {
        cluster.client().is_told_of(member, "are one server: it would be counted twice");
    }
}

#[test]
fn a_server_that_a_holder_finds_under_two_names_is_not_counted_twice() {
    if skip(Need::Redis) {
        return;
    }
    let cluster = Cluster::of_three();
    let mut holder = holder(&cluster, "10s");
    let command = holder.pid_line();
    // The second member's address leads to the first server when the holder connects again.
    let second = &cluster.proxies[1];
    second.retarget(cluster.servers[0].addr());
    second.set(Fault::Refuse);
    second.set(Fault::Pass);
    let asked = second.counts().to_clients;
    eventually(SOON, "the holder is connected again", || second.counts().to_clients > asked);
    eventually(SOON, "the second member forgets the holder, or the holder gives up", || {
        !cluster.servers[1].exists(&key(LOCK)) || holder.has_ended()
    });
    second.retarget(cluster.servers[1].addr());
    let other = only_one_works(&cluster, &mut holder, command);
    is_lost_or_kept(holder, &other);
}
