//! The cases. Each is given a fresh backend and opens as many clients of it as it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{
    AcquireError, ExtendError, Fence, ForceReleaseError, LeaseState, LossReason, NodeState,
    ReleaseOutcome, RetryPolicy, RunError, ValidityError,
};

use crate::backends::Backend;
use crate::support::{CutOff, eventually, is_free, ms, owners, secs};

/// Long enough that nothing expires while a slow machine runs a case.
const LONG: Duration = secs(20);

/// Short enough to wait for its end.
const SHORT: Duration = ms(600);

/// Short enough to outlive, long enough to be kept on a machine that stops for a second.
const KEPT: Duration = ms(1_800);

pub(crate) async fn a_held_lock_is_refused_to_others_and_they_learn_who_holds_it(
    backend: &Backend,
) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(LONG).holder("ana").acquire().await.unwrap();
    assert!(theirs.lock("l").ttl(LONG).try_acquire().await.unwrap().is_none());
    assert!(ours.lock("l").ttl(LONG).try_acquire().await.unwrap().is_none(), "not re-entrant");
    let error = theirs.lock("l").ttl(LONG).wait(ms(50)).acquire().await.unwrap_err();
    assert!(error.is_held(), "{error}");
    assert!(error.to_string().contains("held by ana"), "{error}");
    assert!(theirs.lock("other").ttl(LONG).try_acquire().await.unwrap().is_some());
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

pub(crate) async fn a_released_lock_can_be_acquired_at_once(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    for _ in 0..20 {
        let guard = ours.lock("l").ttl(LONG).try_acquire().await.unwrap().expect("free");
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
        // A quorum said so; the rest may be a moment behind.
        let guard = theirs.lock("l").ttl(LONG).acquire().await.expect("free");
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
    }
}

pub(crate) async fn fences_grow_with_every_acquisition_by_whomever(backend: &Backend) {
    let clients = [backend.open().await, backend.open().await, backend.open().await];
    let mut last = Fence::ZERO;
    for turn in 0..60 {
        let guard = clients[turn % 3].lock("l").ttl(LONG).acquire().await.unwrap();
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        let _ = guard.release().await;
    }
}

pub(crate) async fn a_kept_lease_outlives_its_ttl_many_times(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(KEPT).acquire().await.unwrap();
    let until = Instant::now() + 3 * KEPT;
    while Instant::now() < until {
        assert!(theirs.lock("l").ttl(KEPT).try_acquire().await.unwrap().is_none());
        guard.ensure_valid(Duration::ZERO).unwrap();
        tokio::time::sleep(ms(40)).await;
    }
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

pub(crate) async fn a_lease_that_is_not_kept_is_lost_before_anybody_else_gets_it(
    backend: &Backend,
) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(SHORT).manual().acquire().await.unwrap();
    let token = guard.cancellation_token();
    assert!(!token.is_cancelled());
    let lost_at = async {
        let loss = guard.lost().await;
        assert_eq!(loss.fence, guard.fence());
        assert!(matches!(loss.reason, LossReason::Expired { .. }), "{loss}");
        Instant::now()
    };
    let taken_at = async {
        let guard = theirs.lock("l").ttl(SHORT).wait(LONG).acquire().await.unwrap();
        (Instant::now(), guard)
    };
    let (lost_at, (taken_at, next)) = tokio::join!(lost_at, taken_at);
    // The deadline lies before the expiry on every node by the drift allowance; whether this task
    // was woken in time is up to the scheduler.
    assert!(lost_at <= taken_at + ms(50), "lost {:?} too late", lost_at - taken_at);
    assert!(token.is_cancelled());
    assert_eq!(guard.state(), LeaseState::Lost);
    assert!(guard.validity().is_zero());
    assert!(next.fence() > guard.fence());
}

