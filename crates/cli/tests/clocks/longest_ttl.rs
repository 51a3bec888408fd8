//! A client that says nothing of `max_ttl` takes the default, which is shorter than leases that live in
//! this cluster. It belongs to another cluster, like a client with another member list: it gets
//! nothing, and it writes nothing that others would have to believe.

use std::time::Duration;

use leasehold_testkit::RedisServer;
use leasehold_testkit::eventually;

use crate::stage::{Cluster, LOCK, nobody_is_granted_for, on_each_server, states};
use crate::support::SOON;

/// How long others ask for a lock that is held: nodes are examined three times meanwhile.
const ASK_FOR: Duration = Duration::from_secs(3);

fn record(server: &RedisServer) -> Option<String> {
    server.get("leasehold:node")
}

/// Two of three forget a lease of 90 s; the default quarantine would be over after 31 s.
#[test]
fn a_client_without_max_ttl_shortens_no_quarantine() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 3, "&max_clock_skew=200ms&max_ttl=100s");
        let client = cluster.client();
        let held = client.acquire(LOCK, "90s");
        let other = cluster.client_with("&max_clock_skew=200ms");
        let forgetful = &cluster.servers[..2];
        forgetful.iter().for_each(RedisServer::flush_all);

        // It is the first that meets the blank ones.
        nobody_is_granted_for(ASK_FOR, &held, &[&other]);
        assert!(forgetful.iter().all(|node| record(node).is_none()), "it wrote a record");
        let (code, words) = other.ask("another", "1s", &["-n"]).expect_err("of another cluster");
        assert_eq!(code, 77, "{words}");

        // Those with the right one are not locked out, and wait for long enough.
        let nodes = client.nodes();
        let left = held.left();
        for node in &nodes[..2] {
            assert_eq!(node["state"], "quarantined", "{node}");
            let votes_in = Duration::from_millis(node["votes_in_ms"].as_u64().unwrap());
            assert!(votes_in > left, "it votes in {votes_in:?}, the lease has {left:?}");
        }
        assert_eq!(nodes[2]["state"], "up");
        nobody_is_granted_for(ASK_FOR, &held, &[&other, &client]);
        // They have records now, by which the wrong one is refused, too.
        let (code, words) = other.ask("another", "1s", &["-n"]).expect_err("of another cluster");
        assert_eq!(code, 77, "{words}");
    });
}

/// One of three forgets. A client with a longer `max_ttl` meets it first.
#[test]
fn a_client_without_max_ttl_locks_nobody_out() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 3, "&max_clock_skew=200ms&max_ttl=2s");
        let client = cluster.client();
        cluster.servers[0].flush_all();
        let other = cluster.client_with("&max_clock_skew=200ms");
        for _ in 0..3 {
            let refused = other.ask("another", "1s", &["-n"]).map(|grant| grant.fence);
            assert!(matches!(&refused, Err((77, _))), "{refused:?}");
        }
        client.release(&client.acquire(LOCK, "2s"));
        eventually(SOON, "the node that forgot serves its quarantine", || {
            states(&client.nodes()) == ["up"; 3]
        });
        client.release(&client.acquire(LOCK, "2s"));
    });
}
