//! `doctor`: each illness is found, with what it endangers and a command that fixes it. Where the
//! command can be followed, it is, and the finding is gone.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold_testkit::{Fault, Need, Proxy, RedisServer, skip};
use serde_json::Value;

use crate::harness::{Desk, Ran, new_servers};

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

#[track_caller]
fn none(objects: &[Value], check: &str) {
    assert!(findings(objects, check).is_empty(), "{check}: {objects:#?}");
}

/// Types what a finding says after the last colon, as a person would.
#[track_caller]
fn follow(desk: &Desk, finding: &Value) -> Ran {
    let fix = finding["fix"].as_str().unwrap();
    let typed = fix.rsplit(": ").next().unwrap();
    let ours = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap().display();
    let servers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/servers");
    let path = format!("{ours}:{servers}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    for (name, value) in desk.command(&[]).get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let ran = Ran::of(shell.args(["-ec", typed]).env("PATH", path).output().unwrap());
    assert!(!ran.out.contains("ERR"), "{typed}: {ran:?}");
    ran.expect(0)
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
    let words = ["127.0.0.1", "a quorum is gone at once", "a machine of its own"];
    one(&objects, "same host", "warning", &words);
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
    let ping = format!("redis-cli -h 127.0.0.1 -p {} --askpass PING", locked.port());
    let wrong = Desk::with(format!("redis://:hunter3@{}?timeout=1s", locked.addr()));
    one(&examine(&wrong, 2), "credentials", "error", &["WRONGPASS", "one vote less", &ping]);
    let nothing = Desk::with(format!("redis://{}?timeout=1s", locked.addr()));
    one(&examine(&nothing, 2), "credentials", "error", &["NOAUTH", &ping]);
    let right = Desk::with(format!("redis://:hunter2@{}?timeout=1s", locked.addr()));
    none(&examine(&right, 1), "credentials");

    let server = RedisServer::redis().start();
    server.kill();
    let down = Desk::of(vec![server]);
    let ping = format!("redis-cli -h 127.0.0.1 -p {} PING", down.servers[0].port());
    one(&examine(&down, 2), "reach", "error", &["connection refused", "one vote less", &ping]);
    // The same codes everywhere else.
    for (desk, code) in [(&wrong, 77), (&nothing, 77), (&down, 69)] {
        desk.run(&["status", "x"]).fails(code, &["0 of 1 nodes answered"]);
        desk.run(&["acquire", "x", "--ttl", "1s", "-n"]).fails(code, &["127.0.0.1"]);
        desk.run(&["init"]).fails(code, &["does not answer"]);
    }
    let finding = one(&examine(&down, 2), "reach", "error", &["start it"]);
    down.servers[0].restart();
    assert_eq!(follow(&down, &finding).out, "PONG\n");
    none(&examine(&down, 1), "reach");
}

#[test]
fn a_node_that_says_nothing_at_all_is_out_of_reach() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    let proxy = Proxy::to(server.addr());
    proxy.set(Fault::Stall);
    let desk = Desk::with(format!("redis://{}?timeout=60s", proxy.addr()));
    let addr = proxy.addr();
    let ping = format!("-p {} PING", addr.rsplit(':').next().unwrap());
    one(&examine(&desk, 2), "reach", "error", &["timed out after 1", &ping]);
}

#[test]
fn what_cannot_be_written_is_not_taken_for_a_missing_right() {
    let Some(desk) = Desk::redis(3) else { return };
    desk.servers[1].command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let port = desk.servers[1].port();
    let fix = format!("redis-cli -h 127.0.0.1 -p {port} INFO");
    let finding = one(&examine(&desk, 2), "rights", "error", &["OOM", &fix]);
    assert!(!finding.to_string().contains("ACL"), "{finding}");
    desk.servers[1].command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    none(&examine(&desk, 1), "rights");
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
    none(&examine(&as_user("full"), 1), "rights");
    let objects = examine(&as_user("less"), 2);
    let name = format!("{}/0", full.servers[2].addr());
    let fix = format!("redis-cli -h 127.0.0.1 -p {} ACL SETUSER", full.servers[2].port());
    let words =
        ["acquire: ", "docs/backends/redis.md", &name, &fix, "it counts as voting but cannot"];
    one(&objects, "rights", "error", &words);
    // A quorum has the right.
    as_user("less").run(&["acquire", "x", "--ttl", "1s", "-n"]).expect(0);
    for server in &full.servers {
        server.command(&["ACL", "SETUSER", "less", "-zadd"]).unwrap();
    }
    let denied = as_user("less").run(&["acquire", "y", "--ttl", "1s", "-n"]);
    denied.fails(77, &["docs/backends/redis.md"]);
    for server in &full.servers {
        server.command(&["ACL", "SETUSER", "less", "+zadd", "+zscan"]).unwrap();
    }
    none(&examine(&as_user("less"), 1), "rights");
}

