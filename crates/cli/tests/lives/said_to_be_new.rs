//! A person, or a script, says that a cluster is new which is not.

use leasehold_testkit::{Need, skip};

use crate::stage::{Cluster, LOCK, key, nobody_is_granted};

/// All members restart with what they had on disk: they know who they are, and not what they granted.
#[test]
fn a_second_init_admits_nobody_that_forgot() {
    if skip(Need::Redis) {
        return;
    }
    let cluster = Cluster::of_three();
    let client = cluster.client();
    for server in &cluster.servers {
        server.command(&["SAVE"]).unwrap();
    }
    let held = client.must_acquire();
    for server in &cluster.servers {
        server.restart();
        assert!(!server.exists(&key(LOCK)), "it forgot the holder");
        assert!(server.get("leasehold:node").is_some(), "but not who it is");
    }
    // The first of them begins their new lives, the others find them waiting.
    for _ in 0..4 {
        client.run(&["init"]);
    }
    nobody_is_granted(&held, &[&client]);
}
