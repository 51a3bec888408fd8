//! A clock that is wrong before anybody looks: it jumps for nobody, so only the other nodes' clocks
//! show it. Floors are made of clocks, so one that is a year ahead lifts every fence.

use leasehold_testkit::{ServerBuilder, eventually};

use crate::stage::{Cluster, HOUR, LOCK, on_each_server, states};
use crate::support::{SOON, code, stderr};

/// Of 364 days.
const YEAR: f64 = 364.0 * 24.0 * HOUR;

const AHEAD: &str = "ahead of the others";

#[test]
fn init_refuses_a_clock_that_is_a_year_ahead_and_names_it() {
    on_each_server(|server| {
        let cluster = Cluster::blank(server, 3, "&max_clock_skew=1s");
        let client = cluster.client();
        cluster.servers[2].set_clock_offset(YEAR);
        eventually(SOON, "init says whose clock is wrong", || {
            let output = client.run(&["init"]);
            assert_ne!(code(&output), 0, "admitted with a clock that is a year ahead");
            let words = stderr(&output);
            words.contains(AHEAD) && words.contains(&cluster.servers[2].addr())
        });
        client.ask(LOCK, "2s", &["-n"]).expect_err("nobody is admitted");
        cluster.servers[2].set_clock_offset(0.0);
        client.init();
        client.acquire(LOCK, "2s");
    });
}

#[test]
fn a_node_whose_clock_is_ahead_of_the_others_has_no_vote() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 3, "&max_clock_skew=1s&max_ttl=2s");
        let client = cluster.client();
        cluster.servers[2].set_clock_offset(YEAR);
        // The two others serve locks; one of them alone does not.
        client.release(&client.acquire(LOCK, "2s"));
        cluster.servers[0].pause();
        if let Ok(grant) = client.ask(LOCK, "2s", &["-w", "1s"]) {
            panic!("fence {} was granted with a vote of the one that is a year ahead", grant.fence);
        }
        cluster.servers[0].resume();
        client.release(&client.acquire(LOCK, "2s"));
    });
}

#[test]
fn nodes_names_the_one_whose_clock_is_ahead_of_the_others() {
    on_each_server(|server| {
        let cluster = Cluster::new(server, 3, "&max_clock_skew=1s");
        let client = cluster.client();
        cluster.servers[2].set_clock_offset(HOUR);
        client.is_told_of(&cluster.servers[2], AHEAD);
        let nodes = client.nodes();
        let [first, second, third] = states(&nodes)[..] else { panic!("{nodes:#?}") };
        assert!(first == "up" && second == "up" && third != "up", "{nodes:#?}");
    });
}

/// One of three comes back empty with a clock that is a year ahead, which is put right later. Then the
/// two others forget, and vote again, with the third or without it.
fn the_others_forget(server: ServerBuilder, the_third_answers: bool) {
    let cluster = Cluster::new(server, 3, "&max_clock_skew=200ms&max_ttl=1s");
    let client = cluster.client();
    let mut fences = Vec::new();
    let mut acquire = || {
        let grant = client.acquire(LOCK, "1s");
        client.release(&grant);
        fences.push(grant.fence);
        assert!(fences.is_sorted_by(|one, next| one < next), "fences {fences:?}");
    };
    let [first, second, third] = &cluster.servers[..] else { unreachable!() };
    acquire();
    third.set_clock_offset(YEAR);
    third.restart_empty();
    eventually(SOON, "it votes, or is told that it does not", || {
        let nodes = client.nodes();
        let why = nodes[2]["why"].as_str().unwrap_or_default();
        nodes[2]["state"] == "up" || why.contains(AHEAD)
    });
    for _ in 0..5 {
        acquire();
    }
    third.set_clock_offset(0.0);
    first.restart_empty();
    second.restart_empty();
    eventually(SOON, "the two others vote", || states(&client.nodes())[..2] == ["up"; 2]);
    if !the_third_answers {
        third.pause();
    }
    for _ in 0..3 {
        acquire();
    }
}

#[test]
fn no_fence_repeats_when_a_clock_that_was_a_year_ahead_is_put_right_and_the_others_forget() {
    on_each_server(|server| the_others_forget(server, true));
}

#[test]
fn no_fence_goes_down_when_a_node_whose_clock_was_a_year_ahead_is_gone_and_the_others_forget() {
    on_each_server(|server| the_others_forget(server, false));
}
