//! Ways to two holders that were found by attacking the first answer to the others.

use std::time::Instant;

use leasehold_testkit::{Fault, Need, RedisServer, ServerBuilder, skip};

use crate::balanced::Balanced;
use crate::failover::FailedOver;
use crate::stage::{Cluster, LockServer, nobody_else_holds, nobody_is_granted};

/// A client that stays was granted a lock by one set of servers, and is led to another set, which was
/// admitted before, when it connects again.
#[test]
fn servers_in_the_place_of_others_have_no_vote_from_a_client_that_knew_those() {
    if skip(Need::Redis) {
        return;
    }
    let stage = Balanced::of(3);
    for (proxy, [first, _]) in stage.members() {
        proxy.retarget(first);
    }
    let server = LockServer::start(&stage.cluster.client(), "warm-up", &stage.cluster.servers);
    let held = server.client.must_acquire();
    for (proxy, [_, second]) in stage.members() {
        proxy.retarget(second);
        proxy.set(Fault::Refuse);
        proxy.set(Fault::Pass);
    }
    nobody_is_granted(&held, &[&server.client]);
    let refused =
        server.client.acquire(&["-n"]).expect_err("they are not the members that it knew");
    assert!(refused.contains("was there beside another"), "{refused}");
}

/// Over RESP2 a server does not tell its clients that it drops its data, so the scripts ask.
#[test]
fn a_redis_that_is_failed_over_and_back_has_no_vote_from_a_connected_client_over_resp2() {
    if skip(Need::Redis) {
        return;
    }
    let stage = FailedOver::new(RedisServer::redis());
    let held = stage.granted();
    let mut client = stage.cluster.client();
    client.backend += "&protocol=2";
    let server = LockServer::start(&client, "warm-up", &stage.cluster.servers);
    stage.fail_back();
    nobody_else_holds(&held, &server.client, &[&server.client]);
}

/// One of two servers behind an address hangs, then the other: a comparison without an answer is no
/// agreement.
#[test]
fn servers_that_hang_in_turns_behind_one_address_let_in_one_holder_at_most() {
    if skip(Need::Redis) {
        return;
    }
    let stage = Balanced::of(1);
    let (one, other) = (&stage.cluster.servers[0], &stage.others[0]);
    for (proxy, servers) in stage.members() {
        proxy.retarget_in_turns(servers);
    }
    let client = stage.cluster.client();
    other.pause();
    let first = client.acquire(&["-w", "6s"]);
    other.resume();
    one.pause();
    let second = client.acquire(&["-w", "6s"]);
    one.resume();
    if let (Ok(first), Ok(second)) = (first, second) {
        let is_over = first.until < Instant::now();
        assert!(is_over, "two holders, with the fences {} and {}", first.fence, second.fence);
    }
}

/// A renewal for a shorter time reaches two of three members too late to be counted. Its caller is told
/// so, and goes on believing in what it was promised before.
#[test]
fn a_renewal_that_failed_takes_nothing_away() {
    if skip(Need::Redis) {
        return;
    }
    let cluster = Cluster::of_three();
    let mut client = cluster.client();
    client.backend = client.backend.replace("timeout=2s", "timeout=200ms");
    let server = LockServer::start(&client, "warm-up", &cluster.servers);
    let held = server.client.must_acquire();
    cluster.servers[..2].iter().for_each(RedisServer::pause);
    server.client.fail_to_renew(&held, "300ms");
    cluster.servers[..2].iter().for_each(RedisServer::resume);
    nobody_else_holds(&held, &server.client, &[&cluster.client(), &server.client]);
}

/// Servers whose memory is full grant nothing, and keep what they granted.
#[test]
fn a_lease_is_kept_while_all_members_are_out_of_memory() {
    for (need, server) in [
        (Need::Redis, RedisServer::redis as fn() -> ServerBuilder),
        (Need::Valkey, RedisServer::valkey),
        (Need::OldRedis, RedisServer::old_redis),
    ] {
        if skip(need) {
            continue;
        }
        let cluster = Cluster::new(server().start_many(3));
        let command = ["run", "--ttl", "2s", "-w", "30s", "pay", "-c", "echo held; sleep 5"];
        let mut running = cluster.client().start(&command);
        assert_eq!(running.line(), "held");
        for server in &cluster.servers {
            server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        }
        let code = running.end();
        assert_eq!(code, Some(0), "{}", running.complaints());
    }
}
