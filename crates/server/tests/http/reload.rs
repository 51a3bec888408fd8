//! Other settings while it runs.

use std::time::Duration;

use crate::support::{Connection, Running, eventually};

async fn waiter(running: &Running) -> Connection {
    let mut connection = running.connect().await;
    connection.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 30000}"#).await;
    eventually("it waits", async || {
        running.ask("GET", "/v1/locks/l", "").await.json["waiters"] != 0
    })
    .await;
    connection
}

#[tokio::test]
async fn other_limits_hold_for_whoever_comes_later_and_who_waits_goes_on() {
    let mut running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut first = waiter(&running).await;
    let ask = async |running: &Running| {
        let answer = running.ask("POST", "/v1/locks/l/leases", r#"{"wait_ms": 1000}"#).await;
        (answer.status, answer.problem().to_owned())
    };
    let problem = |status: u16, text: &str| (status, text.to_owned());
    assert_eq!(ask(&running).await, problem(423, "lock-held"));
    running.settings.limits.max_waiters = 1;
    running.reload().unwrap();
    assert_eq!(ask(&running).await, problem(429, "too-many-waiters"));
    running.settings.limits.max_waiters = 9;
    running.settings.limits.max_waiters_per_token = 1;
    running.reload().unwrap();
    assert_eq!(ask(&running).await, problem(429, "too-many-waiters"));
    running.settings.limits.max_requests_per_token = 1;
    running.reload().unwrap();
    assert_eq!(ask(&running).await, problem(429, "too-many-requests"));
    running.settings.limits = Default::default();
    running.settings.limits.max_wait = Duration::from_millis(999);
    running.reload().unwrap();
    assert_eq!(ask(&running).await, problem(422, "invalid"));
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert_eq!(first.answer().await.status, 201, "it was let in for longer");
}

#[tokio::test]
async fn fewer_connections_are_those_that_do_nothing_first() {
    let mut running = Running::new().await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let mut first = waiter(&running).await;
    let mut idle = running.connect().await;
    assert_eq!(idle.ask("GET", "/healthz", &[], "").await.status, 200);
    running.settings.limits.max_connections = 1;
    running.reload().unwrap();
    assert!(idle.until(b"never sent").await.is_none(), "it is closed");
    running.settings.limits.max_connections = 9;
    running.reload().unwrap();
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    assert_eq!(first.answer().await.status, 201, "who waits is not idle");
}

#[tokio::test]
async fn the_locks_whose_names_are_labels_can_change() {
    let mut running = Running::with(|settings| settings.metrics_locks = vec!["a".into()]).await;
    for name in ["a", "b"] {
        running.acquire(name, "").await;
    }
    let names = async |running: &Running| {
        let text = running.ask("GET", "/metrics", "").await.text;
        let counts =
            text.lines().filter_map(|line| line.strip_prefix("redlock_lock_acquired_total"));
        counts.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&running).await, [r#"{lock="a"} 1"#]);
    running.settings.metrics_locks.push("b".into());
    running.reload().unwrap();
    let mut both = names(&running).await;
    both.sort();
    assert_eq!(both, [r#"{lock="a"} 1"#, r#"{lock="b"} 0"#], "what was counted stays");
    running.settings.metrics_locks.remove(0);
    running.reload().unwrap();
    assert_eq!(names(&running).await, [r#"{lock="b"} 0"#]);
}
