//! A member list is changed again before all is over that an earlier change, done or given up, has its
//! members wait for; or what changes is wrong: a name, a clock, or what a member remembers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_testkit::{RedisServer, ServerBuilder, eventually};

use crate::stage::{Client, Cluster, HOUR, LOCK, on_each_server, states, stays_kept, url};
use crate::succession::{BRIEF, Growth, LONG_ENOUGH, Replacement, succeed, wait_for_long_enough};
use crate::support::SOON;

/// A single node's longest ttl is a day. Nobody waited for it yet when the list changes again.
#[test]
fn two_changes_in_a_row_wait_for_the_leases_of_the_first_list() {
    on_each_server(|server| {
        let growth = Growth::of(server.clone(), "&max_clock_skew=200ms");
        let held = growth.old.client().acquire(LOCK, "300s");
        let three = growth.client(BRIEF);
        succeed(&growth.old.client().backend, &three.backend).unwrap();
        let another = server.start();
        let members = growth.old.servers.iter().chain(&growth.new[..1]).chain([&another]);
        let next = Client { backend: url(members, BRIEF), ..three.clone() };
        succeed(&three.backend, &next.backend).unwrap();
        wait_for_long_enough(&next, &[0, 1, 2], &held);
    });
}

/// Somebody gives a change up, and raises `max_ttl` instead. Who tries the change again finds its members
/// barred, to wait for the shorter leases.
#[test]
fn a_change_that_is_tried_again_waits_for_leases_that_have_become_longer() {
    on_each_server(|server| {
        let lists = Replacement::of(server, 2);
        let (old, first) = (&lists.old, &lists.old.servers[0]);
        // Fences of a list are kept under another name in the next.
        old.client().release(&old.client().acquire("warm-up", "2s"));
        first.command(&["ACL", "SETUSER", "default", "-rename"]).unwrap();
        lists.change().unwrap_err();
        first.command(&["ACL", "SETUSER", "default", "+rename"]).unwrap();
        let raised = old.client_with("&max_clock_skew=200ms&max_ttl=16s");
        succeed(&old.client().backend, &raised.backend).unwrap();
        // It waits for the longer leases, too. A lease counts from when it was asked for.
        raised.release(&raised.acquire("warm-up", "2s"));
        let held = raised.acquire(LOCK, "15s");
        succeed(&raised.backend, &lists.next().backend).unwrap();
        wait_for_long_enough(&lists.next(), &[0, 1, 2], &held);
    });
}

/// Members that joined have no disk, and are restarted before the change is over.
#[test]
fn a_change_that_failed_half_way_lets_no_second_holder_in_when_its_members_forget() {
    on_each_server(|server| {
        let lists = Replacement::of(server, 2);
        let mut kept = lists.old.client().keep("4s");
        lists.fail_half_way();
        lists.joining.iter().for_each(RedisServer::restart_empty);
        stays_kept(LONG_ENOUGH, &mut kept, &[&lists.next()]);
        lists.finish();
        lists.next().acquire(LOCK, "1s");
    });
}

/// Only one of them remembers for how long all have to wait.
#[test]
fn members_that_forget_how_long_a_change_has_them_wait_wait_for_as_long_as_the_others() {
    on_each_server(|server| {
        let growth = Growth::of(server, "&max_clock_skew=200ms");
        let held = growth.old.client().acquire(LOCK, "300s");
        let client = growth.client(BRIEF);
        succeed(&growth.old.client().backend, &client.backend).unwrap();
        growth.new.iter().for_each(RedisServer::restart_empty);
        eventually(SOON, "all wait again", || {
            // Who asks for a lock has them begin to wait.
            client.ask(LOCK, "1s", &["-n"]).unwrap_err();
            let have_begun = |node: &RedisServer| node.exists("leasehold:node");
            growth.new.iter().all(have_begun)
                && states(&client.nodes()).iter().all(|state| *state == "quarantined")
        });
        wait_for_long_enough(&client, &[0, 1, 2], &held);
    });
}

/// The first so many of three servers get another name, and all vote in the end.
fn names_change(server: ServerBuilder, count: usize) {
    let cluster = Cluster::new(server, 3, BRIEF);
    let before = cluster.client().acquire(LOCK, "1s");
    let old = cluster.client().backend;
    let new = old.replacen("127.0.0.1:", "localhost:", count);
    succeed(&old, &new).unwrap();
    let client = Client { backend: new, ..cluster.client() };
    let next = client.acquire(LOCK, "1s");
    assert!(next.fence > before.fence, "fence {} after {}", next.fence, before.fence);
    eventually(2 * SOON, "all vote", || {
        let nodes = client.nodes();
        states(&nodes).iter().all(|state| *state == "up")
    });
}

#[test]
fn servers_that_all_get_other_names_vote_under_these() {
    on_each_server(|server| names_change(server, 3));
}

#[test]
fn a_server_that_gets_another_name_votes_under_it() {
    on_each_server(|server| names_change(server, 1));
}

/// A member is replaced because its clock is a year ahead. Its clock is nobody's floor: fences that
/// follow it would go down by a year when the nodes forget.
#[test]
fn fences_only_grow_when_a_member_with_a_wrong_clock_was_replaced_and_all_forget() {
    on_each_server(|server| {
        let cluster = Cluster::new(server.clone(), 3, BRIEF);
        let before = cluster.client().acquire(LOCK, "1s");
        cluster.jump(&[2], 365.0 * 24.0 * HOUR);
        let another = server.start();
        let members = || cluster.servers[..2].iter().chain([&another]);
        let client = Client { backend: url(members(), BRIEF), ..cluster.client() };
        succeed(&cluster.client().backend, &client.backend).unwrap();
        let next = client.acquire(LOCK, "1s");
        assert!(next.fence > before.fence, "fence {} after {}", next.fence, before.fence);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let (fence, latest) = (next.fence, time + Duration::from_secs_f64(HOUR));
        assert!(u128::from(fence) < latest.as_micros(), "fence {fence}, clocks {time:?}");
        members().for_each(RedisServer::restart_empty);
        let last = client.acquire(LOCK, "1s");
        assert!(last.fence > next.fence, "fence {} after {}", last.fence, next.fence);
    });
}
