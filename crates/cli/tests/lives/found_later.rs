//! Ways to two holders that were found by attacking the first answer to the others.

use std::time::Instant;

use leasehold_testkit::{Fault, Need, RedisServer, skip};

use crate::balanced::Balanced;
use crate::failover::FailedOver;
use crate::stage::{LockServer, nobody_else_holds, nobody_is_granted};

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
