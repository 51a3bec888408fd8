//! The rows that the dashboard asks for: searched, sorted and in pages.

use serde_json::{Value, json};

use super::support::Running;

fn names(answer: &Value) -> Vec<&str> {
    let items = answer["items"].as_array().expect("rows");
    items.iter().map(|item| item["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn a_search_looks_through_all_locks_and_counts_what_it_finds() {
    let running = Running::new().await;
    for number in 0..2011 {
        let holder = if number % 500 == 7 { "Backup@db" } else { "app" };
        let lock = running.locks.lock(format!("invoice/{number:04}")).holder(holder);
        lock.ttl(std::time::Duration::from_secs(60)).acquire().await.unwrap().detach();
    }
    let ask = async |query: &str| {
        let answer = running.ask("GET", &format!("/v1/overview/locks{query}"), "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json
    };
    let one = ask("?search=VOICE%2F2000").await;
    assert_eq!(names(&one), ["invoice/2000"]);
    assert_eq!((&one["held"], &one["found"]), (&json!(2011), &json!(1)), "{one}");
    let of_holder = ask("?search=backup%40DB&sort=-name&limit=2").await;
    assert_eq!(names(&of_holder), ["invoice/2007", "invoice/1507"]);
    assert_eq!(of_holder["found"], 5, "{of_holder}");
    let last = ask("?sort=name&offset=2010&limit=50").await;
    assert_eq!(names(&last), ["invoice/2010"]);
    assert_eq!(last["found"], 2011);
    let first = ask("").await;
    assert_eq!(
        (names(&first).len(), names(&first)[0]),
        (100, "invoice/0000"),
        "held longest first"
    );
    assert_eq!(names(&ask("?sort=held").await)[0], "invoice/2010");
    assert_eq!(names(&ask("?search=nobody").await), [""; 0]);
}

#[tokio::test]
async fn what_is_waited_for_or_ends_soon_can_come_first() {
    let running = Running::new().await;
    for (name, ttl) in [("a", 60_000), ("b", 20_000), ("c", 40_000)] {
        running.acquire(name, &format!(r#"{{"ttl_ms": {ttl}}}"#)).await;
    }
    let mut waiter = running.connect().await;
    waiter.send("POST", "/v1/locks/c/leases", &[], r#"{"wait_ms": 30000}"#).await;
    super::support::eventually("somebody waits", async || {
        let answer = running.ask("GET", "/v1/overview/locks?sort=-waiting", "").await.json;
        answer["waiters"] == 1 && names(&answer) == ["c", "a", "b"]
    })
    .await;
    let ends_first = running.ask("GET", "/v1/overview/locks?sort=left", "").await.json;
    assert_eq!(names(&ends_first), ["b", "c", "a"]);
    for (query, field) in
        [("sort=fence", "sort"), ("limit=0", "limit"), ("offset=1000001", "offset")]
    {
        let answer = running.ask("GET", &format!("/v1/overview/locks?{query}"), "").await;
        assert_eq!((answer.status, &answer.json["field"]), (422, &json!(field)), "{answer:?}");
    }
}
