//! What the driver does between the core and the nodes, seen from both sides: on memory nodes that
//! count what they are asked, with a clock that the test moves.

mod asking;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use leasehold::node::{Ask, Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{
    AcquireError, Background, Fence, ForceReleaseError, Holder, LockName, LockState, LockStatus,
    Locks, Owner, ReleaseOutcome, RetryPolicy,
};
use leasehold_core::{Moment, NodeError, Record, Reply, Request, Ttl, WallMicros};
use tokio::sync::watch;

use asking::ask;

/// The machine's clock, moved ahead as by a suspend.
#[derive(Debug, Default)]
struct SleepyClock {
    slept_ms: AtomicU64,
}

impl Clock for SleepyClock {
    fn now(&self) -> Moment {
        SystemClock.now().plus(Duration::from_millis(self.slept_ms.load(Ordering::SeqCst)))
    }
    fn wall(&self) -> WallMicros {
        SystemClock.wall()
    }
}

#[tokio::test]
async fn what_is_left_counts_from_what_was_read_before_it() {
    let clock = Arc::new(SleepyClock::default());
    let locks =
        Locks::builder().nodes(vec![Counting::new("a") as Arc<dyn Node>]).clock(clock.clone());
    let locks = locks.trust_new_nodes().open().await.unwrap();
    let ttl = Duration::from_secs(10);
    let token = locks.lock("l").ttl(ttl).manual().acquire().await.unwrap().detach();
    // The process is stopped right after it read its clock.
    let stopped = || clock.slept_ms.fetch_add(3000, Ordering::SeqCst);
    let (_, left) = locks.extend_since(&token, stopped).await.unwrap();
    assert!(left <= ttl - Duration::from_secs(3), "{left:?}");
}

/// A memory node beside which looks take long, by the clock of whoever looks.
struct SlowToShow {
    inner: MemoryNode,
    clock: Arc<SleepyClock>,
    takes_ms: AtomicU64,
}

impl Node for SlowToShow {
    fn id(&self) -> &NodeId {
        self.inner.id()
    }

    fn ask(&self, ask: Ask) {
        if let Request::Inspect { .. } | Request::List { .. } = &*ask.request {
            let takes = self.takes_ms.load(Ordering::SeqCst);
            self.clock.slept_ms.fetch_add(takes, Ordering::SeqCst);
        }
        self.inner.ask(ask);
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.inner.generation()
    }
}

#[tokio::test]
async fn a_look_tells_what_is_left_when_it_returns_and_nobody_who_may_be_gone_by_then() {
    let clock = Arc::new(SleepyClock::default());
    let inner = MemoryNode::new(NodeId::new("a"), Arc::new(SystemClock));
    let node = Arc::new(SlowToShow { inner, clock: clock.clone(), takes_ms: 0.into() });
    let builder = Locks::builder().nodes(vec![node.clone() as Arc<dyn Node>]).clock(clock);
    let locks = builder.trust_new_nodes().open().await.unwrap();
    let ttl = Duration::from_secs(20);
    let token = locks.lock("l").ttl(ttl).manual().acquire().await.unwrap().detach();
    let left = |status: &LockStatus| status.expires_in().unwrap();
    let takes = |seconds: u64| node.takes_ms.store(seconds * 1000, Ordering::SeqCst);

    takes(15);
    for status in [locks.inspect("l").await.unwrap(), locks.list("").await.unwrap().remove(0)] {
        assert!(status.holder().is_some_and(|owner| owner.is(&token.holder)), "{status:?}");
        assert!(left(&status) < Duration::from_secs(5), "{status:?}");
    }
    takes(20);
    let status = locks.inspect("l").await.unwrap();
    assert_eq!((status.state(), status.fence()), (LockState::Split, Some(token.fence)));
    assert!(locks.list("").await.unwrap().is_empty());
    // What the node said stays to be had, and whoever has the lock can still be parted from it.
    let said = locks.inspect_as_answered("l").await.unwrap();
    assert!(said.holder().is_some() && left(&said) > Duration::from_secs(5), "{said:?}");
    assert!(locks.force_release("l", token.fence).await.unwrap());
}

/// A memory node that counts, and that can be told to swallow acquires.
struct Counting {
    inner: MemoryNode,
    acquires: AtomicUsize,
    releases: AtomicUsize,
    extends: AtomicUsize,
    released: Mutex<HashSet<Holder>>,
    /// Extensions that came behind the release of their lease.
    late_extends: AtomicUsize,
    swallowed: Mutex<Vec<Ask>>,
    swallows: std::sync::atomic::AtomicBool,
    /// Has too much to do to take an acquire in.
    is_overloaded: std::sync::atomic::AtomicBool,
    /// Lets nobody acquire.
    denies: std::sync::atomic::AtomicBool,
}

impl Counting {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryNode::new(NodeId::new(name), Arc::new(SystemClock)),
            acquires: AtomicUsize::new(0),
            releases: AtomicUsize::new(0),
            extends: AtomicUsize::new(0),
            released: Mutex::default(),
            late_extends: AtomicUsize::new(0),
            swallowed: Mutex::default(),
            swallows: false.into(),
            is_overloaded: false.into(),
            denies: false.into(),
        })
    }

    fn acquires(&self) -> usize {
        self.acquires.swap(0, Ordering::SeqCst)
    }
}