#[test]
fn new_nodes_do_not_vote_until_somebody_vouches_for_them() {
    let Some(servers) = new_servers(3) else { return };
    let desk = Desk::of(servers);
    let objects = examine(&desk, 1);
    let found = findings(&objects, "vote");
    assert_eq!(found.len(), 3, "{objects:#?}");
    for finding in &found {
        let text = finding.to_string();
        for word in ["new or lost its memory: it does not vote for another", "one vote less"] {
            assert!(text.contains(word), "{text}");
        }
    }
    assert!(follow(&desk, &found[0]).out.starts_with("3 node(s) vote"));
    none(&examine(&desk, 1), "vote");
}

#[test]
fn replicas_are_dangerous_and_even_numbers_are_useless() {
    let Some(servers) = new_servers(2) else { return };
    let port = servers[0].port().to_string();
    servers[1].command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let desk = Desk::of(servers);
    let objects = examine(&desk, 2);
    let words = ["it is a replica", "a replica forgets what its primary answered"];
    let replica = one(&objects, "role", "error", &words);
    assert_eq!(follow(&desk, &replica).out, "OK\n");
    none(&examine(&desk, 1), "role");
    let words = ["2 nodes survive 0 failure(s), as 1 do", "adds nothing"];
    let even = one(&objects, "nodes", "warning", &words);
    assert!(follow(&desk, &even).out.contains("quorum"), "leasehold plan --nodes 3");
    let Some(three) = Desk::redis(3) else { return };
    none(&examine(&three, 1), "nodes");
}

#[test]
fn a_server_in_cluster_mode_and_one_that_is_too_old_do_not_vote() {
    if skip(Need::Redis) {
        return;
    }
    let desk = Desk::of(vec![RedisServer::redis().config("cluster-enabled", "yes").start()]);
    let words = ["cluster mode", "its data move between shards", "redis-server --port 7001"];
    one(&examine(&desk, 2), "role", "error", &words);

    let server = RedisServer::redis().start();
    let desk = Desk::with(format!("redis://{}?timeout=1s", as_version_5(server.addr())));
    let words = ["redis 5.", "is too old: it must be 6.2 or later", "one vote less", "upgrade it"];
    let finding = one(&examine(&desk, 2), "version", "error", &words);
    assert!(follow(&desk, &finding).out.contains("redis_version:5."));
}

/// A way to a server on which it looks like an old one, for as long as the test runs.
fn as_version_5(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || carry(from, to));
            thread::spawn(move || carry(server, client));
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let (told, shown): (&[u8], &[u8]) = (b"redis_version:", b"redis_version:5");
    let mut buffer = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        if let Some(at) = bytes.windows(told.len()).position(|part| part == told) {
            bytes[at..at + shown.len()].copy_from_slice(shown);
        }
        if to.write_all(bytes).is_err() {
            return;
        }
    }
}

