//! Odd answers: any bytes with any status to any of our calls. Nothing but the one shape that means
//! so is ever a grant, an extension or a release.

use std::time::Duration;

use hyper::StatusCode;
use leasehold_core::{Fence, Holder, LockName, Reply, Ttl, WallMicros};
use leasehold_testkit::{Input, fuzz};
use serde_json::{Value, json};

use super::answer::{self, Asked, Response};
use super::call::lease_id;
use super::events::Events;
use super::url::parse_url;

const STATUSES: [u16; 16] =
    [200, 201, 204, 206, 301, 400, 401, 403, 404, 410, 412, 423, 429, 500, 503, 599];

/// Ours, when a response came.
const CLOCK: WallMicros = WallMicros(1);

const BODIES: [&[u8]; 6] = [
    br#"{"lease_id":"bGVhc2Ux","name":"l","holder":"h","fence":7,"ttl_ms":1000,"expires_in_ms":9}"#,
    br#"{"type":"urn:leasehold:problem:lock-held","detail":"held","holder":"h","holder_id":"0"}"#,
    br#"{"name":"l","state":"free","holder":null,"fence":null,"highest_fence":9007199254740993}"#,
    br#"{"locks":[{"name":"a","holder":"h","fence":1.5}],"next_cursor":""}"#,
    br#"{"released":true,"fence":-1,"backend":"redis","max_ttl_ms":18446744073709551615}"#,
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

fn lease() -> (LockName, Holder, Ttl) {
    let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
    (LockName::new("l").unwrap(), Holder::new("h", 1).unwrap(), ttl)
}

/// Asks everything, and checks that what is claimed was said.
fn read_as_everything(response: &Response) {
    let (lock, holder, ttl) = lease();
    let status = response.status.as_u16();
    let asked = Asked { lock: &lock, holder: &holder, ttl };
    match answer::acquired(&asked, response, CLOCK) {
        Ok(Reply::GrantedWith { fence }) => {
            assert_eq!(status, 201);
            let id = lease_id(&lock, &holder, fence, fence, ttl.get());
            assert!(fence > Fence::ZERO && String::from_utf8_lossy(&response.body).contains(&id));
        }
        Ok(Reply::Busy { .. }) => assert_eq!(status, 423),
        Ok(other) => panic!("{other:?}"),
        Err(error) => assert!(error.to_string().len() < 10_000),
    }
    let fence = Fence::new(5).unwrap();
    match answer::renewed(&asked, (fence, fence), response, CLOCK) {
        Some(Ok(reply)) => {
            assert!(status == 200 && matches!(reply, Reply::Extended { .. }), "{reply:?}");
            let id = lease_id(&lock, &holder, fence, fence, ttl.get());
            assert!(String::from_utf8_lossy(&response.body).contains(&id));
        }
        Some(Err(_)) => {}
        None => assert_eq!(status, 410),
    }
    match answer::released(response) {
        Ok(Reply::Released) => assert_eq!(status, 204),
        Ok(Reply::NotHeld { .. }) => assert_eq!(status, 410),
        Ok(other) => panic!("{other:?}"),
        Err(_) => {}
    }
    if let Ok(Reply::Released) = answer::force_released(response) {
        assert!(status == 200 && String::from_utf8_lossy(&response.body).contains("true"));
    }
    let gone = answer::gone(&lock, Fence::new(5).unwrap(), response, CLOCK);
    assert!(!matches!(gone, Ok(Reply::Extended { .. } | Reply::Granted)), "{gone:?}");
    let _ = answer::seen(&lock, response, CLOCK);
    let _ = answer::listed(response, CLOCK);
    let _ = answer::version(response);
    if let Ok(cluster) = answer::cluster(response) {
        // It becomes a record, which must read back.
        let record = answer::record(&cluster, Duration::from_secs(1));
        assert!(leasehold_core::Record::parse(&record.to_string()).is_ok(), "{record}");
    }
    assert!(status == 200 || !answer::is_free(response));
}

fn status(input: &mut Input<'_>) -> StatusCode {
    StatusCode::from_u16(input.pick(&STATUSES)).expect("a status")
}

#[test]
fn any_bytes_to_any_call_grant_nothing_that_they_do_not_say() {
    fuzz(6000, &BODIES, |input| {
        let status = status(input);
        read_as_everything(&Response { status, body: input.rest_as_text().into_bytes() });
    });
}

/// A value as a server might give it, or not.
fn value(input: &mut Input<'_>) -> Value {
    match input.below(9) {
        0 => Value::Null,
        1 => json!(input.below(2) == 0),
        2 => json!(input.number()),
        3 => json!(input.number() as f64),
        4 => json!([value(input)]),
        5 => json!({"name": value(input)}),
        6 => json!(input.pick(&["free", "held", "h", "l", "leasehold", "redis", "a\u{1b}b"])),
        _ => json!(input.text()),
    }
}

#[test]
fn any_document_to_any_call_grants_nothing_that_it_does_not_say() {
    const NAMES: [&str; 23] = [
        "lease_id",
        "name",
        "holder",
        "holder_id",
        "fence",
        "highest_fence",
        "ttl_ms",
        "expires_in_ms",
        "held_for_ms",
        "state",
        "locks",
        "next_cursor",
        "released",
        "backend",
        "ready",
        "available",
        "configured",
        "max_ttl_ms",
        "type",
        "detail",
        "version",
        "expected_fence",
        "why",
    ];
    let (lock, holder, ttl) = lease();
    fuzz(6000, &[], |input| {
        let seven = Fence::new(7).unwrap();
        let mut document = json!({
            "name": "l", "holder": "h", "fence": 7, "ttl_ms": 1000,
            "lease_id": lease_id(&lock, &holder, seven, seven, ttl.get()),
            "type": "urn:leasehold:problem:x",
        });
        let status = status(input);
        for _ in 0..input.below(5) {
            let (name, value) = (input.pick(&NAMES), value(input));
            document[name] = value;
        }
        read_as_everything(&Response { status, body: document.to_string().into_bytes() });
    });
}

#[test]
fn any_bytes_are_events_or_are_given_up() {
    let stream = b"event: hello\ndata: {}\n\n: x\n\nevent: released\r\ndata: {}\r\n\r\n";
    fuzz(3000, &[stream, b"event:\n\n", b"data: x\n\n\n\n"], |input| {
        let mut events = Events::default();
        while !input.is_empty() {
            events.push(input.bytes());
            while let Ok(Some(kind)) = events.next() {
                assert!(!kind.is_empty() && !kind.contains('\n'), "{kind:?}");
            }
        }
    });
}

#[test]
fn any_text_is_the_url_of_a_server_or_is_refused() {
    let urls: [&[u8]; 3] = [
        b"https://:lh_token@locks.example:7717/?ca=/ca.pem&cert=/c&key=/k&timeout=1s",
        b"http://[::1]:80?token_file=/run/token",
        b"https://:%ff@a,b/#x?y@z",
    ];
    fuzz(4000, &urls, |input| {
        if let Ok((config, _)) = parse_url(&input.rest_as_text()) {
            // Its name is a URL of the same server.
            let (again, _) = parse_url(config.id().as_str()).expect("its name is a URL");
            assert_eq!(again.id(), config.id());
            let _ = config.authorization();
        }
    });
}
