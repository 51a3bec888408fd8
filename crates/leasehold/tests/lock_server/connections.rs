//! What a broken or slow connection leaves behind: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use leasehold::{AcquireError, ExtendError, Locks, NodeState, ReleaseOutcome};
use leasehold_server::Settings;
use leasehold_testkit::{Fault, Proxy};

use super::served::Served;
use super::{LONG, SOON, is_given_back, is_up, ms, soon};

struct Behind {
    served: Served,
    proxy: Proxy,
}

impl Behind {
    fn new() -> Self {
        let served = Served::on("memory:");
        let proxy = Proxy::to(served.addr());
        Self { served, proxy }
    }

    /// Through the proxy.
    async fn open(&self) -> Locks {
        Locks::open(format!("http://{}", self.proxy.addr())).await.expect("open")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_dropped_while_the_server_is_slow_leaves_nothing_behind() {
    let behind = Behind::new();
    let (ours, theirs) = (behind.open().await, behind.served.open().await);
    for _ in 0..5 {
        behind.proxy.set(Fault::Delay(ms(50)));
        let request = ours.lock("l").ttl(LONG).try_acquire();
        let cut = tokio::time::timeout(ms(20), request).await;
        assert!(cut.is_err(), "it cannot be answered by now");
        behind.proxy.set(Fault::Pass);
        // Whether it comes before that or after, it does not stay for its Ttl, nor takes anything away.
        let guard = theirs.lock("l").ttl(LONG).wait(SOON).acquire().await.expect("given back");
        tokio::time::sleep(ms(120)).await;
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_answer_is_lost_is_given_back_and_not_asked_for_again() {
    let behind = Behind::new();
    let (ours, theirs) = (behind.open().await, behind.served.open().await);
    let mut cut = 0;
    for _ in 0..10 {
        is_up(&ours).await;
        behind.proxy.set(Fault::CutAfterRequest);
        // The one request may have been a probe.
        match ours.lock("l").ttl(LONG).try_acquire().await {
            Ok(guard) => drop(guard.expect("free")),
            Err(error) => {
                assert!(error.to_string().contains("the server closed the connection"), "{error}");
                cut += 1;
            }
        }
        behind.proxy.set(Fault::Pass);
        is_given_back(&theirs, "l").await;
    }
    assert!(cut > 0, "no acquire was cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_follows_an_acquire_that_is_never_answered() {
    let behind = Behind::new();
    let (ours, theirs) = (behind.open().await, behind.served.open().await);
    behind.proxy.set(Fault::DropReplies);
    let start = Instant::now();
    let error = ours.lock("l").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains("timed out after 1"), "{error}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let held = theirs.inspect("l").await.unwrap();
    assert!(held.owner().is_some(), "the server granted it");
    behind.proxy.set(Fault::Pass);
    is_given_back(&theirs, "l").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_lease_survives_connections_that_break() {
    let behind = Behind::new();
    let (ours, theirs) = (behind.open().await, behind.served.open().await);
    let guard = ours.lock("l").ttl(ms(3_000)).acquire().await.unwrap();
    let until = Instant::now() + ms(7_000);
    while Instant::now() < until {
        behind.proxy.set(Fault::Refuse);
        tokio::time::sleep(ms(150)).await;
        behind.proxy.set(Fault::Pass);
        tokio::time::sleep(ms(150)).await;
        guard.ensure_valid(ms(0)).unwrap();
        assert!(theirs.lock("l").try_acquire().await.unwrap().is_none());
    }
    is_up(&ours).await;
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_answers_in_a_servers_place_grants_nothing_and_is_named() {
    let behind = Behind::new();
    let ours = behind.open().await;
    for (bytes, words) in [
        (&b"\x00\xff\x00\xff\r\n\r\n"[..], "no HTTP"),
        (b"+OK\r\n", "no HTTP"),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", "it answered 201 Created"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "no JSON"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "302 Found"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "502 Bad Gateway"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "timed out"),
    ] {
        behind.proxy.set(Fault::Garbage(bytes.to_vec()));
        let asks = async || ours.lock("l").ttl(LONG).try_acquire().await;
        let answer = tokio::time::timeout(SOON, asks()).await.expect("it answers");
        assert!(answer.is_err(), "{answer:?} by {}", bytes.escape_ascii());
        soon(words, || async {
            matches!(&ours.nodes()[0].state, NodeState::Down { error } if error.to_string().contains(words))
        })
        .await;
        assert!(asks().await.is_err());
        behind.proxy.set(Fault::Pass);
        is_up(&ours).await;
    }
    is_up(&ours).await;
    let guard = ours.lock("l").ttl(LONG).acquire().await.expect("the server is back");
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

/// What stands before a server knows nothing of leases, whatever status it makes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_a_proxy_made_up_ends_no_lease_and_no_release() {
    let behind = Behind::new();
    let ours = behind.open().await;
    for status in ["502 Bad Gateway", "504 Gateway Timeout", "410 Gone"] {
        for body in ["", "<h1>No</h1>", "{\"status\": 504}"] {
            let length = body.len();
            let page = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
            let guard = ours.lock("l").ttl(LONG).wait(SOON).acquire().await.expect("free");
            behind.proxy.set(Fault::Garbage(page.clone().into_bytes()));
            match guard.extend().await {
                Err(ExtendError::NoQuorum { .. }) => {}
                other => panic!("{page}: {other:?}"),
            }
            guard.ensure_valid(ms(0)).expect("nobody said that it is lost");
            // The proxy finds the server again while the release is tried.
            let released = tokio::spawn(guard.release());
            tokio::time::sleep(ms(300)).await;
            behind.proxy.set(Fault::Pass);
            let outcome = released.await.expect("it ends");
            if status.starts_with('5') {
                assert_eq!(outcome, ReleaseOutcome::Released, "{page}");
            } else {
                assert!(matches!(outcome, ReleaseOutcome::Unknown { .. }), "{page}: {outcome:?}");
                let held = behind.served.open().await.inspect("l").await.expect("a quorum");
                let fence = held.fence().expect("it is held");
                behind.served.open().await.force_release("l", fence).await.expect("a quorum");
            }
            is_up(&ours).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_may_come_byte_by_byte() {
    let behind = Behind::new();
    let ours = behind.open().await;
    behind.proxy.set(Fault::OneByteAtATime);
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    assert!(ours.lock("l").try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_server_closed_while_it_was_idle_costs_nothing() {
    let mut settings = Settings::default();
    settings.limits.head_within = ms(100);
    let served = Served::with("memory:", settings);
    let ours = served.open().await;
    for turn in 0..40 {
        let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
        // About when the server closes it. A release and a look may be sent twice.
        tokio::time::sleep(ms(90 + turn % 5 * 5)).await;
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
        tokio::time::sleep(ms(90 + turn % 5 * 5)).await;
        assert!(ours.inspect("l").await.unwrap().owner().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn more_requests_than_connections_are_all_answered() {
    let served = Served::on("memory:");
    let ours = served.open().await;
    let tasks: Vec<_> = (0..400)
        .map(|task| {
            let request = ours.lock(format!("l{task}")).ttl(LONG);
            tokio::spawn(async move { request.acquire().await.unwrap().release().await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn through_all_faults_one_holds_at_a_time_and_fences_grow() {
    let behind = Behind::new();
    let (inside, highest, done) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicUsize::new(0));
    let shared = Arc::new((inside, highest, done));
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (locks, shared) = (behind.open().await, shared.clone());
        tasks.push(tokio::spawn(async move {
            let (inside, highest, done) = &*shared;
            while done.load(Ordering::SeqCst) < 60 {
                let request = locks.lock("l").ttl(ms(2_000)).wait(ms(500));
                let Ok(guard) = request.acquire().await else { continue };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                let before = highest.fetch_max(guard.fence().get(), Ordering::SeqCst);
                assert!(before < guard.fence().get(), "{before} then {}", guard.fence());
                tokio::time::sleep(ms(3)).await;
                guard.ensure_valid(ms(100)).expect("it was just acquired");
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
        }));
    }
    let faults = [
        Fault::CutAfterRequest,
        Fault::Pass,
        Fault::Delay(ms(30)),
        Fault::Refuse,
        Fault::Pass,
        Fault::DropReplies,
        Fault::Pass,
        Fault::Stall,
        Fault::Pass,
    ];
    let start = Instant::now();
    for fault in faults.iter().cycle() {
        if shared.2.load(Ordering::SeqCst) >= 60 {
            break;
        }
        assert!(start.elapsed() < 6 * SOON, "{} acquisitions", shared.2.load(Ordering::SeqCst));
        behind.proxy.set(fault.clone());
        let pause = if *fault == Fault::Pass { ms(300) } else { ms(60) };
        tokio::time::sleep(pause).await;
    }
    behind.proxy.set(Fault::Pass);
    for task in tasks {
        task.await.unwrap();
    }
    let theirs = behind.served.open().await;
    soon("nothing is left behind", || async {
        theirs.inspect("l").await.is_ok_and(|seen| seen.owner().is_none())
    })
    .await;
}
