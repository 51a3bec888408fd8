//! What NTP does to a majority on an ordinary day. It costs no lease that is kept, and lets nobody in.

use std::time::Duration;

use leasehold_testkit::ServerBuilder;

use crate::stage::{Client, Cluster, Kept, LockServer, on_each_server, stays_kept};

const TTL: &str = "3s";

/// Longer than the ttl: a lease that is not extended is over.
const LONGER: Duration = Duration::from_secs(4);

fn a_majority_steps(server: ServerBuilder, steps: impl FnOnce(&Cluster, &mut Kept, &[&Client])) {
    let cluster = Cluster::new(server, 3, "&max_clock_skew=1s");
    let client = cluster.client();
    let watcher = LockServer::start(&client);
    let mut kept = client.keep(TTL);
    let others = [&client, &watcher.client];
    steps(&cluster, &mut kept, &others);
    stays_kept(LONGER, &mut kept, &others);
    kept.ends_by_itself();
}

#[test]
fn a_lease_is_kept_when_a_majority_steps_ahead_by_20_ms() {
    on_each_server(|server| {
        a_majority_steps(server, |cluster, _, _| cluster.jump(&[0, 1], 0.02));
    });
}

#[test]
fn a_lease_is_kept_when_a_majority_gains_8_ms_a_second() {
    on_each_server(|server| {
        a_majority_steps(server, |cluster, kept, others| {
            for _ in 0..10 {
                cluster.jump(&[0, 1], 0.008);
                stays_kept(Duration::from_secs(1), kept, others);
            }
        });
    });
}

#[test]
fn a_lease_is_kept_when_a_majority_steps_back_by_2_s() {
    on_each_server(|server| {
        a_majority_steps(server, |cluster, _, _| cluster.jump(&[0, 1], -2.0));
    });
}
