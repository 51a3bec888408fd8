//! Whoever waits is woken by the server's events, and not by the clock.

use std::time::{Duration, Instant};

use super::served::Served;
use super::{LONG, SOON, is_up, ms};

/// By the clock each of these rounds would take at least 0.75 s.
const FAR_LESS: Duration = ms(400);

/// How often the server was asked for one lock: what a waiter does once, when it has subscribed.
fn looks(served: &Served) -> u64 {
    let series = r#"http_requests_total{route="/v1/locks/{name}",method="GET",code="200"} "#;
    let text = leasehold_testkit::http_get(&served.addr(), "/metrics").unwrap().body;
    text.lines().find_map(|line| line.strip_prefix(series)).map_or(0, |n| n.parse().unwrap())
}

/// How long it takes a waiter to get what `free` frees, `rounds` times.
async fn rounds(served: &Served, rounds: u32, free: Free) -> Duration {
    let (ours, theirs) = (served.open().await, served.open().await);
    let mut took = Duration::ZERO;
    for round in 0..rounds {
        let name = format!("l{round}");
        let guard = ours.lock(&name).ttl(LONG).acquire().await.unwrap();
        let before = looks(served);
        let waiter = super::waiter(&theirs, &name).await;
        super::soon("it has subscribed", async || looks(served) > before).await;
        let freed = Instant::now();
        match free {
            Free::Release => _ = guard.release().await,
            Free::Drop => drop(guard),
            Free::Force => assert!(ours.force_release(&name, guard.fence()).await.unwrap()),
        }
        let next = tokio::time::timeout(SOON, waiter).await.expect("woken").unwrap().unwrap();
        took += freed.elapsed();
        drop(next);
    }
    took
}

#[derive(Clone, Copy)]
enum Free {
    Release,
    Drop,
    Force,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_whoever_waits_elsewhere() {
    let served = Served::on("memory:");
    for free in [Free::Release, Free::Drop, Free::Force] {
        let took = rounds(&served, 5, free).await;
        assert!(took < 5 * FAR_LESS, "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_freed_before_anybody_subscribed_is_noticed() {
    let served = Served::on("memory:");
    let (ours, theirs) = (served.open().await, served.open().await);
    let mut took = Duration::ZERO;
    for round in 0..10 {
        let name = format!("l{round}");
        let guard = ours.lock(&name).ttl(LONG).acquire().await.unwrap();
        let waiter = super::waiter(&theirs, &name).await;
        // Now, while it subscribes.
        let freed = Instant::now();
        drop(guard);
        drop(tokio::time::timeout(SOON, waiter).await.expect("woken").unwrap().unwrap());
        took += freed.elapsed();
    }
    assert!(took < 10 * FAR_LESS, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_process_follow_each_other_without_being_refused() {
    let served = Served::on("memory:");
    let ours = served.open().await;
    let first = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let (refused, mut refusals) = tokio::sync::mpsc::unbounded_channel();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let refused = refused.clone();
            let request = ours.lock("l").ttl(LONG).wait(LONG);
            let request = request.on_refusal(move |error| _ = refused.send(error.to_string()));
            tokio::spawn(async move { request.acquire().await.map(|guard| guard.fence()) })
        })
        .collect();
    drop(refused);
    drop(first);
    let mut last = leasehold::Fence::ZERO;
    let mut fences = Vec::new();
    for waiter in waiters {
        fences.push(waiter.await.unwrap().unwrap());
    }
    fences.sort_unstable();
    for fence in fences {
        assert!(fence > last);
        last = fence;
    }
    let refusal = refusals.recv().await;
    assert_eq!(refusal, None, "an acquire waits for the release that was asked for before it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_its_lock_from_a_server_that_was_away_meanwhile() {
    let (_folder, url) = super::served::file();
    let mut served = Served::on(url);
    let (ours, theirs) = (served.open().await, served.open().await);
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let waiter = super::waiter(&theirs, "l").await;
    served.kill();
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished(), "an outage is waited for");
    served.start();
    is_up(&ours).await;
    drop(guard);
    drop(tokio::time::timeout(SOON, waiter).await.expect("in time").unwrap().unwrap());
}