impl Node for Counting {
    fn id(&self) -> &NodeId {
        self.inner.id()
    }

    fn ask(&self, ask: Ask) {
        match &*ask.request {
            Request::Acquire { .. } => {
                self.acquires.fetch_add(1, Ordering::SeqCst);
                if self.is_overloaded.load(Ordering::SeqCst) {
                    let reason = "busy".to_owned();
                    return ask.reply_to.answer(Err(NodeError::Overloaded { reason }));
                }
                if self.denies.load(Ordering::SeqCst) {
                    let reason = "not you".to_owned();
                    return ask.reply_to.answer(Err(NodeError::Denied { reason }));
                }
                if self.swallows.load(Ordering::SeqCst) {
                    return self.swallowed.lock().unwrap().push(ask);
                }
            }
            Request::Extend { holder, .. } => {
                self.extends.fetch_add(1, Ordering::SeqCst);
                if self.released.lock().unwrap().contains(holder) {
                    self.late_extends.fetch_add(1, Ordering::SeqCst);
                }
            }
            Request::Release { holder, .. } => {
                self.releases.fetch_add(1, Ordering::SeqCst);
                self.released.lock().unwrap().insert(holder.clone());
            }
            _ => {}
        }
        self.inner.ask(ask);
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.inner.generation()
    }
}

fn three() -> Vec<Arc<Counting>> {
    ["a", "b", "c"].map(Counting::new).into()
}

async fn open(nodes: &[Arc<Counting>]) -> Locks {
    let nodes = nodes.iter().map(|node| node.clone() as Arc<dyn Node>).collect();
    let builder = Locks::builder().nodes(nodes).timeout(Duration::from_millis(300));
    builder.trust_new_nodes().open().await.unwrap()
}

const TTL: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_machine_that_slept_past_its_lease_is_told_when_it_wakes() {
    for _ in 0..5 {
        if is_told_before_the_next_look().await {
            return;
        }
        // The machine was too busy, unless it is so every time.
    }
    panic!("nobody was told before a node was looked at");
}

