//! A lease that is left to the next waiter of the same process, seen from the nodes: memory nodes
//! that write down what they are asked.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::clock::SystemClock;
use leasehold::node::{Ask, Node, NodeId, ReplyTo};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{AcquireError, Fence, Guard, Holder, Locks, ReleaseOutcome};
use leasehold_core::{Reply, Request};
use tokio::sync::watch;

/// How long a node may take to answer. None does, unless it is held up.
const LIMIT: Duration = Duration::from_secs(2);

/// A memory node that writes down who acquired, who extended and who released.
struct Scribe {
    inner: MemoryNode,
    notes: Mutex<Notes>,
    /// Extensions that are on their way, while they are held up.
    held_up: Mutex<Option<Vec<Ask>>>,
    /// What the next extension is superseded by, as if the node had forgotten meanwhile.
    superseded_by: Mutex<Option<Fence>>,
    raises: bool,
}

#[derive(Default)]
struct Notes {
    acquires: Vec<Holder>,
    extends: Vec<Holder>,
    releases: Vec<Holder>,
}

impl Scribe {
    /// Lets through what was held up, as far as anybody still wants it to be sent.
    fn let_through(&self) {
        for ask in self.held_up.lock().unwrap().take().unwrap_or_default() {
            if ask.reply_to.is_wanted() {
                self.inner.ask(ask);
            }
        }
    }
}

impl Node for Scribe {
    fn id(&self) -> &NodeId {
        self.inner.id()
    }

    fn ask(&self, ask: Ask) {
        match &*ask.request {
            Request::Acquire { holder, .. } => {
                self.notes.lock().unwrap().acquires.push(holder.clone());
            }
            Request::Extend { holder, .. } => {
                self.notes.lock().unwrap().extends.push(holder.clone());
                if let Some(fence) = self.superseded_by.lock().unwrap().take() {
                    return ask.reply_to.answer(Ok(Reply::Superseded { fence }));
                }
                if let Some(held_up) = &mut *self.held_up.lock().unwrap() {
                    return held_up.push(ask);
                }
            }
            Request::Release { holder, .. } => {
                self.notes.lock().unwrap().releases.push(holder.clone());
            }
            _ => {}
        }
        self.inner.ask(ask);
    }

    fn generation(&self) -> watch::Receiver<u64> {
        self.inner.generation()
    }

    fn raises(&self) -> bool {
        self.raises
    }
}

async fn open() -> (Vec<Arc<Scribe>>, Locks) {
    open_with(true).await
}

async fn open_with(raises: bool) -> (Vec<Arc<Scribe>>, Locks) {
    let scribe = |name| {
        let inner = MemoryNode::new(NodeId::new(name), Arc::new(SystemClock));
        let (notes, held_up, superseded_by) = Default::default();
        Arc::new(Scribe { inner, notes, held_up, superseded_by, raises })
    };
    let scribes: Vec<_> = ["a", "b", "c"].map(scribe).into();
    let nodes = scribes.iter().map(|scribe| scribe.clone() as Arc<dyn Node>).collect();
    let builder = Locks::builder().nodes(nodes).trust_new_nodes();
    let locks = builder.timeout(LIMIT).open().await.unwrap();
    (scribes, locks)
}

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>> + Send>>;

/// A waiter that has its place in the queue.
fn queue_up(locks: &Locks) -> Waiting {
    queue_up_as(locks, "me")
}

fn queue_up_as(locks: &Locks, label: &str) -> Waiting {
    let mut waiting: Waiting = Box::pin(locks.lock("l").holder(label).acquire());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    waiting
}

async fn first(locks: &Locks) -> Guard {
    locks.lock("l").holder("me").acquire().await.unwrap()
}

#[tokio::test]
async fn the_next_waiter_gets_a_higher_fence_and_nothing_is_released_in_between() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let (fence, holder) = (held.fence(), held.holder().clone());
    let waiting = queue_up(&locks);
    assert_eq!(held.release().await, ReleaseOutcome::HandedOver);
    let heir = waiting.await.unwrap();
    assert!(heir.fence() > fence);
    assert_eq!(*heir.holder(), holder);
    for scribe in &scribes {
        let notes = scribe.notes.lock().unwrap();
        assert_eq!(notes.acquires, [holder.clone(), holder.clone()]);
        assert_eq!(notes.releases, [], "on {}", scribe.id());
    }
    // It is a lease like any other: it ends with a release, and then the lock is free.
    assert_eq!(heir.release().await, ReleaseOutcome::Released);
    let last = locks.lock("l").try_acquire().await.unwrap().expect("it is free");
    assert_ne!(*last.holder(), holder, "a released holder is never used again");
}

