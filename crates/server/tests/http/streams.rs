//! Event streams.

use std::time::Duration;

use leasehold_testkit::{Fault, Need, Proxy, RedisServer, skip};
use serde_json::Value;

use crate::support::{Connection, Running, eventually};

/// One event: id, type, data.
#[derive(Debug)]
struct Told {
    id: Option<String>,
    kind: String,
    data: Value,
}

async fn listen(running: &Running, path: &str, last: Option<&str>) -> Connection {
    let mut stream = running.connect().await;
    let header = last.map(|last| ("Last-Event-ID", last));
    stream.send("GET", path, header.as_slice(), "").await;
    let head = stream.until(b"\r\n\r\n").await.unwrap();
    assert!(head.contains("text/event-stream"), "{head}");
    stream
}

async fn next(stream: &mut Connection) -> Told {
    loop {
        let text = stream.until(b"\n\n").await.expect("the stream goes on");
        let field = |name: &str| {
            // Chunk sizes stand between events, on lines of their own.
            text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
        };
        let Some(kind) = field("event: ") else { continue };
        let data = serde_json::from_str(&field("data: ").unwrap()).unwrap();
        return Told { id: field("id: "), kind, data };
    }
}

/// The next of this kind.
async fn next_of(stream: &mut Connection, kind: &str) -> Told {
    loop {
        let told = next(stream).await;
        if told.kind == kind {
            return told;
        }
    }
}

