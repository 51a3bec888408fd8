//! Answers as a server gives them, word by word.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::*;

fn lock() -> LockName {
    LockName::new("invoice/42").unwrap()
}

fn holder() -> Holder {
    Holder::new("billing@host1", 7).unwrap()
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(10)).unwrap()
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn response(status: u16, body: &Value) -> Response {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Response { status: StatusCode::from_u16(status).unwrap(), body }
}

fn problem(status: u16, name: &str, members: &Value) -> Response {
    let mut document = json!({
        "type": format!("urn:leasehold:problem:{name}"),
        "title": "A title",
        "status": status,
        "detail": format!("the words for {name}"),
        "instance": "/v1/x",
    });
    document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    response(status, &document)
}

const FENCE: u64 = 1_763_245_803_123_456;
/// Ours, when a response came: a day after the fence, which tells no time here.
const CLOCK: WallMicros = WallMicros(FENCE + 86_400_000_000);
const ID: &str = "0123456789abcdef0123456789abcdef";

fn lease() -> Value {
    json!({
        "lease_id": lease_id(&lock(), &holder(), fence(FENCE), fence(FENCE), Duration::from_secs(10)),
        "name": "invoice/42", "holder": "billing@host1", "fence": FENCE, "ttl_ms": 10_000,
        "expires_in_ms": 9874, "elapsed_ms": 2, "reason": null,
    })
}

fn acquire(response: &Response) -> Answer {
    acquired(&Asked { lock: &lock(), holder: &holder(), ttl: ttl() }, response, CLOCK)
}

#[test]
fn a_lease_is_granted_with_the_servers_fence_if_it_is_the_one_that_was_asked_for() {
    assert_eq!(acquire(&response(201, &lease())), Ok(Reply::GrantedWith { fence: fence(FENCE) }));
    for (field, other) in [
        ("fence", json!(0)),
        ("fence", json!(null)),
        ("fence", json!(-1)),
        ("fence", json!(9_007_199_254_740_992_u64)),
        ("fence", json!(FENCE + 1)),
        ("ttl_ms", json!(20_000)),
        ("name", json!("invoice/43")),
        ("holder", json!("ana")),
        ("lease_id", json!("abc")),
    ] {
        let mut odd = lease();
        odd[field] = other;
        let answer = acquire(&response(201, &odd));
        assert!(matches!(answer, Err(NodeError::Garbled { .. })), "{odd}: {answer:?}");
    }
    let other_status = acquire(&response(200, &lease()));
    assert!(matches!(other_status, Err(NodeError::Garbled { .. })), "{other_status:?}");
}

#[test]
fn a_held_lock_tells_who_and_for_how_long() {
    let members = json!({
        "name": "invoice/42", "holder": "billing@host2", "holder_id": ID, "fence": FENCE,
        "expires_in_ms": 7200, "held_for_ms": 1500, "queue_position": 0, "waited_ms": 0, "nodes": [],
    });
    let owner = Owner::Holder(Holder::parse(&format!("billing@host2:{ID}")).unwrap());
    let (expires_in, since) =
        (Some(Duration::from_millis(7200)), Some(WallMicros(CLOCK.0 - 1_500_000)));
    let busy = Reply::Busy { owner, expires_in, fence: fence(FENCE), since };
    assert_eq!(acquire(&problem(423, "lock-held", &members)), Ok(busy));
    // Another library's lock has neither fence nor end.
    let members = json!({"holder": "x", "holder_id": null, "fence": null, "expires_in_ms": null});
    let owner = Owner::OtherLibrary { value: "x".into() };
    let busy = Reply::busy(owner, None, Fence::ZERO);
    assert_eq!(acquire(&problem(423, "lock-held", &members)), Ok(busy));
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let none = json!({});
    let words = |name: &str| format!("the words for {name}");
    for (status, name) in [
        (503, "no-quorum"),
        (503, "too-slow"),
        (503, "shutting-down"),
        (422, "invalid"),
        (400, "malformed"),
        (409, "no-fence"),
        (500, "internal"),
    ] {
        let expected = NodeError::Rejected { reason: words(name) };
        assert_eq!(acquire(&problem(status, name, &none)), Err(expected), "{name}");
    }
    let denied = NodeError::Denied { reason: words("forbidden") };
    assert_eq!(acquire(&problem(403, "forbidden", &none)), Err(denied));
    let Err(NodeError::Denied { reason }) = acquire(&problem(401, "unauthorized", &none)) else {
        panic!("it is denied");
    };
    assert!(reason.starts_with(&words("unauthorized")) && reason.contains("LEASEHOLD_TOKEN"));
    // Nothing was done, so nothing is to be given back.
    for name in ["too-many-waiters", "too-many-requests"] {
        let overloaded = NodeError::Overloaded { reason: words(name) };
        assert_eq!(acquire(&problem(429, name, &none)), Err(overloaded));
    }
}