#[tokio::test]
async fn dropping_the_guard_leaves_the_lease_as_well() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let waiting = queue_up(&locks);
    drop(held);
    let _heir = waiting.await.unwrap();
    assert!(scribes.iter().all(|scribe| scribe.notes.lock().unwrap().releases.is_empty()));
}

#[tokio::test]
async fn where_numbers_cannot_be_raised_the_lock_is_given_back_and_the_next_waiter_asks_afresh() {
    let (scribes, locks) = open_with(false).await;
    for releases in [true, false] {
        let held = first(&locks).await;
        let (fence, holder) = (held.fence(), held.holder().clone());
        let waiting = queue_up(&locks);
        if releases {
            assert_eq!(held.release().await, ReleaseOutcome::Released);
        } else {
            drop(held);
        }
        let next = waiting.await.unwrap();
        assert!(next.fence() > fence);
        assert_ne!(*next.holder(), holder);
        for scribe in &scribes {
            let mut notes = scribe.notes.lock().unwrap();
            let notes = std::mem::take(&mut *notes);
            assert_eq!(notes.acquires, [holder.clone(), next.holder().clone()]);
            assert_eq!(notes.releases, std::slice::from_ref(&holder));
            assert_eq!(notes.extends, [], "nothing is raised beforehand");
        }
        drop(next);
        scribes.iter().for_each(|scribe| *scribe.notes.lock().unwrap() = Notes::default());
    }
}

#[tokio::test]
async fn what_is_left_to_somebody_who_went_away_is_given_back() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let holder = held.holder().clone();
    let waiting = queue_up(&locks);
    assert_eq!(held.release().await, ReleaseOutcome::HandedOver);
    drop(waiting);
    // Sent by the drop itself, so it is there.
    for scribe in &scribes {
        assert_eq!(scribe.notes.lock().unwrap().releases, std::slice::from_ref(&holder));
    }
    assert!(locks.lock("l").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiter_by_another_name_does_not_hold_under_ours() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let holder = held.holder().clone();
    let waiting = queue_up_as(&locks, "you");
    assert_eq!(held.release().await, ReleaseOutcome::HandedOver);
    let next = waiting.await.unwrap();
    assert_eq!(next.holder().label(), "you");
    for scribe in &scribes {
        assert_eq!(scribe.notes.lock().unwrap().releases, std::slice::from_ref(&holder));
    }
}

#[tokio::test]
async fn a_heir_that_comes_too_late_gives_everything_back_and_starts_afresh() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let holder = held.holder().clone();
    let waiting = queue_up(&locks);
    // Somebody takes it away, on all nodes, and has it for a while.
    locks.force_release("l", held.fence()).await.unwrap();
    let other = locks.lock("l").holder("other").ttl(Duration::from_millis(100)).manual();
    let _other = other.try_acquire().await.unwrap().expect("it is free");
    assert_eq!(held.release().await, ReleaseOutcome::HandedOver, "nobody asked the nodes");
    let heir = waiting.await.unwrap();
    assert_ne!(*heir.holder(), holder);
    for scribe in &scribes {
        let notes = scribe.notes.lock().unwrap();
        assert!(notes.releases.contains(&holder), "on {}", scribe.id());
        let last = notes.acquires.iter().rposition(|asked| *asked == holder).unwrap();
        assert!(last < notes.acquires.len() - 1);
    }
}

#[tokio::test]
async fn a_lost_lease_is_left_to_nobody() {
    let (_scribes, locks) = open().await;
    let held = locks.lock("l").holder("me").ttl(Duration::from_millis(100)).manual();
    let held = held.acquire().await.unwrap();
    let holder = held.holder().clone();
    let waiting = queue_up(&locks);
    held.lost().await;
    let _ = held.release().await;
    assert_ne!(*waiting.await.unwrap().holder(), holder);
}

