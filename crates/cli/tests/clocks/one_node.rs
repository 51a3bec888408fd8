//! One node without a quarantine: a small step of its clock must not stop it for a day, which is its
//! `max_ttl`, and must not cost the leases that are kept; and an old backup must not have a lease of an
//! earlier life healed. One with a quarantine, which a client that was given none must not undo.

use std::time::{Duration, Instant};

use leasehold_testkit::ServerBuilder;

use crate::stage::{Cluster, LOCK, LockServer, key, nobody_is_granted, on_each_server, stays_kept};
use crate::support::is_alive;

/// Nobody may be without locks for longer: two seconds, and as many for a busy machine.
const LONGEST_OUTAGE: Duration = Duration::from_secs(4);

/// Longer than the outage that is allowed, and a second in which the step may not be seen yet.
const WATCHED: Duration = Duration::from_secs(6);

/// A client that runs all the time, and processes that come later, go on acquiring locks.
fn goes_on_serving(server: ServerBuilder, step: f64) {
    let cluster = Cluster::new(server, 1, "");
    let late = cluster.client();
    let watcher = LockServer::start(&late);
    cluster.jump(&[0], step);
    let start = Instant::now();
    let mut granted = [start; 2];
    while start.elapsed() < WATCHED {
        for (client, granted) in [&watcher.client, &late].into_iter().zip(&mut granted) {
            match client.ask("another", "1s", &["-n"]) {
                Ok(grant) => {
                    client.release(&grant);
                    *granted = Instant::now();
                }
                Err((_, words)) => {
                    let outage = granted.elapsed();
                    assert!(outage < LONGEST_OUTAGE, "no lock for {outage:?}: {words}");
                }
            }
        }
    }
}

/// A command whose lease is kept ends by itself, long after the step.
fn keeps_its_lease(server: ServerBuilder, step: f64) {
    let cluster = Cluster::new(server, 1, "");
    let client = cluster.client();
    let watcher = LockServer::start(&client);
    let mut kept = client.keep("6s");
    cluster.jump(&[0], step);
    stays_kept(Duration::from_secs(7), &mut kept, &[&client, &watcher.client]);
    kept.ends_by_itself();
}

#[test]
fn a_single_node_goes_on_serving_when_its_clock_steps_ahead_by_20_ms() {
    on_each_server(|server| goes_on_serving(server, 0.02));
}

#[test]
fn a_single_node_goes_on_serving_when_its_clock_steps_back_by_20_ms() {
    on_each_server(|server| goes_on_serving(server, -0.02));
}

#[test]
fn a_single_node_goes_on_serving_when_its_clock_steps_ahead_by_2_s() {
    on_each_server(|server| goes_on_serving(server, 2.0));
}

#[test]
fn a_lease_of_a_single_node_is_kept_when_its_clock_steps_ahead_by_20_ms() {
    on_each_server(|server| keeps_its_lease(server, 0.02));
}

#[test]
fn a_lease_of_a_single_node_is_kept_when_its_clock_steps_back_by_20_ms() {
    on_each_server(|server| keeps_its_lease(server, -0.02));
}

#[test]
fn a_lease_of_a_single_node_is_kept_when_its_clock_steps_ahead_by_2_s() {
    on_each_server(|server| keeps_its_lease(server, 2.0));
}

#[test]
fn a_client_without_quarantine_does_not_undo_that_of_the_others() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 1, "&quarantine=on&max_ttl=8s");
        let (client, another) = (cluster.client(), cluster.client_with("&max_ttl=8s"));
        let held = client.acquire(LOCK, "8s");
        cluster.servers[0].flush_all();
        let (_, words) = client.ask(LOCK, "1s", &["-n"]).unwrap_err();
        assert!(words.contains("it does not vote for another"), "{words}");
        let (_, words) = another.ask("another", "1s", &["-n"]).unwrap_err();
        assert!(words.contains("and the same quarantine"), "{words}");
        nobody_is_granted(&held, &[&another, &client]);
        client.acquire(LOCK, "1s");
    });
}

/// Its backup has an old fence of the lock, which says nothing of what was granted since.
#[test]
fn a_node_that_is_restored_twice_heals_no_lease_that_a_higher_fence_followed() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 1, "");
        let (client, node) = (cluster.client(), &cluster.servers[0]);
        client.release(&client.acquire(LOCK, "20s"));
        node.command(&["SAVE"]).unwrap();
        let backup = node.backup();
        let mut kept = client.keep("6s");
        node.restart_from(backup.path());
        client.acquire(LOCK, "60s");
        node.restart_from(backup.path());
        // It tries to extend its lease until that ends, and so does its command.
        assert_eq!(kept.run.end(), Some(79));
        assert!(!is_alive(kept.command), "{}", kept.run.complaints());
        assert!(!node.exists(&key(LOCK)), "healed");
    });
}
