//! A server that is killed, and nodes behind it that are away.

use std::time::Instant;

use leasehold::{AcquireError, ExtendError, LeaseState, NodeState, ReleaseOutcome};
use leasehold_testkit::{Need, RedisServer, skip};

use super::served::{Served, file};
use super::{LONG, SOON, is_up, ms, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_survive_a_server_that_is_killed_and_started_again() {
    let (_folder, url) = file();
    let mut served = Served::on(url);
    let (ours, theirs) = (served.open().await, served.open().await);
    let mut guards = Vec::new();
    for lock in 0..20 {
        guards.push(ours.lock(format!("l{lock}")).ttl(ms(6_000)).acquire().await.unwrap());
    }
    for _ in 0..3 {
        served.kill();
        tokio::time::sleep(ms(700)).await;
        let error = theirs.lock("x").try_acquire().await.unwrap_err();
        assert!(error.to_string().contains("connection refused"), "{error}");
        served.start();
        is_up(&theirs).await;
        for guard in &guards {
            guard.ensure_valid(ms(0)).unwrap();
            let name = guard.name().as_str();
            assert!(theirs.lock(name).try_acquire().await.unwrap().is_none(), "{name}");
        }
    }
    // Longer than the Ttl since the first was killed: they were extended by another server.
    let until = Instant::now() + ms(6_500);
    while Instant::now() < until {
        guards.iter().for_each(|guard| _ = guard.ensure_valid(ms(0)).unwrap());
        tokio::time::sleep(ms(100)).await;
    }
    for guard in guards {
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_at_its_deadline_if_the_server_stays_away_and_the_next_fence_is_higher() {
    let (_folder, url) = file();
    let mut served = Served::on(url);
    let (ours, theirs) = (served.open().await, served.open().await);
    let guard = ours.lock("l").ttl(ms(1_500)).acquire().await.unwrap();
    served.kill();
    let killed = Instant::now();
    let loss = tokio::time::timeout(SOON, guard.lost()).await.expect("it is told");
    assert!(killed.elapsed() < ms(2_500), "{:?}", killed.elapsed());
    assert!(loss.to_string().contains("connection refused"), "the evidence: {loss}");
    assert_eq!(guard.state(), LeaseState::Lost);
    assert!(matches!(guard.extend().await, Err(ExtendError::Lost(_))));
    served.start();
    is_up(&theirs).await;
    let next = theirs.lock("l").ttl(LONG).wait(SOON).acquire().await.unwrap();
    assert!(next.fence() > guard.fence());
    match guard.release().await {
        ReleaseOutcome::TakenOver { .. } => {}
        other => panic!("{other:?}"),
    }
    next.ensure_valid(ms(0)).unwrap();
    assert_eq!(next.release().await, ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_behind_the_server_each_node_is_named_and_a_lease_is_kept_through_it() {
    if skip(Need::Redis) {
        return;
    }
    let servers = RedisServer::redis().start_many(5);
    let addrs: Vec<_> = servers.iter().map(RedisServer::addr).collect();
    let served = Served::on(format!("redis://{}?timeout=300ms", addrs.join(",")));
    let ours = served.open().await;
    let guard = ours.lock("l").ttl(LONG).manual().acquire().await.unwrap();
    servers[..3].iter().for_each(RedisServer::pause);
    let error = ours.lock("m").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error:?}");
    for addr in &addrs[..3] {
        assert!(error.to_string().contains(addr.as_str()), "no {addr} in: {error}");
    }
    let error = guard.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error:?}");
    assert!(matches!(guard.state(), LeaseState::Uncertain { .. }), "{guard:?}");
    // Soon the server itself says that it is of no use.
    soon("the server has no quorum", || async {
        matches!(&ours.nodes()[0].state, NodeState::Down { error }
            if error.to_string().contains("2 of 5 nodes available, 3 needed"))
    })
    .await;
    servers[..3].iter().for_each(RedisServer::resume);
    is_up(&ours).await;
    soon("it is extended again", || async { guard.extend().await.is_ok() }).await;
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_taken_directly_and_one_taken_through_a_server_exclude_each_other() {
    let (_folder, url) = file();
    let served = Served::on(&url);
    let (through, directly) = (served.open().await, leasehold::Locks::open(url).await.unwrap());
    let mut last = leasehold::Fence::ZERO;
    for turn in 0..10 {
        let (first, second) =
            if turn % 2 == 0 { (&through, &directly) } else { (&directly, &through) };
        let guard = first.lock("l").ttl(LONG).holder("ana").acquire().await.unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        let refused = second.lock("l").ttl(LONG).wait(ms(1)).acquire().await.unwrap_err();
        assert!(refused.to_string().contains("held by ana"), "{refused}");
        // What one let go of, the other extends and gives back.
        let token = guard.detach();
        second.extend(&token).await.unwrap();
        assert_eq!(second.release(&token).await, ReleaseOutcome::Released);
    }
}
