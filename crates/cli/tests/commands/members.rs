//! `init` and `nodes`: a cluster's first minute, and its bad days.

use leasehold::Locks;
use leasehold_testkit::{Proxy, RedisServer};

use crate::harness::{Desk, Ran, new_servers};

fn states(ran: &Ran) -> Vec<String> {
    ran.objects().iter().map(|node| node["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn new_nodes_vote_on_the_word_of_a_person_only() {
    let Some(servers) = new_servers(5) else { return };
    let desk = Desk::of(servers);
    let nodes = desk.run(&["nodes", "--json"]).expect(69);
    assert_eq!(states(&nodes), ["quarantined"; 5]);
    assert!(nodes.objects()[0]["votes_in_ms"].as_u64().unwrap() > 1000, "{nodes:?}");
    let refused = desk.run(&["acquire", "job", "--ttl", "5s", "-n"]);
    refused.fails(
        69,
        &[
            "0 of 5 nodes voted, 5 may not vote now",
            "hint: if these nodes are new",
            "leasehold init",
        ],
    );

    let init = desk.run(&["init", "--json"]).expect(0).object();
    assert_eq!((&init["schema"], &init["quorum"]), (&"leasehold/init/v1".into(), &3.into()));
    assert_eq!(init["nodes"].as_array().unwrap().len(), 5);
    let again = desk.run(&["init"]).expect(0);
    assert!(again.out.contains("5 node(s) vote, 3 needed"), "{again:?}");
    desk.acquire("job");

    let nodes = desk.run(&["nodes", "--json"]).expect(0);
    assert_eq!(states(&nodes), ["up"; 5]);
    let node = &nodes.objects()[0];
    assert_eq!(node["schema"], "leasehold/node/v1");
    assert!(node["version"].as_str().unwrap().starts_with("redis "), "{node}");
    assert!(node["round_trip_us"].is_u64() && node["clock_offset_us"].is_i64(), "{node}");
    assert!(node["record"].as_str().unwrap().contains("state=admitted"), "{node}");
    assert_eq!(node["persists"], false);
    let life = node["life"].as_str().unwrap();
    assert!(node["record"].as_str().unwrap().contains(&format!("life={life} ")), "{node}");
    assert!(node["life_since"].as_str().unwrap().ends_with('Z'), "{node}");
    assert_eq!(node["run_id"].as_str().unwrap().len(), 40, "{node}");
    let text = desk.run(&["nodes"]).expect(0);
    assert!(text.out.starts_with("node") && text.out.contains("  up"), "{text:?}");
    assert!(text.err.contains("5 of 5 nodes vote, 3 needed"), "{text:?}");
}

#[test]
fn init_changes_nothing_unless_every_node_is_there_and_new() {
    let Some(servers) = new_servers(3) else { return };
    let desk = Desk::of(servers);
    desk.servers[1].kill();
    desk.run(&["init"]).fails(69, &["does not answer", "all nodes must be up"]);
    desk.servers[1].restart();
    desk.run(&["init"]).expect(0);
    desk.servers[1].restart_empty();
    desk.run(&["init"]).fails(77, &["does not know it", "quarantine"]);

    // The same nodes in another list.
    let some: Vec<_> = desk.servers[..2].iter().map(|server| server.addr()).collect();
    let other = Desk::with(format!("redis://{}?timeout=1s", some.join(",")));
    other.run(&["init"]).fails(77, &["belongs to cluster"]);
    other.run(&["acquire", "x", "--ttl", "5s", "-n"]).fails(77, &["belongs to"]);
    let nodes = other.run(&["nodes", "--json"]).expect(69);
    assert_eq!(states(&nodes)[0], "refused", "{nodes:?}");
}

#[test]
fn a_dead_node_is_seen_and_a_file_is_a_node_too() {
    let Some(desk) = Desk::redis(3) else { return };
    desk.servers[0].kill();
    let nodes = desk.run(&["nodes", "--json"]).expect(0);
    assert_eq!(states(&nodes), ["down", "up", "up"]);
    desk.servers[1].kill();
    let nodes = desk.run(&["nodes"]).expect(69);
    assert!(nodes.out.contains("connection refused"), "{nodes:?}");

    let file = Desk::sqlite();
    let nodes = file.run(&["nodes", "--json"]).expect(0);
    assert!(nodes.objects()[0]["node"].as_str().unwrap().starts_with("sqlite:"), "{nodes:?}");
    file.run(&["init"]).expect(0);
}

/// Each of them would keep locks of its own.
#[test]
fn a_name_with_two_servers_behind_it_does_not_become_a_member() {
    let Some(old) = Desk::redis(3) else { return };
    let joining = new_servers(2).unwrap();
    let balancer = Proxy::to(joining[0].addr());
    balancer.retarget_in_turns(joining.iter().map(RedisServer::addr));
    let mut addrs: Vec<_> = old.servers.iter().map(RedisServer::addr).collect();
    addrs.push(balancer.addr());
    let new = Desk::with(format!("redis://{}?timeout=1s", addrs.join(",")));
    let refused = succeed(&old, &new).unwrap_err();
    assert!(refused.contains("is answered by several servers"), "{refused}");
    assert!(refused.contains(&balancer.addr()), "{refused}");
    for server in old.servers.iter().chain(&joining) {
        let record = server.get("leasehold:node").unwrap_or_default();
        assert!(!record.contains("nodes=4"), "nothing was begun: {record}");
    }
    old.acquire("job");
}

/// Makes one list the successor of another, for which the command line has no command.
fn succeed(old: &Desk, new: &Desk) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let open = async |desk: &Desk| Locks::open(desk.backend.as_ref().unwrap()).await.unwrap();
        let changed = open(new).await.succeed(&open(old).await).await;
        changed.map_err(|error| error.to_string())
    })
}

