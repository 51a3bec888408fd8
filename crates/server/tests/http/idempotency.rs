//! `Idempotency-Key`.

use std::time::Duration;

use leasehold::Locks;
use leasehold_server::{Scope, Settings, Tokens};
use leasehold_testkit::{Need, RedisServer, skip};

use crate::support::{Connection, Running, eventually};

#[tokio::test]
async fn a_repeated_acquire_gets_the_same_lease_and_another_is_refused() {
    let running = Running::new().await;
    let ask = async |key: &str, name: &str, body: &str| {
        let path = format!("/v1/locks/{name}/leases");
        running.connect().await.ask("POST", &path, &[("Idempotency-Key", key)], body).await
    };
    let body = r#"{"ttl_ms": 20000}"#;
    let first = ask("k1", "l", body).await;
    assert_eq!(first.status, 201);
    let again = ask("k1", "l", body).await;
    assert_eq!((again.status, &again.json["lease_id"]), (201, &first.json["lease_id"]));
    // It was extended by the repeat, as the nodes confirm a lease. The drift is taken off.
    let left = again.json["expires_in_ms"].as_u64().unwrap();
    assert!((10_000..=19_798).contains(&left), "{left}");
    for (name, body) in [("l", r#"{"ttl_ms": 20001}"#), ("m", body)] {
        let other = ask("k1", name, body).await;
        assert_eq!((other.status, other.problem()), (422, "idempotency-mismatch"));
    }
    assert_eq!(ask("k2", "l", body).await.status, 423, "another key is another request");
    for bad in ["", &"k".repeat(256), "ké"] {
        assert_eq!(ask(bad, "l", body).await.status, 422, "{bad}");
    }
}

#[tokio::test]
async fn a_key_under_way_is_a_conflict_and_is_free_again_when_its_caller_leaves() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let (key, body) = ([("Idempotency-Key", "k")], r#"{"wait_ms": 30000}"#);
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &key, body).await;
    let repeat =
        async || running.connect().await.ask("POST", "/v1/locks/l/leases", &key, body).await;
    let waits = async || running.ask("GET", "/v1/locks/l", "").await.json["waiters"] == 1;
    eventually("it waits", waits).await;
    let conflict = repeat().await;
    assert_eq!((conflict.status, conflict.problem()), (409, "idempotency-in-flight"));
    drop(waiter);
    eventually("it left", async || !waits().await).await;
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert_eq!(repeat().await.status, 201);
}

