//! Each request gets each of its replies, and the same as from the lock table.

use std::time::Duration;

use leasehold::node::Node as _;
use leasehold_core::{LockTable, Moment, Owner, Reply, Request, Role, Sighting, WallMicros};
use leasehold_judge::Chance;
use leasehold_testkit::{RedisServer, Value, eventually};

use super::support::*;

const MIN: Duration = Duration::from_secs(500);

#[track_caller]
fn is_busy(reply: Reply, by: &Owner, at: u64) {
    let Reply::Busy { owner, expires_in, fence: found, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((&owner, found.get()), (by, at));
    assert!(expires_in.unwrap() > MIN);
}

fn ours(who: u128) -> Owner {
    Owner::Holder(holder(who))
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_and_extend_give_each_of_their_replies() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        // Without a pass, or without a record, every asker is a stranger.
        let stranger = Ok(Reply::Stranger { record: None });
        assert_eq!(ask(&node, acquire("a", 1, 200), None).await, stranger);
        let early = pass("x", 1, 100);
        assert_eq!(ask(&node, acquire("a", 1, 200), Some(&early)).await, stranger);
        assert_eq!(ask(&node, extend("a", 1, 200), Some(&early)).await, stranger);
        let pass = admit(&node, 100).await;
        let other = Ok(Reply::Stranger { record: Some(record(100)) });
        assert_eq!(ask(&node, acquire("a", 1, 200), Some(&early)).await, other);
        assert_eq!(ask(&node, acquire("a", 1, 200), None).await, other);
        assert!(!server.exists(&key("a")));

        let pass = Some(&pass);
        // Nothing is below the floor where there is no fence yet.
        let behind = |at| Ok(Reply::Behind { fence: fence(at) });
        assert_eq!(ask(&node, acquire("a", 1, 100), pass).await, behind(100));
        assert_eq!(ask(&node, acquire("a", 1, 0), pass).await, behind(100));
        assert!(!server.exists(&key("a")) && !server.exists(&server.fences_key()));
        let superseded = |at| Ok(Reply::Superseded { fence: fence(at) });
        assert_eq!(ask(&node, extend("a", 1, 99), pass).await, superseded(100));

        let big = 9_007_199_254_740_001;
        assert_eq!(ask(&node, acquire("a", 1, big), pass).await, Ok(Reply::Granted));
        assert_eq!(server.get(&key("a")).as_deref(), Some(holder(1).as_str()));
        assert!(server.pttl(&key("a")) > 500_000);
        let score = server.command(&["ZSCORE", &server.fences_key(), &key("a")]).unwrap();
        assert_eq!(score.as_text().unwrap().parse(), Ok(big as f64));
        is_busy(ask(&node, acquire("a", 2, big + 9), pass).await.unwrap(), &ours(1), big);
        is_busy(ask(&node, acquire("a", 2, 50), pass).await.unwrap(), &ours(1), big);
        is_busy(ask(&node, extend("a", 2, big), pass).await.unwrap(), &ours(1), big);
        assert_eq!(ask(&node, acquire("a", 1, big), pass).await, behind(big));
        assert_eq!(ask(&node, acquire("a", 1, big - 1), pass).await, behind(big));
        assert_eq!(ask(&node, acquire("a", 1, big + 1), pass).await, Ok(Reply::Granted));
        assert_eq!(ask(&node, extend("a", 1, big), pass).await, superseded(big + 1));
        server.command(&["PEXPIRE", &key("a"), "5000"]).unwrap();
        let extended = ask(&node, extend("a", 1, big + 1), pass).await;
        assert!(matches!(extended, Ok(Reply::Extended { clock }) if clock.0 > 1 << 50));
        assert!(server.pttl(&key("a")) > 500_000);

        server.command(&["DEL", &key("a")]).unwrap();
        assert_eq!(ask(&node, acquire("a", 2, big + 1), pass).await, behind(big + 1));
        assert!(!server.exists(&key("a")), "a refused acquire leaves nothing");
        let healed = ask(&node, extend("a", 1, big + 2), pass).await;
        assert!(matches!(healed, Ok(Reply::Healed { clock }) if clock.0 > 1 << 50), "{healed:?}");
        assert_eq!(server.get(&key("a")).as_deref(), Some(holder(1).as_str()));
        assert_eq!(ask(&node, acquire("a", 1, big + 2), pass).await, behind(big + 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_end_one_ownership_and_leave_the_fence() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let pass = admit(&node, 100).await;
        let pass = Some(&pass);
        let not_held = |owner| Ok(Reply::NotHeld { owner });
        assert_eq!(ask(&node, release("a", 1), None).await, not_held(None));
        ask(&node, acquire("a", 1, 200), pass).await.unwrap();
        assert_eq!(ask(&node, release("a", 2), None).await, not_held(Some(ours(1))));
        assert_eq!(ask(&node, release("a", 1), None).await, Ok(Reply::Released));
        assert!(!server.exists(&key("a")));
        let behind = Ok(Reply::Behind { fence: fence(200) });
        assert_eq!(ask(&node, acquire("a", 1, 200), pass).await, behind);

        let force = |number| force_release("a", 3, number);
        let superseded = |at| Ok(Reply::Superseded { fence: fence(at) });
        assert_eq!(ask(&node, force(199), pass).await, superseded(200));
        assert_eq!(ask(&node, force(200), pass).await, not_held(None));
        assert_eq!(ask(&node, force(200), pass).await, superseded(201));
        ask(&node, acquire("a", 3, 300), pass).await.unwrap();
        let stranger = Ok(Reply::Stranger { record: Some(record(100)) });
        assert_eq!(ask(&node, force(300), Some(&super::support::pass("x", 1, 0))).await, stranger);
        let other = force_release("a", 4, 300);
        assert_eq!(
            ask(&node, other, pass).await,
            not_held(Some(ours(3))),
            "another's is left alone"
        );
        let extended = ask(&node, extend("a", 3, 300), pass).await;
        assert!(matches!(extended, Ok(Reply::Extended { .. })), "nor was its fence raised");
        assert_eq!(ask(&node, force(300), pass).await, Ok(Reply::Released));
        assert_eq!(ask(&node, extend("a", 3, 300), pass).await, superseded(301));
        assert!(!server.exists(&key("a")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_are_named_and_never_touched() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let pass = admit(&node, 100).await;
        let pass = Some(&pass);
        server.command(&["HSET", &key("hash"), "f", "v"]).unwrap();
        server.command(&["SET", &key("string"), "theirs\u{1}"]).unwrap();
        let hash = Owner::ForeignKey { kind: "hash".into() };
        let theirs = Owner::OtherLibrary { value: "theirs\\x01".into() };
        for (name, owner) in [("hash", hash), ("string", theirs)] {
            let floor = fence(100);
            let busy = Ok(Reply::busy(owner.clone(), None, floor));
            assert_eq!(ask(&node, acquire(name, 1, 200), pass).await, busy, "{name}");
            assert_eq!(ask(&node, acquire(name, 1, 50), pass).await, busy, "{name}");
            assert_eq!(ask(&node, extend(name, 1, 200), pass).await, busy, "{name}");
            let not_held = Ok(Reply::NotHeld { owner: Some(owner.clone()) });
            assert_eq!(ask(&node, release(name, 1), None).await, not_held, "{name}");
            let seen = Sighting::by_voter(lock(name), Some(owner), None, None);
            let look = Request::Inspect { lock: lock(name) };
            assert_eq!(ask(&node, look, None).await, Ok(Reply::Seen(seen)));
        }
        for name in ["hash", "string"] {
            let forced = ask(&node, force_release(name, 1, 500), pass).await;
            assert!(matches!(forced, Ok(Reply::NotHeld { owner: Some(_) })), "{forced:?}");
            assert!(server.exists(&key(name)));
        }
        let hash = Owner::ForeignKey { kind: "hash".into() };
        assert!(!server.exists(&server.fences_key()), "nothing was written");
        assert_eq!(server.command(&["HGET", &key("hash"), "f"]), Ok(Value::Text("v".into())));
        server.command(&["PEXPIRE", &key("hash"), "600000"]).unwrap();
        is_busy(ask(&node, acquire("hash", 1, 200), pass).await.unwrap(), &hash, 100);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_of_another_type_is_left_alone() {
    for server in each_server() {
        server.command(&["HSET", "leasehold:node", "f", "v"]).unwrap();
        let node = connect(&server.url());
        let replace = Request::ReplaceRecord { expected: None, record: "new".into() };
        for request in [Request::Probe, replace] {
            let said = words(ask(&node, request, None).await);
            assert!(said.contains("WRONGTYPE") && said.contains("leasehold:node"), "{said}");
        }
        assert_eq!(server.command(&["HLEN", "leasehold:node"]), Ok(Value::Int(1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_set_of_fences_grants_nothing_and_leaves_nothing() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        server.command(&["SET", &server.fences_key(), "mine"]).unwrap();
        let said = words(ask(&node, acquire("a", 1, 200), Some(&pass)).await);
        assert!(said.contains("WRONGTYPE"), "{said}");
        let said = words(ask(&node, extend("a", 1, 200), Some(&pass)).await);
        assert!(said.contains("WRONGTYPE"), "{said}");
        assert!(!server.exists(&key("a")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_replaced_only_if_it_is_the_expected_one() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        facts(&node).await;
        let replace = |expected: Option<&str>, record: &str| Request::ReplaceRecord {
            expected: expected.map(Into::into),
            record: record.into(),
        };
        for (expected, new, replaced, stands) in [
            (Some("a"), "b", false, None),
            (None, "a", true, Some("a")),
            (None, "b", false, Some("a")),
            (Some("x"), "b", false, Some("a")),
            (Some("a"), "b", true, Some("b")),
        ] {
            let got = ask(&node, replace(expected, new), None).await;
            assert_eq!(got, Ok(Reply::Record { replaced }));
            assert_eq!(server.get("leasehold:node").as_deref(), stands);
        }
        assert_eq!(server.pttl("leasehold:node"), -1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_fences_are_forgotten_page_by_page_below_the_floor_only() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let pass = admit(&node, 100_000).await;
        // 700 idle ones below the floor, 3 of them owned; one of another prefix; one above.
        let mut zadd = vec!["ZADD".to_owned(), server.fences_key()];
        for i in 0..700 {
            zadd.extend([format!("{}", 10 + i), key(&format!("idle{i}"))]);
        }
        zadd.extend(["20".into(), "elsewhere:x".into(), "100001".into(), key("high")]);
        server.command(&zadd.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        for i in [0, 250, 699] {
            server.command(&["SET", &key(&format!("idle{i}")), "owner"]).unwrap();
        }
        let forget = |below| Request::ForgetIdle { below: fence(below) };
        let stranger = Ok(Reply::Stranger { record: Some(record(100_000)) });
        let wrong = super::support::pass("x", 1, 100_000);
        assert_eq!(ask(&node, forget(500_000), Some(&wrong)).await, stranger);
        assert_eq!(ask(&node, forget(110), Some(&pass)).await, Ok(Reply::Forgot { fences: 99 }));
        // Never above the floor, whatever is asked for.
        let forgot = Ok(Reply::Forgot { fences: 700 - 99 - 3 });
        assert_eq!(ask(&node, forget(500_000), Some(&pass)).await, forgot);
        let left = server.command(&["ZCARD", &server.fences_key()]);
        assert_eq!(left, Ok(Value::Int(3 + 1 + 1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_all_owned_locks_of_the_prefix_and_no_others() {
    for (server, protocol) in every_server() {
        for prefix in ["", "p*[x]:"] {
            server.flush_all();
            let node = connect_with(&format!("{}{protocol}", server.url()), prefix);
            let pass = admit(&node, 100).await;
            let count = 1200;
            let asked: Vec<_> = (0..count)
                .map(|i| {
                    start(&node, acquire(&format!("n?{i:04}"), 1, 200 + i), Some(&pass), PATIENCE).1
                })
                .collect();
            for answer in asked {
                assert_eq!(wait(answer).await, Ok(Reply::Granted));
            }
            for (name, who) in [("nx0001", 2), ("idle", 3), ("other", 4)] {
                ask(&node, acquire(name, who, 9000), Some(&pass)).await.unwrap();
            }
            ask(&node, release("idle", 3), None).await.unwrap();
            let foreign = format!("{prefix}hash");
            server
                .command(&["ZADD", &server.fences_key(), "7", &foreign, "8", "q:x", "9", prefix])
                .ok();
            server.command(&["RPUSH", &foreign, "x"]).unwrap();

            let list = |text: &str| Request::List { prefix: text.into() };
            let Ok(Reply::Locks(locks)) = ask(&node, list("n?"), None).await else { panic!() };
            assert_eq!(locks.len(), count as usize);
            for (i, sighting) in locks.iter().enumerate() {
                assert_eq!(sighting.lock, lock(&format!("n?{i:04}")), "sorted by name");
                assert_eq!(sighting.owner, Some(ours(1)));
                assert_eq!(sighting.fence, Some(fence(200 + i as u64)));
                assert!(sighting.expires_in.unwrap() > MIN);
            }
            let Ok(Reply::Locks(all)) = ask(&node, list(""), None).await else { panic!() };
            assert_eq!(all.len(), count as usize + 3);
            let foreign = all.iter().find(|sighting| sighting.lock == lock("hash")).unwrap();
            assert_eq!(foreign.owner, Some(Owner::ForeignKey { kind: "list".into() }));
            assert_eq!(ask(&node, list("zzz"), None).await, Ok(Reply::Locks(vec![])));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_tells_what_the_server_is() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let facts = facts(&node).await;
        let product = server.command(&["INFO", "server"]).unwrap();
        let product = product.as_text().unwrap().to_owned();
        let name = if product.contains("valkey_version") { "valkey 9." } else { "redis " };
        assert!(facts.server.version.starts_with(name), "{}", facts.server.version);
        assert!(product.contains(&format!("run_id:{}\r\n", facts.server.run_id)));
        assert_eq!((facts.generation, facts.record), (1, None));
        assert_eq!(facts.server.role, Role::Primary);
        assert_eq!((facts.server.evicts, facts.server.persists), (None, false));
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(wall.as_micros().abs_diff(facts.clock.0.into()) < 20_000_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_probe_tells_how_the_server_is_now() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let before = facts(&node).await;
        assert_eq!(before.server.evicts, None);
        server.command(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap();
        server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).unwrap();
        assert_eq!(facts(&node).await.server.evicts.as_deref(), Some("volatile-ttl"));

        // As a copy of another server, and alone again: the same process with another memory.
        let other = server.another().config("repl-diskless-sync-delay", "0").start();
        let generation = node.generation();
        let port = other.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
        assert_eq!(facts(&node).await.server.role, Role::Replica);
        eventually(PATIENCE, "the copy is complete", || {
            let info = server.command(&["INFO", "replication"]).unwrap();
            info.as_text().unwrap().contains("master_link_status:up")
        });
        server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let after = facts(&node).await;
        assert_eq!(after.server.run_id, before.server.run_id);
        assert_ne!(after.server.replication_id, before.server.replication_id);
        assert!(after.generation > before.generation, "no earlier pass counts");
        assert!(*generation.borrow() > before.generation, "and it is examined for it");
    }
}

/// The server says so on our connection before it answers anything from its new memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_becomes_a_copy_of_another_votes_no_more_though_nobody_looked() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        // The other has the very record that our pass shows.
        let other = server.another().config("repl-diskless-sync-delay", "0").start();
        other.command(&["SET", "leasehold:node", &pass.record]).unwrap();
        let port = other.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
        eventually(PATIENCE, "the copy is complete", || {
            let info = server.command(&["INFO", "replication"]).unwrap();
            info.as_text().unwrap().contains("master_link_status:up")
        });
        server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        assert_eq!(server.get("leasehold:node").as_deref(), Some(&*pass.record));
        let answer = ask(&node, acquire("a", 1, 200), Some(&pass)).await;
        assert_eq!(answer, Ok(Reply::Stranger { record: None }));
    }
}

/// It follows its own replica from where that left off: it drops nothing, so it says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_followed_its_replica_votes_no_more_though_nobody_looked() {
    let follow = |server: &RedisServer, other: &RedisServer| {
        let port = other.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
        eventually(PATIENCE, "it follows", || {
            let info = server.command(&["INFO", "replication"]).unwrap();
            info.as_text().unwrap().contains("master_link_status:up")
        });
    };
    for (server, protocol) in every_server() {
        server.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).unwrap();
        // So that nothing but its own word keeps it from voting while it is one.
        server.command(&["CONFIG", "SET", "replica-read-only", "no"]).unwrap();
        let replica = server.another().config("repl-diskless-sync-delay", "0").start();
        follow(&replica, &server);
        let node = connect(&format!("{}{protocol}", server.url()));
        let pass = admit(&node, 100).await;
        eventually(PATIENCE, "the replica has the record", || {
            replica.get("leasehold:node").as_deref() == Some(&*pass.record)
        });
        replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        follow(&server, &replica);
        let stats = replica.command(&["INFO", "stats"]).unwrap();
        assert!(stats.as_text().unwrap().contains("sync_partial_ok:1"), "{stats:?}");

        let stranger = Ok(Reply::Stranger { record: None });
        assert_eq!(ask(&node, acquire("a", 1, 200), Some(&pass)).await, stranger, "a replica");
        server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        assert_eq!(server.get("leasehold:node").as_deref(), Some(&*pass.record));
        assert_eq!(ask(&node, acquire("a", 1, 200), Some(&pass)).await, stranger);
        assert!(!server.exists(&key("a")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_answer_like_the_lock_table() {
    for (index, (server, protocol)) in every_server().into_iter().enumerate() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let mut pass = admit(&node, 20).await;
        let mut table = LockTable::new();
        let record = pass.record.clone();
        let first = Request::ReplaceRecord { expected: None, record };
        table.apply(Moment::default(), WallMicros(0), None, &first);
        let mut chance = Chance::new(12_345 + index as u64);
        let mut below = move |end: u64| chance.below(end);
        for step in 0..4000 {
            let name = ["a", "b", "ab"][below(3) as usize];
            let (who, number) = (below(3).into(), 10 + below(20) + step / 100);
            let request = match below(20) {
                0..6 => acquire(name, who, number),
                6..10 => extend(name, who, number),
                10..14 => release(name, who),
                14 => force_release(name, who, number),
                15 | 16 => Request::Inspect { lock: lock(name) },
                17 => Request::List { prefix: ["", "a", "ab", "b"][below(4) as usize].into() },
                18 => Request::ForgetIdle { below: fence(number) },
                _ => {
                    let floor = 15 + below(15) + step / 100;
                    let new = super::support::record(floor);
                    let old = Some(pass.record.clone()).filter(|_| below(5) > 0);
                    if old.is_some() {
                        pass = super::support::pass(&new, pass.generation, floor);
                    }
                    Request::ReplaceRecord { expected: old, record: new.into() }
                }
            };
            let mut shown = pass.clone();
            if below(20) == 0 {
                shown.record = "somebody else".into();
            }
            let answer = ask(&node, request.clone(), Some(&shown)).await.unwrap();
            let now = Moment::default();
            let model = table.apply(now, WallMicros(0), Some(&shown.record), &request);
            assert_eq!(timeless(answer), timeless(model), "step {step}: {request:?}");
        }
    }
}

/// Without what depends on the time.
fn timeless(reply: Reply) -> Reply {
    let strip = |sighting: Sighting| {
        let expires_in = sighting.expires_in.map(|_| Duration::ZERO);
        Sighting { expires_in, ..sighting }
    };
    match reply {
        Reply::Busy { owner, expires_in, fence, since } => {
            let expires_in = expires_in.map(|_| Duration::ZERO);
            Reply::Busy { owner, expires_in, fence, since }
        }
        Reply::Extended { .. } => Reply::Extended { clock: WallMicros(0) },
        Reply::Healed { .. } => Reply::Healed { clock: WallMicros(0) },
        Reply::Seen(sighting) => Reply::Seen(strip(sighting)),
        Reply::Locks(locks) => Reply::Locks(locks.into_iter().map(strip).collect()),
        other => other,
    }
}