#[test]
fn nodes_that_evict_keys_are_dangerous() {
    if skip(Need::Redis) {
        return;
    }
    let evicts = RedisServer::redis()
        .config("maxmemory", "100mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let words = ["allkeys-lru", "a lock that is evicted is free while somebody holds it"];
    let desk = Desk::of(vec![evicts]);
    let finding = one(&examine(&desk, 2), "eviction", "error", &words);
    let strict = Desk::with(format!("{}&strict=true", desk.backend.clone().unwrap()));
    assert_eq!(one(&examine(&strict, 2), "eviction", "error", &words)["fix"], finding["fix"]);
    assert_eq!(follow(&desk, &finding).out, "OK\n");
    none(&examine(&desk, 1), "eviction");
    none(&examine(&strict, 1), "eviction");
}

#[test]
fn other_member_lists_and_other_settings_of_the_cluster_are_found() {
    let Some(desk) = Desk::redis(1) else { return };
    let other = Desk::with(format!("redis://{},127.0.0.1:1?timeout=1s", desk.servers[0].addr()));
    let words = ["belongs to cluster", "do not exclude each other", "leasehold config"];
    one(&examine(&other, 2), "identity", "error", &words);
    let backend = desk.backend.clone().unwrap();
    let other = Desk::with(format!("{backend}&max_ttl=7s"));
    let words = ["its cluster has max_ttl 86400s", "no lock can be had", "the same max_ttl"];
    one(&examine(&other, 2), "max_ttl", "error", &words);
    none(&examine(&desk, 1), "max_ttl");
}

#[test]
fn one_node_warns_of_what_it_cannot_survive_unless_every_answer_is_on_disk() {
    if skip(Need::Redis) {
        return;
    }
    let desk = Desk::of(vec![RedisServer::redis().start()]);
    let objects = examine(&desk, 1);
    let words = ["there is no other node", "a restart forgets locks that are held"];
    let memory = one(&objects, "persistence", "warning", &words);
    let words = ["survives no failure", "no lock can be had while it is down"];
    let alone = one(&objects, "nodes", "warning", &words);
    follow(&desk, &alone);
    // Unless it sits out what it may have forgotten; to say so is another member list.
    let sits_out = Desk::with(format!("{}&quarantine=on", desk.backend.clone().unwrap()));
    none(&examine(&sits_out, 2), "persistence");
    assert_eq!(follow(&desk, &memory).out, "OK\nOK\n");
    none(&examine(&desk, 1), "persistence");
}

#[test]
fn one_server_under_two_names_is_found() {
    if skip(Need::Redis) {
        return;
    }
    let servers = RedisServer::redis().start_many(2);
    let (a, b) = (servers[0].addr(), servers[1].addr());
    let desk = Desk::with(format!("redis://{a},{b},redis://{a}/1?timeout=1s"));
    desk.run(&["init"]).fails(77, &["are one server", "neither votes"]);
    let objects = examine(&desk, 2);
    let same: Vec<_> = objects.iter().filter(|object| object["check"] == "same server").collect();
    let words = ["are one server", "counted twice", "the address of its own server"];
    assert_eq!(same.len(), 2, "{objects:#?}");
    for finding in same {
        assert_eq!(finding["level"], "error");
        assert!(words.iter().all(|word| finding.to_string().contains(word)), "{finding}");
    }
}

#[test]
fn several_servers_behind_one_name_are_found() {
    if skip(Need::Redis) {
        return;
    }
    let servers = RedisServer::redis().start_many(2);
    let balancer = Proxy::to(servers[0].addr());
    balancer.retarget_in_turns(servers.iter().map(RedisServer::addr));
    let desk = Desk::with(format!("redis://{}?timeout=1s", balancer.addr()));
    let words = ["answered by several servers", "an address of its own"];
    desk.run(&["init"]).fails(77, &words);
    desk.run(&["run", "-n", "job", "--", "true"]).fails(69, &words);
    let objects = examine(&desk, 2);
    let finding = objects.iter().find(|object| object["check"] == "several servers");
    assert_eq!(finding.expect("a finding")["level"], "error", "{objects:#?}");
}

#[test]
fn clocks_that_are_apart_are_measured_against_the_limit_in_force() {
    if skip(Need::Redis) {
        return;
    }
    let mut servers = RedisServer::redis().start_many(2);
    servers.insert(1, RedisServer::redis().with_clock_shim().start());
    let desk = Desk::of(servers);
    desk.run(&["init"]).expect(0);
    let set = |seconds| desk.servers[1].set_clock_offset(seconds);
    set(5.0);
    let name = format!("{}/0", desk.servers[1].addr());
    let words = [&*name, "its clock is +", "max_clock_skew is 1.0s", "wrong clocks", "chronyc"];
    one(&examine(&desk, 2), "clock", "error", &words);
    set(-5.0);
    one(&examine(&desk, 2), "clock", "error", &[&name, "its clock is -", "chronyc tracking"]);
    set(0.7);
    one(&examine(&desk, 1), "clock", "warning", &[&name, "its clock is +"]);

    let with =
        |parameter: &str| Desk::with(format!("{}&{parameter}", desk.backend.clone().unwrap()));
    none(&examine(&with("max_clock_skew=3s"), 1), "clock");
    let words = ["its clock is +", "max_clock_skew is 250ms"];
    one(&examine(&with("max_clock_skew=250ms"), 2), "clock", "error", &words);
    set(0.0);
    none(&examine(&desk, 1), "clock");
}

#[test]
fn fences_that_no_clock_explains_are_told() {
    if skip(Need::Redis) {
        return;
    }
    let servers = RedisServer::redis().with_clock_shim().start_many(3);
    let set = |seconds| servers.iter().for_each(|server| server.set_clock_offset(seconds));
    set(3.5 * 3600.0);
    let url = |server: &RedisServer| server.addr();
    let backend = format!("redis://{}", servers.iter().map(url).collect::<Vec<_>>().join(","));
    let desk = Desk::with(backend);
    desk.run(&["init"]).expect(0);
    desk.run(&["run", "l", "--", "true"]).expect(0);
    none(&examine(&desk, 2), "fences");
    set(0.0);
    let found = findings(&examine(&desk, 1), "fences");
    assert_eq!(found.len(), 3, "{found:#?}");
    let told = found[0].to_string();
    assert!(told.contains("3 h ahead of its clock") && told.contains("operations.md"), "{told}");
}

#[test]
fn a_lock_whose_fence_is_used_up_is_told() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    let desk = Desk::with(format!("redis://{}", server.addr()));
    desk.run(&["run", "l", "--", "true"]).expect(0);
    none(&examine(&desk, 1), "fences");
    server.command(&["ZADD", &server.fences_key(), "9007199254740991", "made-up"]).unwrap();
    one(&examine(&desk, 1), "fences", "warning", &["is used up", "every acquire", "rename"]);
    desk.run(&["run", "l", "--", "true"]).expect(0);
}