/// Neither `doctor` nor an error says to run `init`, which would refuse or let two holders in.
#[track_caller]
fn init_is_no_advice(desk: &Desk, cause: &str) {
    let doctor = desk.run(&["doctor", "--watch", "100ms"]).expect(1);
    assert!(doctor.out.contains(cause), "{doctor:?}");
    assert!(!doctor.all().contains("leasehold init"), "{doctor:?}");
    let refused = desk.run(&["acquire", "job", "--ttl", "5s", "-n"]).expect(69);
    assert!(refused.err.contains(cause), "{refused:?}");
    assert!(!refused.err.contains("leasehold init"), "{refused:?}");
}

#[test]
fn nobody_is_told_to_run_init_when_nodes_restarted() {
    let Some(desk) = Desk::redis(3) else { return };
    for server in &desk.servers {
        server.command(&["SAVE"]).unwrap();
        server.restart();
    }
    init_is_no_advice(&desk, "it restarted, copied another server or got its first replica");
}

#[test]
fn nobody_is_told_to_run_init_for_one_node_that_others_know() {
    let Some(desk) = Desk::redis(3) else { return };
    desk.servers[1].restart_empty();
    let doctor = desk.run(&["doctor", "--watch", "100ms"]).expect(1);
    assert!(doctor.out.contains("it is new or lost its memory"), "{doctor:?}");
    assert!(!doctor.all().contains("leasehold init"), "{doctor:?}");
}

#[test]
fn nobody_is_told_to_run_init_after_a_change_of_the_member_list() {
    let Some(old) = Desk::redis(1) else { return };
    let Some(joining) = new_servers(2) else { return };
    let addrs: Vec<_> = old.servers.iter().chain(&joining).map(|server| server.addr()).collect();
    let new = Desk::with(format!("redis://{}?timeout=1s", addrs.join(",")));
    succeed(&old, &new).unwrap();
    init_is_no_advice(&new, "its member list was changed");
}
