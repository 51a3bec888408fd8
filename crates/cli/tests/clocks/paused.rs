//! A machine that stands still, with a clock that does not know it: a virtual machine that is paused or
//! restored. Its holder sees that all nodes' clocks jump ahead by the same time. We cannot pause a
//! clock of ours, so the nodes' clocks are moved, which looks the same.

use std::time::Duration;

use leasehold_testkit::eventually;

use crate::stage::{Cluster, on_each_server, stays_kept};
use crate::support::is_alive;

/// The lease is extended after a third of its 30 s.
const LONG_BEFORE_THE_EXTENSION: Duration = Duration::from_secs(5);

#[test]
fn a_holder_that_stood_still_for_longer_than_its_lease_is_told_at_once() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 3, "&max_clock_skew=1s");
        let mut kept = cluster.client().keep("30s");
        cluster.jump(&[0, 1, 2], 40.0);
        eventually(LONG_BEFORE_THE_EXTENSION, "the command is ended", || !is_alive(kept.command));
        assert_eq!(kept.run.end(), Some(79), "{}", kept.run.complaints());
    });
}

#[test]
fn a_holder_that_stood_still_for_a_part_of_its_lease_keeps_it() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 3, "&max_clock_skew=1s");
        let client = cluster.client();
        let mut kept = client.keep("6s");
        cluster.jump(&[0, 1, 2], 1.5);
        stays_kept(Duration::from_secs(7), &mut kept, &[&client]);
        kept.ends_by_itself();
    });
}
