//! Member lists: new ones, wrong ones, and how one becomes another. On memory nodes, which forget
//! when told to; the same rules run on every backend.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::clock::SystemClock;
use leasehold::node::{Node, NodeId};
use leasehold::nodes::memory::MemoryNode;
use leasehold::{AcquireError, Builder, InitError, Locks, NodeState};

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
    assert!(error.contains("0 of 3 nodes answered, 2 needed"), "{error}");
    assert!(
        error.contains("a it is new or lost its memory: it does not vote for another"),
        "{error}"
    );
    match &locks.nodes()[0].state {
        NodeState::Quarantined { left, why } => {
            assert!(*left > Duration::ZERO && *left <= TTL + Duration::from_millis(46), "{left:?}");
            assert!(why.contains("lost its memory"), "{why}");
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
    assert!(error.contains("not asked, because a belongs to another cluster"), "{error}");
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

/// A lease above max_ttl would outlive the quarantine of a node that forgot it.
#[tokio::test]
async fn a_ttl_above_max_ttl_is_refused_also_if_no_node_was_known_when_it_was_asked_for() {
    let nodes = nodes(&["a", "b", "c"]);
    let _first = client(&nodes).open().await.unwrap();
    let all = nodes.iter().map(|node| node.clone() as Arc<dyn Node>).collect();
    let skew = Duration::from_millis(20);
    let adopting = Locks::builder().nodes(all).max_clock_skew(skew).open().await.unwrap();
    assert_eq!(adopting.max_ttl(), None, "all nodes sit out their quarantine");
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
