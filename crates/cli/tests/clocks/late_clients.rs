//! A client that starts after a clock jumped: it saw no jump. Every `leasehold run` is such a client.

use leasehold_testkit::ServerBuilder;

use crate::stage::{Cluster, Grant, HOUR, LOCK, key, nobody_is_granted, on_each_server};

fn three(server: ServerBuilder) -> Cluster {
    Cluster::new(server, 3, "&max_clock_skew=1s&max_ttl=8s")
}

/// The clocks are put right, the lease is over: somebody gets the lock.
fn goes_on(cluster: &Cluster, held: &Grant) {
    cluster.servers.iter().for_each(|server| server.set_clock_offset(0.0));
    let next = cluster.client().acquire(LOCK, "8s");
    assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
}

/// Three of five have the lock, two of them forget it by their clocks.
#[test]
fn two_of_five_clocks_that_jumped_ahead_let_no_late_client_in() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 5, "&max_clock_skew=1s&max_ttl=8s");
        let client = cluster.client();
        let without = &cluster.servers[3..];
        without.iter().for_each(|server| server.pause());
        let held = client.acquire(LOCK, "8s");
        for server in without {
            server.resume();
            // It may have read what was sent to it while it stood still.
            server.command(&["DEL", &key(LOCK)]).unwrap();
        }
        cluster.jump(&[0, 1], HOUR);
        nobody_is_granted(&held, &[&client]);
        goes_on(&cluster, &held);
    });
}

/// Two of three have the lock, one of them forgets it by its clock.
#[test]
fn one_clock_that_jumped_ahead_lets_no_late_client_in_and_stops_no_other_lock() {
    on_each_server(|server| {
        let cluster = three(server);
        let client = cluster.client();
        cluster.servers[2].pause();
        let held = client.acquire(LOCK, "8s");
        cluster.servers[2].resume();
        // It may have read what was sent to it while it stood still.
        cluster.servers[2].command(&["DEL", &key(LOCK)]).unwrap();
        cluster.jump(&[1], HOUR);
        client.release(&client.acquire("another", "8s"));
        nobody_is_granted(&held, &[&client]);
        client.release(&client.acquire("another", "8s"));
        client.is_told_of(&cluster.servers[1], "ahead of the others");
        goes_on(&cluster, &held);
    });
}
