//! Who may do what.

use std::io::Write as _;

use leasehold_server::{Scope, Tokens};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::{Answer, Connection, Running, eventually};

struct Guarded {
    running: Running,
    file: tempfile::NamedTempFile,
    tokens: Tokens,
    texts: Vec<String>,
}

/// Tokens 0: reads, 1: locks `a/*`, 2: admin.
async fn guarded() -> Guarded {
    let mut tokens = Tokens::default();
    let scopes = [Scope::Read, Scope::Lock("a/*".into()), Scope::Admin];
    let names = ["reader", "locker", "admin"];
    let texts = names.iter().zip(scopes);
    let texts =
        texts.map(|(name, scope)| tokens.create(name, vec![scope], None).unwrap()).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(tokens.to_text().as_bytes()).unwrap();
    let path = file.path().to_owned();
    let running = Running::with(|settings| {
        settings.tokens = Some(path);
        settings.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    })
    .await;
    Guarded { running, file, tokens, texts }
}

impl Guarded {
    async fn ask(&self, token: usize, method: &str, path: &str, body: &str) -> Answer {
        let value = format!("Bearer {}", self.texts[token]);
        let headers = [("Authorization", value.as_str())];
        self.running.connect().await.ask(method, path, &headers, body).await
    }
}

#[tokio::test]
async fn each_scope_allows_what_it_says_and_nothing_else() {
    let guarded = guarded().await;
    let fence = r#"{"expected_fence": 1, "reason": "r"}"#;
    // Reader, locker, admin.
    for (method, path, body, expected) in [
        ("POST", "/v1/locks/a%2F1/leases", "", [403, 201, 403]),
        ("POST", "/v1/locks/b/leases", "", [403, 403, 403]),
        ("GET", "/v1/locks", "", [200, 403, 200]),
        ("GET", "/v1/locks/a%2F1", "", [200, 200, 200]),
        ("GET", "/v1/locks/b", "", [200, 403, 200]),
        ("GET", "/v1/cluster", "", [200, 200, 200]),
        ("GET", "/v1/overview", "", [200, 403, 200]),
        ("GET", "/v1/overview/locks", "", [200, 403, 200]),
        ("GET", "/metrics", "", [200, 403, 200]),
        ("POST", "/v1/locks/b/force-release", fence, [403, 403, 200]),
    ] {
        for (token, expected) in expected.into_iter().enumerate() {
            let answer = guarded.ask(token, method, path, body).await;
            assert_eq!(answer.status, expected, "{token} {method} {path} {answer:?}");
            if expected == 403 {
                assert_eq!(answer.problem(), "forbidden");
                assert!(answer.json["needs"].is_string(), "{answer:?}");
            }
        }
    }
    let answer = guarded.ask(1, "GET", "/v1/locks/a%2F1/events?last_event_id=x", "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(guarded.ask(1, "GET", "/v1/events", "").await.status, 403);
}

#[tokio::test]
async fn a_caller_is_told_whether_a_token_is_asked_for_and_whether_it_may_force_release() {
    let guarded = guarded().await;
    for (token, name, may) in [(0, "reader", false), (2, "admin", true)] {
        let overview = guarded.ask(token, "GET", "/v1/overview", "").await.json;
        assert_eq!(overview["caller"], json!({"name": name, "may_force_release": may}));
    }
    let asks = async |running: &Running| {
        running.ask("GET", "/v1/version", "").await.json["asks_for_token"].clone()
    };
    assert_eq!(asks(&guarded.running).await, true);
    let open = Running::new().await;
    assert_eq!(asks(&open).await, false);
    let overview = open.ask("GET", "/v1/overview", "").await.json;
    assert_eq!(overview["caller"]["may_force_release"], true);
}

#[tokio::test]
async fn without_a_known_token_nothing_is_told() {
    let guarded = guarded().await;
    let ask = async |headers: &[(&str, &str)], path: &str| {
        guarded.running.connect().await.ask("GET", path, headers, "").await
    };
    for headers in [&[][..], &[("Authorization", "Bearer lh_x")], &[("Authorization", "nonsense")]]
    {
        for path in ["/v1/locks", "/v1/locks/a", "/v1/cluster", "/metrics", "/v1/events"] {
            let answer = ask(headers, path).await;
            assert_eq!((answer.status, answer.problem()), (401, "unauthorized"), "{path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        for path in ["/healthz", "/readyz", "/openapi.json", "/v1/version"] {
            assert_eq!(ask(headers, path).await.status, 200, "{path}");
        }
    }
    // Whoever can only send a password.
    use base64::Engine as _;
    let basic = format!("any:{}", guarded.texts[0]);
    let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(basic));
    assert_eq!(ask(&[("Authorization", &basic)], "/v1/locks").await.status, 200);
}

#[tokio::test]
async fn a_lease_id_of_anothers_lock_needs_the_scope_for_it() {
    let guarded = guarded().await;
    let guard = guarded.running.locks.lock("b").acquire().await.unwrap();
    let token = guard.detach();
    use base64::Engine as _;
    let id = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string());
    for (method, path) in [("POST", "/renew"), ("DELETE", ""), ("GET", "")] {
        let answer = guarded.ask(1, method, &format!("/v1/leases/{id}{path}"), "").await;
        assert_eq!((answer.status, answer.problem()), (403, "forbidden"), "{method}");
    }
    assert!(!guarded.running.is_free("b").await);
}

