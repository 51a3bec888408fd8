//! Leases that nobody was given, handed in at two servers and on the command line, and what each node has
//! before and after.

use std::time::Duration;

use leasehold_testkit::{Need, RedisServer, eventually, http_send, skip};
use serde_json::Value;

use crate::serve::Server;
use crate::support::{Place, five_nodes};

const LOCK: &str = "leasehold:lock:l";
const TTL_MS: u64 = 30_000;
/// Eleven days: higher than any fence that is given.
const FAR: u64 = 1_000_000_000_000;

/// What a node has of the lock: owner, fence, and the end by its clock.
fn state(node: &RedisServer) -> [String; 3] {
    let fences = node.fences_key();
    [vec!["GET", LOCK], vec!["ZSCORE", &fences, LOCK], vec!["PEXPIRETIME", LOCK]]
        .map(|command| format!("{:?}", node.command(&command).expect("an answer")))
}

fn token(fence: u64, ttl_ms: u64, holder: &str, lock: &str) -> String {
    format!("lease1:{fence}:{ttl_ms}:{holder}/{lock}")
}

/// As in a URL, without padding.
fn base64(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut id = String::new();
    for part in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=part.len() {
            id.push(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize] as char);
        }
    }
    id
}

#[test]
fn no_lie_about_a_lease_changes_what_any_node_has_of_it() {
    if skip(Need::Redis) {
        return;
    }
    let (nodes, url) = five_nodes();
    let servers = [Server::start(&url), Server::start(&url)];
    let body = format!(r#"{{"ttl_ms": {TTL_MS}, "holder": "ana"}}"#);
    let granted = servers[0].post("/v1/locks/l/leases", &body);
    assert_eq!(granted.status, 201, "{}", granted.body);
    let lease: Value = serde_json::from_str(&granted.body).unwrap();
    let (id, fence) = (lease["lease_id"].as_str().unwrap(), lease["fence"].as_u64().unwrap());
    // Those that the grant comes to last have it soon, too.
    eventually(Duration::from_secs(10), "all have it", || {
        nodes.iter().all(|node| node.exists(LOCK))
    });
    let ana = nodes[0].get(LOCK).expect("a holder");
    assert_eq!(base64(&token(fence, TTL_MS, &ana, "l")), id);
    let before: Vec<_> = nodes.iter().map(state).collect();
    assert!(before.iter().flatten().all(|word| !word.contains("Nil")), "{before:?}");

    let nobody = format!("ana:{}", "7".repeat(32));
    let renewed = [
        token(fence, TTL_MS, &nobody, "l"),
        token(fence + FAR, TTL_MS, &nobody, "l"),
        token(fence + FAR, TTL_MS, &ana, "l"),
        token(fence - 1, TTL_MS, &ana, "l"),
        token(1, TTL_MS, &ana, "l"),
    ];
    let place = Place::new();
    for (text, server) in renewed.iter().flat_map(|text| servers.each_ref().map(|it| (text, it))) {
        let path = format!("/v1/leases/{}", base64(text));
        assert_eq!(server.post(&format!("{path}/renew"), "{}").status, 410, "{text}");
        assert_eq!(server.get(&path).status, 410, "{text}");
        // A release looks at no fence: it is for the holder alone.
        if text.contains(&nobody) {
            let answer = http_send(server.addr(), "DELETE", &path, "").unwrap();
            assert_eq!(answer.status, 410, "{text}: {}", answer.body);
        }
        let cut = &path[..path.len() - 6];
        let status = server.post(&format!("{cut}/renew"), "{}").status;
        assert!([404, 410].contains(&status), "{text} cut off: {status}");
        assert_eq!(nodes.iter().map(state).collect::<Vec<_>>(), before, "after {text}");
    }
    for text in &renewed {
        let output = place.run(&["--backend", &url, "extend", text]);
        assert_eq!(output.status.code(), Some(79), "{text}");
        if text.contains(&nobody) {
            let output = place.run(&["--backend", &url, "release", text]);
            assert_eq!(output.status.code(), Some(79), "{text}");
        }
        assert_eq!(nodes.iter().map(state).collect::<Vec<_>>(), before, "after {text}");
    }

    // What is free stays free, and its fence is no higher than before.
    let released = http_send(servers[1].addr(), "DELETE", &format!("/v1/leases/{id}"), "").unwrap();
    assert_eq!(released.status, 204, "{}", released.body);
    for text in &renewed {
        let path = format!("/v1/leases/{}/renew", base64(text));
        assert_eq!(servers[0].post(&path, "{}").status, 410, "{text}");
    }
    let next = servers[1].post("/v1/locks/l/leases", &body);
    assert_eq!(next.status, 201, "{}", next.body);
    let next: Value = serde_json::from_str(&next.body).unwrap();
    let next = next["fence"].as_u64().unwrap();
    assert!(fence < next && next < fence + FAR, "{next} after {fence}");
}