#[test]
fn a_clock_that_runs_at_another_speed_is_noticed() {
    if skip(Need::Redis) {
        return;
    }
    let mut servers = RedisServer::redis().start_many(2);
    servers.insert(1, RedisServer::redis().with_clock_shim().start());
    let backend = Desk::of(servers);
    backend.run(&["init"]).expect(0);
    let (hasty, name) = (&backend.servers[1], format!("{}/0", backend.servers[1].addr()));
    // However far it runs ahead: what is to be found is that it does.
    let url = format!("{}&max_clock_skew=1h", backend.backend.clone().unwrap());
    let watch = |desk: &Desk| desk.run(&["doctor", "--json", "--watch", "1500ms"]);
    let is_over = AtomicBool::new(false);
    let objects = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                hasty.jump_clock(0.005);
            }
        });
        let ran = watch(&Desk::with(&url));
        is_over.store(true, Ordering::Relaxed);
        ran.expect(2).objects()
    });
    let words = [&*name, "its clock moved +", "against ours in", "two holders", "chronyc tracking"];
    one(&objects, "drift", "error", &words);
    let words = [&*name, "its clock jumped forward by", "one vote less", "chronyc tracking"];
    one(&objects, "vote", "warning", &words);
    let objects = watch(&Desk::with(&url)).expect(1).objects();
    none(&objects, "drift");
    none(&objects, "vote");
}

#[test]
fn slow_ways_are_measured_against_the_ttl_and_the_limit_in_force() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    let proxy = Proxy::to(server.addr());
    let with = |timeout: &str, ttl: &str, code| {
        let desk = Desk::with(format!("redis://{}?timeout={timeout}", proxy.addr()));
        desk.run(&["doctor", "--json", "--watch", "500ms", "--ttl", ttl]).expect(code).objects()
    };
    let last = |finding: &Value| {
        let fix = finding["fix"].as_str().unwrap();
        fix.rsplit([' ', '=']).next().unwrap().to_owned()
    };
    let words =
        ["a ttl of 2days is above the cluster's max_ttl, 1day", "no lock can be had with it"];
    let finding = one(&with("5s", "48h", 2), "ttl", "error", &words);
    none(&with("5s", &last(&finding), 1), "ttl");

    proxy.set(Fault::Delay(Duration::from_millis(100)));
    none(&with("5s", "10s", 1), "round trip");
    let words = ["for a ttl of 10.0s", "misses the time limit of 700ms", "?timeout="];
    let finding = one(&with("700ms", "10s", 1), "round trip", "warning", &words);
    none(&with(&last(&finding), "10s", 1), "round trip");
    let words = ["for a ttl of 1.5s", "leases are spent on asking", "--ttl "];
    let finding = one(&with("5s", "1500ms", 2), "round trip", "error", &words);
    none(&with("5s", &last(&finding), 1), "round trip");
}