#[tokio::test]
async fn a_key_stands_for_its_lease_no_longer_than_that_lasts() {
    let running = Running::new().await;
    let (key, body) = ([("Idempotency-Key", "k")], r#"{"ttl_ms": 150}"#);
    let ask = async || running.connect().await.ask("POST", "/v1/locks/l/leases", &key, body).await;
    let first = ask().await;
    assert_eq!(first.status, 201);
    eventually("it ran out", || running.is_free("l")).await;
    let second = ask().await;
    assert_eq!(second.status, 201);
    assert!(second.json["fence"].as_u64() > first.json["fence"].as_u64(), "{second:?}");
}

/// What is said is what the nodes say now, not what was true once.
#[tokio::test]
async fn a_repeat_after_the_release_hands_out_no_dead_lease() {
    let running = Running::new().await;
    let another = Running::on(running.locks.clone(), Settings::default());
    let (key, body) = ([("Idempotency-Key", "k")], r#"{"ttl_ms": 20000}"#);
    let ask = async || running.connect().await.ask("POST", "/v1/locks/l/leases", &key, body).await;
    for instance in [&running, &another] {
        let first = ask().await;
        let id = first.json["lease_id"].as_str().unwrap().to_owned();
        assert_eq!(instance.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status, 204);
        let (other, _) = another.acquire("l", body).await;
        let again = ask().await;
        assert_eq!((again.status, again.problem()), (423, "lock-held"), "{again:?}");
        another.ask("DELETE", &format!("/v1/leases/{other}"), "").await;
        let anew = ask().await;
        assert_eq!(anew.status, 201);
        assert!(anew.json["fence"].as_u64() > first.json["fence"].as_u64(), "{anew:?}");
        let id = anew.json["lease_id"].as_str().unwrap().to_owned();
        running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    }
}

/// It may be about to take the lease back, if its answer does not arrive.
#[tokio::test]
async fn another_instance_says_whose_the_lease_of_a_key_is_and_hands_it_to_nobody() {
    let running = Running::new().await;
    let another = Running::on(running.locks.clone(), Settings::default());
    let path = "/v1/locks/l/leases";
    for (number, body) in
        [r#"{"ttl_ms": 20000}"#, r#"{"ttl_ms": 20000, "wait_ms": 30000}"#].iter().enumerate()
    {
        let key = format!("k{number}");
        let key = [("Idempotency-Key", &*key)];
        let first = running.connect().await.ask("POST", path, &key, body).await;
        assert_eq!(first.status, 201);
        let repeat = another.connect().await.ask("POST", path, &key, body).await;
        assert_eq!((repeat.status, repeat.problem()), (409, "idempotency-elsewhere"), "{repeat:?}");
        let stranger = another.ask("POST", path, r#"{"ttl_ms": 20000}"#).await;
        assert_eq!(stranger.status, 423, "to anybody else it is held");
        let id = first.json["lease_id"].as_str().unwrap();
        assert_eq!(running.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status, 204);
    }
}

/// The quota is each caller's own.
#[tokio::test]
async fn one_caller_with_too_many_keys_takes_nobody_elses() {
    let mut tokens = Tokens::default();
    let [greedy, modest] = ["greedy", "modest"]
        .map(|name| tokens.create(name, vec![Scope::Lock("*".into())], None).unwrap());
    let reader = tokens.create("reader", vec![Scope::Read], None).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tokens.to_text()).unwrap();
    let running = Running::with(|settings| settings.tokens = Some(file.path().to_owned())).await;
    let body = r#"{"ttl_ms": 600000}"#;
    let ask = async |connection: &mut Connection, token: &str, name: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", name)];
        connection.ask("POST", &format!("/v1/locks/{name}/leases"), &headers, body).await
    };
    let mut other = running.connect().await;
    let first = ask(&mut other, &modest, "modest").await;
    assert_eq!(first.status, 201);

    let mut connection = running.connect().await;
    for number in 0..QUOTA {
        let answer = ask(&mut connection, &greedy, &format!("greedy-{number}")).await;
        assert_eq!(answer.status, 201, "{number}: {answer:?}");
    }
    for number in 0..3 {
        let refused = ask(&mut connection, &greedy, &format!("too-many-{number}")).await;
        assert_eq!((refused.status, refused.problem()), (429, "too-many-requests"), "{refused:?}");
        let again = ask(&mut connection, &greedy, "greedy-0").await;
        assert_eq!(again.status, 201, "what it has a key for it is told of still");
    }
    let again = ask(&mut other, &modest, "modest").await;
    assert_eq!((again.status, &again.json["lease_id"]), (201, &first.json["lease_id"]));
    assert_eq!(ask(&mut other, &modest, "another").await.status, 201, "and another one is taken");

    let authorization = format!("Bearer {reader}");
    let headers = [("Authorization", authorization.as_str())];
    let metrics = other.ask("GET", "/metrics", &headers, "").await.text;
    let line = r#"http_requests_total{route="/v1/locks/{name}/leases",method="POST",code="429"} 3"#;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

/// So many keys of one caller may stand for leases: docs/http-api.md says so.
const QUOTA: usize = 10_000;

/// A release may come to a node before the grant that it takes back: the node names that holder until
/// its TTL is over. No quorum does.
#[tokio::test]
async fn another_instance_knows_whose_the_lease_is_whatever_a_minority_of_the_nodes_says() {
    if skip(Need::Redis) {
        return;
    }
    let nodes = RedisServer::redis().start_many(5);
    let addrs: Vec<_> = nodes.iter().map(RedisServer::addr).collect();
    let url = format!("redis://{}", addrs.join(","));
    let locks = Locks::builder().url(&url).trust_new_nodes().open().await.unwrap();
    let running = Running::on(locks.clone(), Settings::default());
    let another = Running::on(Locks::open(&url).await.unwrap(), Settings::default());
    let [key, other_key] = ["k", "other"].map(|key| [("Idempotency-Key", key)]);
    let path = "/v1/locks/l/leases";
    let bodies = [r#"{"ttl_ms": 20000}"#, r#"{"ttl_ms": 20000, "wait_ms": 500}"#];
    for body in bodies {
        let late = locks.lock("l").ttl(Duration::from_secs(30)).manual().acquire().await.unwrap();
        let holder = late.holder().as_str().to_owned();
        drop(late.release().await);
        for node in &nodes[..2] {
            node.command(&["SET", "leasehold:lock:l", &holder, "PX", "30000"]).unwrap();
        }
        let first = running.connect().await.ask("POST", path, &key, body).await;
        assert_eq!(first.status, 201, "{first:?}");
        // Which nodes answer first is chance.
        for _ in 0..5 {
            let repeat = another.connect().await.ask("POST", path, &key, body).await;
            let said = (repeat.status, repeat.problem());
            assert_eq!(said, (409, "idempotency-elsewhere"), "{repeat:?}");
        }
        let held = another.connect().await.ask("POST", path, &other_key, body).await;
        assert_eq!((held.status, held.problem()), (423, "lock-held"), "{held:?}");
        let id = first.json["lease_id"].as_str().unwrap();
        assert_eq!(running.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status, 204);

        // Nor is it held by what only a minority has of the key.
        let holder = first.json["lease_id"].as_str().map(holder_of).unwrap();
        for node in &nodes[..2] {
            node.command(&["SET", "leasehold:lock:l", &holder, "PX", "30000"]).unwrap();
        }
        let (id, _) = running.acquire("l", bodies[0]).await;
        for _ in 0..5 {
            let repeat = another.connect().await.ask("POST", path, &key, body).await;
            assert_eq!((repeat.status, repeat.problem()), (423, "lock-held"), "{repeat:?}");
        }
        running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
        nodes.iter().for_each(|node| drop(node.command(&["DEL", "leasehold:lock:l"])));
    }
}

/// As it stands on the nodes.
fn holder_of(id: &str) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(id).unwrap();
    let token: leasehold::LeaseToken = String::from_utf8(text).unwrap().parse().unwrap();
    token.holder.as_str().to_owned()
}
