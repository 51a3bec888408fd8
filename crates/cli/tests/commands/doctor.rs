//! `doctor`: each illness is found, with what it endangers and a command that fixes it.

use leasehold_testkit::{Fault, Need, Proxy, RedisServer, skip};
use serde_json::Value;

use crate::harness::{Desk, new_servers};

/// Examines quickly.
fn examine(desk: &Desk, code: i32) -> Vec<Value> {
    desk.run(&["doctor", "--json", "--watch", "100ms"]).expect(code).objects()
}

/// The findings of a check that are not fine, each of which must say why it matters and what to do.
fn findings(objects: &[Value], check: &str) -> Vec<Value> {
    let bad = objects.iter().filter(|o| o["check"] == check && o["level"] != "ok");
    let bad: Vec<_> = bad.cloned().collect();
    for finding in &bad {
        assert_eq!(finding["schema"], "leasehold/finding/v1");
        assert!(finding["endangers"].is_string() && finding["fix"].is_string(), "{finding}");
    }
    bad
}

#[track_caller]
fn one(objects: &[Value], check: &str, level: &str, words: &[&str]) -> Value {
    let found = findings(objects, check);
    let [finding] = found.as_slice() else { panic!("{check}: {objects:#?}") };
    assert_eq!(finding["level"], level, "{finding}");
    for word in words {
        assert!(finding.to_string().contains(word), "no `{word}` in {finding}");
    }
    finding.clone()
}

#[test]
fn a_file_is_well_and_leaves_no_lock_behind() {
    let desk = Desk::sqlite();
    let objects = examine(&desk, 0);
    let last = objects.last().unwrap();
    assert_eq!(last["schema"], "leasehold/diagnosis/v1");
    assert_eq!((&last["errors"], &last["warnings"]), (&0.into(), &0.into()));
    assert!(desk.run(&["list", "--json"]).expect(0).objects().is_empty());
    let text = desk.run(&["doctor", "--watch", "100ms"]).expect(0).out;
    assert!(text.contains("acquire, extend, inspect, list, release work"), "{text}");
    assert!(text.ends_with("0 error(s), 0 warning(s)\n"), "{text}");
}

#[test]
fn five_nodes_on_one_host_are_a_warning_and_nothing_else() {
    let Some(desk) = Desk::redis(5) else { return };
    let objects = examine(&desk, 1);
    one(&objects, "same host", "warning", &["127.0.0.1", "a quorum is gone at once"]);
    assert_eq!(objects.last().unwrap()["warnings"], 1, "{objects:#?}");
    for check in ["vote", "version", "rights", "persistence", "clock", "round trip", "identity"] {
        let fine = objects.iter().filter(|o| o["check"] == check && o["level"] == "ok").count();
        assert_eq!(fine, 5, "{check}: {objects:#?}");
    }
    let text = desk.run(&["doctor", "--watch", "50ms"]).expect(1).out;
    assert!(text.contains("endangers: ") && text.contains("fix: "), "{text}");
}

#[test]
fn unreachable_nodes_and_wrong_passwords_are_told_apart() {
    if skip(Need::Redis) {
        return;
    }
    let locked = RedisServer::redis().password("hunter2").start();
    let wrong = Desk::with(format!("redis://:hunter3@{}", locked.addr()));
    one(&examine(&wrong, 2), "credentials", "error", &["WRONGPASS", "redis-cli -h 127.0.0.1"]);
    let none = Desk::with(format!("redis://{}", locked.addr()));
    one(&examine(&none, 2), "credentials", "error", &["NOAUTH"]);
    let down = Desk::with("redis://127.0.0.1:1");
    one(&examine(&down, 2), "reach", "error", &["connection refused", "-p 1 PING"]);
    // The same codes everywhere else.
    for (desk, code) in [(&wrong, 77), (&none, 77), (&down, 69)] {
        desk.run(&["status", "x"]).fails(code, &["0 of 1 nodes answered"]);
        desk.run(&["acquire", "x", "--ttl", "1s", "-n"]).fails(code, &["127.0.0.1"]);
        desk.run(&["init"]).fails(code, &["does not answer"]);
    }
}

