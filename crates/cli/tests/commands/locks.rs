//! `status`, `list`, `watch` and `force-release`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::eventually;
use serde_json::Value;

use crate::harness::{Desk, Ran};

#[test]
fn status_tells_who_since_when_how_long_and_what_each_node_says() {
    for desk in Desk::each() {
        let free = desk.run(&["status", "job", "--json"]).expect(0).object();
        assert_eq!((&free["state"], &free["holder"]), (&"free".into(), &Value::Null));
        assert_eq!((&free["since"], &free["fence"]), (&Value::Null, &Value::Null));

        desk.acquire("job");
        let held = desk.run(&["status", "job", "--json"]).expect(0).object();
        let count = if desk.servers.is_empty() { 1 } else { 5 };
        assert_eq!(held["schema"], "leasehold/lock/v1");
        assert_eq!((&held["name"], &held["state"]), (&"job".into(), &"held".into()));
        assert!(held["holder"].as_str().unwrap().starts_with("ana@"), "{held}");
        assert_eq!((&held["votes"], &held["quorum"]), (&count.into(), &(count / 2 + 1).into()));
        assert_eq!(held["waiters"], Value::Null);
        let left = held["expires_in_ms"].as_u64().unwrap();
        assert!((5_000..=20_000).contains(&left), "{held}");
        assert!(held["held_ms"].as_u64().unwrap() < 10_000, "{held}");
        let nodes = held["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), count);
        assert!(nodes.iter().all(|node| node["fence"] == held["fence"]), "{held}");

        let text = desk.run(&["status", "job"]).expect(0).out;
        for word in ["job  held", "holder   ana@", "ago)", "waiters  not known"] {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
        assert!(text.contains(&held["fence"].to_string()), "{text}");
        assert!(!text.contains('\x1b'), "no colors in a pipe: {text}");
    }
}

#[test]
fn a_missing_node_is_named_and_a_missing_quorum_is_unavailable() {
    let Some(desk) = Desk::redis(5) else { return };
    let token = desk.acquire("job");
    desk.servers[4].kill();
    let status = desk.run(&["status", "job", "--json"]).expect(0).object();
    assert_eq!((&status["votes"], &status["answered"]), (&4.into(), &4.into()));
    assert!(status["nodes"][4]["error"].as_str().unwrap().contains("refused"), "{status}");
    desk.servers[2].kill();
    desk.servers[3].kill();
    for arguments in [
        &["status", "job"][..],
        &["list"],
        &["acquire", "other", "--ttl", "5s", "-n"],
        &["extend", &token],
        &["release", &token],
        &["force-release", "job", "--fence", "9", "--reason", "x", "--yes"],
    ] {
        desk.run(arguments).fails(69, &["127.0.0.1", "connection refused"]);
    }
}

#[test]
fn list_shows_what_is_held_under_a_prefix() {
    for desk in Desk::each() {
        let none = desk.run(&["list"]).expect(0);
        assert!(none.out.is_empty() && none.err.contains("no lock is held"), "{none:?}");
        for name in ["invoice/1", "invoice/2", "other"] {
            desk.acquire(name);
        }
        let names = |arguments: &[&str]| -> Vec<String> {
            let objects = desk.run(arguments).expect(0).objects();
            objects.iter().map(|o| o["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&["list", "--json"]), ["invoice/1", "invoice/2", "other"]);
        assert_eq!(names(&["ls", "invoice/", "--json"]), ["invoice/1", "invoice/2"]);
        let text = desk.run(&["list", "o"]).expect(0).out;
        assert!(text.starts_with("lock") && text.contains("other  held"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}

#[test]
fn watch_tells_each_change_once() {
    for desk in Desk::each() {
        let is_file = desk.servers.is_empty();
        let count = if is_file { "4" } else { "1000" };
        let mut watcher = desk
            .command(&["watch", "job", "--json", "--count", count, "--interval", "20ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
        let mut next = || -> Value {
            loop {
                let change: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
                assert_eq!(change["schema"], "leasehold/change/v1");
                assert_eq!(change["status"]["schema"], "leasehold/lock/v1");
                // Several nodes may be seen while some of them have carried it out.
                if is_file || change["state"] != "split" {
                    return change;
                }
            }
        };
        assert_eq!(next()["state"], "free");
        let token = desk.acquire("job");
        let held = next();
        assert_eq!((&held["state"], &held["name"]), (&"held".into(), &"job".into()));
        desk.run(&["extend", &token]).expect(0);
        desk.run(&["release", &token]).expect(0);
        let freed = next();
        assert_eq!(freed["state"], "free", "an extension is no change: {freed}");
        desk.acquire("job");
        let again = next();
        assert!(again["status"]["fence"].as_u64() > held["status"]["fence"].as_u64());
        if !is_file {
            watcher.kill().unwrap();
        }
        assert_eq!(watcher.wait().unwrap().success(), is_file);
    }
}

#[test]
fn watch_ends_in_time_and_goes_on_without_a_quorum() {
    let Some(desk) = Desk::redis(3) else { return };
    let ran = desk.run(&["watch", "job", "--for", "300ms"]).expect(0);
    assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    assert!(ran.out.contains("free"), "{ran:?}");
    desk.servers.iter().for_each(|server| server.kill());
    let ran = desk.run(&["watch", "job", "--for", "2s", "--count", "1"]).expect(0);
    assert!(ran.out.contains("unknown  0 of 3 nodes answered"), "{ran:?}");
    let ran = desk.run(&["watch", "job", "--for", "2s", "--count", "1", "--json"]).expect(0);
    assert_eq!(ran.object()["state"], "unknown");
}

#[test]
fn force_release_wants_the_fence_a_reason_and_a_yes() {
    for desk in Desk::each() {
        let old = desk.acquire("job");
        let seen = desk.fence("job").to_string();
        desk.run(&["release", &old]).expect(0);
        let token = desk.acquire("job");
        let force = |fence: &str, more: &[&str]| {
            let words = ["force-release", "job", "--fence", fence, "--reason", "db1 is dead"];
            desk.run(&[&words[..], more].concat())
        };
        force(&seen, &["--yes"]).fails(77, &["it moved on since, or never was that"]);
        desk.run(&["extend", &token]).expect(0);

        let fence = desk.fence("job").to_string();
        force(&fence, &[]).fails(64, &["left alone", "--yes"]);
        let none = ["force-release", "job", "--fence", &fence, "--yes"];
        desk.run(&none).fails(64, &["--reason"]);
        force("x", &["--yes"]).fails(64, &["`x` is not a fence"]);
        desk.run(&["extend", &token]).expect(0);

        let done = force(&fence, &["--yes", "--json"]).expect(0);
        let object = done.object();
        assert_eq!(object["schema"], "leasehold/force-release/v1");
        assert_eq!((&object["released"], &object["reason"]), (&true.into(), &"db1 is dead".into()));
        assert!(done.err.contains("db1 is dead"), "{done:?}");
        assert!(done.err.contains("this does not stop the holder"), "{done:?}");
        desk.run(&["extend", &token]).fails(79, &["is lost"]);
        let nothing = force(&fence, &["--yes"]).expect(0);
        assert!(nothing.err.contains("was not held"), "{nothing:?}");
        desk.acquire("job");
    }
}

/// The fence of a lock on each node.
fn fences(desk: &Desk, name: &str) -> Vec<u64> {
    let status = desk.run(&["status", name, "--json"]).expect(0).object();
    let nodes = status["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node["fence"].as_u64().unwrap()).collect()
}

#[test]
fn force_release_goes_by_the_holders_fence_not_by_what_a_failed_attempt_left() {
    let Some(desk) = Desk::redis(5) else { return };
    let token = desk.acquire("job");
    // The holder's votes are gone on two nodes, as after a late extension, and another tries.
    for server in &desk.servers[..2] {
        server.command(&["DEL", "leasehold:lock:job"]).unwrap();
    }
    desk.run(&["acquire", "job", "--ttl", "20s", "-n"]).fails(75, &["held by"]);
    eventually(Duration::from_secs(10), "the attempt is given back", || {
        desk.servers[..2].iter().all(|server| !server.exists("leasehold:lock:job"))
    });
    let status = desk.run(&["status", "job", "--json"]).expect(0).object();
    let (fence, highest) = (status["fence"].to_string(), status["highest_fence"].to_string());
    assert_eq!((&status["state"], &status["votes"]), (&"held".into(), &3.into()));
    assert!(status["highest_fence"].as_u64() > status["fence"].as_u64(), "{status}");
    let before = fences(&desk, "job");
    let force = |fence: &str| {
        let words = ["force-release", "job", "--fence", fence, "--reason", "dead", "--yes"];
        desk.run(&[&words[..], &["--json"]].concat())
    };
    let refused = force(&highest).fails(77, &[&format!("its fence is {fence}, not {highest}\\n")]);
    assert!(!refused.err.contains("somebody else"), "{refused:?}");
    assert_eq!(fences(&desk, "job"), before, "nothing was written");

    assert_eq!(force(&fence).expect(0).object()["released"], true);
    let again = force(&fence).expect(0);
    assert_eq!(again.object()["released"], false);
    assert!(again.err.contains("was not held"), "{again:?}");
    desk.run(&["extend", &token]).fails(79, &["is lost"]);
    let after = fences(&desk, "job");
    assert!(
        before.iter().zip(&after).all(|(before, after)| before <= after),
        "{before:?} {after:?}"
    );
    assert_eq!(after[..2], before[..2], "what the attempt left stays");
    let next = desk.acquire("job");
    force(&fence).fails(77, &["it moved on since, or never was that"]);
    desk.run(&["extend", &next]).expect(0);
    assert!(fences(&desk, "job").iter().all(|fence| fence > after.iter().max().unwrap()));
}

#[test]
fn force_release_leaves_another_librarys_lock_alone() {
    let Some(desk) = Desk::redis(1) else { return };
    let old = desk.acquire("job");
    let fence = desk.fence("job").to_string();
    desk.run(&["release", &old]).expect(0);
    let server = &desk.servers[0];
    server.command(&["SET", "leasehold:lock:job", "theirs", "NX", "PX", "60000"]).unwrap();
    let words = ["force-release", "job", "--fence", &fence, "--reason", "dead", "--yes"];
    desk.run(&words).fails(77, &["another library's lock `theirs`", "it has no fence"]);
    assert_eq!(server.get("leasehold:lock:job").as_deref(), Some("theirs"));
}

#[test]
fn the_reason_of_a_forced_release_is_traced() {
    let desk = Desk::sqlite();
    desk.acquire("job");
    let fence = desk.fence("job").to_string();
    let words = ["-v", "force-release", "job", "--fence", &fence, "--reason", "dead", "--yes"];
    let ran: Ran = desk.run(&words).expect(0);
    assert!(ran.err.contains("force-released") && ran.err.contains("reason=dead"), "{ran:?}");
}