#[test]
fn what_stands_before_a_server_is_told_apart_from_it() {
    let page = |status: u16| Response {
        status: StatusCode::from_u16(status).unwrap(),
        body: b"<html>nope</html>".to_vec(),
    };
    let rejected = NodeError::Rejected { reason: "it answered 502 Bad Gateway".into() };
    assert_eq!(acquire(&page(502)), Err(rejected));
    assert!(matches!(acquire(&page(403)), Err(NodeError::Denied { .. })));
    for status in [200, 201, 204, 301, 404, 410, 418, 423] {
        let answer = acquire(&page(status));
        assert!(matches!(answer, Err(NodeError::Garbled { .. })), "{status}: {answer:?}");
    }
    assert!(acquire(&page(404)).unwrap_err().to_string().contains("is this a lock server?"));
}

#[test]
fn control_characters_of_a_server_do_not_reach_the_terminal() {
    let odd = problem(503, "no-quorum", &json!({"detail": "a\u{1b}[2Jb\nc"}));
    assert_eq!(odd.refusal(), NodeError::Rejected { reason: "a [2Jb c".into() });
    let long = problem(503, "no-quorum", &json!({"detail": "x".repeat(100_000)}));
    assert!(long.refusal().to_string().len() <= WORDS_MAX);
}

fn renew(response: &Response, clock: WallMicros) -> Option<Answer> {
    let asked = Asked { lock: &lock(), holder: &holder(), ttl: ttl() };
    renewed(&asked, (fence(FENCE), fence(FENCE)), response, clock)
}

#[test]
fn a_lease_is_extended_if_it_is_the_one_that_was_asked_for() {
    let clock = WallMicros(5);
    assert_eq!(renew(&response(200, &lease()), clock), Some(Ok(Reply::Extended { clock })));
    for (field, other) in [
        ("fence", json!(null)),
        ("fence", json!(FENCE + 1)),
        ("ttl_ms", json!(20_000)),
        ("ttl_ms", json!(null)),
        ("name", json!("invoice/43")),
        ("holder", json!("ana")),
        ("lease_id", json!("abc")),
        ("lease_id", json!(null)),
    ] {
        let mut odd = lease();
        odd[field] = other;
        let answer = renew(&response(200, &odd), clock);
        assert!(matches!(answer, Some(Err(NodeError::Garbled { .. }))), "{odd}: {answer:?}");
    }
    let answer = renew(&response(200, &json!({})), clock);
    assert!(matches!(answer, Some(Err(NodeError::Garbled { .. }))), "{answer:?}");
}

#[test]
fn a_lost_lease_is_told_by_the_lock() {
    let clock = WallMicros(5);
    let renewed = renew;
    let members = json!({"name": "invoice/42", "fence": FENCE, "why": "it expired"});
    assert_eq!(renewed(&problem(410, "lease-lost", &members), clock), None);
    let no_quorum = renewed(&problem(503, "no-quorum", &json!({})), clock);
    assert!(matches!(no_quorum, Some(Err(NodeError::Rejected { .. }))), "{no_quorum:?}");

    let look = |state: &str, holder: Value, highest: u64| {
        let document = json!({
            "name": "invoice/42", "state": state, "holder": holder, "holder_id": ID,
            "fence": null, "highest_fence": highest, "expires_in_ms": 1500,
        });
        gone(&lock(), fence(FENCE), &response(200, &document), CLOCK)
    };
    let later = fence(FENCE + 1);
    assert_eq!(look("free", json!(null), FENCE + 1), Ok(Reply::Superseded { fence: later }));
    assert_eq!(look("held", json!("bo"), FENCE + 1), Ok(Reply::Superseded { fence: later }));
    assert_eq!(look("free", json!(null), FENCE), Ok(Reply::NotHeld { owner: None }));
    let busy = look("held", json!("bo"), FENCE);
    assert!(matches!(busy, Ok(Reply::Busy { .. })), "{busy:?}");
}

#[test]
fn a_release_tells_whether_there_was_something_to_release_and_who_has_it_now() {
    assert_eq!(released(&response(204, &Value::Null)), Ok(Reply::Released));
    let expired = problem(410, "lease-lost", &json!({"holder": null, "holder_id": null}));
    assert_eq!(released(&expired), Ok(Reply::NotHeld { owner: None }));
    let taken = problem(410, "lease-lost", &json!({"holder": "bo", "holder_id": ID}));
    let bo = Owner::Holder(Holder::parse(&format!("bo:{ID}")).unwrap());
    assert_eq!(released(&taken), Ok(Reply::NotHeld { owner: Some(bo) }));
    let unknown = released(&problem(503, "no-quorum", &json!({})));
    assert!(matches!(unknown, Err(NodeError::Rejected { .. })), "{unknown:?}");
}

