//! Nodes that forget, and nodes whose clocks jump: they must not vote before what they forgot is
//! over, and fences must grow all the same.

mod real;

use std::time::{Duration, Instant};

use leasehold::{AcquireError, Builder, NodeState};
use leasehold_testkit::{Fault, Proxy, RedisServer};
use real::{Cluster, LONG, PATIENCE, lock_keys, ms, secs, votes, within};

/// The longest Ttl in these tests, and so the quarantine: 2 s + 1 % + 2 ms + twice 50 ms.
const MAX_TTL: Duration = secs(2);
const QUARANTINE: Duration = ms(2122);

fn client(cluster: &Cluster) -> Builder {
    cluster.client().max_ttl(MAX_TTL).max_clock_skew(ms(50))
}

fn is_quarantined(node: &leasehold::NodeHealth) -> bool {
    matches!(node.state, NodeState::Quarantined { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarted_empty_does_not_vote_before_its_quarantine_is_over() {
    let cluster = Cluster::of(5);
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 5).await;
    let before = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    let fence = before.fence();
    let _ = before.release().await;
    let restarted = Instant::now();
    for node in [0, 1, 2] {
        cluster.servers[node].restart_empty();
    }
    within(secs(5), "all three are found out", || locks.nodes()[..3].iter().all(is_quarantined))
        .await;
    let error = locks.lock("l").ttl(MAX_TTL).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
    assert!(error.to_string().contains("lost its memory: it does not vote for another"), "{error}");
    let other = client(&cluster).open().await.unwrap();
    let guard = other.lock("l").ttl(MAX_TTL).acquire().await.expect("waits it out");
    assert!(restarted.elapsed() >= QUARANTINE, "{:?}", restarted.elapsed());
    assert!(guard.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_survives_one_restart_and_a_second_holder_is_kept_out_after_two() {
    let cluster = Cluster::of(5);
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 5).await;
    let held = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    let rival = client(&cluster).open().await.unwrap();
    let keeps_out = async |held: &leasehold::Guard| {
        let until = Instant::now() + QUARANTINE + ms(500);
        while Instant::now() < until {
            let refused = rival.lock("l").ttl(MAX_TTL).try_acquire().await;
            assert!(
                matches!(refused, Ok(None) | Err(AcquireError::NoQuorum { .. })),
                "a second holder: {refused:?}"
            );
            held.ensure_valid(Duration::ZERO).expect("the first holds on");
            tokio::time::sleep(ms(20)).await;
        }
    };
    cluster.servers[0].restart_empty();
    keeps_out(&held).await;
    cluster.servers[1].restart_empty();
    keeps_out(&held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_lives_through_empty_restarts_of_all_five_nodes_one_after_the_other() {
    let cluster = Cluster::of(5);
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 5).await;
    let held = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    let fence = held.fence();
    for server in &cluster.servers {
        server.restart_empty();
        within(secs(15), "the node that forgot knows the lease again", || {
            held.ensure_valid(Duration::ZERO).expect("held all the time");
            !lock_keys(server).is_empty()
        })
        .await;
    }
    assert_eq!(held.fence(), fence, "the holder's fence stays");
    assert!(locks.lock("l").ttl(MAX_TTL).try_acquire().await.unwrap().is_none());
    let shown = locks.inspect("l").await.unwrap();
    let raised = shown.fence_of(shown.owner().expect("an owner").0);
    assert!(raised > Some(fence), "the nodes have a fresh token for it: {raised:?}, first {fence}");
    // What was refreshed can be handed on, too.
    let token = held.detach();
    locks.extend(&token).await.expect("a quorum knows the token");
    let outcome = locks.release(&token).await;
    assert!(matches!(outcome, leasehold::ReleaseOutcome::Released), "{outcome:?}");
    let next = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    assert!(Some(next.fence()) > raised);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushing_takes_the_vote_although_the_connection_lives_on() {
    let cluster = Cluster::of(5);
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 5).await;
    // Examined before the flush: only the node itself can tell that it is another one now.
    let rival = client(&cluster).open().await.unwrap();
    votes(&rival, 5).await;
    let held = locks.lock("l").ttl(MAX_TTL).manual().acquire().await.unwrap();
    for node in [0, 1, 2] {
        cluster.servers[node].flush_all();
    }
    while held.ensure_valid(Duration::ZERO).is_ok() {
        let refused = rival.lock("l").ttl(MAX_TTL).try_acquire().await;
        assert!(matches!(refused, Ok(None) | Err(AcquireError::NoQuorum { .. })), "{refused:?}");
    }
    let next = rival.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    assert!(next.fence() > held.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_an_hour_ahead_leaves_no_fence_that_forgetful_nodes_would_undercut() {
    let cluster = Cluster::of(3);
    let ahead = std::sync::Arc::new(real::WrongWall { offset_secs: 3600 });
    let hasty = client(&cluster).clock(ahead).open().await.unwrap();
    votes(&hasty, 3).await;
    let fence = hasty.lock("l").ttl(MAX_TTL).acquire().await.unwrap().fence();
    drop(hasty);
    cluster.servers.iter().for_each(RedisServer::restart_empty);
    // A client that remembers nothing, on nodes that remember nothing.
    let fresh = cluster.client().max_clock_skew(ms(50)).max_ttl(MAX_TTL).open().await.unwrap();
    let later = fresh.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    assert!(later.fence() > fence, "{} after {fence}", later.fence());
}

/// Nobody can tell a node's own files from an old backup of them, or from another node's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_every_write_on_disk_keeps_its_locks_and_sits_out_its_quarantine_all_the_same()
 {
    let servers = RedisServer::redis().append_fsync("always").start_many(3);
    let cluster = Cluster { servers, proxies: Vec::new() };
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 3).await;
    let held = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    cluster.servers[0].kill();
    cluster.servers[0].restart();
    let back = Instant::now();
    within(secs(5), "it is found out", || is_quarantined(&locks.nodes()[0])).await;
    votes(&locks, 3).await;
    assert!(back.elapsed() >= QUARANTINE, "{:?}", back.elapsed());
    held.extend().await.expect("two of three kept it meanwhile");
    within(secs(5), "the third has it, too", || {
        cluster.servers[0].get("leasehold:lock:l").is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_from_a_lazy_disk_begins_a_new_life() {
    let servers = RedisServer::redis().append_fsync("everysec").start_many(3);
    let cluster = Cluster { servers, proxies: Vec::new() };
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 3).await;
    let record = cluster.servers[0].get("leasehold:node").unwrap();
    cluster.servers[0].kill();
    cluster.servers[0].restart();
    within(secs(5), "it is found out", || is_quarantined(&locks.nodes()[0])).await;
    let after = cluster.servers[0].get("leasehold:node").unwrap();
    let life =
        |record: &str| record.split(' ').find(|w| w.starts_with("life=")).unwrap().to_owned();
    assert_ne!(life(&record), life(&after));
    votes(&locks, 3).await;
}

/// A node's clock jumps by an hour while locks are held, and is put right again.
async fn jump(by: f64) {
    let servers = RedisServer::redis().with_clock_shim().start_many(3);
    let cluster = Cluster { servers, proxies: Vec::new() };
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 3).await;
    let held = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    cluster.servers[1].jump_clock(by);
    let why = |node: &leasehold::NodeHealth| match &node.state {
        NodeState::Quarantined { why, .. } => why.clone(),
        _ => String::new(),
    };
    within(secs(5), "the clocks are compared", || why(&locks.nodes()[1]).contains("the others"))
        .await;
    let node = &locks.nodes()[1];
    let why = why(node);
    let way = if by > 0.0 { "ahead of" } else { "behind" };
    assert!(why.contains(&format!("its clock is 3600 s {way} the others")), "{why}");
    let offset = node.clock_offset_micros.unwrap() as f64 / 1e6;
    assert!((offset - by).abs() < 5.0, "{offset}");
    held.ensure_valid(Duration::ZERO).expect("two of three keep it");
    // Its vote is gone: with another node down there is no quorum.
    cluster.servers[2].pause();
    within(secs(5), "it is missed", || matches!(locks.nodes()[2].state, NodeState::Down { .. }))
        .await;
    let error = locks.lock("m").ttl(MAX_TTL).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains(" the others: put it right"), "{error}");
    if by > 0.0 {
        held.extend().await.expect("what it keeps it keeps");
    }
    cluster.servers[2].resume();
    let put_right = Instant::now();
    cluster.servers[1].jump_clock(-by);
    votes(&locks, 3).await;
    if by < 0.0 {
        // What it kept meanwhile it has ended early now.
        assert!(put_right.elapsed() >= QUARANTINE, "{:?}", put_right.elapsed());
    }
    drop(held);
    let first = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    let fence = first.fence();
    drop(first);
    assert!(locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap().fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_forward_loses_its_vote_until_it_is_put_right() {
    jump(3600.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_back_loses_its_vote_until_it_is_put_right() {
    jump(-3600.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_stands_still_takes_the_vote() {
    let servers = RedisServer::redis().with_clock_shim().start_many(3);
    let cluster = Cluster { servers, proxies: Vec::new() };
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 3).await;
    let held = locks.lock("l").ttl(MAX_TTL).acquire().await.unwrap();
    let still = Instant::now();
    let stands_still = || cluster.servers[1].set_clock_offset(-still.elapsed().as_secs_f64());
    within(secs(5), "it is noticed", || {
        stands_still();
        is_quarantined(&locks.nodes()[1])
    })
    .await;
    let NodeState::Quarantined { why, .. } = &locks.nodes()[1].state else { unreachable!() };
    assert!(why.contains(" behind the others"), "{why}");
    // As long as that lasts it is noticed again and again, so it stays out.
    let until = Instant::now() + QUARANTINE + secs(1);
    while Instant::now() < until {
        stands_still();
        assert!(is_quarantined(&locks.nodes()[1]));
        tokio::time::sleep(ms(2)).await;
    }
    held.ensure_valid(Duration::ZERO).expect("two of three keep it");
    cluster.servers[1].set_clock_offset(0.0);
    votes(&locks, 3).await;
}

/// Nobody looks at a node's clock more often than once a second. Until then the lease of one whose
/// nodes jumped ahead is gone, and nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_a_jump_is_noticed_two_may_hold_and_the_fence_tells_them_apart() {
    let servers = RedisServer::redis().with_clock_shim().start_many(3);
    let cluster = Cluster { servers, proxies: Vec::new() };
    let ours = client(&cluster).open().await.unwrap();
    let theirs = client(&cluster).open().await.unwrap();
    for attempt in 0..10 {
        votes(&ours, 3).await;
        votes(&theirs, 3).await;
        let name = format!("l{attempt}");
        let held = ours.lock(&name).ttl(MAX_TTL).manual().acquire().await.unwrap();
        cluster.servers[..2].iter().for_each(|server| server.jump_clock(3600.0));
        // Now and then somebody happens to look just in time. For another attempt all must vote.
        let Ok(Some(second)) = theirs.lock(&name).ttl(MAX_TTL).try_acquire().await else {
            cluster.servers[2].jump_clock(3600.0);
            continue;
        };
        held.ensure_valid(Duration::ZERO).expect("two holders");
        assert!(second.fence() > held.fence(), "storage can tell them apart");
        let refused = held.extend().await.unwrap_err().to_string();
        assert!(refused.contains("superseded"), "and the first one cannot go on: {refused}");
        return;
    }
    panic!("ten times in a row the jump was noticed within milliseconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_word_a_fresh_cluster_waits_and_names_the_way_out() {
    let cluster = Cluster::of(3);
    let settings = leasehold::Locks::builder().url(cluster.url()).timeout(PATIENCE);
    let locks = settings.clone().open().await.unwrap();
    let error = locks.lock("l").ttl(secs(5)).try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("it is new or lost its memory"), "{error}");
    locks.init().await.unwrap();
    assert!(locks.lock("l").ttl(secs(5)).try_acquire().await.unwrap().is_some());
    assert!(settings.open().await.unwrap().lock("m").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_fences_are_dropped_behind_a_raised_floor() {
    let cluster = Cluster::of(3);
    let settings = cluster.client().fence_retention(ms(800)).forget_every(ms(100));
    let locks = settings.open().await.unwrap();
    votes(&locks, 3).await;
    let kept = locks.lock("kept").ttl(LONG).acquire().await.unwrap();
    let fence = {
        let guard = locks.lock("idle").ttl(LONG).acquire().await.unwrap();
        let fence = guard.fence();
        let _ = guard.release().await;
        fence
    };
    for server in &cluster.servers {
        within(secs(15), "the idle fence goes", || {
            let score = |name| server.command(&["ZSCORE", &server.fences_key(), name]).unwrap();
            score("leasehold:lock:idle").as_text().is_none()
        })
        .await;
        let held =
            server.command(&["ZSCORE", &server.fences_key(), "leasehold:lock:kept"]).unwrap();
        assert!(held.as_text().is_some(), "a held lock keeps its fence");
    }
    kept.extend().await.expect("and can be extended");
    let again = locks.lock("idle").ttl(LONG).acquire().await.unwrap();
    assert!(again.fence() > fence, "forgotten, yet never given again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_node_that_took_the_data_of_another_lets_no_second_holder_in() {
    let builder = RedisServer::redis().append_fsync("always");
    let servers = builder.config("repl-diskless-sync-delay", "0").start_many(3);
    let proxies = servers.iter().map(|server| Proxy::to(server.addr())).collect();
    let cluster = Cluster { servers, proxies };
    let locks = client(&cluster).open().await.unwrap();
    votes(&locks, 3).await;
    cluster.fault(2..3, &Fault::Refuse);
    let held = locks.lock("l").ttl(MAX_TTL).manual().acquire().await.unwrap();
    // The second node votes for the holder; the third knows nothing of it.
    let port = cluster.servers[2].port().to_string();
    cluster.servers[1].command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    within(secs(5), "it has the data of the third", || {
        cluster.servers[1].get("leasehold:lock:l").is_none()
    })
    .await;
    cluster.servers[1].command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    cluster.fault(2..3, &Fault::Pass);
    let rival = client(&cluster).open().await.unwrap();
    while held.ensure_valid(Duration::ZERO).is_ok() {
        let refused = rival.lock("l").ttl(MAX_TTL).try_acquire().await;
        assert!(!matches!(refused, Ok(Some(_))), "a second holder: {refused:?}");
    }
}