#[tokio::test]
async fn a_long_queue_gives_the_lock_back_now_and_then() {
    let (scribes, locks) = open().await;
    let mut held = first(&locks).await;
    let waiting: Vec<_> = (0..100).map(|_| queue_up(&locks)).collect();
    let mut fences = vec![held.fence()];
    for next in waiting {
        drop(held);
        held = next.await.unwrap();
        fences.push(held.fence());
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    // Sixteen at a time, so that other processes get their turn.
    let Notes { acquires, releases, .. } = std::mem::take(&mut *scribes[0].notes.lock().unwrap());
    assert!((5..=101).contains(&releases.len()), "{}", releases.len());
    let mut longest = 0;
    for holders in acquires.chunk_by(|a, b| a == b) {
        longest = longest.max(holders.len());
    }
    assert!((2..=17).contains(&longest), "{longest} in a row");
}

/// A lease that was left, while others wait behind it.
async fn second(locks: &Locks, behind: usize) -> (Guard, Vec<Waiting>) {
    let held = first(locks).await;
    let waiting = queue_up(locks);
    let others = (0..behind).map(|_| queue_up(locks)).collect();
    drop(held);
    (waiting.await.unwrap(), others)
}

fn acquires(scribes: &[Arc<Scribe>]) -> usize {
    scribes[0].notes.lock().unwrap().acquires.len()
}

fn extends(scribes: &[Arc<Scribe>]) -> usize {
    scribes[0].notes.lock().unwrap().extends.len()
}

#[tokio::test]
async fn those_who_wait_get_numbers_that_were_seen_to_and_no_node_is_asked() {
    let (scribes, locks) = open().await;
    let (mut held, others) = second(&locks, 5).await;
    let asked = (acquires(&scribes), extends(&scribes));
    assert_eq!(asked, (2, 1), "the token was raised once, for all who wait");
    let (mut fence, holder) = (held.fence(), held.holder().clone());
    for next in others {
        assert_eq!(held.release().await, ReleaseOutcome::HandedOver);
        held = next.await.unwrap();
        assert!(held.fence() > fence);
        assert_eq!(*held.holder(), holder);
        assert!(held.validity() > Duration::from_secs(9));
        fence = held.fence();
    }
    assert_eq!((acquires(&scribes), extends(&scribes)), asked);
    // The nodes know a number that is as high, so whoever comes next is above.
    assert_eq!(held.release().await, ReleaseOutcome::Released);
    let next = locks.lock("l").try_acquire().await.unwrap().expect("it is free");
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn a_lease_whose_number_was_seen_to_is_kept_like_any_other() {
    let (scribes, locks) = open().await;
    let (held, mut others) = second(&locks, 2).await;
    drop(held);
    let next = others.remove(0).await.unwrap();
    next.extend().await.unwrap();
    let token = next.detach();
    locks.extend(&token).await.unwrap();
    assert_eq!(locks.release(&token).await, ReleaseOutcome::Released);
    assert!(scribes.iter().all(|scribe| !scribe.notes.lock().unwrap().releases.is_empty()));
}

#[tokio::test]
async fn whoever_came_after_the_token_was_raised_asks_the_nodes() {
    let (scribes, locks) = open().await;
    let (held, others) = second(&locks, 1).await;
    // Somebody may have held the lock and be gone by now: what this one gets has to be above.
    let late = queue_up(&locks);
    drop(others);
    let asked = acquires(&scribes);
    drop(held);
    let _late = late.await.unwrap();
    assert_eq!(acquires(&scribes), asked + 1);
}

#[tokio::test]
async fn whoever_wants_another_ttl_asks_the_nodes() {
    let (scribes, locks) = open().await;
    let (held, _) = second(&locks, 0).await;
    let short = locks.lock("l").holder("me").ttl(Duration::from_secs(2));
    let mut next: Waiting = Box::pin(short.acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let other = queue_up(&locks);
    drop(held);
    let held = next.await.unwrap();
    let asked = acquires(&scribes);
    assert!(held.validity() < Duration::from_secs(2));
    drop(held);
    let last = other.await.unwrap();
    assert_eq!(acquires(&scribes), asked + 1);
    assert!(last.validity() > Duration::from_secs(9));
}

#[tokio::test]
async fn whoever_does_not_extend_asks_the_nodes_for_a_whole_ttl() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let waiting = queue_up(&locks);
    let manual = locks.lock("l").holder("me").manual();
    let mut next: Waiting = Box::pin(manual.acquire());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(held);
    let held = waiting.await.unwrap();
    let asked = acquires(&scribes);
    drop(held);
    let _next = next.await.unwrap();
    assert_eq!(acquires(&scribes), asked + 1);
}

#[tokio::test]
async fn a_heir_waits_for_a_token_that_is_being_raised() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let (waiting, mut next) = (queue_up(&locks), queue_up(&locks));
    for scribe in &scribes {
        *scribe.held_up.lock().unwrap() = Some(Vec::new());
    }
    drop(held);
    let held = waiting.await.unwrap();
    let asked = acquires(&scribes);
    drop(held);
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    scribes.iter().for_each(|scribe| scribe.let_through());
    let _next = next.await.unwrap();
    assert_eq!(acquires(&scribes), asked);
}

#[tokio::test]
async fn a_heir_waits_for_as_long_as_the_nodes_have_time_to_answer() {
    for _ in 0..10 {
        if is_waited_for().await {
            return;
        }
    }
    panic!("it asked every time, or the machine was too busy");
}

/// Whether the machine was quick enough to tell.
async fn is_waited_for() -> bool {
    let (scribes, locks) = open().await;
    // Both are there before the first one holds, so its token is raised at once.
    let nodes = scribes.iter().map(|scribe| scribe.clone() as Arc<dyn Node>).collect();
    let other = Locks::builder().nodes(nodes).open().await.unwrap();
    let before = first(&other).await;
    let (first, mut next) = (queue_up(&locks), queue_up(&locks));
    let began = Instant::now();
    assert_eq!(before.release().await, ReleaseOutcome::Released);
    for scribe in &scribes {
        *scribe.held_up.lock().unwrap() = Some(Vec::new());
    }
    let held = first.await.unwrap();
    let asked = acquires(&scribes);
    // More than half of the limit: what is left is less than what went by.
    tokio::time::sleep(LIMIT * 6 / 10).await;
    drop(held);
    let still = tokio::time::timeout(LIMIT / 10, &mut next).await;
    if began.elapsed() > LIMIT * 9 / 10 {
        return false;
    }
    assert!(still.is_err(), "it waits: {still:?}");
    scribes.iter().for_each(|scribe| scribe.let_through());
    let _next = next.await.unwrap();
    // It need not ask, unless the limit went by, which the machine may have spent elsewhere.
    acquires(&scribes) == asked
}

#[tokio::test]
async fn a_heir_that_goes_away_meanwhile_gives_back_and_nothing_follows() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let (waiting, mut next) = (queue_up(&locks), queue_up(&locks));
    for scribe in &scribes {
        *scribe.held_up.lock().unwrap() = Some(Vec::new());
    }
    drop(held);
    drop(waiting.await.unwrap());
    assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(next);
    // What a node had not sent by then is not sent behind the release.
    scribes.iter().for_each(|scribe| scribe.let_through());
    assert!(scribes.iter().all(|scribe| scribe.notes.lock().unwrap().releases.len() == 1));
    assert!(locks.lock("l").try_acquire().await.unwrap().is_some(), "it is free");
}

