//! A node that forgot waits until everything that it may have granted is over. Its own clock, by which
//! it waits, is what may be wrong just then: a bad battery, and NTP that comes late.

use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{Fault, Proxy, ServerBuilder, eventually};

use crate::stage::{
    Client, Cluster, LOCK, LockServer, key, nobody_is_granted, on_each_server, states,
};
use crate::support::SOON;

const TEN_MINUTES: f64 = 600.0;

/// Two of three restart empty with clocks that show `at_first`, and are set to `then` when others have
/// seen them. Somebody holds the lock all the time.
fn clocks_step_during_the_quarantine(server: ServerBuilder, at_first: f64, then: f64) {
    let cluster = Cluster::new(server, 3, "&max_clock_skew=200ms&max_ttl=8s");
    let client = cluster.client();
    // It was there before, and sees all of it.
    let watcher = LockServer::start(&client);
    let held = client.acquire(LOCK, "8s");
    let forgetful = &cluster.servers[..2];
    for node in forgetful {
        node.set_clock_offset(at_first);
        node.restart_empty();
    }
    let nodes = client.nodes();
    assert!(!states(&nodes)[..2].contains(&"up"), "they forgot: {nodes:#?}");
    forgetful.iter().for_each(|node| node.set_clock_offset(then));
    nobody_is_granted(&held, &[&client, &watcher.client]);

    // All clocks are right, and in the end all nodes vote.
    forgetful.iter().for_each(|node| node.set_clock_offset(0.0));
    let next = client.acquire(LOCK, "8s");
    assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
}

#[test]
fn a_quarantine_does_not_end_when_a_clock_that_was_behind_is_put_right() {
    on_each_server(|server| clocks_step_during_the_quarantine(server, -TEN_MINUTES, 0.0));
}

#[test]
fn a_quarantine_does_not_end_when_a_right_clock_jumps_ahead() {
    on_each_server(|server| clocks_step_during_the_quarantine(server, 0.0, TEN_MINUTES));
}

/// A client that reaches one member, the first or the last, through a proxy.
fn through<'a>(cluster: &'a Cluster, member: usize, proxy: &Proxy) -> Client<'a> {
    let backend = cluster.client().backend.replace(&cluster.servers[member].addr(), &proxy.addr());
    Client { place: &cluster.place, backend }
}

/// Leads all connections to another server.
fn lead(proxy: &Proxy, to: String) {
    proxy.retarget(to);
    proxy.set(Fault::Refuse);
    proxy.set(Fault::Pass);
}

/// A member is failed over, back, and over again. While it was back it granted a lock, so the time that the
/// other server waited before is worth nothing; a client that runs all the time saw that.
fn fails_over_twice(server: ServerBuilder) {
    let parameters = "&max_clock_skew=200ms&max_ttl=8s";
    let cluster = Cluster::blank(server.clone(), 3, parameters);
    let standby = server.start();
    let [one, other] = [&cluster.servers[0], &standby].map(|server| server.addr());
    let proxy = Proxy::to(one.clone());
    let client = through(&cluster, 0, &proxy);
    client.init();
    let watcher = LockServer::start(&client);
    lead(&proxy, other.clone());
    eventually(SOON, "the other server waits", || states(&client.nodes())[0] == "quarantined");
    thread::sleep(Duration::from_secs(1));
    lead(&proxy, one);
    eventually(SOON, "the first one votes again", || states(&client.nodes())[0] == "up");
    thread::sleep(Duration::from_secs(4));
    cluster.servers[2].pause();
    let held = client.acquire(LOCK, "8s");
    cluster.servers[2].resume();
    assert!(!cluster.servers[2].exists(&key(LOCK)), "the first two granted it");
    lead(&proxy, other);
    nobody_is_granted(&held, &[&client, &watcher.client]);
    let next = client.acquire(LOCK, "8s");
    assert!(next.fence > held.fence, "fence {} after {}", next.fence, held.fence);
}

#[test]
fn a_server_that_waited_while_another_voted_in_its_place_begins_to_wait_anew() {
    on_each_server(fails_over_twice);
}

/// Nobody waits for as long as a quarantine lasts, but everybody asks again. Says after how long somebody
/// is served.
#[track_caller]
fn is_served_again(client: &Client) -> Duration {
    let start = Instant::now();
    eventually(2 * SOON, "somebody is served", || client.ask(LOCK, "1s", &["-w", "1s"]).is_ok());
    start.elapsed()
}

/// What a slow answer says of a clock is vague, and no other time than what the others say.
#[test]
fn a_quarantine_ends_also_for_clients_to_which_one_member_answers_slowly() {
    on_each_server(|server| {
        let cluster = Cluster::blank(server, 3, "&max_clock_skew=20ms&max_ttl=2s");
        let proxy = Proxy::to(cluster.servers[2].addr());
        let client = through(&cluster, 2, &proxy);
        client.init();
        proxy.set(Fault::Delay(Duration::from_millis(60)));
        cluster.servers[..2].iter().for_each(|node| node.flush_all());
        is_served_again(&client);
    });
}

/// A single node has no clock to compare its own with. Only a client that saw it wait knows for how long.
#[test]
fn the_quarantine_of_a_single_node_is_ended_by_a_client_that_waits_and_not_by_its_clock() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 1, "&quarantine=on&max_clock_skew=200ms&max_ttl=2s");
        let client = cluster.client();
        cluster.servers[0].restart_empty();
        client.ask(LOCK, "1s", &["-n"]).unwrap_err();
        cluster.servers[0].jump_clock(3600.0);
        client.ask(LOCK, "1s", &["-n"]).unwrap_err();
        client.ask(LOCK, "1s", &["-w", "30s"]).unwrap();
    });
}
