//! Members behind proxies that pool connections: the client's connection outlives the server's process,
//! so a restart that lost the last writes does not show by a broken connection.

use leasehold_testkit::{Fault, Need, PoolingProxy, Proxy, RedisServer, skip};

use crate::stage::{Client, LOCK, LockServer, key, nobody_else_holds_during};
use crate::support::Place;

#[test]
fn a_restart_that_a_pooling_proxy_hides_takes_the_vote() {
    if skip(Need::Redis) {
        return;
    }
    let place = Place::new();
    let servers = RedisServer::redis().start_many(3);
    // Behind the pool, so that a member can be out of reach for a while.
    let wires: Vec<_> = servers.iter().map(|server| Proxy::to(server.addr())).collect();
    let pools: Vec<_> = wires.iter().map(|wire| PoolingProxy::to(wire.addr())).collect();
    let addresses: Vec<_> = pools.iter().map(PoolingProxy::addr).collect();
    let client = Client::new(&place, &addresses, "&protocol=2");
    client.init();
    servers[1].command(&["SAVE"]).unwrap();

    let first = LockServer::start(&client, "warm-up-1", &servers);
    wires[2].set(Fault::Refuse);
    let held = first.client.must_acquire();
    wires[2].set(Fault::Pass);
    let second = LockServer::start(&client, "warm-up-2", &servers);
    let have_it: Vec<_> = servers.iter().map(|server| server.exists(&key(LOCK))).collect();
    assert_eq!(have_it, [true, true, false]);

    let connections = pools[1].connections();
    servers[1].restart();
    assert!(!servers[1].exists(&key(LOCK)), "it forgot the holder");
    assert!(servers[1].get("leasehold:node").is_some(), "but not who it is");
    nobody_else_holds_during(&held, &[&second.client]);
    println!("{} reopened, {} new", pools[1].reopened(), pools[1].connections() - connections);
    assert!(pools[1].reopened() > 0, "a client's connection outlived the server");
}
