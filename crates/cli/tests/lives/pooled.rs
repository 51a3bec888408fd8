//! Members behind proxies that pool connections: the client's connection outlives the server's process,
//! so a restart that lost the last writes does not show by a broken connection.

use leasehold_testkit::{Need, PoolingProxy, RedisServer, ServerBuilder, eventually, skip};

use crate::stage::{Client, LOCK, LockServer, copy, key, nobody_else_holds};
use crate::support::{Place, SOON};

fn a_hidden_restart_takes_the_vote(server: ServerBuilder) {
    a_hidden_restart_of_one_takes_its_vote(&server.start_many(3));
}

fn a_hidden_restart_of_one_takes_its_vote(servers: &[RedisServer]) {
    let place = Place::new();
    let pools: Vec<_> = servers.iter().map(|server| PoolingProxy::to(server.addr())).collect();
    let addresses: Vec<_> = pools.iter().map(PoolingProxy::addr).collect();
    let client = Client::new(&place, &addresses, "&protocol=2");
    client.init();

    let [first, second] =
        ["warm-up-1", "warm-up-2"].map(|lock| LockServer::start(&client, lock, servers));
    servers[1].command(&["SAVE"]).unwrap();
    let held = first.client.must_acquire();
    eventually(SOON, "all have it", || servers.iter().all(|server| server.exists(&key(LOCK))));
    // As if the third had missed it.
    servers[2].command(&["DEL", &key(LOCK)]).unwrap();

    let before = pools[1].reopened();
    servers[1].restart();
    assert!(!servers[1].exists(&key(LOCK)), "it forgot the holder");
    assert!(servers[1].get("leasehold:node").is_some(), "but not who it is");
    nobody_else_holds(&held, &first.client, &[&second.client]);
    assert!(pools[1].reopened() > before, "a client's connection outlived the server");
}

#[test]
fn a_restart_of_redis_that_a_pooling_proxy_hides_takes_the_vote() {
    if skip(Need::Redis) {
        return;
    }
    a_hidden_restart_takes_the_vote(RedisServer::redis());
}

#[test]
fn a_restart_of_valkey_that_a_pooling_proxy_hides_takes_the_vote() {
    if skip(Need::Valkey) {
        return;
    }
    a_hidden_restart_takes_the_vote(RedisServer::valkey());
}

/// Redis 6.2 writes its scripts into its files when it has had a replica, and finds them there again:
/// it does not forget them as others do.
#[test]
fn a_restart_that_keeps_the_scripts_and_that_a_pooling_proxy_hides_takes_the_vote() {
    if skip(Need::OldRedis) {
        return;
    }
    let servers = RedisServer::old_redis().start_many(3);
    let replica = RedisServer::old_redis().start();
    copy(&replica, &servers[1]);
    a_hidden_restart_of_one_takes_its_vote(&servers);
    servers[1].command(&["SAVE"]).unwrap();
    servers[1].restart();
    let memory = servers[1].command(&["INFO", "memory"]).unwrap();
    let memory = memory.as_text().unwrap();
    let scripts = memory.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
    assert!(scripts.is_some_and(|scripts| scripts != "0"), "it keeps scripts: {memory}");
}
