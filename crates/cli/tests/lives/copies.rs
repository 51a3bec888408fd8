//! A node whose disk has every write (`appendfsync always`) and is not its own any more: it was made a
//! copy of another member, was started from another member's files, or from an old backup of its own.

use leasehold_testkit::{Need, RedisServer, skip};

use crate::stage::{Cluster, LOCK, LockServer, copy, key, make_primary, nobody_else_holds};

/// Three members that lose nothing in a crash, as far as they know.
fn durable() -> Cluster {
    Cluster::new(RedisServer::redis().append_fsync("always").start_many(3))
}

#[test]
fn a_durable_node_that_was_made_a_copy_under_live_connections_has_no_vote() {
    if skip(Need::Redis) {
        return;
    }
    let servers = RedisServer::redis().append_fsync("always").start_many(3);
    // Before anything else: a server's first replica gives it another replication id.
    let replica = RedisServer::redis().start();
    copy(&replica, &servers[2]);
    let cluster = Cluster::new(servers);
    let held = cluster.granted_by_the_first_two();
    // It has looked at the second node shortly before that becomes a copy of the third.
    let server = LockServer::start(&cluster.client(), "warm-up", &cluster.servers);
    let copied = &cluster.servers[1];
    copy(copied, &cluster.servers[2]);
    assert!(!copied.exists(&key(LOCK)), "it forgot the holder");
    make_primary(copied);
    nobody_else_holds(&held, &cluster.client(), &[&server.client, &cluster.client()]);
    let words = format!("its record says that it is {}", cluster.proxies[2].addr());
    cluster.client().is_told_of(&cluster.proxies[1], &words);
}

#[test]
fn a_durable_node_that_starts_from_another_members_files_has_no_vote() {
    if skip(Need::Redis) {
        return;
    }
    let cluster = durable();
    let held = cluster.granted_by_the_first_two();
    cluster.servers[1].restart_from(cluster.servers[2].backup().path());
    assert!(!cluster.servers[1].exists(&key(LOCK)), "it forgot the holder");
    nobody_else_holds(&held, &cluster.client(), &[&cluster.client()]);
    let words = format!("its record says that it is {}", cluster.proxies[2].addr());
    cluster.client().is_told_of(&cluster.proxies[1], &words);
}

#[test]
fn a_durable_node_that_starts_from_an_old_backup_has_no_vote() {
    if skip(Need::Redis) {
        return;
    }
    let cluster = durable();
    let backup = cluster.servers[1].backup();
    let held = cluster.granted_by_the_first_two();
    cluster.servers[1].restart_from(backup.path());
    assert!(!cluster.servers[1].exists(&key(LOCK)), "it forgot the holder");
    nobody_else_holds(&held, &cluster.client(), &[&cluster.client()]);
    cluster.client().is_told_of(&cluster.proxies[1], "it restarted, copied another server");
}
