//! Member lists: new ones, wrong ones, and how one becomes another. On memory nodes, which forget
//! when told to; the same rules run on every backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::clock::{Clock, SystemClock};
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{AcquireError, Builder, Cause, InitError, Locks, NodeState};
use leasehold_core::{Moment, WallMicros};

const TTL: Duration = Duration::from_millis(400);

fn nodes(names: &[&str]) -> Vec<Arc<MemoryNode>> {
    let node = |name: &&str| MemoryNode::new(NodeId::new(name), Arc::new(SystemClock));
    names.iter().map(node).map(Arc::new).collect()
}

/// A client of these nodes with a quarantine of about half a second.
fn client(nodes: &[Arc<MemoryNode>]) -> Builder {
    let nodes = nodes.iter().map(|node| node.clone() as Arc<dyn Node>).collect();
    Locks::builder().nodes(nodes).max_ttl(TTL).max_clock_skew(Duration::from_millis(20))
}

async fn is_refused(locks: &Locks) -> String {
    match locks.lock("l").ttl(TTL).try_acquire().await {
        Err(error @ AcquireError::NoQuorum { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn fresh_nodes_sit_out_the_quarantine_and_say_so() {
    let nodes = nodes(&["a", "b", "c"]);
    let start = Instant::now();
    let locks = client(&nodes).open().await.unwrap();
    let error = is_refused(&locks).await;
    assert!(error.contains("0 of 3 nodes voted, 3 may not vote now, 2 needed"), "{error}");
    assert!(
        error.contains("a it is new or lost its memory: it does not vote for another"),
        "{error}"
    );
    match &locks.nodes()[0].state {
        NodeState::Quarantined { left, why, cause } => {
            assert!(*left > Duration::ZERO && *left <= TTL + Duration::from_millis(46), "{left:?}");
            assert!(why.contains("lost its memory"), "{why}");
            assert_eq!(*cause, Cause::Forgot);
        }
        other => panic!("{other:?}"),
    }
    let guard = locks.lock("l").ttl(TTL).acquire().await.expect("waits the quarantine out");
    assert!(start.elapsed() >= TTL + Duration::from_millis(40), "{:?}", start.elapsed());
    drop(guard);
}

#[tokio::test]
async fn a_new_cluster_is_admitted_on_a_persons_word() {
    let nodes = nodes(&["a", "b", "c"]);
    let locks =
        client(&nodes).max_ttl(Duration::from_secs(300)).trust_new_nodes().open().await.unwrap();
    assert!(locks.lock("l").ttl(TTL).try_acquire().await.unwrap().is_some());
    let unaware = client(&nodes).max_ttl(Duration::from_secs(300)).open().await.unwrap();
    assert!(unaware.lock("m").ttl(TTL).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn trust_does_not_extend_to_a_node_that_lost_its_memory() {
    let nodes = nodes(&["a", "b", "c"]);
    let settings = client(&nodes).max_ttl(Duration::from_secs(300));
    let locks = settings.clone().trust_new_nodes().open().await.unwrap();
    nodes[1].forget();
    let error = locks.init().await.unwrap_err();
    assert!(matches!(error, InitError::NotNew { .. }), "{error}");
    let trusting = settings.trust_new_nodes().open().await.unwrap();
    assert!(matches!(trusting.nodes()[1].state, NodeState::Quarantined { .. }));
    assert!(
        trusting.lock("l").ttl(TTL).try_acquire().await.unwrap().is_some(),
        "two of three vote"
    );
    nodes[2].forget();
    let deaf = trusting.lock("m").ttl(TTL).try_acquire().await;
    assert!(matches!(deaf, Err(AcquireError::NoQuorum { .. })), "{deaf:?}");
}

#[tokio::test]
async fn a_node_that_forgot_cannot_make_a_second_holder() {
    let nodes = nodes(&["a", "b", "c"]);
    let settings = client(&nodes).max_ttl(Duration::from_secs(300));
    let locks = settings.clone().trust_new_nodes().open().await.unwrap();
    let held = locks.lock("l").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    nodes[0].forget();
    nodes[1].forget();
    let other = settings.open().await.unwrap();
    let refused = other.lock("l").ttl(TTL).try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum { .. })), "{refused:?}");
    drop(held);
}

#[tokio::test]
async fn two_member_lists_cannot_both_decide() {
    let all = nodes(&["a", "b", "c", "d", "e"]);
    let three = client(&all[..3]).trust_new_nodes().open().await.unwrap();
    assert!(three.lock("l").ttl(TTL).try_acquire().await.unwrap().is_some());
    // a, b and c know the list of three; d and e are blank.
    let five = client(&all).open().await.unwrap();
    let error = is_refused(&five).await;
    assert!(error.contains("a it belongs to cluster"), "{error}");
    assert!(error.contains("of 3 node(s), you are configured for cluster"), "{error}");
    // Even when the blank ones are a majority of the new list, one foreign node is enough to stop.
    let list = [&all[..1], &nodes(&["x", "y", "z", "w"])[..]].concat();
    let mixed = client(&list).open().await.unwrap();
    let sat_out = Instant::now() + 2 * TTL;
    while Instant::now() < sat_out {
        is_refused(&mixed).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = is_refused(&mixed).await;
    assert!(
        error.contains("x it has no record, and none is written, because a belongs"),
        "{error}"
    );
}

#[tokio::test]
async fn one_node_can_be_added_while_locks_are_held() {
    let all = nodes(&["a", "b", "c", "d"]);
    let old = client(&all[..3]).trust_new_nodes().open().await.unwrap();
    let held = old.lock("l").ttl(TTL).manual().acquire().await.unwrap();
    let new = client(&all).open().await.unwrap();
    new.succeed(&old).await.unwrap();
    is_refused(&old).await;
    assert!(held.extend().await.is_err(), "the old list decides nothing any more");
    let taken = new.lock("l").ttl(TTL).acquire().await.unwrap();
    assert!(held.validity().is_zero(), "the new list respects what the old one granted");
    assert!(taken.fence() > held.fence());
    new.succeed(&old).await.expect("may be repeated");
}

#[tokio::test]
async fn any_other_change_stops_everything_for_the_quarantine() {
    let all = nodes(&["a", "b", "c", "d", "e"]);
    let old = client(&all[..3]).trust_new_nodes().open().await.unwrap();
    let held = old.lock("l").ttl(TTL).manual().acquire().await.unwrap();
    let new = client(&all).open().await.unwrap();
    let start = Instant::now();
    new.succeed(&old).await.unwrap();
    is_refused(&old).await;
    is_refused(&new).await;
    let taken = new.lock("l").ttl(TTL).acquire().await.unwrap();
    assert!(start.elapsed() >= TTL + Duration::from_millis(40), "{:?}", start.elapsed());
    assert!(held.validity().is_zero() && taken.fence() > held.fence());

    // And back to three: the two that left refuse everybody.
    let shrunk = client(&all[..3]).open().await.unwrap();
    shrunk.succeed(&new).await.unwrap();
    is_refused(&new).await;
    assert!(shrunk.lock("l").ttl(TTL).acquire().await.unwrap().fence() > taken.fence());
}

/// The list before allowed longer leases, so its holders live longer than the new list's quarantine.
#[tokio::test]
async fn a_change_waits_for_the_longest_leases_of_both_lists() {
    let all = nodes(&["a", "b", "c"]);
    let old = client(&all[..1]).max_ttl(4 * TTL).open().await.unwrap();
    let held = old.lock("l").ttl(4 * TTL).manual().acquire().await.unwrap();
    let new = client(&all).open().await.unwrap();
    new.succeed(&old).await.unwrap();
    let taken = new.lock("l").ttl(TTL).wait_forever().acquire().await.unwrap();
    assert!(held.validity().is_zero() && taken.fence() > held.fence());
    drop(taken);

    // The same list with other leases is another list.
    let shorter = client(&all).max_ttl(TTL / 2).open().await.unwrap();
    let held = new.lock("m").ttl(TTL).manual().acquire().await.unwrap();
    shorter.succeed(&new).await.unwrap();
    is_refused(&new).await;
    let taken = shorter.lock("m").ttl(TTL / 2).wait_forever().acquire().await.unwrap();
    assert!(held.validity().is_zero() && taken.fence() > held.fence());
}

/// Hears no acquires while it is deaf.
struct Deaf {
    node: Arc<MemoryNode>,
    is_deaf: AtomicBool,
}

impl Node for Deaf {
    fn id(&self) -> &NodeId {
        self.node.id()
    }
    fn ask(&self, ask: leasehold::node::Ask) {
        let is_acquire = matches!(&*ask.request, leasehold_core::Request::Acquire { .. });
        if !is_acquire || !self.is_deaf.load(Ordering::SeqCst) {
            self.node.ask(ask);
        }
    }
    fn generation(&self) -> tokio::sync::watch::Receiver<u64> {
        self.node.generation()
    }
}

/// Two nodes are added one right after the other. They were asked before, so they have waited already;
/// but not since the first list granted its last lease.
#[tokio::test]
async fn nodes_that_are_added_begin_to_wait_when_they_are_added() {
    let all = nodes(&["a", "b", "c", "d", "e"]);
    let deaf = Arc::new(Deaf { node: all[2].clone(), is_deaf: AtomicBool::new(true) });
    let list = |count: usize| {
        let mut list: Vec<Arc<dyn Node>> =
            all[..count].iter().map(|node| node.clone() as Arc<dyn Node>).collect();
        list[2] = deaf.clone();
        Locks::builder().nodes(list).max_ttl(TTL).max_clock_skew(Duration::from_millis(20))
    };
    let three = list(3).trust_new_nodes().open().await.unwrap();
    let (four, five) = (list(4).open().await.unwrap(), list(5).open().await.unwrap());
    tokio::time::sleep(3 * TTL).await;
    let held = three.lock("l").ttl(TTL).manual().acquire().await.expect("by a and b");
    deaf.is_deaf.store(false, Ordering::SeqCst);
    four.succeed(&three).await.unwrap();
    while let Err(error) = five.succeed(&four).await {
        assert!(error.to_string().contains("d: it is not an admitted member"), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let taken = five.lock("l").ttl(TTL).wait_forever().acquire().await.unwrap();
    assert!(held.validity().is_zero(), "c, d and e gave it away {:?} early", held.validity());
    assert!(taken.fence() > held.fence());
}

/// Lists of one look alike to their nodes, and nobody waits there for having forgotten. Whoever holds a
/// lock by the list before is waited for all the same.
#[tokio::test]
async fn a_change_to_one_node_waits_for_the_leases_of_the_old_list() {
    for old_list in [&["a"][..], &["a", "b", "c"]] {
        let all = nodes(&[old_list, &["z"]].concat());
        let (theirs, ours) = all.split_at(old_list.len());
        let old = client(theirs).trust_new_nodes().open().await.unwrap();
        let new = client(ours).open().await.unwrap();
        while !matches!(new.nodes()[0].state, NodeState::Up) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let held = old.lock("l").ttl(TTL).manual().acquire().await.unwrap();
        new.succeed(&old).await.unwrap();
        let taken = new.lock("l").ttl(TTL).wait_forever().acquire().await.unwrap();
        let left = held.validity();
        assert!(left.is_zero(), "of {old_list:?}: given away {left:?} early");
        assert!(taken.fence() > held.fence());
        assert!(old.lock("l").ttl(TTL).try_acquire().await.is_err(), "two lists of {old_list:?}");
        new.succeed(&old).await.expect("may be repeated");
    }
}

#[tokio::test]
async fn of_two_changes_at_once_one_is_told_that_it_was_too_late() {
    for _ in 0..20 {
        let all = nodes(&["a", "b", "c", "d", "e"]);
        let old = client(&all[..3]).trust_new_nodes().open().await.unwrap();
        let one = client(&[&all[..2], &all[3..4]].concat()).open().await.unwrap();
        let other = client(&[&all[..2], &all[4..]].concat()).open().await.unwrap();
        let (first, second) = tokio::join!(one.succeed(&old), other.succeed(&old));
        assert!(first.is_err() || second.is_err(), "both were told that they succeeded");
    }
}

/// A wall clock that can be set.
#[derive(Debug)]
struct Settable {
    hours_ahead: AtomicU64,
}

impl Clock for Settable {
    fn now(&self) -> Moment {
        SystemClock.now()
    }
    fn wall(&self) -> WallMicros {
        let ahead = self.hours_ahead.load(Ordering::SeqCst) * 3_600_000_000;
        WallMicros(SystemClock.wall().0 + ahead)
    }
}

/// A clock of ours that goes on while our process is stopped.
#[derive(Debug, Default)]
struct Stopped {
    seconds: AtomicU64,
}

impl Clock for Stopped {
    fn now(&self) -> Moment {
        SystemClock.now().plus(Duration::from_secs(self.seconds.load(Ordering::SeqCst)))
    }
    fn wall(&self) -> WallMicros {
        SystemClock.wall()
    }
}

/// When it is admitted, our process is stopped for a minute.
struct Stops {
    node: Arc<MemoryNode>,
    clock: Arc<Stopped>,
}

impl Node for Stops {
    fn id(&self) -> &NodeId {
        self.node.id()
    }
    fn ask(&self, ask: leasehold::node::Ask) {
        if let leasehold_core::Request::ReplaceRecord { record, .. } = &*ask.request
            && record.contains("state=admitted")
        {
            self.clock.seconds.store(60, Ordering::SeqCst);
        }
        self.node.ask(ask);
    }
    fn generation(&self) -> tokio::sync::watch::Receiver<u64> {
        self.node.generation()
    }
}

/// Meanwhile somebody else may have set the cluster up, locks may have been granted, and nodes may have
/// lost them.
#[tokio::test]
async fn init_writes_nothing_by_what_nodes_said_long_ago() {
    let all = nodes(&["a", "b", "c"]);
    let clock = Arc::new(Stopped::default());
    let stops = Arc::new(Stops { node: all[0].clone(), clock: clock.clone() });
    let list = vec![stops as Arc<dyn Node>, all[1].clone(), all[2].clone()];
    let settings = Locks::builder().nodes(list).clock(clock).max_ttl(Duration::from_secs(3600));
    let locks = settings.open().await.unwrap();
    let error = locks.init().await.unwrap_err().to_string();
    assert!(error.contains("node b: it was asked too long ago"), "{error}");
    let states: Vec<_> = locks.nodes().into_iter().map(|node| node.state).collect();
    assert!(matches!(states[1], NodeState::Quarantined { .. }), "{states:?}");
    assert!(matches!(states[2], NodeState::Quarantined { .. }), "{states:?}");
}

/// The clocks were wrong when the two gave their fence, and are right when they leave: no clock tells
/// the others how far fences had come.
#[tokio::test]
async fn fences_that_only_nodes_knew_which_leave_are_not_given_again() {
    let clock = Arc::new(Settable { hours_ahead: AtomicU64::new(1) });
    let all: Vec<_> = ["a", "b", "c", "d", "e"]
        .map(|name| Arc::new(MemoryNode::new(NodeId::new(name), clock.clone())))
        .into();
    let deaf = Arc::new(Deaf { node: all[2].clone(), is_deaf: AtomicBool::new(true) });
    let list = |members: &[usize]| {
        let member = |index: &usize| match index {
            2 => deaf.clone() as Arc<dyn Node>,
            index => all[*index].clone(),
        };
        let members = members.iter().map(member).collect();
        Locks::builder().nodes(members).max_ttl(TTL).max_clock_skew(Duration::from_millis(20))
    };
    let old = list(&[0, 1, 2]).trust_new_nodes().open().await.unwrap();
    let held = old.lock("l").ttl(TTL).acquire().await.expect("by a and b");
    let known = held.fence();
    let _ = held.release().await;
    deaf.is_deaf.store(false, Ordering::SeqCst);
    clock.hours_ahead.store(0, Ordering::SeqCst);
    let new = list(&[2, 3, 4]).open().await.unwrap();
    new.succeed(&old).await.unwrap();
    let taken = new.lock("l").ttl(TTL).wait_forever().acquire().await.unwrap();
    assert!(taken.fence() > known, "{} after {known}", taken.fence());
}

#[tokio::test]
async fn init_admits_nobody_that_was_a_member_before() {
    let all = nodes(&["a", "b", "c", "d"]);
    let old = client(&all[..3]).trust_new_nodes().open().await.unwrap();
    let held = old.lock("l").ttl(TTL).manual().acquire().await.unwrap();
    let new = client(&all[1..]).open().await.unwrap();
    new.succeed(&old).await.unwrap();
    let error = new.init().await.unwrap_err().to_string();
    assert!(error.contains("it was a member before"), "{error}");
    let taken = new.lock("l").ttl(TTL).acquire().await.unwrap();
    assert!(held.validity().is_zero() && taken.fence() > held.fence());
}

#[tokio::test]
async fn a_change_needs_every_node() {
    struct Dead(NodeId, tokio::sync::watch::Sender<u64>);
    impl Node for Dead {
        fn id(&self) -> &NodeId {
            &self.0
        }
        fn ask(&self, ask: leasehold::node::Ask) {
            drop(ask);
        }
        fn generation(&self) -> tokio::sync::watch::Receiver<u64> {
            self.1.subscribe()
        }
    }
    let all = nodes(&["a", "b"]);
    let dead: Arc<dyn Node> = Arc::new(Dead(NodeId::new("c"), tokio::sync::watch::Sender::new(0)));
    let list = vec![all[0].clone() as Arc<dyn Node>, all[1].clone(), dead];
    let locks = Locks::builder().nodes(list).max_ttl(TTL).open().await.unwrap();
    let error = locks.init().await.unwrap_err();
    assert!(
        matches!(&error, InitError::Unreachable { node, .. } if node.as_str() == "c"),
        "{error}"
    );
}

#[tokio::test]
async fn clients_must_agree_on_max_ttl() {
    let nodes = nodes(&["a", "b", "c"]);
    let _first = client(&nodes).trust_new_nodes().open().await.unwrap();
    let second = client(&nodes).max_ttl(2 * TTL).open().await.unwrap();
    let error = is_refused(&second).await;
    assert!(error.contains("max_ttl 400ms, you are configured for 800ms"), "{error}");
}

/// Two of three nodes lost their memory, and so the cluster's max_ttl. A client with a shorter one would
/// let them in before the leases are over that the others may have granted.
#[tokio::test]
async fn a_client_with_another_max_ttl_lets_nobody_in_too_early() {
    let nodes = nodes(&["a", "b", "c"]);
    let settings = client(&nodes).max_ttl(20 * TTL);
    let first = settings.clone().trust_new_nodes().open().await.unwrap();
    let held = first.lock("l").ttl(18 * TTL).acquire().await.unwrap();
    nodes[0].forget();
    nodes[1].forget();
    let other = client(&nodes).open().await.unwrap();
    let error = is_refused(&other).await;
    assert!(error.contains("max_ttl 8s, you are configured for 400ms"), "{error}");
    let sat_out = Instant::now() + 3 * TTL;
    while Instant::now() < sat_out {
        is_refused(&other).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = is_refused(&other).await;
    assert!(error.contains("c its cluster has max_ttl 8s"), "{error}");
    drop(held);
}

/// A lease above max_ttl would outlive what others believe in. A node that became a list of one waits.
#[tokio::test]
async fn a_ttl_above_max_ttl_is_refused_also_if_the_node_was_not_known_when_it_was_asked_for() {
    let nodes = nodes(&["a", "b", "c"]);
    let three = client(&nodes).trust_new_nodes().open().await.unwrap();
    let first = client(&nodes[..1]).open().await.unwrap();
    first.succeed(&three).await.unwrap();
    let list = vec![nodes[0].clone() as Arc<dyn Node>];
    let skew = Duration::from_millis(20);
    let adopting = Locks::builder().nodes(list).max_clock_skew(skew).open().await.unwrap();
    let early = adopting.lock("l").ttl(10 * TTL).wait_forever().acquire();
    let early = tokio::time::timeout(20 * TTL, early).await.expect("nobody waits for that");
    let error = early.expect_err("longer than the cluster allows").to_string();
    assert!(error.contains("max_ttl, 400ms"), "{error}");
    assert!(adopting.lock("l").ttl(TTL).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn lists_that_make_no_sense_are_refused_at_once() {
    let twice = nodes(&["a", "b", "a"]);
    let error = client(&twice).open().await.unwrap_err().to_string();
    assert!(error.contains("node a is listed twice"), "{error}");
    let error = client(&[]).open().await.unwrap_err().to_string();
    assert!(error.contains("at least one node"), "{error}");
    let careless = client(&nodes(&["a", "b"])).quarantine(false).open().await.unwrap_err();
    assert!(careless.to_string().contains("quorum of one only"), "{careless}");
    // Even numbers are fine: two of two, three of four.
    let even = client(&nodes(&["a", "b"])).trust_new_nodes().open().await.unwrap();
    assert_eq!(even.quorum(), 2);
    assert!(even.lock("l").ttl(TTL).try_acquire().await.unwrap().is_some());
    for (url, word) in [
        ("nonsense", "no scheme"),
        ("ftp://a", "unknown scheme `ftp`"),
        ("memory:?nodes=0", "1 to 99"),
        ("memory:x", "nothing follows"),
        ("memory:?colour=red", "unknown parameter `colour`; known are prefix"),
        ("memory:?max_ttl=soon", "like 50ms"),
        ("memory:?max_ttl=1ms", "it must be longer"),
        ("memory:?strict=perhaps", "say true or false"),
    ] {
        let error = Locks::open(url).await.unwrap_err().to_string();
        assert!(error.contains(word), "{url}: {error}");
    }
}