#[tokio::test]
async fn a_revoked_token_ends_with_the_next_reload_and_so_do_its_streams() {
    let mut guarded = guarded().await;
    let value = format!("Bearer {}", guarded.texts[0]);
    let headers = [("Authorization", value.as_str())];
    let mut stream = guarded.running.connect().await;
    stream.send("GET", "/v1/events", &headers, "").await;
    assert!(stream.until(b"event: hello").await.is_some());
    guarded.tokens.revoke("reader");
    std::fs::write(guarded.file.path(), guarded.tokens.to_text()).unwrap();
    assert_eq!(guarded.ask(0, "GET", "/v1/locks", "").await.status, 200, "not read yet");
    guarded.running.reload().unwrap();
    assert_eq!(guarded.ask(0, "GET", "/v1/locks", "").await.status, 401);
    assert!(stream.until(b"\r\n0\r\n\r\n").await.is_some(), "the stream ended");
    // A file that cannot be read changes nothing.
    std::fs::write(guarded.file.path(), "nonsense").unwrap();
    let error = guarded.running.reload().unwrap_err().to_string();
    assert!(error.contains("tokens"), "{error}");
    assert_eq!(guarded.ask(2, "GET", "/v1/locks", "").await.status, 200);
}

#[tokio::test]
async fn a_waiter_whose_token_is_revoked_is_told_so_and_gets_no_lock() {
    let mut guarded = guarded().await;
    let held = guarded.ask(1, "POST", "/v1/locks/a%2Fl/leases", "").await;
    let value = format!("Bearer {}", guarded.texts[1]);
    let headers = [("Authorization", value.as_str())];
    let mut waiter = guarded.running.connect().await;
    waiter.send("POST", "/v1/locks/a%2Fl/leases", &headers, r#"{"wait_ms": 30000}"#).await;
    let waiters = async || guarded.running.locks.list("").await.unwrap().len();
    eventually("the first one holds it", async || waiters().await == 1).await;
    let other = Scope::Lock("b/*".into());
    guarded.tokens.revoke("locker");
    let text = guarded.tokens.create("locker", vec![other], None).unwrap();
    guarded.texts.push(text);
    std::fs::write(guarded.file.path(), guarded.tokens.to_text()).unwrap();
    guarded.running.reload().unwrap();
    let refused = waiter.answer().await;
    assert_eq!((refused.status, refused.problem()), (401, "unauthorized"), "{refused:?}");
    let id = held.json["lease_id"].as_str().unwrap().to_owned();
    assert_eq!(guarded.ask(1, "DELETE", &format!("/v1/leases/{id}"), "").await.status, 401);
}

#[tokio::test]
async fn refusals_and_forced_releases_are_told_to_admins_only() {
    let guarded = guarded().await;
    let listen = async |token: usize| {
        let value = format!("Bearer {}", guarded.texts[token]);
        let mut stream = guarded.running.connect().await;
        stream.send("GET", "/v1/events", &[("Authorization", &value)], "").await;
        assert!(stream.until(b"event: hello").await.is_some());
        stream
    };
    let (mut admin, mut reader) = (listen(2).await, listen(0).await);
    let acquire = "/v1/locks/a%2F9/leases";
    let granted = guarded.ask(1, "POST", acquire, "").await.json;
    let force = async |fence: u64| {
        let body = json!({"expected_fence": fence, "reason": "ana is ill"}).to_string();
        guarded.ask(2, "POST", "/v1/locks/a%2F9/force-release", &body).await.status
    };
    let fence = granted["fence"].as_u64().unwrap();
    assert_eq!(guarded.ask(0, "POST", acquire, "").await.status, 403);
    assert_eq!(guarded.running.ask("POST", acquire, "").await.status, 401);
    assert_eq!((force(fence - 1).await, force(fence).await), (412, 200));
    for (what, by, why) in [
        ("refused", "reader", "`reader` lacks the scope lock:a/9"),
        ("refused", "127.0.0.1", "send a token"),
        ("force-release asked", "admin", "ana is ill"),
        ("force-release refused", "admin", "fence"),
        ("force-release asked", "admin", "ana is ill"),
        ("force-release", "admin", "ana is ill"),
    ] {
        admin.until(b"event: audit\ndata: ").await.unwrap();
        let told: Value = serde_json::from_str(&admin.until(b"\n").await.unwrap()).unwrap();
        assert_eq!((&told["what"], &told["by"]), (&what.into(), &by.into()), "{told}");
        assert_eq!(told["from"], "127.0.0.1", "{told}");
        assert!(told["reason"].as_str().unwrap().contains(why), "{told}");
    }
    let seen = reader.until(b"\"type\":\"force-released\"").await.unwrap();
    assert!(!seen.contains("audit"), "{seen}");
    let id = granted["lease_id"].as_str().unwrap();
    assert!(!seen.contains(id), "a lease id is for its holder alone");
}

/// Nobody lost anything, so nobody is to be told of a loss.
#[tokio::test]
async fn a_forced_release_of_a_free_lock_is_on_record_as_that() {
    let guarded = guarded().await;
    let granted = guarded.ask(1, "POST", "/v1/locks/a%2F1/leases", "").await.json;
    let id = granted["lease_id"].as_str().unwrap();
    let path = format!("/v1/leases/{id}");
    assert_eq!(guarded.ask(1, "DELETE", &path, "").await.status, 204);
    let mut record = guarded.record().await;
    let body = json!({"expected_fence": granted["fence"], "reason": "too late"}).to_string();
    let path = "/v1/locks/a%2F1/force-release";
    let answer = guarded.ask(2, "POST", path, &body).await;
    assert_eq!((answer.status, &answer.json["released"]), (200, &json!(false)), "{answer:?}");
    for what in ["force-release asked", "force-release of a free lock"] {
        let told = next_on_record(&mut record).await;
        assert_eq!((&told["what"], &told["name"]), (&json!(what), &json!("a/1")), "{told}");
        assert_eq!((&told["by"], &told["reason"]), (&json!("admin"), &json!("too late")), "{told}");
    }
    let metrics = guarded.ask(0, "GET", "/metrics", "").await.text;
    for line in ["redlock_force_releases_total 0", "redlock_leases_lost_total{reason=\"forced\"} 0"]
    {
        assert!(metrics.lines().any(|found| found == line), "no {line} in {metrics}");
    }
    let history = guarded.ask(0, "GET", "/v1/locks/a%2F1", "").await.json["history"].clone();
    assert!(!history.to_string().contains("force-released"), "{history}");
}

impl Guarded {
    /// What is told to an admin from now on.
    async fn record(&self) -> Connection {
        let value = format!("Bearer {}", self.texts[2]);
        let mut stream = self.running.connect().await;
        stream.send("GET", "/v1/events", &[("Authorization", &value)], "").await;
        assert!(stream.until(b"event: hello").await.is_some());
        stream
    }
}

async fn next_on_record(stream: &mut Connection) -> Value {
    stream.until(b"event: audit\ndata: ").await.unwrap();
    serde_json::from_str(&stream.until(b"\n").await.unwrap()).unwrap()
}

#[tokio::test]
async fn what_a_listed_balancer_says_of_the_sender_is_on_record() {
    let guarded = guarded().await;
    let mut record = guarded.record().await;
    let forwarded = [("X-Forwarded-For", "127.9.9.9, 203.0.113.9")];
    for headers in [&forwarded[..], &[]] {
        let mut connection = guarded.running.connect().await;
        assert_eq!(connection.ask("GET", "/v1/locks", headers, "").await.status, 401);
        let expected = if headers.is_empty() { "127.0.0.1" } else { "203.0.113.9" };
        assert_eq!(next_on_record(&mut record).await["from"], expected);
    }
    for (address, expected) in [
        (
            &[&[0x21, 0x11, 0, 12, 203, 0, 113, 8, 10, 0, 0, 1, 1, 2, 3, 4][..]].concat(),
            "203.0.113.8",
        ),
        (
            &[&[0x21, 0x21, 0, 37][..], &[0x20, 1, 0xd, 0xb8], &[0; 11], &[7], &[0; 20], b"x"]
                .concat(),
            "2001:db8::7",
        ),
        // A health check of the balancer itself.
        (&vec![0x20, 0, 0, 0], "127.0.0.1"),
    ] {
        let mut connection = guarded.running.connect().await;
        connection.stream.write_all(b"\r\n\r\n\0\r\nQUIT\n").await.unwrap();
        connection.stream.write_all(address).await.unwrap();
        assert_eq!(connection.ask("GET", "/v1/locks", &[], "").await.status, 401);
        assert_eq!(next_on_record(&mut record).await["from"], expected);
    }
}

#[tokio::test]
async fn what_anybody_else_says_of_the_sender_is_not_believed() {
    let mut guarded = guarded().await;
    guarded.running.settings.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    guarded.running.reload().unwrap();
    let mut record = guarded.record().await;
    let headers = [("X-Forwarded-For", "203.0.113.9")];
    let answer = guarded.running.connect().await.ask("GET", "/v1/locks", &headers, "").await;
    assert_eq!(answer.status, 401);
    assert_eq!(next_on_record(&mut record).await["from"], "127.0.0.1");
    let mut connection = guarded.running.connect().await;
    connection.stream.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").await.unwrap();
    let _ = connection.stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let said = connection.until(b"\r\n\r\n").await;
    assert!(said.is_none_or(|said| said.starts_with("HTTP/1.1 400")), "it is no request");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let mut guarded = guarded().await;
    let short = Some(std::time::Duration::from_secs(3));
    let text = guarded.tokens.create("short", vec![Scope::Read], short).unwrap();
    std::fs::write(guarded.file.path(), guarded.tokens.to_text()).unwrap();
    guarded.running.reload().unwrap();
    let mut streams = Vec::new();
    for path in ["/v1/events", "/v1/locks/l/events"] {
        let value = format!("Bearer {text}");
        let mut stream = guarded.running.connect().await;
        stream.send("GET", path, &[("Authorization", &value)], "").await;
        assert!(stream.until(b"event: hello").await.is_some());
        streams.push(stream);
    }
    for mut stream in streams {
        assert!(stream.until(b"\r\n0\r\n\r\n").await.is_some(), "the stream ended");
    }
    assert_eq!(guarded.ask(0, "GET", "/v1/locks", "").await.status, 200, "the others go on");
}

#[tokio::test]
async fn refusals_of_strangers_are_counted_and_push_nothing_out_of_the_record() {
    let guarded = guarded().await;
    let mut record = guarded.record().await;
    let granted = guarded.ask(1, "POST", "/v1/locks/a%2F1/leases", "").await;
    assert_eq!(granted.status, 201);
    let mut stranger = guarded.running.connect().await;
    for _ in 0..5_000 {
        let headers = [("Authorization", "Bearer lh_wrong")];
        assert_eq!(stranger.ask("GET", "/v1/locks", &headers, "").await.status, 401);
    }
    let metrics = guarded.ask(0, "GET", "/metrics", "").await.text;
    let left_out =
        metrics.lines().find_map(|line| line.strip_prefix("audit_refusals_left_out_total "));
    let left_out: u64 = left_out.expect("it is counted").parse().unwrap();
    assert!((4_500..4_990).contains(&left_out), "{left_out}");
    let history = guarded.ask(0, "GET", "/v1/locks/a%2F1", "").await.json["history"].clone();
    assert_eq!(history[0]["type"], "acquired", "{history}");
    for _ in 0..20 {
        assert_eq!(next_on_record(&mut record).await["what"], "refused");
    }
}

#[tokio::test]
async fn a_page_that_asks_before_anybody_gave_it_a_token_is_not_on_record() {
    let guarded = guarded().await;
    let mut record = guarded.record().await;
    let own = [("Sec-Fetch-Site", "same-origin")];
    let answer = guarded.running.connect().await.ask("GET", "/v1/overview", &own, "").await;
    assert_eq!(answer.status, 401);
    assert_eq!(guarded.ask(0, "POST", "/v1/locks/x/leases", "").await.status, 403);
    assert_eq!(next_on_record(&mut record).await["by"], "reader", "nothing before that");
}

#[tokio::test]
async fn another_sites_page_cannot_ask_in_anybodys_name() {
    let running = Running::new().await;
    let ask = async |headers: &[(&str, &str)], body: &str| {
        running.connect().await.ask("POST", "/v1/locks/l/leases", headers, body).await
    };
    for headers in [
        [("Origin", "http://evil.example")],
        [("Origin", "null")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site")],
    ] {
        let answer = ask(&headers, "").await;
        assert_eq!((answer.status, answer.problem()), (403, "forbidden"), "{headers:?}");
    }
    // What a form can send.
    let form = ask(&[("Content-Type", "text/plain")], "").await;
    assert_eq!((form.status, form.problem()), (415, "unsupported-media-type"));
    // A name of somebody else's that points at this machine.
    let mut connection = running.connect().await;
    use tokio::io::AsyncWriteExt as _;
    let request =
        b"POST /v1/locks/l/leases HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n";
    connection.stream.write_all(request).await.unwrap();
    assert_eq!(connection.answer().await.status, 403);
    assert!(running.is_free("l").await);
    eventually("own pages may", async || {
        ask(&[("Sec-Fetch-Site", "same-origin")], "").await.status == 201
    })
    .await;
}

#[tokio::test]
async fn every_answer_tells_a_browser_to_trust_nothing_else() {
    let running = Running::new().await;
    let none = "default-src 'none'; frame-ancestors 'none'";
    let own = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
               connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (path, status, policy, cached) in [
        ("/", 200, own, "no-cache"),
        ("/assets/app.js", 200, own, "no-cache"),
        ("/healthz", 200, none, "no-store"),
        ("/metrics", 200, none, "no-store"),
        ("/v1/locks/l", 200, none, "no-store"),
        ("/v1/events?last_event_id=x", 200, none, "no-store"),
        ("/v1/locks?limit=0", 422, none, "no-store"),
        ("/no/such/path", 404, none, "no-store"),
    ] {
        let answer = running.ask("GET", path, "").await;
        assert_eq!(answer.status, status, "{path}");
        for (name, expected) in [
            ("content-security-policy", policy),
            ("cache-control", cached),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(expected), "{path}");
        }
        assert_eq!(answer.header("set-cookie"), None, "{path}");
    }
}