#[tokio::test]
async fn a_token_that_is_being_raised_can_be_written_down() {
    let (scribes, locks) = open().await;
    let held = first(&locks).await;
    let (waiting, next) = (queue_up(&locks), queue_up(&locks));
    scribes.iter().for_each(|scribe| *scribe.held_up.lock().unwrap() = Some(Vec::new()));
    drop(held);
    let held = waiting.await.unwrap();
    // Two nodes have it, and nobody has heard so.
    scribes[..2].iter().for_each(|scribe| {
        let mut held_up = scribe.held_up.lock().unwrap();
        for ask in held_up.as_mut().unwrap().drain(..) {
            scribe.inner.ask(Ask { reply_to: ReplyTo::nobody(), ..ask });
        }
        *held_up = None;
    });
    let token = held.detach();
    scribes.iter().for_each(|scribe| scribe.let_through());
    locks.extend(&token).await.unwrap();
    drop(next);
}

#[tokio::test]
async fn a_lease_that_is_being_refreshed_can_be_written_down() {
    let (scribes, locks) = open().await;
    let held = locks.lock("l").holder("me").manual().acquire().await.unwrap();
    // One node forgot and came back: the next extension raises the token above what it knows.
    *scribes[2].superseded_by.lock().unwrap() = Some(held.fence().next());
    held.extend().await.unwrap();
    scribes.iter().for_each(|scribe| *scribe.held_up.lock().unwrap() = Some(Vec::new()));
    {
        let mut refresh = Box::pin(held.extend());
        let waker = Waker::noop();
        assert!(refresh.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    // Two nodes have it, and nobody has heard so.
    scribes[..2].iter().for_each(|scribe| {
        let mut held_up = scribe.held_up.lock().unwrap();
        for ask in held_up.take().unwrap() {
            let Request::Extend { token, next, .. } = &*ask.request else { panic!() };
            assert!(next > token, "a refresh");
            scribe.inner.ask(Ask { reply_to: ReplyTo::nobody(), ..ask });
        }
    });
    let token = held.detach();
    scribes.iter().for_each(|scribe| scribe.let_through());
    locks.extend(&token).await.expect("a quorum kept it all the time");
    assert_eq!(locks.release(&token).await, ReleaseOutcome::Released);
}