#[test]
fn a_forced_release_tells_what_it_met() {
    let done = |released: Value| json!({"name": "x", "released": released, "fence": 7});
    assert_eq!(force_released(&response(200, &done(json!(true)))), Ok(Reply::Released));
    let free = Ok(Reply::NotHeld { owner: None });
    assert_eq!(force_released(&response(200, &done(json!(false)))), free);
    assert!(force_released(&response(200, &done(json!("yes")))).is_err());
    let moved = problem(412, "fence-moved-on", &json!({"expected_fence": 7, "fence": 9}));
    assert_eq!(force_released(&moved), Ok(Reply::Superseded { fence: fence(9) }));
}

#[test]
fn a_lock_is_seen_with_its_owners_fence_and_without_an_owner_with_the_highest() {
    let document = |state: &str, holder: Value, fence: Value| {
        json!({
            "name": "invoice/42", "state": state, "holder": holder, "holder_id": ID, "fence": fence,
            "highest_fence": 9, "expires_in_ms": 1500, "held_for_ms": 1500, "votes": 5, "answered": 5, "quorum": 3,
        })
    };
    let held = seen(&lock(), &response(200, &document("held", json!("bo"), json!(8))), CLOCK);
    let Ok(Reply::Seen(held)) = held else { panic!("{held:?}") };
    assert_eq!((held.fence, held.expires_in), (Some(fence(8)), Some(Duration::from_millis(1500))));
    assert_eq!(held.owner.unwrap().to_string(), "bo");
    assert_eq!(held.since, Some(WallMicros(CLOCK.0 - 1_500_000)));
    let free = seen(&lock(), &response(200, &document("free", json!(null), json!(null))), CLOCK);
    let Ok(Reply::Seen(free)) = free else { panic!("{free:?}") };
    assert_eq!((free.owner, free.fence, free.expires_in), (None, Some(fence(9)), None));
    assert_eq!(free.since, None);
    assert!(seen(&lock(), &response(200, &json!({})), CLOCK).is_err());
    for (state, free) in [("free", true), ("held", false), ("split", false)] {
        assert_eq!(is_free(&response(200, &document(state, json!(null), json!(null)))), free);
    }
}

#[test]
fn a_page_of_locks_has_those_that_are_held_and_the_way_to_the_next() {
    let item = |name: &str, holder: Value| json!({"name": name, "state": "held", "holder": holder, "holder_id": ID, "fence": 8});
    let locks = json!([item("a", json!("bo")), item("b", json!(null))]);
    let page =
        listed(&response(200, &json!({"locks": locks, "next_cursor": "c1"})), CLOCK).unwrap();
    let names: Vec<_> = page.locks.iter().map(|lock| lock.lock.as_str()).collect();
    assert_eq!((names.as_slice(), page.next.as_deref()), (&["a"][..], Some("c1")));
    let last = json!({"locks": [], "next_cursor": null});
    assert_eq!(listed(&response(200, &last), CLOCK), Ok(Page { locks: vec![], next: None }));
    for odd in
        [json!({}), json!({"locks": {}}), json!({"locks": [1]}), json!({"locks": [{"name": ""}]})]
    {
        assert!(
            matches!(listed(&response(200, &odd), CLOCK), Err(NodeError::Garbled { .. })),
            "{odd}"
        );
    }
}

#[test]
fn a_cluster_tells_its_longest_ttl_and_one_without_a_quorum_why() {
    let document = |ready: bool| {
        json!({
            "backend": "redis", "quorum": 3, "configured": 5, "available": 2, "ready": ready,
            "max_ttl_ms": 30_000, "nodes": [{"node": "a", "state": "down", "why": "connection refused", "persists": true}],
        })
    };
    let ready = cluster(&response(200, &document(true))).unwrap();
    let max_ttl = Some(Duration::from_secs(30));
    assert_eq!(ready, Cluster { backend: "redis".into(), max_ttl, persists: true });
    let reason = "no quorum: 2 of 5 nodes available, 3 needed: a down connection refused";
    let no_quorum = NodeError::Rejected { reason: reason.into() };
    assert_eq!(cluster(&response(200, &document(false))), Err(no_quorum));
    let mut volatile = document(true);
    volatile["nodes"][0]["persists"] = json!(null);
    assert!(!cluster(&response(200, &volatile)).unwrap().persists);
    let record = record(&ready, Duration::from_secs(1));
    assert_eq!((record.max_ttl, record.state), (Duration::from_secs(30), RecordState::Admitted));
    assert_eq!(Record::parse(&record.to_string()), Ok(record));
    // A token for locks alone may not look at the nodes, and works all the same.
    let unknown = cluster(&problem(403, "forbidden", &json!({"needs": "read"}))).unwrap();
    assert_eq!(unknown.max_ttl, None);
    assert!(cluster(&problem(401, "unauthorized", &json!({}))).is_err());
    assert!(cluster(&response(403, &json!({}))).is_err());
    let version_of =
        |name: &str| version(&response(200, &json!({"name": name, "version": "0.1.0"})));
    assert_eq!(version_of("leasehold"), Ok("leasehold 0.1.0".into()));
    assert!(version_of("nginx").is_err());
}