async fn is_told_before_the_next_look() -> bool {
    let clock = Arc::new(SleepyClock::default());
    let locks = Locks::builder().url("memory:").clock(clock.clone()).open().await.unwrap();
    let asks = locks.lock("asks").ttl(TTL).acquire().await.unwrap();
    let waits = locks.lock("waits").ttl(TTL).acquire().await.unwrap();
    assert!(asks.ensure_valid(TTL / 2).is_ok());
    // Time for the keepers to set their timers, which nobody can see from here.
    tokio::time::sleep(Duration::from_millis(200)).await;
    clock.slept_ms.store(60_000, Ordering::SeqCst);
    // Whoever asks knows at once, before anybody else can notice.
    assert!(asks.ensure_valid(Duration::ZERO).is_err());
    assert!(waits.validity().is_zero());
    // A task that waits is told, although all timers stood still and would go off in seconds only. The next
    // look at the node, a second after it was opened, would set other timers.
    let told = tokio::time::timeout(Duration::from_millis(500), waits.lost()).await;
    assert_eq!(waits.release().await, ReleaseOutcome::AlreadyExpired);
    told.is_ok()
}

#[tokio::test]
async fn an_extension_is_never_sent_after_the_deadline() {
    let (clock, node) = (Arc::new(SleepyClock::default()), Counting::new("a"));
    let locks =
        Locks::builder().nodes(vec![node.clone()]).clock(clock.clone()).open().await.unwrap();
    let guard = locks.lock("l").ttl(TTL).manual().acquire().await.unwrap();
    guard.extend().await.unwrap();
    assert_eq!(node.extends.swap(0, Ordering::SeqCst), 1);
    clock.slept_ms.store(60_000, Ordering::SeqCst);
    // At once, before anybody else can notice.
    assert!(guard.extend().await.is_err());
    assert_eq!(node.extends.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_waiter_is_woken_when_a_lease_of_its_own_process_ends() {
    let locks = open(&three()).await;
    // Without being woken it would sleep until the lease could have expired.
    let retry = RetryPolicy { first: 3 * TTL, longest: 3 * TTL, attempts: None };
    for releases in [true, false] {
        let guard = locks.lock("l").ttl(TTL).try_acquire().await.unwrap().expect("free");
        let (refused, mut refusals) = tokio::sync::mpsc::unbounded_channel();
        let request = locks.lock("l").ttl(TTL).retry(retry);
        let request = request.on_refusal(move |_| _ = refused.send(()));
        let waiter = tokio::spawn(request.acquire());
        refusals.recv().await.expect("it is refused first");
        if releases {
            assert_eq!(guard.release().await, ReleaseOutcome::Released);
        } else {
            drop(guard);
        }
        let woken = tokio::time::timeout(TTL / 2, waiter).await.expect("woken");
        drop(woken.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_extension_follows_the_release_of_its_lease() {
    let nodes = three();
    let locks = open(&nodes).await;
    let race = |task: u64| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for turn in 0..12 {
                // Extended after 50 ms, and released about then.
                let request = locks.lock(format!("l{task}")).ttl(Duration::from_millis(150));
                let guard = request.acquire().await.unwrap();
                let work = 49_000 + (task * 7 + turn * 3) % 20 * 100;
                tokio::time::sleep(Duration::from_micros(work)).await;
                drop(guard);
            }
        })
    };
    let races: Vec<_> = (0..40).map(race).collect();
    for race in races {
        race.await.unwrap();
    }
    assert!(nodes[0].extends.load(Ordering::SeqCst) > 0, "some were extended first");
    assert_eq!(nodes[0].late_extends.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_uncontended_lock_takes_one_round_and_a_fence_ahead_of_the_clock_two_once() {
    let nodes = three();
    let locks = open(&nodes).await;
    let _ = locks.lock("l").ttl(TTL).acquire().await.unwrap().release().await;
    assert_eq!(nodes[0].acquires(), 1);
    let far = Fence::new(SystemClock.wall().0 + 3_600_000_000).unwrap();
    for node in &nodes {
        raise_fence(node, "l", far);
    }
    let first = locks.lock("l").ttl(TTL).try_acquire().await.unwrap().expect("free");
    assert!(first.fence() > far);
    assert_eq!(nodes[0].acquires(), 2, "the second round goes above what the first found");
    let _ = first.release().await;
    let second = locks.lock("l").ttl(TTL).try_acquire().await.unwrap().expect("free");
    assert!(second.fence() > far);
    assert_eq!(nodes[0].acquires(), 1, "and is remembered");
    let _ = second.release().await;
    let _ = locks.lock("other").ttl(TTL).try_acquire().await.unwrap().expect("free");
    assert_eq!(nodes[0].acquires(), 1, "other names are not dragged along");
}

#[tokio::test]
async fn an_acquire_survives_that_all_records_just_changed() {
    let nodes = three();
    let locks = open(&nodes).await;
    drop(locks.lock("l").ttl(TTL).acquire().await.unwrap());
    for round in 0..5 {
        // As another client does that drops idle fences: the floor goes up, the life stays.
        for node in &nodes {
            raise_floor(node);
        }
        let guard = locks.lock("l").ttl(TTL).try_acquire().await;
        assert!(matches!(guard, Ok(Some(_))), "round {round}: {guard:?}");
        drop(guard);
    }
}

fn record(node: &MemoryNode) -> String {
    let Ok(Reply::Facts(facts)) = ask(node, None, Request::Probe) else { panic!() };
    facts.record.unwrap()
}

fn raise_floor(node: &Counting) {
    let text = record(&node.inner);
    let record = Record::parse(&text).unwrap();
    let raised = Record { floor: record.floor.next(), ..record }.to_string();
    let request = Request::ReplaceRecord { expected: Some(text.into()), record: raised.into() };
    assert_eq!(ask(&node.inner, None, request), Ok(Reply::Record { replaced: true }));
}

/// As a client does whose clock is far ahead: acquires, and gives it back.
fn raise_fence(node: &Counting, name: &str, proposal: Fence) {
    let (lock, holder) = (LockName::new(name).unwrap(), Holder::new("h", 1).unwrap());
    let (acquire, release) = take_and_give(&lock, &holder, proposal);
    assert_eq!(ask(&node.inner, Some(&record(&node.inner)), acquire), Ok(Reply::Granted));
    assert_eq!(ask(&node.inner, None, release), Ok(Reply::Released));
}

fn take_and_give(lock: &LockName, holder: &Holder, proposal: Fence) -> (Request, Request) {
    let (lock, holder, ttl) = (lock.clone(), holder.clone(), Ttl::new(TTL).unwrap());
    let release = Request::Release { lock: lock.clone(), holder: holder.clone() };
    (Request::Acquire { lock, holder, proposal, ttl }, release)
}

/// A node on which the next holder comes just before a forced release of the one before.
struct Overtaken {
    inner: MemoryNode,
    next: Holder,
}

impl Node for Overtaken {
    fn id(&self) -> &NodeId {
        self.inner.id()
    }

    fn ask(&self, forced: Ask) {
        if let Request::ForceRelease { lock, holder, fence, .. } = &*forced.request {
            let (_, release) = take_and_give(lock, holder, *fence);
            let (acquire, _) = take_and_give(lock, &self.next, fence.next().next());
            assert_eq!(ask(&self.inner, None, release), Ok(Reply::Released));
            let record = record(&self.inner);
            assert_eq!(ask(&self.inner, Some(&record), acquire), Ok(Reply::Granted));
        }
        self.inner.ask(forced);
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.inner.generation()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_that_comes_too_late_leaves_the_next_holder_alone() {
    let next = Holder::new("next", 2).unwrap();
    let node = |name: &str| {
        let inner = MemoryNode::new(NodeId::new(name), Arc::new(SystemClock));
        Arc::new(Overtaken { inner, next: next.clone() }) as Arc<dyn Node>
    };
    for names in [&["a"][..], &["a", "b", "c"]] {
        let nodes = names.iter().map(|name| node(name)).collect();
        let locks = Locks::builder().nodes(nodes).trust_new_nodes().open().await.unwrap();
        let guard = locks.lock("l").ttl(TTL).manual().acquire().await.unwrap();
        let error = locks.force_release("l", guard.fence()).await.unwrap_err();
        let ForceReleaseError::FenceMovedOn { found, .. } = error else { panic!("{error}") };
        assert_eq!(found, guard.fence().next().next());
        let status = locks.inspect("l").await.unwrap();
        assert_eq!(status.owner(), Some((&Owner::Holder(next.clone()), names.len())));
    }
}

#[tokio::test]
async fn who_is_denied_waits_only_if_others_could_be_a_quorum() {
    let nodes = three();
    let locks = open(&nodes).await;
    nodes[0].denies.store(true, Ordering::SeqCst);
    nodes[1].swallows.store(true, Ordering::SeqCst);
    let second = nodes[1].clone();
    let request = locks.lock("l").ttl(TTL).wait_forever().on_refusal(move |error| {
        assert!(!error.is_denied() && error.to_string().contains("not you"), "{error}");
        second.swallows.store(false, Ordering::SeqCst);
    });
    let waited = tokio::time::timeout(TTL, request.acquire()).await.expect("it comes back");
    assert_eq!(waited.unwrap().release().await, ReleaseOutcome::Released);

    nodes[1].denies.store(true, Ordering::SeqCst);
    let request = locks.lock("l").ttl(TTL).wait_forever().acquire();
    let error = tokio::time::timeout(TTL, request).await.expect("at once").unwrap_err();
    assert!(error.is_denied(), "{error}");
}

#[tokio::test]
async fn every_node_that_was_asked_is_also_told_to_release() {
    let nodes = three();
    let locks = open(&nodes).await;
    for node in &nodes[1..] {
        node.swallows.store(true, Ordering::SeqCst);
    }
    let error = locks.lock("l").ttl(TTL).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    for node in &nodes {
        assert_eq!(node.acquires(), 1);
        assert_eq!(node.releases.swap(0, Ordering::SeqCst), 1, "{}", node.id());
    }
    // Nobody waits any more: a node that had not sent it yet would know.
    for node in &nodes[1..] {
        for ask in node.swallowed.lock().unwrap().drain(..) {
            assert!(!ask.reply_to.is_wanted());
        }
    }
    let request = locks.lock("l").ttl(TTL);
    let mut acquire = Box::pin(request.try_acquire());
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(acquire.as_mut().poll(&mut context).is_pending());
    assert_eq!(nodes[1].swallowed.lock().unwrap().len(), 1, "asked with the first poll");
    assert!(nodes[1].swallowed.lock().unwrap()[0].reply_to.is_wanted());
    drop(acquire);
    assert!(!nodes[1].swallowed.lock().unwrap()[0].reply_to.is_wanted(), "and dropped with it");
    for node in &nodes {
        assert_eq!(node.releases.swap(0, Ordering::SeqCst), 1, "{}", node.id());
    }
}

#[tokio::test]
async fn a_node_that_took_no_acquire_in_is_told_of_no_release() {
    let nodes = three();
    let locks = open(&nodes).await;
    for node in &nodes[..2] {
        node.is_overloaded.store(true, Ordering::SeqCst);
    }
    let error = locks.lock("l").ttl(TTL).try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let releases = nodes.iter().map(|node| node.releases.load(Ordering::SeqCst));
    assert_eq!(releases.collect::<Vec<_>>(), [0, 0, 1]);
    // A heir is known to all of them.
    nodes.iter().for_each(|node| node.is_overloaded.store(false, Ordering::SeqCst));
    let held = locks.lock("l").holder("me").acquire().await.unwrap();
    let holder = held.holder().clone();
    let mut heir = Box::pin(locks.lock("l").holder("me").acquire());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(heir.as_mut().poll(&mut context).is_pending());
    nodes[0].is_overloaded.store(true, Ordering::SeqCst);
    nodes[1].swallows.store(true, Ordering::SeqCst);
    drop(held);
    assert!(heir.as_mut().poll(&mut context).is_pending(), "it asks");
    drop(heir);
    let is_told = |node: &Arc<Counting>| node.released.lock().unwrap().contains(&holder);
    assert!(nodes.iter().all(is_told));
}

#[tokio::test]
async fn a_caller_that_blocks_its_runtime_does_not_starve_its_lease() {
    let locks = Locks::open("memory:").await.unwrap();
    let ttl = Duration::from_millis(300);
    let guard = locks.lock("l").ttl(ttl).acquire().await.unwrap();
    std::thread::sleep(4 * ttl);
    assert!(guard.ensure_valid(Duration::ZERO).is_ok(), "kept by a thread of its own");
}

#[tokio::test]
async fn a_guard_that_is_forgotten_is_kept_until_max_hold() {
    let locks = Locks::open("memory:").await.unwrap();
    let ttl = Duration::from_millis(300);
    std::mem::forget(locks.lock("for ever").ttl(ttl).acquire().await.unwrap());
    let limit = 3 * ttl;
    std::mem::forget(locks.lock("limited").ttl(ttl).max_hold(limit).acquire().await.unwrap());
    let wait = Duration::from_secs(10);
    let next = locks.lock("limited").ttl(ttl).wait(wait).acquire().await;
    assert!(next.is_ok(), "free a Ttl after max_hold: {next:?}");
    assert!(locks.lock("for ever").ttl(ttl).try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn background_work_may_also_run_on_the_callers_runtime() {
    let locks = Locks::builder()
        .url("memory:")
        .background(Background::CurrentRuntime)
        .open()
        .await
        .unwrap();
    let ttl = Duration::from_millis(300);
    let guard = locks.lock("l").ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(3 * ttl).await;
    assert!(guard.ensure_valid(Duration::ZERO).is_ok());
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

#[test]
fn locks_can_be_used_without_any_tokio_runtime() {
    // A bare executor: nothing but a thread that polls.
    fn block_on<F: Future>(future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                std::task::Poll::Ready(output) => return output,
                std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(5)),
            }
        }
    }
    block_on(async {
        let locks = Locks::open("memory:").await.unwrap();
        let guard = locks.lock("l").ttl(TTL).acquire().await.unwrap();
        let busy = locks.lock("l").ttl(TTL).wait(Duration::from_millis(50)).acquire().await;
        assert!(busy.is_err());
        guard.extend().await.unwrap();
        assert_eq!(guard.release().await, ReleaseOutcome::Released);
    });
    let outside = futures_error();
    assert!(outside.contains("runtime"), "{outside}");
}

/// Without a runtime there is no current one to work on.
fn futures_error() -> String {
    let opening = Locks::builder().url("memory:").background(Background::CurrentRuntime).open();
    let mut opening = std::pin::pin!(opening);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match opening.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Err(error)) => error.to_string(),
        _ => panic!("it must fail at once"),
    }
}

/// Ends only if the loops do not keep the thread to themselves.
async fn loops_until_a_timer_goes_off() {
    let locks = Locks::open("memory:").await.unwrap();
    let waits = async {
        loop {
            let guard = locks.lock("a").acquire().await.unwrap();
            assert_eq!(guard.release().await, ReleaseOutcome::Released);
        }
    };
    tokio::select! {
        () = waits => {}
        () = tokio::time::sleep(Duration::from_millis(10)) => {}
    }
    let asks_once = async {
        loop {
            drop(locks.lock("a").try_acquire().await.unwrap());
        }
    };
    tokio::select! {
        () = asks_once => {}
        () = tokio::time::sleep(Duration::from_millis(10)) => {}
    }
}

#[test]
fn whoever_takes_locks_in_a_loop_lets_others_run() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(loops_until_a_timer_goes_off());
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("a timer goes off beside the loop");
}
