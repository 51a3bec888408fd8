//! Getting in, and being kept out with a reason: passwords, rights, TLS, sockets, databases, roles.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::nodes::redis::{self, RedisNode, SetupError};
use leasehold_core::{Answer, NodeError, Reply, Request, Role};
use leasehold_testkit::{Connection, Need, RedisServer, TlsFiles, eventually, skip};
use tokio::runtime::Handle;

use super::support::*;

const RIGHTS: &str = "-@all +hello +auth +info +eval +evalsha +time \
    +get +mget +set +del +exists +type +pttl +zadd +zscore +zrem +zscan +zrangebyscore +zrevrangebyscore";

/// The answer to a probe once the first attempt is over.
async fn verdict(url: &str) -> Answer {
    let node = connect(url);
    ask(&node, Request::Probe, None).await
}

async fn serves(node: &RedisNode) {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let name = &format!("a{}", TURN.fetch_add(1, Ordering::Relaxed));
    let pass = admit(node, 100).await;
    let pass = Some(&pass);
    assert_eq!(ask(node, acquire(name, 1, 200), pass).await, Ok(Reply::Granted));
    ask(node, extend(name, 1, 200), pass).await.unwrap();
    ask(node, Request::Inspect { lock: lock(name) }, None).await.unwrap();
    ask(node, Request::List { prefix: String::new() }, None).await.unwrap();
    assert_eq!(ask(node, release(name, 1), None).await, Ok(Reply::Released));
    ask(node, acquire(name, 2, 300), pass).await.unwrap();
    let force = force_release(name, 2, 300);
    assert_eq!(ask(node, force, pass).await, Ok(Reply::Released));
    let forget = Request::ForgetIdle { below: fence(99) };
    assert_eq!(ask(node, forget, pass).await, Ok(Reply::Forgot { fences: 0 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_suffice_and_a_missing_one_is_a_sentence() {
    for (need, builder, native) in [
        (Need::Redis, RedisServer::redis(), ""),
        (Need::Valkey, RedisServer::valkey(), " +delifeq"),
    ] {
        if skip(need) {
            return;
        }
        let keys = "~leasehold:*";
        let less = |right: &str| {
            let rest: Vec<_> = RIGHTS.split(' ').filter(|word| *word != right).collect();
            format!("on >pw {keys} {}", rest.join(" "))
        };
        let server = builder
            .config("user", &format!("full on >pw {keys} {RIGHTS}{native}"))
            .config("user", &format!("nohello {}", less("+hello")))
            .config("user", &format!("noinfo {}", less("+info")))
            .config("user", &format!("nozadd {}", less("+zadd")))
            .config("user", &format!("noeval {}", less("+evalsha")))
            .config("user", &format!("nokeys on >pw ~other:* {RIGHTS}"))
            .start();
        let url = |user: &str| format!("redis://{user}:pw@{}", server.addr());
        for protocol in ["", "?protocol=2"] {
            serves(&connect(&format!("{}{protocol}", url("full")))).await;
            server.flush_all();
        }
        // Not needed; a native release that is forbidden goes by script.
        serves(&connect(&url("nohello"))).await;
        server.flush_all();
        let said = words(verdict(&url("noinfo")).await);
        assert!(said.contains("docs/backends/redis.md"), "{said}");
        let said = words(verdict(&url("nokeys")).await);
        assert!(said.contains("NOPERM") && said.contains("docs/backends/redis.md"), "{said}");

        admit(&connect(&url("full")), 100).await;
        for user in ["nozadd", "noeval"] {
            let node = connect(&url(user));
            let generation = facts(&node).await.generation;
            let pass = pass(&record(100), generation, 100);
            let said = words(ask(&node, acquire("a", 1, 200), Some(&pass)).await);
            assert!(said.contains("docs/backends/redis.md"), "{said}");
            assert!(!server.exists(&key("a")));
        }
    }
}

#[test]
fn the_tested_rights_are_the_documented_ones() {
    let text = include_str!("../../../../docs/backends/redis.md");
    assert!(text.contains(&format!("ACL SETUSER leasehold on >secret ~leasehold:* {RIGHTS}\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_keeps_its_own_words() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().start();
    let mut only = Connection::to(&server.addr()).unwrap();
    only.call(&["CONFIG", "SET", "maxclients", "1"]).unwrap();
    let said = words(verdict(&server.url()).await);
    assert!(said.contains("max number of clients"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_or_missing_password_is_the_reason_in_every_refusal() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().password("hunter2").start();
    assert!(verdict(&server.url()).await.is_ok());
    assert!(verdict(&format!("{}?protocol=2", server.url())).await.is_ok());
    for protocol in ["", "?protocol=2"] {
        let wrong = format!("redis://:hunter3@{}{protocol}", server.addr());
        let none = format!("redis://{}{protocol}", server.addr());
        for (url, word) in [(wrong, "WRONGPASS"), (none, "NOAUTH")] {
            let node = connect(&url);
            for _ in 0..3 {
                let said = words(ask(&node, Request::Probe, None).await);
                assert!(said.contains(word) && !said.contains("hunter"), "{said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_servers_are_told_apart() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = words(verdict(&format!("redis://{free}")).await);
    assert_eq!(refused, "connection refused");
    let unknown = words(verdict("redis://no-such-host.invalid").await);
    assert!(unknown.starts_with("no such host `no-such-host.invalid`"), "{unknown}");
    let no_socket = words(verdict("unix:///no/such/socket").await);
    assert_eq!(no_socket, "no such file or directory");

    // Accepts, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let config = redis::parse_url(&url).unwrap().0.remove(0);
    let limit = Duration::from_millis(100);
    let node = RedisNode::connect(config, "".into(), limit, Handle::current()).unwrap();
    let said = words(ask(&node, Request::Probe, None).await);
    assert_eq!(said, "no connection within 100ms");
}

/// A server that has one answer to the first command, and closes the connection without one.
fn that_answers(hello: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut command = [0; 1024];
            let length = stream.read(&mut command).unwrap_or_default();
            let text = String::from_utf8_lossy(&command[..length]).into_owned();
            assert!(length == 0 || text.contains("HELLO"), "{text}");
            if let Some(hello) = hello {
                let _ = stream.write_all(hello.as_bytes());
                // Until the other side has enough.
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_node_is_refused_by_name_and_told_what_to_do() {
    let envoy = "*4\r\n$6\r\nserver\r\n$17\r\nenvoy-redis-proxy\r\n$5\r\nproto\r\n:2\r\n";
    // As Redis 7.0 says it.
    let sentinel = "%6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n\
                    $5\r\nproto\r\n:3\r\n$2\r\nid\r\n:3\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n\
                    $7\r\nmodules\r\n*0\r\n";
    for (hello, reason) in [
        (
            envoy,
            "this is Envoy's redis_proxy, which hides restarts and answers TIME by itself: \
             use tcp_proxy, as in deploy/envoy.yaml",
        ),
        (
            sentinel,
            "this is a Sentinel, which keeps no locks: give the address of a server it watches",
        ),
    ] {
        let said = verdict(&that_answers(Some(hello))).await;
        assert_eq!(said, Err(NodeError::Denied { reason: reason.into() }));
    }
    let Err(NodeError::Unreachable { reason }) = verdict(&that_answers(None)).await else {
        panic!("nobody answered")
    };
    let hint = "upon HELLO (as twemproxy does, which cannot be used: see docs/backends/redis.md)";
    assert!(reason.contains("closed the connection") && reason.ends_with(hint), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_databases_and_ipv6_lead_to_the_right_keys() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis().unix_socket().password("pw").start();
    let node = connect(&format!("unix://:pw@{}?db=3", server.socket_path().display()));
    let pass = admit(&node, 100).await;
    ask(&node, acquire("a", 1, 200), Some(&pass)).await.unwrap();
    assert!(!server.exists(&key("a")), "not in database 0");
    let same = connect(&format!("{}/3", server.url()));
    let seen = ask(&same, Request::Inspect { lock: lock("a") }, None).await;
    assert!(matches!(seen, Ok(Reply::Seen(seen)) if seen.owner.is_some()));
    let beyond = words(verdict(&format!("{}/99", server.url())).await);
    assert!(beyond.contains("out of range"), "{beyond}");

    let server = RedisServer::redis().config("bind", "127.0.0.1 ::1").start();
    if TcpStream::connect(("::1", server.port())).is_ok() {
        serves(&connect(&format!("redis://[::1]:{}", server.port()))).await;
    }
    serves(&connect(&format!("redis://localhost:{}", server.port()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_cluster_members_and_servers_with_a_log_say_so() {
    for (need, builder) in
        [(Need::Redis, RedisServer::redis()), (Need::Valkey, RedisServer::valkey())]
    {
        if skip(need) {
            return;
        }
        let primary = builder.clone().append_fsync("always").start();
        let server = facts(&connect(&primary.url())).await.server;
        assert_eq!((server.role, server.persists), (Role::Primary, true));
        let replica = builder
            .clone()
            .config("replicaof", &format!("127.0.0.1 {}", primary.port()))
            .append_fsync("everysec")
            .start();
        let node = connect(&replica.url());
        let server = facts(&node).await.server;
        assert_eq!((server.role, server.persists), (Role::Replica, true));
        let replace = Request::ReplaceRecord { expected: None, record: "x".into() };
        let said = words(ask(&node, replace, None).await);
        assert!(said.contains("READONLY"), "{said}");
        let shard = builder.config("cluster-enabled", "yes").start();
        assert_eq!(facts(&connect(&shard.url())).await.server.role, Role::ClusterMember);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_left_says_so_and_grants_nothing() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        ask(&node, acquire("mine", 1, 200), Some(&pass)).await.unwrap();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let answer = ask(&node, acquire("a", 1, 200), Some(&pass)).await;
        assert!(matches!(answer, Err(NodeError::Rejected { .. })), "{answer:?}");
        assert!(words(answer).contains("OOM"));
        assert!(!server.exists(&key("a")));
        assert_eq!(ask(&node, release("mine", 1), None).await, Ok(Reply::Released));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_is_waited_for() {
    if skip(Need::Redis) {
        return;
    }
    let server = RedisServer::redis()
        .append_fsync("no")
        .config("key-load-delay", "20000")
        .config("loading-process-events-interval-bytes", "1024")
        .accept_loading()
        .start();
    let value = "x".repeat(4096);
    for i in 0..200 {
        server.command(&["SET", &format!("key{i}"), &value]).unwrap();
    }
    server.command(&["BGREWRITEAOF"]).unwrap();
    eventually(PATIENCE, "it is rewritten", || {
        let info = server.command(&["INFO", "persistence"]).unwrap();
        let info = info.as_text().unwrap();
        info.contains("aof_rewrite_in_progress:0")
            && info.contains("aof_rewrite_scheduled:0")
            && info.contains("aof_last_bgrewrite_status:ok")
    });
    server.restart();
    let node = connect(&server.url());
    let said = words(ask(&node, Request::Probe, None).await);
    assert!(said.starts_with("LOADING"), "{said}");
    assert_eq!(facts(&node).await.generation, 1);
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_wants_the_right_authority_and_the_client_certificate_that_is_asked_for() {
    if skip(Need::Redis) {
        return;
    }
    let (files, stranger) = (TlsFiles::generate(), TlsFiles::generate());
    let server = RedisServer::redis().tls(&files).config("tls-auth-clients", "yes").start();
    let ca = |files: &TlsFiles| format!("?ca={}", files.ca().display());
    let client = |files: &TlsFiles| {
        let (cert, key) = (files.client_cert(), files.client_key());
        format!("&cert={}&key={}", cert.display(), key.display())
    };
    serves(&connect(&format!("{}{}{}", server.url(), ca(&files), client(&files)))).await;
    let by_address = format!("rediss://{}", server.addr());
    serves(&connect(&format!("{by_address}{}{}&protocol=2", ca(&files), client(&files)))).await;
    for (parameters, word) in [
        (ca(&files), "ertificate"),
        (format!("{}{}", ca(&files), client(&stranger)), "TLS: received fatal alert"),
        (format!("{}{}", ca(&stranger), client(&files)), "TLS: invalid peer certificate"),
    ] {
        let said = words(verdict(&format!("{}{parameters}", server.url())).await);
        assert!(said.contains(word), "{said}");
    }
    let plain = words(verdict(&format!("redis://{}", server.addr())).await);
    assert!(
        plain.contains("closed") || plain.contains("reset") || plain.contains("no reply"),
        "{plain}"
    );

    let setup = |parameters: String| {
        let config =
            redis::parse_url(&format!("rediss://localhost{parameters}")).unwrap().0.remove(0);
        RedisNode::connect(config, "".into(), PATIENCE, Handle::current())
    };
    // Not trusted by this machine; and a machine may trust nobody.
    let config = redis::parse_url(&server.url()).unwrap().0.remove(0);
    match RedisNode::connect(config, "".into(), PATIENCE, Handle::current()) {
        Ok(node) => {
            let said = words(ask(&node, Request::Probe, None).await);
            assert!(said.starts_with("TLS: invalid peer certificate"), "{said}");
        }
        Err(error) => assert!(error.to_string().contains("ca=PATH"), "{error}"),
    }
    let swapped = format!("?cert={}&key={}", files.ca().display(), files.client_key().display());
    for parameters in ["?ca=/no/such/file".to_owned(), swapped] {
        assert!(matches!(setup(parameters), Err(SetupError::Tls(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_cannot_be_one_of_our_own_keys() {
    let Some(server) = each_server().into_iter().next() else {
        return;
    };
    for (prefix, name) in [
        ("leasehold:", "node"),
        ("", "leasehold:node"),
        ("leasehold:", "fences:x"),
        ("leasehold:fences:", "x"),
        ("", "leasehold:fences:x"),
    ] {
        let node = connect_with(&server.url(), prefix);
        let pass = admit(&node, 100).await;
        for request in [acquire(name, 1, 200), release(name, 1)] {
            let said = words(ask(&node, request, Some(&pass)).await);
            assert!(said.contains("leasehold's own"), "{said}");
        }
    }
}
