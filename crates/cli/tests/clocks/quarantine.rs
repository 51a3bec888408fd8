//! A node that forgot waits until everything that it may have granted is over. Its own clock, by which
//! it waits, is what may be wrong just then: a bad battery, and NTP that comes late.

use leasehold_testkit::ServerBuilder;

use crate::stage::{Cluster, LOCK, LockServer, nobody_is_granted, on_each_server, states};

const TEN_MINUTES: f64 = 600.0;

/// Two of three restart empty with clocks that show `at_first`, and are set to `then` when others have
/// seen them. Somebody holds the lock all the time.
fn clocks_step_during_the_quarantine(server: ServerBuilder, at_first: f64, then: f64) {
    let cluster = Cluster::new(server, 3, "&max_clock_skew=200ms&max_ttl=8s");
    let client = cluster.client();
    // It was there before, and sees all of it.
    let watcher = LockServer::start(&client);
    let held = client.acquire(LOCK, "8s");
    let forgetful = &cluster.servers[..2];
    for node in forgetful {
        node.set_clock_offset(at_first);
        node.restart_empty();
    }
    let nodes = client.nodes();
    assert!(!states(&nodes)[..2].contains(&"up"), "they forgot: {nodes:#?}");
    forgetful.iter().for_each(|node| node.set_clock_offset(then));
    nobody_is_granted(&held, &[&client, &watcher.client]);

    // All clocks are right, and in the end all nodes vote.
    forgetful.iter().for_each(|node| node.set_clock_offset(0.0));
    let next = client.acquire(LOCK, "8s");
    assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
}

#[test]
fn a_quarantine_does_not_end_when_a_clock_that_was_behind_is_put_right() {
    on_each_server(|server| clocks_step_during_the_quarantine(server, -TEN_MINUTES, 0.0));
}

#[test]
fn a_quarantine_does_not_end_when_a_right_clock_jumps_ahead() {
    on_each_server(|server| clocks_step_during_the_quarantine(server, 0.0, TEN_MINUTES));
}
