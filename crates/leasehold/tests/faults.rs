//! What other lock libraries got wrong, each as a test on real servers: nodes that are down, hung
//! or confused at start, while acquiring, extending and releasing.

mod real;

use std::time::Instant;

use leasehold::{AcquireError, Builder, Locks, NodeState, ReleaseOutcome};
use leasehold_testkit::{Fault, RedisServer};
use real::{Cluster, LONG, lock_keys, ms, secs, votes, within};

/// Ways to take a node out of service. Each is undone by `mend`.
#[derive(Debug, Clone, Copy)]
enum Way {
    Refused,
    Killed,
    BlackHole,
    Paused,
    ReadOnly,
    OutOfMemory,
    NoPermission,
    CannotSave,
    DroppedReplies,
    Garbage,
}

const WAYS: [Way; 10] = [
    Way::Refused,
    Way::Killed,
    Way::BlackHole,
    Way::Paused,
    Way::ReadOnly,
    Way::OutOfMemory,
    Way::NoPermission,
    Way::CannotSave,
    Way::DroppedReplies,
    Way::Garbage,
];

fn command(server: &RedisServer, words: &[&str]) {
    server.command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

fn break_node(cluster: &Cluster, node: usize, way: Way) {
    let (server, proxy) = (&cluster.servers[node], &cluster.proxies[node]);
    match way {
        Way::Refused => proxy.set(Fault::Refuse),
        Way::Killed => server.kill(),
        Way::BlackHole => proxy.set(Fault::BlackHole),
        Way::Paused => server.pause(),
        Way::ReadOnly => command(server, &["REPLICAOF", "127.0.0.1", "1"]),
        Way::OutOfMemory => command(server, &["CONFIG", "SET", "maxmemory", "1"]),
        Way::NoPermission => {
            command(server, &["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
        }
        Way::CannotSave => {
            // A snapshot that cannot be renamed onto a folder makes the server refuse writes.
            let dir = server.command(&["CONFIG", "GET", "dir"]).unwrap();
            let leasehold_testkit::Value::Array(pair) = dir else { panic!("{dir:?}") };
            let blocked = std::path::Path::new(pair[1].as_text().unwrap()).join("dump.rdb");
            std::fs::create_dir_all(blocked.join("full")).unwrap();
            command(server, &["CONFIG", "SET", "save", "3600 1"]);
            command(server, &["BGSAVE"]);
            leasehold_testkit::eventually(secs(5), "the snapshot fails", || {
                let info = server.command(&["INFO", "persistence"]).unwrap();
                info.as_text().unwrap().contains("rdb_last_bgsave_status:err")
            });
        }
        Way::DroppedReplies => proxy.set(Fault::DropReplies),
        Way::Garbage => proxy.set(Fault::Garbage(b"*1\r\n$-7\r\nrubbish".to_vec())),
    }
}

/// With two of five nodes broken in any way, before or after the client starts, everything works.
async fn two_of_five(way: Way) {
    let cluster = Cluster::behind_proxies(5);
    let early = cluster.open().await;
    votes(&early, 5).await;
    let held = early.lock("held").ttl(secs(4)).acquire().await.unwrap();
    for node in [1, 3] {
        break_node(&cluster, node, way);
    }
    // A client that starts now. Nobody waits out the limit of a broken node to win.
    let late = cluster.client().open().await.unwrap();
    for (locks, name) in [(&early, "early"), (&late, "late")] {
        let guard = locks.lock(name).ttl(LONG).acquire().await.unwrap_or_else(|error| {
            panic!("{way:?}, {name}: {error}");
        });
        guard.extend().await.unwrap_or_else(|error| panic!("{way:?}, {name}: {error}"));
        assert_eq!(guard.release().await, ReleaseOutcome::Released, "{way:?}, {name}");
    }
    assert!(late.lock("held").ttl(LONG).try_acquire().await.unwrap().is_none(), "{way:?}");
    // The lease is kept over more than its Ttl.
    let until = Instant::now() + secs(5);
    while Instant::now() < until {
        held.ensure_valid(ms(1)).unwrap_or_else(|error| panic!("{way:?}: {error}"));
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(held.release().await, ReleaseOutcome::Released, "{way:?}");
    for node in [0, 2, 4] {
        within(secs(2), "everything is given back", || {
            lock_keys(&cluster.servers[node]).is_empty()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_nodes_may_be_broken_in_any_way() {
    for ways in WAYS.chunks(5) {
        let runs: Vec<_> = ways.iter().map(|way| tokio::spawn(two_of_five(*way))).collect();
        for run in runs {
            run.await.unwrap();
        }
    }
}

/// A server that takes its time to read its snapshot, and answers LOADING meanwhile.
fn loading() -> RedisServer {
    let server = RedisServer::redis()
        .config("enable-debug-command", "yes")
        .config("key-load-delay", "3000")
        .config("loading-process-events-interval-bytes", "1024")
        .accept_loading()
        .start();
    command(&server, &["DEBUG", "POPULATE", "20000"]);
    command(&server, &["SAVE"]);
    server.kill();
    server.restart();
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_never_worked_are_named_with_their_reason_and_otherwise_ignored() {
    let good = RedisServer::redis().start_many(3);
    let locked = RedisServer::redis().password("secret").start();
    let replica = RedisServer::redis().config("replicaof", "127.0.0.1 1").start();
    let shard = RedisServer::redis().config("cluster-enabled", "yes").start();
    let nobody = leasehold_testkit::ReservedPort::take();
    let slow = loading();
    let misfits = [
        (locked.addr(), "NOAUTH"),
        (replica.addr(), "replica"),
        (format!("user:wrong@{}", locked.addr()), "WRONGPASS"),
        (shard.addr(), "cluster mode"),
        (nobody.addr(), "connection refused"),
        ("nobody.invalid:6379".to_owned(), "no such host"),
        (slow.addr(), "LOADING"),
    ];
    for pair in misfits.chunks(2) {
        good.iter().for_each(RedisServer::flush_all);
        let client = || {
            let urls = pair.iter().map(|(addr, _)| format!("redis://{addr}"));
            let good = good.iter().map(RedisServer::url);
            let list = Locks::builder().timeout(secs(1)).max_ttl(ms(500)).max_clock_skew(ms(10));
            urls.chain(good).fold(list, Builder::url)
        };
        let locks = client().open().await.unwrap();
        // They cannot be trusted as new, because not all answer: so they sit it out.
        let guard = locks.lock("l").ttl(ms(500)).wait(secs(10)).acquire().await.unwrap();
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
        good[0].pause();
        good[1].pause();
        let error = locks.lock("l").ttl(ms(500)).try_acquire().await.unwrap_err().to_string();
        for (_, word) in pair {
            assert!(error.contains(word), "`{word}` is missing: {error}");
        }
        assert!(!error.contains("wrong"), "no password in errors: {error}");
        good[0].resume();
        good[1].resume();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_of_five_broken_every_node_is_named_with_its_reason() {
    let cluster = Cluster::behind_proxies(5);
    let locks = cluster.client().timeout(ms(500)).open().await.unwrap();
    votes(&locks, 5).await;
    let held = locks.lock("held").ttl(secs(3)).acquire().await.unwrap();
    break_node(&cluster, 0, Way::Killed);
    break_node(&cluster, 1, Way::Paused);
    break_node(&cluster, 2, Way::ReadOnly);
    let start = Instant::now();
    let error = locks.lock("l").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(start.elapsed() < ms(1500), "{:?}", start.elapsed());
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("lock `l`: 2 of 5 nodes answered, 3 needed"), "{text}");
    for addr in cluster.addrs() {
        assert!(text.contains(&addr), "{addr} is missing: {text}");
    }
    assert!(text.contains("READONLY") || text.contains("replica"), "{text}");
    let ok = text.matches(" ok ").count();
    assert_eq!(ok, 2, "{text}");
    // The lease that was held is lost in time, and says why.
    let loss = tokio::time::timeout(secs(4), held.lost()).await.expect("lost in time");
    assert!(loss.to_string().contains("could not be extended"), "{loss}");
    for node in [3, 4] {
        within(secs(2), "what was granted is given back", || {
            !lock_keys(&cluster.servers[node]).contains(&"leasehold:lock:l".to_owned())
        })
        .await;
    }
    // They come back, and so do the locks.
    cluster.servers[1].resume();
    command(&cluster.servers[2], &["REPLICAOF", "NO", "ONE"]);
    votes(&locks, 3).await;
    within(secs(5), "what was a replica has forgotten", || {
        matches!(locks.nodes()[2].state, leasehold::NodeState::Quarantined { .. })
    })
    .await;
    assert!(locks.lock("l").ttl(LONG).acquire().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_nodes_cost_no_waiting() {
    let cluster = Cluster::of(5);
    // A limit so long that waiting for it even once would be seen.
    let locks = cluster.client().timeout(secs(9)).open().await.unwrap();
    votes(&locks, 5).await;
    cluster.servers[0].pause();
    cluster.servers[4].pause();
    let start = Instant::now();
    for _ in 0..50 {
        let guard = locks.lock("l").ttl(LONG).acquire().await.unwrap();
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
    }
    assert!(start.elapsed() < secs(8), "{:?}", start.elapsed());
    cluster.servers[0].resume();
    cluster.servers[4].resume();
    for server in &cluster.servers {
        within(secs(5), "hung nodes were told everything in order", || {
            lock_keys(server).is_empty()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_replies_were_lost_is_given_back() {
    let cluster = Cluster::behind_proxies(5);
    let locks = cluster.client().timeout(ms(300)).open().await.unwrap();
    votes(&locks, 5).await;
    cluster.fault(0..5, &Fault::DropReplies);
    let error = locks.lock("l").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    for server in &cluster.servers {
        let fences = server.command(&["ZCARD", &server.fences_key()]).unwrap();
        assert_eq!(fences.as_int(), Some(1), "the acquire was carried out");
        within(secs(3), "and given back", || lock_keys(server).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_arrives_after_its_caller_gave_up_does_not_stay() {
    let cluster = Cluster::behind_proxies(5);
    let locks = cluster.client().timeout(ms(300)).open().await.unwrap();
    votes(&locks, 5).await;
    for _ in 0..5 {
        cluster.fault(0..3, &Fault::Stall);
        let error = locks.lock("l").ttl(LONG).try_acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        // Now everything arrives, late and in order.
        cluster.fault(0..3, &Fault::Pass);
        for server in &cluster.servers {
            within(secs(3), "the release was right behind", || lock_keys(server).is_empty()).await;
        }
        votes(&locks, 5).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_granted_after_its_ttl_is_never_held() {
    let cluster = Cluster::behind_proxies(3);
    let locks = cluster.client().timeout(secs(2)).open().await.unwrap();
    votes(&locks, 3).await;
    cluster.fault(0..3, &Fault::Delay(ms(400)));
    let start = Instant::now();
    let result = locks.lock("l").ttl(ms(500)).try_acquire().await;
    assert!(result.is_err(), "{result:?} after {:?}", start.elapsed());
    cluster.fault(0..3, &Fault::Pass);
    for server in &cluster.servers {
        within(secs(3), "nothing stays", || lock_keys(server).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_may_be_flushed_at_any_time() {
    let cluster = Cluster::of(5);
    let locks = cluster.open().await;
    let flush = || cluster.servers.iter().for_each(|server| command(server, &["SCRIPT", "FLUSH"]));
    for _ in 0..10 {
        flush();
        let guard = locks.lock("l").ttl(LONG).acquire().await.unwrap();
        flush();
        guard.extend().await.unwrap();
        flush();
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
    }
    for server in &cluster.servers {
        within(secs(3), "nothing stays", || lock_keys(server).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_dropped_while_nodes_hang_leave_nothing_behind() {
    let cluster = Cluster::behind_proxies(5);
    let locks = cluster.open().await;
    votes(&locks, 5).await;
    cluster.fault(0..3, &Fault::Stall);
    for i in 0..50 {
        let request = locks.lock(format!("l{i}")).ttl(LONG);
        let cut = tokio::time::timeout(ms(i % 7), request.acquire()).await;
        assert!(cut.is_err());
    }
    cluster.fault(0..3, &Fault::Pass);
    for server in &cluster.servers {
        within(secs(5), "nothing stays", || lock_keys(server).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releasing_races_the_keeper_thousands_of_times_and_always_wins() {
    let cluster = Cluster::of(5);
    let locks = cluster.client().timeout(secs(2)).open().await.unwrap();
    let races: Vec<_> = (0..60u64)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for turn in 0..60u64 {
                    // Extended every 100 ms; released around the first extension.
                    let request = locks.lock(format!("l{task}")).ttl(ms(300)).wait(LONG);
                    let guard = request.acquire().await.unwrap();
                    if turn % 3 == 0 {
                        let pause = 95 + (task * 7 + turn * 3) % 10;
                        tokio::time::sleep(ms(pause)).await;
                    } else {
                        let _ = tokio::time::timeout(ms(0), guard.extend()).await;
                    }
                    drop(guard);
                }
            })
        })
        .collect();
    for race in races {
        race.await.unwrap();
    }
    // A key that an extension brought back would be there until its Ttl, 300 ms, and be extended
    // by nobody. So look at once.
    for server in &cluster.servers {
        within(ms(2000), "nothing stays", || lock_keys(server).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_every_node_under_a_thousand_leases_only_tells_their_holders() {
    let cluster = Cluster::of(5);
    let locks = cluster.open().await;
    let ttl = secs(6);
    let mut guards = Vec::new();
    for i in 0..1000 {
        guards.push(locks.lock(format!("l{i}")).ttl(ttl).acquire().await.unwrap());
    }
    // Some extensions happen first.
    tokio::time::sleep(secs(3)).await;
    guards.iter().for_each(|guard| assert!(guard.validity() > ms(1500), "{guard:?}"));
    cluster.servers.iter().for_each(RedisServer::kill);
    let killed = Instant::now();
    for guard in &guards {
        let loss = tokio::time::timeout(secs(10), guard.lost()).await.expect("told");
        assert!(loss.to_string().contains("could not be extended"), "{loss}");
        assert!(guard.validity().is_zero());
    }
    // The nodes would have kept the keys for the whole Ttl after the last extension.
    assert!(killed.elapsed() < ttl + ms(200), "{:?}", killed.elapsed());
    drop(guards);
    let error = locks.lock("l").ttl(ttl).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("0 of 5 nodes answered"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicting_node_is_reported_and_in_strict_mode_refused() {
    let cluster = Cluster::of(3);
    let (lenient, strict) =
        (cluster.open().await, cluster.client().strict(true).open().await.unwrap());
    votes(&strict, 3).await;
    let server = &cluster.servers[1];
    command(server, &["CONFIG", "SET", "maxmemory", "100mb"]);
    command(server, &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    within(secs(15), "the policy is noticed", || {
        matches!(strict.nodes()[1].state, NodeState::Refused { .. })
            && lenient.nodes()[1].warning.is_some()
    })
    .await;
    let NodeState::Refused { why } = &strict.nodes()[1].state else { unreachable!() };
    assert!(why.contains("volatile-ttl") && why.contains("noeviction"), "{why}");
    assert_eq!(lenient.nodes()[1].state, NodeState::Up);
    assert!(strict.lock("l").ttl(LONG).try_acquire().await.unwrap().is_some(), "two of three");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_keys_at_the_locks_key_are_named_and_left_alone() {
    let cluster = Cluster::of(5);
    let locks = cluster.open().await;
    let all = |words: &[&str]| cluster.servers.iter().for_each(|server| command(server, words));
    all(&["HSET", "leasehold:lock:hash", "a", "b"]);
    all(&["SET", "leasehold:lock:eternal", "mine"]);
    all(&["SET", "leasehold:lock:other", "\u{fffd}\u{1}", "PX", "60000"]);
    for (name, word) in [
        ("hash", "held by a foreign key of type hash, no TTL"),
        ("eternal", "held by another library's lock `mine`, no TTL"),
        ("other", "held by another library's lock `\\xef\\xbf\\xbd\\x01`"),
    ] {
        assert!(locks.lock(name).ttl(LONG).try_acquire().await.unwrap().is_none());
        let error = locks.lock(name).ttl(LONG).wait(ms(10)).acquire().await.unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.is_held());
        let status = locks.inspect(name).await.unwrap();
        assert!(status.holder().is_some(), "{status:?}");
    }
    for server in &cluster.servers {
        assert_eq!(server.get("leasehold:lock:eternal").as_deref(), Some("mine"));
        let kind = server.command(&["TYPE", "leasehold:lock:hash"]).unwrap();
        assert_eq!(kind.as_text(), Some("hash"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_gone_leave_no_connection_and_no_lock() {
    let cluster = Cluster::of(3);
    let connections = |server: &RedisServer| {
        let list = server.command(&["CLIENT", "LIST"]).unwrap();
        list.as_text().unwrap().lines().filter(|line| line.contains("name=leasehold")).count()
    };
    let first = cluster.open().await;
    for i in 0..20 {
        let locks = cluster.open().await;
        let guard = locks.lock(format!("l{i}")).ttl(LONG).acquire().await.unwrap();
        drop(locks);
        guard.ensure_valid(ms(1)).expect("a guard outlives the door it came through");
        drop(guard);
    }
    for server in &cluster.servers {
        within(secs(5), "one client, one connection", || connections(server) == 1).await;
        within(secs(5), "and no lock", || lock_keys(server).is_empty()).await;
    }
    drop(first);
    for server in &cluster.servers {
        within(secs(5), "nobody is left", || connections(server) == 0).await;
    }
}
