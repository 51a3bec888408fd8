//! A live master is failed over to its replica and back. It is the same process with the same run id
//! and the same record, and what was granted in between is gone.

use leasehold_testkit::{Need, RedisServer, ServerBuilder, eventually, skip};

use crate::stage::{Cluster, Grant, LOCK, LockServer, copy, key, make_primary, nobody_else_holds};
use crate::support::SOON;

/// The second member has a replica, which is promoted before a lock is granted.
pub(crate) struct FailedOver {
    pub(crate) cluster: Cluster,
    replica: RedisServer,
}

impl FailedOver {
    pub(crate) fn new(server: ServerBuilder) -> Self {
        let servers = server.clone().start_many(3);
        // Before anything else: a master's first replica gives it another replication id.
        let replica = server.start();
        copy(&replica, &servers[1]);
        let cluster = Cluster::new(servers);
        eventually(SOON, "the replica has the record", || {
            let record = replica.get("leasehold:node");
            record.is_some_and(|record| record.contains("state=admitted"))
        });
        make_primary(&replica);
        Self { cluster, replica }
    }

    /// The master takes its place again, with the data of what was its replica.
    pub(crate) fn fail_back(&self) {
        let master = &self.cluster.servers[1];
        let process = master.pid();
        copy(master, &self.replica);
        assert!(!master.exists(&key(LOCK)), "it forgot the holder");
        make_primary(master);
        assert_eq!(master.pid(), process);
        assert!(master.get("leasehold:node").is_some(), "but not who it is");
    }

    pub(crate) fn granted(&self) -> Grant {
        let held = self.cluster.granted_by_the_first_two();
        assert!(!self.replica.exists(&key(LOCK)));
        held
    }

    #[track_caller]
    fn says_that_it_forgot(&self) {
        self.cluster
            .client()
            .is_told_of(&self.cluster.proxies[1], "it restarted, copied another server");
    }
}

fn a_new_client_is_kept_out(server: ServerBuilder) {
    let stage = FailedOver::new(server);
    let client = stage.cluster.client();
    let held = stage.granted();
    stage.fail_back();
    nobody_else_holds(&held, &client, &[&client]);
    stage.says_that_it_forgot();
}

/// It has seen the master before and sees it afterwards, on the same connection.
fn a_client_that_stays_connected_is_kept_out(server: ServerBuilder) {
    let stage = FailedOver::new(server);
    let client = stage.cluster.client();
    let held = stage.granted();
    let server = LockServer::start(&client, "warm-up", &stage.cluster.servers);
    stage.fail_back();
    nobody_else_holds(&held, &client, &[&server.client]);
    stage.says_that_it_forgot();
}

#[test]
fn a_redis_that_is_failed_over_and_back_has_no_vote_from_a_new_client() {
    if skip(Need::Redis) {
        return;
    }
    a_new_client_is_kept_out(RedisServer::redis());
}

#[test]
fn a_valkey_that_is_failed_over_and_back_has_no_vote_from_a_new_client() {
    if skip(Need::Valkey) {
        return;
    }
    a_new_client_is_kept_out(RedisServer::valkey());
}

#[test]
fn a_redis_that_is_failed_over_and_back_has_no_vote_from_a_client_that_stays_connected() {
    if skip(Need::Redis) {
        return;
    }
    a_client_that_stays_connected_is_kept_out(RedisServer::redis());
}

#[test]
fn an_old_redis_that_is_failed_over_and_back_has_no_vote_from_a_client_that_stays_connected() {
    if skip(Need::OldRedis) {
        return;
    }
    a_client_that_stays_connected_is_kept_out(RedisServer::old_redis());
}

/// Its old data stay until the new ones are complete, and are then exchanged at once.
#[test]
fn a_redis_that_exchanges_its_data_has_no_vote_from_a_client_that_stays_connected() {
    if skip(Need::Redis) {
        return;
    }
    let exchanges = RedisServer::redis().config("repl-diskless-load", "swapdb");
    a_client_that_stays_connected_is_kept_out(exchanges);
}

#[test]
fn a_valkey_that_is_failed_over_and_back_has_no_vote_from_a_client_that_stays_connected() {
    if skip(Need::Valkey) {
        return;
    }
    a_client_that_stays_connected_is_kept_out(RedisServer::valkey());
}

/// The proxy leads to the new primary from now on, and keeps the connections to the old one.
#[test]
fn a_client_that_stays_connected_follows_to_the_new_primary() {
    if skip(Need::Redis) {
        return;
    }
    let FailedOver { cluster, replica } = FailedOver::new(RedisServer::redis());
    let server = LockServer::start(&cluster.client(), "warm-up", &cluster.servers);
    copy(&cluster.servers[1], &replica);
    let member = &cluster.proxies[1];
    server.says("it is a replica");
    member.retarget(replica.addr());
    server.says("it restarted, copied another server");
}

#[test]
fn a_redis_that_is_failed_over_and_back_has_no_vote_from_a_client_that_waits() {
    if skip(Need::Redis) {
        return;
    }
    let stage = FailedOver::new(RedisServer::redis());
    let held = stage.granted();
    let client = stage.cluster.client();
    let waiter = client.wait(&stage.cluster.servers);
    stage.fail_back();
    waiter.comes_after(&held, &client);
}