pub(crate) async fn an_extended_lease_outlives_its_first_deadline(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(KEPT).manual().acquire().await.unwrap();
    let until = Instant::now() + 2 * KEPT;
    while Instant::now() < until {
        tokio::time::sleep(KEPT / 6).await;
        let left = guard.extend().await.unwrap();
        assert!(left > KEPT / 2, "{left:?}");
        assert!(theirs.lock("l").ttl(KEPT).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

pub(crate) async fn a_lost_lease_cannot_be_extended(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(SHORT).manual().acquire().await.unwrap();
    guard.lost().await;
    assert!(matches!(guard.extend().await, Err(ExtendError::Lost(_))));
    // Also not when somebody had it meanwhile and gave it back.
    eventually("it expires", || is_free(&theirs, "l")).await;
    let between = theirs.lock("l").ttl(LONG).acquire().await.unwrap();
    let _ = between.release().await;
    assert!(matches!(guard.extend().await, Err(ExtendError::Lost(_))));
    assert!(matches!(guard.ensure_valid(Duration::ZERO), Err(ValidityError::Lost(_))));
    assert!(is_free(&theirs, "l").await, "nothing was healed back");
}

pub(crate) async fn max_hold_ends_a_lease_that_could_be_kept(backend: &Backend) {
    let ours = backend.open().await;
    let start = Instant::now();
    let guard = ours.lock("l").ttl(KEPT).max_hold(KEPT + SHORT).acquire().await.unwrap();
    let loss = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(loss.reason, LossReason::MaxHold { limit: KEPT + SHORT });
    assert!(start.elapsed() >= KEPT + SHORT, "{:?}", start.elapsed());
    drop(guard);
    eventually("it is given back", || is_free(&ours, "l")).await;
}

pub(crate) async fn ensure_valid_needs_no_node_and_respects_the_margin(backend: &Backend) {
    let ours = backend.open().await;
    let guard = ours.lock("l").ttl(LONG).manual().acquire().await.unwrap();
    let left = guard.ensure_valid(secs(1)).unwrap();
    assert!(left > secs(10) && left < LONG, "{left:?}");
    assert_eq!(guard.validity().as_secs(), left.as_secs());
    let error = guard.ensure_valid(LONG).unwrap_err();
    assert!(matches!(error, ValidityError::TooShort { .. }), "{error}");
    assert!(matches!(guard.state(), LeaseState::Held { .. }));
}

pub(crate) async fn releasing_tells_expired_from_taken_over(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let expired = ours.lock("a").ttl(SHORT).manual().acquire().await.unwrap();
    let taken = ours.lock("b").ttl(SHORT).manual().acquire().await.unwrap();
    expired.lost().await;
    taken.lost().await;
    eventually("a expires", || is_free(&theirs, "a")).await;
    eventually("b expires", || is_free(&theirs, "b")).await;
    let _next = theirs.lock("b").ttl(LONG).holder("bo").acquire().await.unwrap();
    // Every node must have heard of it, not just a quorum.
    eventually("b is bo's", || async { owners(&theirs, "b").await.len() == backend.nodes }).await;
    assert_eq!(expired.release().await, ReleaseOutcome::AlreadyExpired);
    match taken.release().await {
        ReleaseOutcome::TakenOver { by } => assert_eq!(by.to_string(), "bo"),
        other => panic!("{other:?}"),
    }
    assert_eq!(owners(&theirs, "b").await.len(), backend.nodes, "nobody releases another's lock");
}

pub(crate) async fn a_dropped_guard_gives_the_lock_back(backend: &Backend) {
    let ours = backend.open().await;
    drop(ours.lock("l").ttl(LONG).acquire().await.unwrap());
    eventually("it is given back", || is_free(&ours, "l")).await;
}

pub(crate) async fn a_guard_dropped_outside_any_runtime_gives_the_lock_back(backend: &Backend) {
    let ours = backend.open().await;
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually("it is given back", || is_free(&ours, "l")).await;
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    eventually("it is given back", || is_free(&ours, "l")).await;
}

pub(crate) async fn waiting_ends_as_soon_as_the_holder_releases(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(theirs.lock("l").ttl(LONG).wait(LONG).acquire());
    tokio::time::sleep(ms(100)).await;
    assert!(!waiter.is_finished());
    let _ = guard.release().await;
    let released = Instant::now();
    let guard = waiter.await.unwrap().unwrap();
    assert!(released.elapsed() < secs(3), "{:?}", released.elapsed());
    drop(guard);
}

pub(crate) async fn waiting_gives_up_in_time_and_names_the_holder(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let _guard = ours.lock("l").ttl(LONG).holder("ana").acquire().await.unwrap();
    let start = Instant::now();
    let error = theirs.lock("l").ttl(LONG).wait(ms(300)).acquire().await.unwrap_err();
    let waited = start.elapsed();
    assert!(waited >= ms(300) && waited < secs(3), "{waited:?}");
    match &error {
        AcquireError::TimedOut { attempts, last: Some(last), .. } => {
            assert!(*attempts > 1, "{attempts}");
            assert!(matches!(&**last, AcquireError::Held { owner: Some(_), .. }), "{last:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(error.to_string().contains("held by ana"), "{error}");
}

pub(crate) async fn five_attempts_are_five_attempts(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let _guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let quick = RetryPolicy { first: ms(10), longest: ms(80), ..RetryPolicy::FIVE_ATTEMPTS };
    let error = theirs.lock("l").ttl(LONG).retry(quick).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { attempts: 5, .. }), "{error:?}");
}

pub(crate) async fn waiters_of_one_process_are_served_in_order(backend: &Backend) {
    let ours = backend.open().await;
    let first = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for i in 0..8 {
        let (request, order) = (ours.lock("l").ttl(LONG).wait(LONG), order.clone());
        let (queued, is_queued) = tokio::sync::oneshot::channel();
        waiters.push(tokio::spawn(async move {
            let mut acquire = Box::pin(request.acquire());
            // Once polled it stands in the queue.
            assert!(futures_poll_once(acquire.as_mut()).await.is_none());
            queued.send(()).unwrap();
            let guard = acquire.await.unwrap();
            order.lock().unwrap().push(i);
            let _ = guard.release().await;
        }));
        is_queued.await.unwrap();
    }
    let _ = first.release().await;
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

async fn futures_poll_once<F: Future + Unpin>(future: F) -> Option<F::Output> {
    let mut future = future;
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

pub(crate) async fn only_one_of_many_holds_at_a_time(backend: &Backend) {
    let inside = Arc::new(AtomicUsize::new(0));
    let highest = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let locks = backend.open().await;
        for _ in 0..3 {
            let (locks, inside, highest) = (locks.clone(), inside.clone(), highest.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = locks.lock("l").ttl(LONG).wait(secs(60)).acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let before = highest.fetch_max(guard.fence().get(), Ordering::SeqCst);
                    assert!(before < guard.fence().get(), "{before} then {}", guard.fence());
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _ = guard.release().await;
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

pub(crate) async fn run_passes_the_result_through_and_gives_the_lock_back(backend: &Backend) {
    let ours = backend.open().await;
    let request = ours.lock("l").ttl(LONG);
    // Spawned: the future of `run` must be `Send`.
    let result = tokio::spawn(request.run(async |lease| {
        tokio::task::yield_now().await;
        Ok::<_, std::io::Error>(lease.fence())
    }));
    assert!(result.await.unwrap().unwrap() > Fence::ZERO);
    eventually("it is given back", || is_free(&ours, "l")).await;
}

pub(crate) async fn run_cancels_its_body_when_the_lease_is_lost(backend: &Backend) {
    let ours = backend.open().await;
    let went_on = Arc::new(AtomicBool::new(false));
    let flag = went_on.clone();
    let request = ours.lock("l").ttl(SHORT).manual();
    let result = request
        .run(async |_| {
            tokio::time::sleep(3 * SHORT).await;
            flag.store(true, Ordering::SeqCst);
            Ok::<_, std::io::Error>(())
        })
        .await;
    assert!(matches!(result, Err(RunError::Lost { output: None, .. })), "{result:?}");
    assert!(!went_on.load(Ordering::SeqCst));

    // A body that cannot be cancelled in time is found out.
    let request = ours.lock("m").ttl(SHORT).manual();
    let result = request
        .run(async |_| {
            std::thread::sleep(2 * SHORT);
            Ok::<_, std::io::Error>(7)
        })
        .await;
    assert!(matches!(result, Err(RunError::Lost { output: Some(Ok(7)), .. })), "{result:?}");
}

pub(crate) async fn run_never_masks_the_error_of_its_body(backend: &Backend) {
    let ours = backend.open().await;
    let failing = async |_: &leasehold::Guard| Err::<(), _>(std::io::Error::other("mine"));
    let result = ours.lock("l").ttl(LONG).run(failing).await;
    match result {
        Err(RunError::Body(error)) => assert_eq!(error.to_string(), "mine"),
        other => panic!("{other:?}"),
    }
    let _held = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let busy = backend.open().await.lock("l").wait(ms(30)).run(failing).await;
    assert!(matches!(&busy, Err(RunError::Acquire(error)) if error.is_held()), "{busy:?}");
}

pub(crate) async fn a_future_dropped_at_any_await_leaves_nothing_behind(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let blocker = theirs.lock("held").ttl(LONG).acquire().await.unwrap();
    let mut completed = 0;
    for polls in 0..40 {
        let free = ours.lock("free").ttl(LONG);
        if let Some(result) = CutOff::after(polls, free.clone().try_acquire()).await {
            completed += 1;
            drop(result.unwrap().expect("free"));
        }
        eventually("try_acquire leaves nothing", || is_free(&theirs, "free")).await;
        if let Some(result) = CutOff::after(polls, free.acquire()).await {
            completed += 1;
            drop(result.unwrap());
        }
        eventually("acquire leaves nothing", || is_free(&theirs, "free")).await;
        let held = ours.lock("held").ttl(LONG).wait(secs(60));
        let cut = CutOff::after(polls.min(5), held.acquire()).await;
        assert!(cut.is_none(), "{cut:?}");
        if completed > 20 {
            break;
        }
    }
    assert!(completed > 0, "no poll count was enough to acquire");
    assert!(
        owners(&theirs, "held")
            .await
            .iter()
            .all(|owner| *owner == (backend.shown)(blocker.holder()))
    );
}

pub(crate) async fn a_dropped_release_still_releases(backend: &Backend) {
    let ours = backend.open().await;
    for polls in 0..4 {
        let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
        let _ = CutOff::after(polls, guard.release()).await;
        eventually("it is given back", || is_free(&ours, "l")).await;
    }
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let _ = CutOff::after(1, guard.extend()).await;
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
    eventually("the extension does not come after the release", || is_free(&ours, "l")).await;
}

pub(crate) async fn inspect_tells_owner_time_and_fence_on_every_node(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let free = theirs.inspect("l").await.unwrap();
    assert!(free.owner().is_none() && free.fence().is_none() && free.expires_in().is_none());
    let guard = ours.lock("l").ttl(LONG).manual().holder("ana").acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    let status = theirs.inspect("l").await.unwrap();
    assert_eq!(status.nodes.len(), backend.nodes);
    let (owner, votes) = status.owner().unwrap();
    assert_eq!((owner, votes), (&(backend.shown)(guard.holder()), backend.nodes));
    assert_eq!(status.holder(), Some(owner));
    assert_eq!(status.fence(), Some(guard.fence()));
    let left = status.expires_in().unwrap();
    assert!(left > LONG / 2 && left <= LONG, "{left:?}");
    let fence = guard.fence();
    let _ = guard.release().await;
    eventually("free", || is_free(&theirs, "l")).await;
    assert_eq!(theirs.inspect("l").await.unwrap().fence(), Some(fence), "fences stay");
}

pub(crate) async fn list_shows_held_locks_by_prefix(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let mut guards = Vec::new();
    for name in ["job/b", "job/a", "jobless", "other"] {
        guards.push(ours.lock(name).ttl(LONG).acquire().await.unwrap());
    }
    let _ = ours.lock("job/free").ttl(LONG).acquire().await.unwrap().release().await;
    let names = |prefix: &'static str| {
        let theirs = theirs.clone();
        async move {
            let listed = theirs.list(prefix).await.unwrap();
            listed.iter().map(|status| status.name.to_string()).collect::<Vec<_>>()
        }
    };
    eventually("released", || is_free(&theirs, "job/free")).await;
    assert_eq!(names("job/").await, ["job/a", "job/b"]);
    assert_eq!(names("").await, ["job/a", "job/b", "jobless", "other"]);
    assert_eq!(names("nothing").await, Vec::<String>::new());
    let status = &theirs.list("other").await.unwrap()[0];
    assert_eq!(status.holder(), Some(&(backend.shown)(guards[3].holder())));
    assert_eq!(status.fence(), Some(guards[3].fence()));
}

pub(crate) async fn names_are_taken_literally(backend: &Backend) {
    let ours = backend.open().await;
    let names = [
        "a*",
        "a?b",
        "[ab]",
        "a\\b",
        "émile ☂",
        " a ",
        "node",
        "fences",
        "{a}",
        "a:b",
        "'\"--;",
        "%41",
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(ours.lock(name).ttl(LONG).try_acquire().await.unwrap().expect(name));
    }
    for name in ["ab", "axb", "a", "b", "A"] {
        assert!(is_free(&ours, name).await, "{name}");
    }
    let listed = ours.list("a*").await.unwrap();
    assert_eq!(listed.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a*"]);
    assert_eq!(ours.list("").await.unwrap().len(), names.len());
    assert_eq!(ours.list("[ab").await.unwrap().len(), 1);
}

pub(crate) async fn a_forced_release_frees_the_lock_and_stops_its_holder(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(KEPT).acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    assert!(theirs.force_release("l", guard.fence()).await.unwrap());
    let loss = tokio::time::timeout(LONG, guard.lost()).await.expect("the holder hears of it");
    assert!(loss.to_string().contains("superseded"), "{loss}");
    assert!(is_free(&theirs, "l").await, "the keeper did not heal it back");
    let next = theirs.lock("l").ttl(LONG).try_acquire().await.unwrap().expect("free");
    assert!(next.fence() > guard.fence());
    let nobody = theirs.force_release("free", Fence::ZERO).await;
    assert!(matches!(nobody, Ok(false)), "{nobody:?}");
}

pub(crate) async fn a_forced_release_with_an_old_fence_changes_nothing(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let old = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let old_fence = old.fence();
    let _ = old.release().await;
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    match theirs.force_release("l", old_fence).await {
        Err(ForceReleaseError::FenceMovedOn { found, .. }) => assert_eq!(found, guard.fence()),
        other => panic!("{other:?}"),
    }
    guard.extend().await.unwrap();
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

pub(crate) async fn a_release_after_a_forced_one_tells_who_holds_the_lock_now(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(LONG).manual().acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    assert!(theirs.force_release("l", guard.fence()).await.unwrap());
    let _next = theirs.lock("l").ttl(LONG).holder("bo").acquire().await.unwrap();
    eventually("it is bo's", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    guard.ensure_valid(Duration::ZERO).expect("nobody told it yet");
    match guard.release().await {
        ReleaseOutcome::TakenOver { by } => assert_eq!(by.to_string(), "bo"),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_release_after_another_came_and_went_tells_that_it_was_taken_away(
    backend: &Backend,
) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(LONG).manual().acquire().await.unwrap();
    let detached = ours.lock("d").ttl(LONG).manual().acquire().await.unwrap().detach();
    let all_nodes = |name| {
        let theirs = theirs.clone();
        async move { owners(&theirs, name).await.len() == backend.nodes }
    };
    let mut fences = Vec::new();
    for (name, fence) in [("l", guard.fence()), ("d", detached.fence)] {
        eventually("all nodes", || all_nodes(name)).await;
        assert!(theirs.force_release(name, fence).await.unwrap());
        let next = theirs.lock(name).ttl(LONG).acquire().await.unwrap();
        eventually("all nodes are the next one's", || all_nodes(name)).await;
        fences.push(next.fence());
        assert_eq!(next.release().await, ReleaseOutcome::Released);
        eventually("it is free", || is_free(&theirs, name)).await;
    }
    guard.ensure_valid(Duration::ZERO).expect("nobody told it yet");
    let superseded = |fence| ReleaseOutcome::Superseded { fence };
    assert_eq!(guard.release().await, superseded(fences[0]));
    assert_eq!(ours.release(&detached).await, superseded(fences[1]));
}

pub(crate) async fn bad_options_are_explained_before_anything_is_asked(backend: &Backend) {
    let ours = backend.open().await;
    let long_name = "x".repeat(513);
    for (request, word) in [
        (ours.lock(""), "empty"),
        (ours.lock(&long_name), "512 bytes"),
        (ours.lock("a\tb"), "control characters"),
        (ours.lock("l").ttl(Duration::ZERO), "at least 100ms"),
        (ours.lock("l").ttl(ms(99)), "at least 100ms"),
        (ours.lock("l").ttl(Duration::MAX), "at most"),
        (ours.lock("l").holder(""), "label"),
        (ours.lock("l").holder("é"), "printable ASCII"),
    ] {
        for error in [
            request.clone().try_acquire().await.unwrap_err(),
            request.clone().acquire().await.unwrap_err(),
        ] {
            assert!(matches!(error, AcquireError::Options(_)), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
    assert!(ours.inspect("").await.unwrap_err().to_string().contains("empty"));
}

pub(crate) async fn a_ttl_above_the_clusters_maximum_is_refused(backend: &Backend) {
    let ours = backend.open().await;
    let max = ours.max_ttl().expect("a node votes");
    let error = ours.lock("l").ttl(max + ms(1)).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("max_ttl"), "{error}");
    assert!(ours.lock("l").ttl(max).try_acquire().await.unwrap().is_some());
}

pub(crate) async fn a_lease_with_too_little_left_is_not_taken(backend: &Backend) {
    let ours = backend.open().await;
    let error =
        ours.lock("l").ttl(secs(10)).min_validity(secs(10)).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::TooLate { .. }), "{error:?}");
    eventually("it is given back", || is_free(&ours, "l")).await;
}

pub(crate) async fn every_node_is_up_and_tells_its_version(backend: &Backend) {
    let ours = backend.open().await;
    let nodes = ours.nodes();
    assert_eq!(nodes.len(), backend.nodes);
    for node in nodes {
        assert_eq!(node.state, NodeState::Up, "{node:?}");
        assert!(node.version.is_some() && node.round_trip.is_some(), "{node:?}");
        let offset = node.clock_offset_micros.unwrap();
        assert!(offset.abs() < 500_000, "all on one machine: {node:?}");
    }
}

pub(crate) async fn holders_have_a_readable_label(backend: &Backend) {
    let ours = backend.open().await;
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    let pid = format!(":{}", std::process::id());
    assert!(guard.holder().label().contains('@'), "{}", guard.holder());
    assert!(guard.holder().label().ends_with(&pid), "{}", guard.holder());
    let named = backend.builder().holder("payments").open().await.unwrap();
    let guard = named.lock("m").ttl(LONG).acquire().await.unwrap();
    assert_eq!(guard.holder().label(), "payments");
}

pub(crate) async fn two_tasks_may_share_one_client(backend: &Backend) {
    let ours = backend.open().await;
    let tasks: Vec<_> = (0..32)
        .map(|i| {
            let request = ours.lock(format!("l{i}")).ttl(LONG);
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                guard.release().await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), ReleaseOutcome::Released);
    }
}

pub(crate) async fn a_detached_lease_is_extended_and_released_by_its_token(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(KEPT).acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    let token = guard.detach();
    let text = token.to_string();
    let token: leasehold::LeaseToken = text.parse().unwrap();
    let until = Instant::now() + KEPT + SHORT;
    while Instant::now() < until {
        let left = theirs.extend(&token).await.unwrap();
        assert!(left > KEPT / 2 && left < KEPT, "{left:?}");
        assert!(ours.lock("l").ttl(KEPT).try_acquire().await.unwrap().is_none());
        tokio::time::sleep(KEPT / 6).await;
    }
    assert_eq!(theirs.release(&token).await, ReleaseOutcome::Released);
    assert_eq!(theirs.release(&token).await, backend.released_again);
    let next = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    assert!(next.fence() > token.fence);
}

pub(crate) async fn a_detached_lease_that_lapsed_is_lost_for_ever(backend: &Backend) {
    let ours = backend.open().await;
    let token = ours.lock("l").ttl(SHORT).acquire().await.unwrap().detach();
    // Nobody keeps it any more.
    eventually("it expires", || is_free(&ours, "l")).await;
    let error = ours.extend(&token).await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    eventually("nothing was healed back", || is_free(&ours, "l")).await;
}

/// A lease id is what anybody may write: made up, of another, given back, or with a fence never given.
pub(crate) async fn a_claim_that_nobody_confirms_writes_nothing(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let most = leasehold::Fence::MAX;
    let refused = async |token: &leasehold::LeaseToken| {
        let error = ours.extend(token).await.expect_err("nobody has it");
        assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    };
    let returned = ours.lock("l").ttl(LONG).acquire().await.unwrap().detach();
    assert_eq!(ours.release(&returned).await, ReleaseOutcome::Released);
    let mut made_up = returned.clone();
    (made_up.fence, made_up.token) = (most, most);
    refused(&returned).await;
    refused(&made_up).await;
    assert!(is_free(&theirs, "l").await, "revived");

    let held =
        theirs.lock("l").ttl(LONG).acquire().await.expect("the lock is like any other").detach();
    assert!(held.fence > returned.fence && held.fence < most, "{held}");
    refused(&returned).await;
    refused(&made_up).await;
    // Its own holder, but fences that it was never given: it keeps what it has.
    let mut above = held.clone();
    (above.fence, above.token) = (held.fence.next(), most);
    refused(&above).await;
    let mut up_to = held.clone();
    up_to.token = most;
    assert!(theirs.extend(&up_to).await.is_ok(), "one of them is its own");
    assert!(theirs.extend(&held).await.is_ok());
    assert_eq!(theirs.release(&held).await, ReleaseOutcome::Released);
    let next = ours.lock("l").ttl(LONG).acquire().await.expect("no fence was raised");
    assert!(next.fence() > held.fence && next.fence() < most, "{}", next.fence());
}

/// The same lease, to be kept for another time.
fn for_ttl(token: &leasehold::LeaseToken, ttl: Duration) -> leasehold::LeaseToken {
    let mut token = token.clone();
    token.ttl = ttl;
    token
}

/// How much is left of a lock, as the node says that frees it first.
async fn left(locks: &leasehold::Locks, name: &str) -> Duration {
    let status = locks.inspect(name).await.expect("inspect");
    let left =
        status.nodes.into_iter().filter_map(|(_, seen)| seen.expect("it answers").expires_in);
    left.min().unwrap_or_default()
}

async fn all_answer(locks: &leasehold::Locks) -> bool {
    locks.inspect("l").await.is_ok_and(|status| status.answered() == status.nodes.len())
}

pub(crate) async fn of_extensions_that_differ_in_their_ttl_the_later_end_stands(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(KEPT).acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    let short = guard.detach();
    let long = for_ttl(&short, LONG);
    assert!(theirs.extend(&long).await.expect("longer") > LONG / 2);
    eventually("all nodes keep it longer", || async { left(&ours, "l").await > LONG / 2 }).await;
    for locks in [&ours, &theirs] {
        locks.extend(&short).await.expect("shorter");
        locks.extend(&for_ttl(&short, SHORT)).await.expect("shorter still");
    }
    tokio::time::sleep(2 * SHORT).await;
    assert!(left(&ours, "l").await > LONG / 2, "{:?}", left(&ours, "l").await);
    assert!(theirs.lock("l").ttl(LONG).try_acquire().await.unwrap().is_none());
    assert_eq!(ours.release(&long).await, ReleaseOutcome::Released);
    eventually("a release ends it at once", || is_free(&theirs, "l")).await;
}

pub(crate) async fn an_extension_that_failed_and_is_carried_out_late_shortens_nothing(
    backend: &Backend,
) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(LONG).acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    let long = guard.detach();
    (backend.hang)(true);
    let failed = theirs.extend(&for_ttl(&long, SHORT)).await;
    (backend.hang)(false);
    // An extension that changes nothing needs no write.
    assert!(failed.is_err() || backend.reads_while_it_hangs, "nobody answered: {failed:?}");
    // On the same connections, so it is behind the extension.
    eventually("it answers", || all_answer(&theirs)).await;
    tokio::time::sleep(2 * SHORT).await;
    assert!(left(&theirs, "l").await > LONG / 4, "{:?}", left(&theirs, "l").await);
    assert!(theirs.extend(&long).await.expect("it is held") > LONG / 2);
    assert_eq!(theirs.release(&long).await, ReleaseOutcome::Released);
    eventually("nothing comes after it", || is_free(&theirs, "l")).await;
}

pub(crate) async fn an_extension_that_is_carried_out_after_the_end_revives_nothing(
    backend: &Backend,
) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let guard = ours.lock("l").ttl(SHORT).acquire().await.unwrap();
    eventually("all nodes", || async { owners(&theirs, "l").await.len() == backend.nodes }).await;
    let token = guard.detach();
    (backend.hang)(true);
    let failed = theirs.extend(&for_ttl(&token, LONG)).await;
    tokio::time::sleep(SHORT).await;
    (backend.hang)(false);
    assert!(failed.is_err(), "nobody answered: {failed:?}");
    eventually("it answers", || all_answer(&theirs)).await;
    // Nodes that did not hang had extended it in time; they are no quorum.
    eventually("it is lost", || async {
        let again = theirs.extend(&token).await;
        assert!(again.is_err(), "revived: {again:?}");
        matches!(again, Err(ExtendError::Lost(_)))
    })
    .await;
    let next = ours.lock("l").ttl(LONG).wait(secs(5)).acquire().await.expect("it is free");
    assert!(next.fence() > token.fence);
}

pub(crate) async fn waiting_tells_every_refusal(backend: &Backend) {
    let (ours, theirs) = (backend.open().await, backend.open().await);
    let _guard = ours.lock("l").ttl(LONG).holder("ana").acquire().await.unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = seen.clone();
    let request = theirs.lock("l").ttl(LONG).wait(ms(200));
    let request = request.on_refusal(move |error| log.lock().unwrap().push(error.to_string()));
    assert!(request.acquire().await.is_err());
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 1 && seen.iter().all(|text| text.contains("held by ana")), "{seen:?}");
}

pub(crate) async fn a_lost_guard_does_not_block_waiters_of_its_own_process(backend: &Backend) {
    let ours = backend.open().await;
    let lost = ours.lock("l").ttl(SHORT).manual().acquire().await.unwrap();
    let next = ours.lock("l").ttl(LONG).wait(secs(5)).acquire().await.expect("after the loss");
    assert!(lost.validity().is_zero() && next.fence() > lost.fence());
}