#[test]
fn a_missing_right_is_found_by_trying() {
    if skip(Need::Redis) {
        return;
    }
    let rights = "on >pw ~leasehold:* +@all";
    let mut servers = RedisServer::redis().start_many(2);
    servers.push(
        RedisServer::redis()
            .config("user", &format!("less {rights} -zscan -scan -zadd"))
            .config("user", &format!("full {rights}"))
            .start(),
    );
    for server in &servers[..2] {
        for user in ["less", "full"] {
            let words = ["ACL", "SETUSER", user, "on", ">pw", "~leasehold:*", "+@all"];
            server.command(&words).unwrap();
        }
    }
    let full = Desk::of(servers);
    let as_user = |user: &str| {
        let backend = full.backend.clone().unwrap();
        Desk::with(backend.replace("redis://", &format!("redis://{user}:pw@")))
    };
    as_user("full").run(&["init"]).expect(0);
    assert!(findings(&examine(&as_user("full"), 1), "rights").is_empty());
    let objects = examine(&as_user("less"), 2);
    let name = format!("{}/0", full.servers[2].addr());
    one(&objects, "rights", "error", &["acquire: ", "docs/backends/redis.md", &name]);
    // A quorum has the right.
    as_user("less").run(&["acquire", "x", "--ttl", "1s", "-n"]).expect(0);
    for server in &full.servers {
        server.command(&["ACL", "SETUSER", "less", "-zadd"]).unwrap();
    }
    let denied = as_user("less").run(&["acquire", "y", "--ttl", "1s", "-n"]);
    denied.fails(77, &["docs/backends/redis.md"]);
}

#[test]
fn replicas_evicting_nodes_and_other_clusters_are_dangerous() {
    let Some(servers) = new_servers(2) else { return };
    let port = servers[0].port().to_string();
    servers[1].command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let desk = Desk::of(servers);
    let objects = examine(&desk, 2);
    one(&objects, "role", "error", &["it is a replica", "REPLICAOF NO ONE"]);
    one(&objects, "nodes", "warning", &["2 nodes survive 0 failure(s), as 1 do"]);

    let evicts = RedisServer::redis()
        .config("maxmemory", "100mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let words = &["allkeys-lru", "CONFIG SET maxmemory-policy noeviction"];
    let desk = Desk::of(vec![evicts]);
    one(&examine(&desk, 2), "eviction", "error", words);
    let strict = Desk::with(format!("{}&strict=true", desk.backend.clone().unwrap()));
    one(&examine(&strict, 2), "eviction", "error", words);

    let other = Desk::with(format!("redis://{},127.0.0.1:1", desk.servers[0].addr()));
    one(&examine(&other, 2), "identity", "error", &["belongs to cluster", "same member list"]);
}

#[test]
fn one_node_warns_of_what_it_cannot_survive_unless_every_answer_is_on_disk() {
    if skip(Need::Redis) {
        return;
    }
    let desk = Desk::of(vec![RedisServer::redis().start()]);
    let objects = examine(&desk, 1);
    one(&objects, "persistence", "warning", &["CONFIG SET appendfsync always"]);
    one(&objects, "nodes", "warning", &["survives no failure", "leasehold plan"]);
    let desk = Desk::of(vec![RedisServer::redis().append_fsync("always").start()]);
    let objects = examine(&desk, 1);
    assert!(findings(&objects, "persistence").is_empty(), "{objects:#?}");
}

#[test]
fn one_server_under_two_names_is_found() {
    if skip(Need::Redis) {
        return;
    }
    let servers = RedisServer::redis().start_many(2);
    let (a, b) = (servers[0].addr(), servers[1].addr());
    let desk = Desk::with(format!("redis://{a},{b},redis://{a}/1"));
    desk.run(&["init"]).expect(0);
    let objects = examine(&desk, 2);
    one(&objects, "same server", "error", &[&format!("{a}/0, {a}/1 are one server process")]);
}

#[test]
fn wrong_clocks_and_slow_ways_are_measured() {
    if skip(Need::Redis) {
        return;
    }
    let ahead = RedisServer::redis().with_clock_shim().start();
    ahead.set_clock_offset(5.0);
    let desk = Desk::of(vec![ahead]);
    one(&examine(&desk, 2), "clock", "error", &["its clock is +", "chronyc"]);
    desk.servers[0].set_clock_offset(0.7);
    one(&examine(&desk, 1), "clock", "warning", &["its clock is +"]);
    desk.servers[0].set_clock_offset(-5.0);
    one(&examine(&desk, 2), "clock", "error", &["its clock is -"]);

    let server = RedisServer::redis().start();
    let proxy = Proxy::to(server.addr());
    let desk = Desk::with(format!("redis://{}?timeout=2s", proxy.addr()));
    desk.run(&["init"]).expect(0);
    proxy.set(Fault::Delay(std::time::Duration::from_millis(60)));
    one(&examine(&desk, 1), "round trip", "warning", &["?timeout="]);
    let objects = desk.run(&["doctor", "--json", "--watch", "0", "--ttl", "300ms"]);
    one(&objects.expect(2).objects(), "round trip", "error", &["--ttl"]);
    let objects = desk.run(&["doctor", "--json", "--watch", "0", "--ttl", "48h"]);
    one(&objects.expect(2).objects(), "ttl", "error", &["max_ttl"]);
}