#[tokio::test]
async fn whoever_listens_is_told_and_can_go_on_after_a_break() {
    let running = Running::new().await;
    let mut stream = listen(&running, "/v1/events", None).await;
    assert_eq!(next(&mut stream).await.kind, "hello");
    let (id, fence) = running.acquire("l", r#"{"holder": "ana", "reason": "pay"}"#).await;
    let acquired = next_of(&mut stream, "acquired").await;
    let data = &acquired.data;
    assert_eq!((&data["name"], &data["holder"]), (&"l".into(), &"ana".into()), "{data}");
    assert_eq!((&data["fence"], &data["reason"]), (&fence.into(), &"pay".into()), "{data}");
    drop(stream);
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    let mut stream = listen(&running, "/v1/events", acquired.id.as_deref()).await;
    assert_eq!(next(&mut stream).await.data["resumed"], true);
    let released = next(&mut stream).await;
    assert_eq!((released.kind.as_str(), &released.data["name"]), ("released", &"l".into()));
    let mut stream = listen(&running, "/v1/events", Some("ffffffff-3")).await;
    assert_eq!(next(&mut stream).await.data["resumed"], false);
    assert_eq!(next(&mut stream).await.kind, "reset", "of another life: look anew");
}

#[tokio::test]
async fn what_others_do_on_the_nodes_is_seen_and_told_once() {
    let running = Running::new().await;
    let mut stream = listen(&running, "/v1/events", None).await;
    let guard = running.locks.lock("l").holder("cli").acquire().await.unwrap();
    let acquired = next_of(&mut stream, "acquired").await;
    assert_eq!((&acquired.data["holder"], &acquired.data["seen"]), (&"cli".into(), &true.into()));
    let _ = guard.release().await;
    let released = next_of(&mut stream, "released").await;
    assert_eq!(released.data["fence"], acquired.data["fence"]);
    // Through the server: told by it, and not seen as news afterwards.
    let (id, _) = running.acquire("m", "").await;
    running.ask("DELETE", &format!("/v1/leases/{id}"), "").await;
    let mut told = Vec::new();
    let mut overviews = 0;
    while overviews < 4 {
        let event = next(&mut stream).await;
        overviews += usize::from(event.kind == "overview");
        if event.data["name"] == "m" {
            told.push(event.kind);
        }
    }
    assert_eq!(told, ["acquired", "released"]);
}

#[tokio::test]
async fn a_lease_that_runs_out_is_told_as_expired() {
    let running = Running::new().await;
    let mut stream = listen(&running, "/v1/locks/l/events", None).await;
    running.acquire("l", r#"{"ttl_ms": 300}"#).await;
    running.acquire("m", r#"{"ttl_ms": 300}"#).await;
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "expired") {
        let told = next(&mut stream).await;
        assert!(told.kind == "hello" || told.data["name"] == "l", "{told:?}");
        kinds.push(told.kind);
    }
    assert_eq!(kinds, ["hello", "acquired", "expired"]);
    let lost = async || running.metric(r#"redlock_leases_lost_total{reason="expired"}"#).await;
    eventually("both are counted", async || lost().await == 2.0).await;
}

#[tokio::test]
async fn the_overview_comes_by_itself_while_somebody_listens() {
    let running = Running::new().await;
    running.acquire("l", r#"{"holder": "ana", "reason": "pay", "ttl_ms": 60000}"#).await;
    let mut stream = listen(&running, "/v1/events", None).await;
    let told = tokio::time::timeout(Duration::from_secs(5), async {
        loop {
            let told = next_of(&mut stream, "overview").await;
            if told.data["locks"]["held"] == 1 {
                return told;
            }
        }
    });
    let told = told.await.unwrap();
    assert_eq!(told.id, None);
    let item = &told.data["locks"]["items"][0];
    assert_eq!((&item["name"], &item["reason"]), (&"l".into(), &"pay".into()), "{item}");
    assert_eq!(told.data["cluster"]["available"], 1);
    let whole = running.ask("GET", "/v1/overview", "").await.json;
    assert!(whole["series"]["points"].is_array() && whole["rates"].is_object(), "{whole}");
}

#[tokio::test]
async fn whoever_comes_with_an_id_that_is_no_text_is_told_to_look_anew() {
    let running = Running::new().await;
    for last in ["é", "\u{80}", "nonsense"] {
        let mut stream = listen(&running, "/v1/events", Some(last)).await;
        assert_eq!(next(&mut stream).await.data["resumed"], false);
        assert_eq!(next(&mut stream).await.kind, "reset", "{last:?}");
    }
}

/// Commands that a node carried out.
fn commands(node: &RedisServer) -> u64 {
    let stats = format!("{:?}", node.command(&["INFO", "stats"]).unwrap());
    let (_, rest) = stats.split_once("total_commands_processed:").expect("a number");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[tokio::test]
async fn many_who_listen_to_one_lock_or_list_at_once_share_their_looks_at_the_nodes() {
    if skip(Need::Redis) {
        return;
    }
    let node = RedisServer::redis().start();
    let proxy = Proxy::to(node.addr());
    let locks = leasehold::Locks::open(format!("redis://{}", proxy.addr())).await.unwrap();
    let running = Running::on(locks, leasehold_server::Settings::default());
    let _held = running.acquire("l", r#"{"ttl_ms": 60000}"#).await;
    let count = async |what: &str| {
        let before = commands(&node);
        tokio::time::sleep(Duration::from_secs(4)).await;
        let used = commands(&node) - before;
        println!("{what}: {used} commands in 4 s");
        used
    };
    let alone = count("nobody").await;
    let mut streams = Vec::new();
    for _ in 0..60 {
        streams.push(listen(&running, "/v1/locks/l/events", None).await);
    }
    let listening = count("60 streams").await;
    // One look is a handful of commands, and two a second are wanted.
    assert!(listening < alone + 100, "{listening} commands, and {alone} without them");
    drop(streams);
    proxy.set(Fault::Delay(Duration::from_millis(50)));
    let before = commands(&node);
    let mut lists = Vec::new();
    for _ in 0..200 {
        let mut connection = running.connect().await;
        connection.send("GET", "/v1/locks?prefix=l", &[], "").await;
        connection.send("GET", "/v1/overview", &[], "").await;
        lists.push(connection);
    }
    for connection in &mut lists {
        assert_eq!(connection.answer().await.json["locks"][0]["name"], "l");
        assert_eq!(connection.answer().await.status, 200);
    }
    let used = commands(&node) - before;
    assert!(used < 200, "{used} commands for 400 lists");
}
