//! What Prometheus sees: each family with a figure that only the right counting gives.

use std::time::{Duration, Instant};

use leasehold::{Fence, Locks};
use leasehold_server::Settings;
use leasehold_testkit::{Need, RedisServer, skip};
use serde_json::json;

use crate::support::{Running, eventually};

const LONG: &str = r#"{"ttl_ms": 60000}"#;

async fn serving(url: &str) -> Running {
    let locks = Locks::open(url).await.unwrap();
    let mut settings = Settings::default();
    settings.backend = url.split(':').next().unwrap().to_owned();
    Running::on(locks, settings)
}

/// Waits until the nodes have series, which begin with the first look at them.
async fn is_looked_at(running: &Running) {
    eventually("a first look", async || {
        running.ask("GET", "/metrics", "").await.text.contains("redis_instance_up{")
    })
    .await;
}

async fn attempts(running: &Running, outcome: &str) -> (f64, f64) {
    let backend = &running.ask("GET", "/v1/cluster", "").await.json["backend"];
    let labels = format!(r#"{{backend={backend},outcome="{outcome}"}}"#);
    let count = running.metric(&format!("redlock_acquire_attempts_total{labels}")).await;
    let timed = running.metric(&format!("redlock_acquire_duration_seconds_count{labels}")).await;
    (count, timed)
}

#[tokio::test]
async fn attempts_are_counted_and_timed_by_how_they_ended() {
    let running = Running::new().await;
    let (id, _) = running.acquire("l", LONG).await;
    let ask = async |body: &str| running.ask("POST", "/v1/locks/l/leases", body).await.status;
    assert_eq!(ask("").await, 423);
    assert_eq!(ask(r#"{"wait_ms": 40}"#).await, 423);
    assert_eq!(ask(r#"{"ttl_ms": 1}"#).await, 422);
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 30000}"#).await;
    eventually("it waits", async || running.metric(WAITERS).await == 1.0).await;
    for outcome in ["acquired", "contended", "timeout", "error"] {
        assert_eq!(attempts(&running, outcome).await, (1.0, 1.0), "{outcome}");
    }
    assert_eq!(attempts(&running, "cancelled").await, (0.0, 0.0));
    drop(waiter);
    eventually("it left", async || attempts(&running, "cancelled").await == (1.0, 1.0)).await;
    // Three of five met a holder; two of them waited, one of those for 40 ms at least.
    eventually("the rate is told", async || running.metric("redlock_contention_rate").await == 0.6)
        .await;
    assert_eq!(running.metric("redlock_wait_duration_seconds_count").await, 3.0);
    assert!(running.metric("redlock_wait_duration_seconds_sum").await >= 0.04);
    eventually("nobody waits", async || running.metric(WAITERS).await == 0.0).await;
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
}

const WAITERS: &str = r#"redlock_waiters{backend="memory"}"#;
const HELD: &str = r#"redlock_locks_held{backend="memory"}"#;

#[tokio::test]
async fn what_becomes_of_leases_is_counted() {
    let running = Running::new().await;
    let renew =
        async |id: &str| running.ask("POST", &format!("/v1/leases/{id}/renew"), "").await.status;
    let release =
        async |id: &str| running.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status;
    // Somebody listens, so that the locks are looked at.
    let mut stream = running.connect().await;
    stream.send("GET", "/v1/events", &[], "").await;
    let (kept, _) = running.acquire("kept", LONG).await;
    let began = Instant::now();
    eventually("it is seen", async || running.metric(HELD).await == 1.0).await;
    drop(stream);
    assert_eq!(renew(&kept).await, 200);
    let held_at_least = began.elapsed().as_secs_f64();
    assert_eq!(release(&kept).await, 204);
    assert_eq!(running.metric("redlock_hold_duration_seconds_count").await, 1.0);
    let held = running.metric("redlock_hold_duration_seconds_sum").await;
    assert!((held_at_least..60.0).contains(&held), "{held} s, at least {held_at_least} s");
    let left = running.metric("redlock_validity_remaining_ratio_sum").await;
    assert!((0.5..=1.0).contains(&left), "{left}");

    let (expired, _) = running.acquire("expired", r#"{"ttl_ms": 2000}"#).await;
    eventually("it ran out", || running.is_free("expired")).await;
    assert_eq!(release(&expired).await, 410);
    // Taken away and held by another, behind the server's back: whoever did that counts it.
    let (stolen, fence) = running.acquire("stolen", LONG).await;
    let fence = Fence::new(fence).unwrap();
    assert!(running.locks.force_release("stolen", fence).await.unwrap());
    let next = running.locks.lock("stolen").acquire().await.unwrap();
    assert_eq!(renew(&stolen).await, 410);
    assert_eq!(release(&stolen).await, 410);
    let (forced, fence) = running.acquire("forced", LONG).await;
    let force = async |fence: u64| {
        let body = json!({"expected_fence": fence, "reason": "r"}).to_string();
        running.ask("POST", "/v1/locks/forced/force-release", &body).await.status
    };
    assert_eq!((force(fence - 1).await, force(fence).await), (412, 200));
    assert_eq!(renew(&forced).await, 410);
    for (line, expected) in [
        (r#"redlock_renewals_total{outcome="ok"}"#, 1.0),
        (r#"redlock_renewals_total{outcome="lost"}"#, 2.0),
        (r#"redlock_renewals_total{outcome="failed"}"#, 0.0),
        (r#"redlock_releases_total{outcome="released"}"#, 1.0),
        (r#"redlock_releases_total{outcome="expired"}"#, 1.0),
        (r#"redlock_releases_total{outcome="taken_over"}"#, 1.0),
        (r#"redlock_releases_total{outcome="unknown"}"#, 0.0),
        (r#"redlock_leases_lost_total{reason="expired"}"#, 1.0),
        (r#"redlock_leases_lost_total{reason="stolen"}"#, 0.0),
        (r#"redlock_leases_lost_total{reason="forced"}"#, 1.0),
        ("redlock_force_releases_total", 1.0),
        // The renewals of what another had since, and the forced release with an old fence.
        ("redlock_fencing_rejections_total", 3.0),
        ("redlock_validity_remaining_ratio_count", 4.0),
    ] {
        assert_eq!(running.metric(line).await, expected, "{line}");
    }
    drop(next);
}

/// A caller may make ids up by the thousand; nobody is called for them.
#[tokio::test]
async fn lease_ids_that_nobody_was_given_are_counted_apart() {
    let running = Running::new().await;
    let (held, fence) = running.acquire("l", LONG).await;
    use base64::Engine as _;
    for number in 0..5 {
        let id = format!("lease1:{}:60000:ana:{number:032x}/l", fence - 1);
        let id = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(id);
        for _ in 0..2 {
            let renewed = running.ask("POST", &format!("/v1/leases/{id}/renew"), "").await;
            assert_eq!(renewed.status, 410);
            assert_eq!(running.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status, 410);
        }
    }
    for (line, expected) in [
        (r#"redlock_renewals_total{outcome="not_known"}"#, 10.0),
        (r#"redlock_renewals_total{outcome="lost"}"#, 0.0),
        (r#"redlock_releases_total{outcome="not_known"}"#, 10.0),
        (r#"redlock_releases_total{outcome="expired"}"#, 0.0),
        (r#"redlock_releases_total{outcome="taken_over"}"#, 0.0),
        ("redlock_fencing_rejections_total", 0.0),
    ] {
        assert_eq!(running.metric(line).await, expected, "{line}");
    }
    assert_eq!(running.ask("DELETE", &format!("/v1/leases/{held}"), "").await.status, 204);
}

/// Its holder asked in time, and too few nodes answered until it was over.
#[tokio::test]
async fn a_lease_that_could_not_be_renewed_for_want_of_nodes_is_lost_by_that() {
    if leasehold_testkit::skip(leasehold_testkit::Need::Redis) {
        return;
    }
    let node = leasehold_testkit::RedisServer::redis().start();
    let running = serving(&format!("redis://{}", node.addr())).await;
    let (id, _) = running.acquire("l", r#"{"ttl_ms": 2000}"#).await;
    node.pause();
    let renewed = running.ask("POST", &format!("/v1/leases/{id}/renew"), "").await;
    assert_eq!(renewed.status, 503);
    node.resume();
    let lost = r#"redlock_leases_lost_total{reason="quorum"}"#;
    eventually("it is lost", async || running.metric(lost).await == 1.0).await;
    assert_eq!(running.metric(r#"redlock_leases_lost_total{reason="expired"}"#).await, 0.0);
}

/// A release looks at no fence, so that of the id may be anything; it tells no time.
#[tokio::test]
async fn how_long_a_lease_was_held_is_not_told_by_the_id_of_its_release() {
    let running = Running::new().await;
    let another = Running::on(running.locks.clone(), Settings::default());
    for (instance, seconds_known) in [(&running, 1.0), (&another, 0.0)] {
        let (id, fence) = running.acquire("l", LONG).await;
        let id = id_with_fence_1(&id, fence);
        assert_eq!(instance.ask("DELETE", &format!("/v1/leases/{id}"), "").await.status, 204);
        let count = instance.metric("redlock_hold_duration_seconds_count").await;
        let sum = instance.metric("redlock_hold_duration_seconds_sum").await;
        assert_eq!(count, seconds_known, "only who granted it knows since when");
        assert!(sum < 60.0, "{sum} s");
    }
}

fn id_with_fence_1(id: &str, fence: u64) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(id).unwrap()).unwrap();
    assert!(text.contains(&format!(":{fence}:")), "{text}");
    URL_SAFE_NO_PAD.encode(text.replace(&format!(":{fence}:"), ":1:"))
}

#[tokio::test]
async fn without_a_quorum_failures_are_counted_as_such() {
    let (id, _) = Running::new().await.acquire("l", LONG).await;
    // No node answers at this address.
    let running = serving("redis://127.0.0.1:1").await;
    let path = format!("/v1/leases/{id}");
    assert_eq!(running.ask("POST", "/v1/locks/l/leases", "").await.status, 503);
    assert_eq!(running.ask("POST", &format!("{path}/renew"), "").await.status, 503);
    assert_eq!(running.ask("DELETE", &path, "").await.status, 503);
    assert_eq!(attempts(&running, "no_quorum").await, (1.0, 1.0));
    is_looked_at(&running).await;
    for (line, expected) in [
        (r#"redlock_renewals_total{outcome="failed"}"#, 1.0),
        (r#"redlock_releases_total{outcome="unknown"}"#, 1.0),
        ("redlock_hold_duration_seconds_count", 0.0),
        (r#"redlock_leases_lost_total{reason="quorum"}"#, 0.0),
        ("redis_instances_available", 0.0),
        (r#"redis_instance_up{instance="127.0.0.1:1/0"}"#, 0.0),
    ] {
        assert_eq!(running.metric(line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn new_nodes_are_told_as_quarantined_and_for_how_long() {
    let running = serving("memory:?nodes=5&max_ttl=30s").await;
    let instance = running.locks.nodes()[0].node.to_string();
    let of = |family: &str| format!("redis_instance_{family}{{instance=\"{instance}\"}}");
    is_looked_at(&running).await;
    eventually("it is known", async || running.metric(&of("quarantined")).await == 1.0).await;
    let left = running.metric(&of("quarantine_remaining_seconds")).await;
    assert!((1.0..60.0).contains(&left), "{left}");
    eventually("less is left", async || {
        running.metric(&of("quarantine_remaining_seconds")).await < left
    })
    .await;
    for (line, expected) in [
        (of("up").as_str(), 0.0),
        ("redis_instances_available", 0.0),
        ("redis_instances_configured", 5.0),
        ("redlock_quorum_size", 3.0),
    ] {
        assert_eq!(running.metric(line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn a_node_is_told_with_its_round_trips_and_its_clock() {
    if skip(Need::Redis) {
        return;
    }
    let node = RedisServer::redis().with_clock_shim().start();
    node.set_clock_offset(0.2);
    let running = serving(&node.url()).await;
    let of = |family: &str, instance: &str| {
        format!("redis_instance_{family}{{instance=\"{instance}\"}}")
    };
    let instance = running.locks.nodes()[0].node.to_string();
    is_looked_at(&running).await;
    eventually("it votes", async || running.metric(&of("up", &instance)).await == 1.0).await;
    assert_eq!(running.metric("redis_instances_available").await, 1.0);
    assert_eq!(running.metric(&of("quarantined", &instance)).await, 0.0);
    assert_eq!(running.metric(&of("quarantine_remaining_seconds", &instance)).await, 0.0);
    let round_trip = of("request_duration_seconds_count", &instance);
    eventually("it was probed", async || running.metric(&round_trip).await >= 1.0).await;
    let offset = running.metric(&of("clock_offset_seconds", &instance)).await;
    assert!((0.1..0.3).contains(&offset), "{offset} s ahead, set to 0.2 s");
}

#[tokio::test]
async fn requests_connections_and_the_process_are_told() {
    let running = Running::new().await;
    for path in ["/healthz", "/healthz", "/no/such/path"] {
        running.ask("GET", path, "").await;
    }
    let _held = running.acquire("l", LONG).await;
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/l/leases", &[], r#"{"wait_ms": 30000}"#).await;
    // Itself, and who waits.
    eventually("two are under way", async || {
        running.metric("http_requests_in_flight").await == 2.0
    })
    .await;
    eventually("two are connected", async || running.metric("http_connections").await == 2.0).await;
    for (line, expected) in [
        (r#"http_requests_total{route="/healthz",method="GET",code="200"}"#, 2.0),
        (r#"http_request_duration_seconds_count{route="/healthz",method="GET"}"#, 2.0),
        (r#"http_requests_total{route="none",method="GET",code="404"}"#, 1.0),
        (r#"http_requests_total{route="/v1/locks/{name}/leases",method="POST",code="201"}"#, 1.0),
    ] {
        assert_eq!(running.metric(line).await, expected, "{line}");
    }
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(running.metric(&format!("redlock_build_info{{version=\"{version}\"}}")).await, 1.0);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let start = Duration::from_secs_f64(running.metric("process_start_time_seconds").await);
    assert!(now.saturating_sub(start) < Duration::from_secs(600), "started at {start:?}");
    assert!(running.metric("process_resident_memory_bytes").await > 1e6);
    assert!(running.metric("process_open_fds").await > 3.0);
    let used = running.metric("process_cpu_seconds_total").await;
    eventually("time is used", async || {
        running.metric("process_cpu_seconds_total").await > used && used > 0.0
    })
    .await;
}

#[tokio::test]
async fn lock_names_are_labels_only_if_they_are_on_the_list() {
    let running = Running::with(|settings| settings.metrics_locks = vec!["listed".into()]).await;
    let mut stream = running.connect().await;
    stream.send("GET", "/v1/events", &[], "").await;
    for name in ["listed", "other"] {
        running.acquire(name, LONG).await;
    }
    running.ask("POST", "/v1/locks/listed/leases", "").await;
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/listed/leases", &[], r#"{"wait_ms": 30000}"#).await;
    let of = |family: &str| format!("redlock_lock_{family}{{lock=\"listed\"}}");
    eventually("it is held", async || running.metric(&of("held")).await == 1.0).await;
    eventually("one waits", async || running.metric(&of("waiters")).await == 1.0).await;
    assert_eq!(running.metric(&of("acquired_total")).await, 1.0);
    assert_eq!(running.metric(&of("contended_total")).await, 1.0);
    let text = running.ask("GET", "/metrics", "").await.text;
    assert!(!text.contains("\"other\""), "{text}");
}
