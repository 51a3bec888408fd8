//! A live master is failed over to its replica and back. It is the same process with the same run id
//! and the same record, and what was granted in between is gone.

use leasehold_testkit::{Need, RedisServer, eventually, skip};

use crate::stage::{
    Cluster, Grant, LOCK, LockServer, copy, key, make_primary, nobody_else_holds_during,
};
use crate::support::SOON;

/// The second member has a replica, which is promoted before a lock is granted.
struct FailedOver {
    cluster: Cluster,
    replica: RedisServer,
}

impl FailedOver {
    fn new() -> Self {
        let cluster = Cluster::of_three();
        let replica = RedisServer::redis().start();
        let master = &cluster.servers[1];
        copy(&replica, master);
        eventually(SOON, "the replica has the record", || {
            let record = replica.get("leasehold:node");
            record.is_some_and(|record| record.contains("state=admitted"))
        });
        make_primary(&replica);
        Self { cluster, replica }
    }

    /// The master takes its place again, with the data of what was its replica.
    fn fail_back(&self) {
        let master = &self.cluster.servers[1];
        let process = master.pid();
        copy(master, &self.replica);
        make_primary(master);
        assert_eq!(master.pid(), process);
        assert!(!master.exists(&key(LOCK)), "it forgot the holder");
        assert!(master.get("leasehold:node").is_some(), "but not who it is");
    }

    fn granted(&self) -> Grant {
        let held = self.cluster.granted_by_the_first_two();
        assert!(!self.replica.exists(&key(LOCK)));
        held
    }

    #[track_caller]
    fn says_that_it_forgot(&self) {
        let words = self.cluster.client().nodes();
        assert!(words.contains("lost its memory"), "{words}");
    }
}

#[test]
fn a_master_that_is_failed_over_and_back_has_no_vote_from_a_new_client() {
    if skip(Need::Redis) {
        return;
    }
    let stage = FailedOver::new();
    let held = stage.granted();
    stage.fail_back();
    nobody_else_holds_during(&held, &[&stage.cluster.client()]);
    stage.says_that_it_forgot();
}

#[test]
fn a_master_that_is_failed_over_and_back_has_no_vote_from_a_client_that_stayed_connected() {
    if skip(Need::Redis) {
        return;
    }
    let stage = FailedOver::new();
    let held = stage.granted();
    let server = LockServer::start(&stage.cluster.client(), "warm-up", &stage.cluster.servers);
    stage.fail_back();
    nobody_else_holds_during(&held, &[&server.client]);
    stage.says_that_it_forgot();
}
