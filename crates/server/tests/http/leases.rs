//! Acquire, renew, release, look.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leasehold::Locks;
use leasehold_server::Settings;
use leasehold_testkit::{Fault, Need, Proxy, RedisServer, skip};
use serde_json::json;

use crate::support::{Running, eventually};

#[tokio::test]
async fn a_lease_is_acquired_renewed_and_released() {
    let running = Running::new().await;
    let body = json!({"holder": "ana", "ttl_ms": 20_000, "reason": "pay"}).to_string();
    let answer = running.ask("POST", "/v1/locks/invoice%2F42/leases", &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let lease = &answer.json;
    assert_eq!(lease["name"], "invoice/42");
    assert_eq!((&lease["holder"], &lease["reason"]), (&json!("ana"), &json!("pay")));
    let left = lease["expires_in_ms"].as_u64().unwrap();
    assert!((15_000..20_000).contains(&left), "{left}");
    let id = lease["lease_id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(format!("/v1/leases/{id}").as_str()));

    let looked = running.ask("GET", &format!("/v1/leases/{id}"), "").await;
    assert_eq!((looked.status, &looked.json["fence"]), (200, &lease["fence"]));
    let renewed =
        running.ask("POST", &format!("/v1/leases/{id}/renew"), r#"{"ttl_ms": 60000}"#).await;
    assert_eq!((renewed.status, &renewed.json["ttl_ms"]), (200, &json!(60_000)), "{renewed:?}");
    assert!(renewed.json["expires_in_ms"].as_u64().unwrap() > 50_000, "{renewed:?}");
    assert_eq!(renewed.json["fence"], lease["fence"]);

    for id in [renewed.json["lease_id"].as_str().unwrap(), id] {
        let released = running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
        assert_eq!((released.status, released.text.as_str()), (204, ""), "also when repeated");
    }
    assert!(running.is_free("invoice/42").await);
    let gone = running.ask("POST", &format!("/v1/leases/{id}/renew"), "{}").await;
    assert_eq!((gone.status, gone.problem()), (410, "lease-lost"));
    assert!(running.is_free("invoice/42").await, "a late renewal takes nothing back");
    let gone = running.ask("GET", &format!("/v1/leases/{id}"), "").await;
    assert_eq!((gone.status, gone.problem()), (410, "lease-lost"));
}

#[tokio::test]
async fn any_instance_renews_and_releases_what_another_granted() {
    let one = Running::new().await;
    let (id, fence) = one.acquire("l", r#"{"ttl_ms": 20000}"#).await;
    // The same locks, another server that knows nothing of the first.
    let other = Running::on(one.locks.clone(), Default::default());
    assert!(one.server.stop().await);
    let renewed = other.ask("POST", &format!("/v1/leases/{id}/renew"), "").await;
    assert_eq!((renewed.status, renewed.json["fence"].as_u64()), (200, Some(fence)));
    let released = other.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert_eq!(released.status, 204);
    let next = other.acquire("l", "").await.1;
    assert!(next > fence, "{next} after {fence}");
}

#[tokio::test]
async fn a_held_lock_is_refused_with_the_evidence() {
    let running = Running::new().await;
    let (_, fence) = running.acquire("l", r#"{"holder": "ana", "ttl_ms": 20000}"#).await;
    let answer = running.ask("POST", "/v1/locks/l/leases", r#"{"holder": "bo"}"#).await;
    assert_eq!((answer.status, answer.problem()), (423, "lock-held"));
    let problem = &answer.json;
    assert_eq!((&problem["holder"], &problem["fence"]), (&json!("ana"), &json!(fence)));
    assert_eq!((&problem["name"], &problem["queue_position"]), (&json!("l"), &json!(0)));
    assert!(problem["expires_in_ms"].as_u64().unwrap() > 10_000, "{problem}");
    assert!(problem["held_for_ms"].as_u64().unwrap() < 10_000, "{problem}");
    assert!(problem["nodes"][0]["answer"].as_str().unwrap().contains("held by ana"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("held by ana"), "{problem}");
    let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((10..=20).contains(&after), "{after}");
}

#[tokio::test]
async fn a_lease_that_ran_out_or_was_taken_over_is_gone() {
    let running = Running::new().await;
    // Long enough for a busy machine to look at them in time, near their end.
    let (expired, _) = running.acquire("a", r#"{"ttl_ms": 2000}"#).await;
    let (taken, _) = running.acquire("b", r#"{"ttl_ms": 2000}"#).await;
    eventually("a is free", || running.is_free("a")).await;
    eventually("b is free", || running.is_free("b")).await;
    let _next = running.acquire("b", r#"{"holder": "bo", "ttl_ms": 20000}"#).await;
    let answer = running.ask("DELETE", &format!("/v1/leases/{expired}"), "").await;
    assert_eq!((answer.status, answer.problem()), (410, "lease-lost"), "{answer:?}");
    for (method, path) in [("DELETE", ""), ("POST", "/renew"), ("GET", "")] {
        let answer = running.ask(method, &format!("/v1/leases/{taken}{path}"), "").await;
        assert_eq!((answer.status, answer.problem()), (410, "lease-lost"), "{method} {answer:?}");
        assert_eq!(answer.json["holder"], "bo", "{answer:?}");
    }
    assert!(!running.is_free("b").await, "nobody releases another's lock");
    let lost = r#"redlock_leases_lost_total{reason="expired"}"#;
    assert_eq!(running.metric(lost).await, 2.0, "each once, however often it is asked for");
}

/// How long the nodes keep it is a question of its own, which a node may leave unanswered for long.
#[tokio::test]
async fn a_renewal_is_told_while_it_is_worth_something_though_a_node_hangs() {
    if skip(Need::Redis) {
        return;
    }
    let nodes = RedisServer::redis().start_many(3);
    let proxies: Vec<_> = nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let addrs: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let url = format!("redis://{}?timeout=1s", addrs.join(","));
    let locks = Locks::builder().url(&url).trust_new_nodes().open().await.unwrap();
    let running = Running::on(locks, Settings::default());
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 20000}"#).await;
    proxies[0].set(Fault::BlackHole);
    let path = format!("/v1/leases/{id}/renew");
    let renewed = running.ask("POST", &path, r#"{"ttl_ms": 600}"#).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let [elapsed, left] =
        ["elapsed_ms", "expires_in_ms"].map(|name| renewed.json[name].as_u64().unwrap());
    assert!(left > 300, "{renewed:?}");
    // What passed meanwhile is counted once.
    assert!(elapsed + left <= 600, "{renewed:?}");
}

#[tokio::test]
async fn a_renewal_for_less_than_is_left_tells_that_the_longer_end_stands() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 600000}"#).await;
    let path = format!("/v1/leases/{id}/renew");
    let renewed = running.ask("POST", &path, r#"{"ttl_ms": 20000}"#).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert!(renewed.json["expires_in_ms"].as_u64().unwrap() < 20_000, "{renewed:?}");
    let kept = renewed.json["nodes_keep_ms"].as_u64().unwrap();
    assert!((500_000..600_000).contains(&kept), "{renewed:?}");
    let longer = running.ask("POST", &path, r#"{"ttl_ms": 900000}"#).await;
    let kept = longer.json["nodes_keep_ms"].as_u64().unwrap();
    assert!((800_000..900_000).contains(&kept), "{longer:?}");
}

/// The look waits for a slow node, and meanwhile the lease ends and another gets the lock.
#[tokio::test]
async fn a_look_that_took_longer_than_the_lease_had_left_does_not_tell_that_it_is_held() {
    if skip(Need::Redis) {
        return;
    }
    let nodes = RedisServer::redis().start_many(3);
    let proxies: Vec<_> = nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let list = |addrs: Vec<String>| format!("redis://{}?timeout=1s", addrs.join(","));
    let url = list(proxies.iter().map(Proxy::addr).collect());
    let locks = Locks::builder().url(&url).trust_new_nodes().open().await.unwrap();
    let running = Running::on(locks.clone(), Settings::default());
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 1000}"#).await;
    // Both ways: 900 ms from a question to its answer.
    proxies[2].set(Fault::Delay(Duration::from_millis(450)));
    tokio::time::sleep(Duration::from_millis(700)).await;
    let next = async {
        let next = locks.lock("l").ttl(Duration::from_secs(20)).acquire().await.unwrap();
        (next, Instant::now())
    };
    let path = format!("/v1/leases/{id}");
    let look = async {
        let looked = running.ask("GET", &path, "").await;
        (looked, Instant::now())
    };
    let ((looked, told), (_next, granted)) = tokio::join!(look, next);
    assert!(granted < told, "the look took longer: {:?}", granted - told);
    assert_ne!(looked.status, 200, "{looked:?}");
    // A busy machine may have asked when it was over.
    if looked.status != 410 {
        assert_eq!((looked.status, looked.problem()), (503, "too-slow"), "{looked:?}");
    }
}

/// It has the lease still, so there is nothing to count and nothing to forget.
#[tokio::test]
async fn nobody_is_told_to_have_lost_what_nodes_that_hang_may_keep() {
    if skip(Need::Redis) {
        return;
    }
    let nodes = RedisServer::redis().start_many(3);
    let addrs: Vec<_> = nodes.iter().map(RedisServer::addr).collect();
    let url = format!("redis://{}", addrs.join(","));
    let locks = Locks::builder().url(&url).trust_new_nodes().open().await.unwrap();
    let running = Running::on(locks.clone(), Settings::default());
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 30000}"#).await;
    eventually("all have it", || async {
        locks.inspect("l").await.is_ok_and(|seen| seen.owner().is_some_and(|(_, nodes)| nodes == 3))
    })
    .await;
    let path = format!("/v1/leases/{id}");
    nodes[0].command(&["DEL", "leasehold:lock:l"]).unwrap();
    assert_eq!(running.ask("GET", &path, "").await.status, 200);
    nodes[1].pause();
    let answer = running.ask("GET", &path, "").await;
    nodes[1].resume();
    assert_eq!((answer.status, answer.problem()), (503, "no-quorum"), "{answer:?}");
    nodes[2].command(&["DEL", "leasehold:lock:l"]).unwrap();
    eventually("no quorum has it", || async { running.ask("GET", &path, "").await.status == 410 })
        .await;
}

#[tokio::test]
async fn a_lease_whose_id_comes_with_another_fence_is_not_lost_by_that() {
    let running = Running::new().await;
    let (key, body) = ([("Idempotency-Key", "k")], r#"{"ttl_ms": 20000}"#);
    let ask = async || running.connect().await.ask("POST", "/v1/locks/l/leases", &key, body).await;
    let lease = ask().await.json;
    let (id, fence) = (lease["lease_id"].as_str().unwrap(), lease["fence"].as_u64().unwrap());
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(id).unwrap()).unwrap();
    for other in [fence - 1, fence + 1] {
        let made_up = text.replace(&fence.to_string(), &other.to_string());
        let path = format!("/v1/leases/{}/renew", URL_SAFE_NO_PAD.encode(made_up));
        let renewed = running.ask("POST", &path, "{}").await;
        assert_eq!((renewed.status, renewed.problem()), (410, "lease-lost"), "{renewed:?}");
        assert_eq!(renewed.json["why"], "it never had this fence");
        let looked = running.ask("GET", path.trim_end_matches("/renew"), "").await;
        assert_eq!((looked.status, looked.problem()), (410, "lease-lost"), "{looked:?}");
    }
    for reason in ["expired", "quorum", "stolen"] {
        let lost = format!("redlock_leases_lost_total{{reason=\"{reason}\"}}");
        assert_eq!(running.metric(&lost).await, 0.0, "{reason}");
    }
    let again = ask().await;
    assert_eq!((again.status, again.json["lease_id"].as_str()), (201, Some(id)), "{again:?}");
}

#[tokio::test]
async fn a_nonce_makes_the_lease_id_known_beforehand() {
    let running = Running::new().await;
    let nonce = "0123456789abcdef0123456789abcdef";
    let body = json!({"holder": "ana", "nonce": nonce, "ttl_ms": 20_000}).to_string();
    let (id, fence) = running.acquire("l", &body).await;
    use base64::Engine as _;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(id).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text, format!("lease1:{fence}:20000:ana:{nonce}/l"));
    // With it anybody could release the lock.
    let refused = running.ask("POST", "/v1/locks/l/leases", "").await;
    let mut told = vec![refused.text];
    for path in ["/v1/locks/l", "/v1/locks", "/v1/overview"] {
        told.push(running.ask("GET", path, "").await.text);
    }
    for text in told {
        assert!(text.contains("ana") && !text.contains(nonce), "{text}");
    }
    for (body, field) in [
        (json!({"nonce": "12"}), "nonce"),
        (json!({"nonce": "+123456789abcdef0123456789abcdef"}), "nonce"),
        (json!({"nonce": nonce, "wait_ms": 5}), "nonce"),
        // A proxy that repeats a request: what the first one was granted may be on its way back.
        (json!({"nonce": nonce}), "nonce"),
    ] {
        let answer = running.ask("POST", "/v1/locks/m/leases", &body.to_string()).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid"), "{body}");
        assert_eq!(answer.json["field"], field, "{body}");
    }
}

#[tokio::test]
async fn nonsense_is_answered_with_a_sentence_and_the_right_status() {
    let running = Running::new().await;
    let long = "n".repeat(513);
    let acquire = "/v1/locks/l/leases";
    let deep = format!(r#"{{"holder": {}"#, "[".repeat(5000));
    for (method, path, body, status, problem) in [
        ("POST", acquire, "{", 400, "malformed"),
        ("POST", acquire, "[]", 422, "invalid"),
        ("POST", acquire, deep.as_str(), 422, "invalid"),
        ("POST", acquire, r#"{"ttl": 5}"#, 422, "invalid"),
        ("POST", acquire, r#"{"ttl_ms": "5"}"#, 422, "invalid"),
        ("POST", acquire, r#"{"ttl_ms": -5}"#, 422, "invalid"),
        ("POST", acquire, r#"{"ttl_ms": 5}"#, 422, "invalid"),
        ("POST", acquire, r#"{"ttl_ms": 18446744073709551615}"#, 422, "invalid"),
        ("POST", acquire, r#"{"wait_ms": 60001}"#, 422, "invalid"),
        ("POST", acquire, r#"{"holder": ""}"#, 422, "invalid"),
        ("POST", acquire, r#"{"holder": "é"}"#, 422, "invalid"),
        ("POST", "/v1/locks/a%00b/leases", "", 422, "invalid"),
        ("POST", "/v1/locks/%FF/leases", "", 400, "malformed"),
        ("POST", &format!("/v1/locks/{long}/leases"), "", 422, "invalid"),
        ("GET", "/v1/locks?limit=0", "", 422, "invalid"),
        ("GET", "/v1/locks?limit=x", "", 422, "invalid"),
        ("GET", "/v1/locks?cursor=%3F", "", 422, "invalid"),
        ("GET", "/v1/leases/nonsense", "", 404, "lease-unknown"),
        ("DELETE", "/v1/leases/bGVhc2Ux", "", 404, "lease-unknown"),
        ("POST", "/v1/locks/l/force-release", "{}", 422, "invalid"),
        ("GET", "/v1/nothing", "", 404, "not-found"),
        ("PUT", "/v1/locks/l", "", 405, "method-not-allowed"),
    ] {
        let answer = running.ask(method, path, body).await;
        assert_eq!((answer.status, answer.problem()), (status, problem), "{method} {path} {body}");
        assert!(answer.json["detail"].as_str().unwrap().len() > 10, "{answer:?}");
        // A log of problem documents has no lease id.
        let path = path.split('?').next().unwrap();
        let path = if path.starts_with("/v1/leases/") { "/v1/leases/-" } else { path };
        assert_eq!(answer.json["instance"], path, "{answer:?}");
    }
    let wrong = running.ask("GET", "/v1/locks?limit=x", "").await;
    assert_eq!(wrong.json["field"], "limit");
    let wrong = running.ask("PUT", "/v1/leases/x", "").await;
    assert_eq!(wrong.header("allow"), Some("GET,HEAD,DELETE"));
    assert!(running.is_free("l").await);
}

#[tokio::test]
async fn locks_are_listed_in_pages_by_name() {
    let running = Running::new().await;
    for name in ["b%2F2", "a", "b%2F1", "c", "b%2F3"] {
        running.acquire(name, r#"{"ttl_ms": 60000}"#).await;
    }
    let page = async |query: &str| {
        let answer = running.ask("GET", &format!("/v1/locks{query}"), "").await;
        let names = answer.json["locks"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|lock| lock["name"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), answer.json["next_cursor"].as_str().map(str::to_owned))
    };
    assert_eq!(page("").await, ("a b/1 b/2 b/3 c".into(), None));
    let (names, cursor) = page("?limit=2&prefix=b/").await;
    assert_eq!(names, "b/1 b/2");
    let rest = page(&format!("?limit=2&prefix=b/&cursor={}", cursor.unwrap())).await;
    assert_eq!(rest, ("b/3".into(), None));
}

#[tokio::test]
async fn a_lock_is_taken_away_only_with_its_fence_and_a_reason() {
    let running = Running::new().await;
    let (id, fence) = running.acquire("l", r#"{"holder": "ana", "ttl_ms": 60000}"#).await;
    let force = async |fence: u64, reason: &str| {
        let body = json!({"expected_fence": fence, "reason": reason}).to_string();
        running.ask("POST", "/v1/locks/l/force-release", &body).await
    };
    let moved = force(fence - 1, "gone").await;
    assert_eq!((moved.status, moved.problem()), (412, "fence-moved-on"));
    assert_eq!(moved.json["fence"], fence, "{moved:?}");
    let silent = force(fence, " ").await;
    assert_eq!((silent.status, silent.problem()), (422, "invalid"));
    assert!(!running.is_free("l").await);
    let forced = force(fence, "host is dead").await;
    assert_eq!((forced.status, &forced.json["released"]), (200, &json!(true)), "{forced:?}");
    assert!(running.is_free("l").await);
    let lost = running.ask("POST", &format!("/v1/leases/{id}/renew"), "").await;
    assert_eq!((lost.status, lost.problem()), (410, "lease-lost"));
    let history = running.ask("GET", "/v1/locks/l", "").await.json["history"].clone();
    let told = history.as_array().unwrap().iter().find(|event| event["type"] == "force-released");
    assert_eq!(told.unwrap()["reason"], "host is dead", "{history}");
    assert_eq!(running.metric("redlock_force_releases_total").await, 1.0);
}
