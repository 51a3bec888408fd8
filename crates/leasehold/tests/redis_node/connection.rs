//! Connections that break, stall and lie; scripts that are forgotten; order that holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::node::{Ask, Node, ReplyTo};
use leasehold::nodes::redis::{RedisNode, parse_url};
use leasehold_core::{NodeError, Reply, Request};
use leasehold_testkit::{Fault, Proxy, RedisServer, Value, eventually};

use tokio::runtime::Handle;

use super::support::*;

const SHORT: Duration = Duration::from_millis(300);

/// Calls of scripts that the server is to know. Examinations come whole.
fn scripts(server: &RedisServer) -> u64 {
    calls(server, "evalsha")
}

/// A server that forgot our scripts may have forgotten more.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_our_scripts_is_examined_before_it_votes_again() {
    for (server, protocol) in every_server() {
        let node = connect(&format!("{}{protocol}", server.url()));
        let mut pass = admit(&node, 100).await;
        let mut votes = vec![
            acquire("a", 1, 200),
            extend("a", 1, 200),
            force_release("a", 1, 300),
            Request::ForgetIdle { below: fence(50) },
        ];
        // Each is refused by the server, with an old pass by ourselves, and works with a new one.
        for request in votes.drain(..) {
            server.command(&["SCRIPT", "FLUSH"]).unwrap();
            let stranger = Ok(Reply::Stranger { record: None });
            assert_eq!(ask(&node, request.clone(), Some(&pass)).await, stranger);
            let generation = facts(&node).await.generation;
            assert!(generation > pass.generation);
            assert_eq!(ask(&node, request.clone(), Some(&pass)).await, stranger);
            pass.generation = generation;
            let answer = ask(&node, request, Some(&pass)).await.unwrap();
            assert!(!matches!(answer, Reply::Stranger { .. }), "{answer:?}");
        }
        // What may be carried out by any server is sent whole.
        ask(&node, acquire("b", 2, 400), Some(&pass)).await.unwrap();
        for request in [Request::Inspect { lock: lock("b") }, release("b", 2)] {
            server.command(&["SCRIPT", "FLUSH"]).unwrap();
            ask(&node, request, None).await.unwrap();
        }
        assert!(!server.exists(&key("b")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_script_is_known_by_our_sum_after_the_examination() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        let whole = calls(&server, "eval");
        ask(&node, acquire("a", 1, 200), Some(&pass)).await.unwrap();
        ask(&node, extend("a", 1, 200), Some(&pass)).await.unwrap();
        ask(&node, release("a", 1), None).await.unwrap();
        ask(&node, Request::Inspect { lock: lock("a") }, None).await.unwrap();
        let force = force_release("a", 1, 300);
        ask(&node, force, Some(&pass)).await.unwrap();
        ask(&node, Request::ForgetIdle { below: fence(5) }, Some(&pass)).await.unwrap();
        assert_eq!(calls(&server, "eval"), whole, "no script was unknown");
        assert!(calls(&server, "evalsha") >= 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_script_is_not_sent_for_a_caller_that_gave_up() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        server.pause();
        let (seat, answer) = start(&node, acquire("a", 1, 200), Some(&pass), PATIENCE);
        seat.give_up();
        let (_, released) = start(&node, release("a", 1), None, PATIENCE);
        server.resume();
        assert_eq!(wait(answer).await, Ok(Reply::Stranger { record: None }));
        assert_eq!(wait(released).await, Ok(Reply::NotHeld { owner: None }));
        facts(&node).await;
        assert!(!server.exists(&key("a")) && !server.exists(&server.fences_key()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_nobody_waits_for_is_carried_out_even_by_a_server_that_forgot_it() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        ask(&node, acquire("a", 1, 200), Some(&pass)).await.unwrap();
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let request = Arc::new(release("a", 1));
        node.ask(Ask::new(request, None, ReplyTo::nobody(), SHORT));
        eventually(PATIENCE, "it is released", || !server.exists(&key("a")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_interleaved_cycles_leave_no_key_behind() {
    for server in each_server() {
        let node = Arc::new(connect(&server.url()));
        let pass = admit(&node, 100).await;
        let (proposal, tasks) = (Arc::new(AtomicU64::new(200)), 64_u64);
        let tasks: Vec<_> = (0..tasks)
            .map(|task| {
                let (node, pass, proposal) = (node.clone(), pass.clone(), proposal.clone());
                tokio::spawn(async move {
                    for cycle in 0..10_000 / tasks + 1 {
                        let name = format!("n{}", (task + cycle) % 16);
                        let who = u128::from(task * 1_000_000 + cycle);
                        let p = proposal.fetch_add(1, Ordering::Relaxed);
                        let (_, taken) =
                            start(&node, acquire(&name, who, p), Some(&pass), PATIENCE);
                        let (_, given) = start(&node, release(&name, who), None, PATIENCE);
                        let taken = wait(taken).await.unwrap();
                        let given = wait(given).await.unwrap();
                        let was_taken = taken == Reply::Granted;
                        assert_eq!(was_taken, given == Reply::Released, "{taken:?} {given:?}");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let Ok(Value::Array(keys)) = server.command(&["KEYS", "leasehold:lock:*"]) else {
            panic!()
        };
        assert_eq!(keys, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_answers_with_errors_and_gets_nothing_twice() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        let mut generation = node.generation();
        assert_eq!(*generation.borrow_and_update(), 1);
        // The back-off of a connection that lived for a moment only is not what is looked at here.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        server.pause();
        let pending: Vec<_> = (0..20)
            .map(|i| start(&node, acquire(&format!("n{i}"), 1, 200), Some(&pass), PATIENCE).1)
            .collect();
        server.kill();
        for answer in pending {
            let answer = wait(answer).await;
            assert!(matches!(answer, Err(NodeError::Unreachable { .. })), "{answer:?}");
        }
        eventually(PATIENCE, "refused at once, with the reason", || {
            let (_, mut answer) = start(&node, Request::Probe, None, PATIENCE);
            matches!(answer.try_recv(), Ok(Err(NodeError::Unreachable { reason }))
                if reason == "connection refused")
        });
        server.restart_empty();
        tokio::time::timeout(PATIENCE, generation.changed()).await.unwrap().unwrap();
        assert_eq!(*generation.borrow_and_update(), 2);
        let old = ask(&node, acquire("a", 1, 200), Some(&pass)).await;
        assert_eq!(old, Ok(Reply::Stranger { record: None }));
        let facts = facts(&node).await;
        assert_eq!((facts.generation, facts.record), (2, None));
        assert_eq!(scripts(&server), 0, "nothing was sent again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_reply_was_lost_is_not_sent_again() {
    for server in each_server() {
        let proxy = Proxy::to(server.addr());
        let node = connect(&proxy.url());
        let pass = admit(&node, 100).await;
        let before = scripts(&server);
        // One that lived for a moment only counts as a failed attempt, and what it was asked is dropped.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        proxy.set(Fault::CutAfterRequest);
        let lost = ask(&node, acquire("a", 1, 200), Some(&pass)).await;
        assert!(matches!(lost, Err(NodeError::Unreachable { .. })), "{lost:?}");
        assert_eq!(facts(&node).await.generation, 2);
        assert!(server.exists(&key("a")));
        assert_eq!(scripts(&server), before + 1);
        assert_eq!(ask(&node, release("a", 1), None).await, Ok(Reply::Released));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_is_refused_at_once_and_used_again_when_it_answers() {
    for server in each_server() {
        let node = connect(&server.url());
        let pass = admit(&node, 100).await;
        ask(&node, acquire("mine", 1, 200), Some(&pass)).await.unwrap();
        server.pause();
        let (_, first) = start(&node, acquire("a", 1, 200), Some(&pass), SHORT);
        tokio::time::sleep(SHORT + SHORT / 3).await;
        let (_, mut refused) = start(&node, acquire("b", 1, 200), Some(&pass), SHORT);
        let Ok(Err(NodeError::Overloaded { reason })) = refused.try_recv() else { panic!() };
        assert!(reason.starts_with("no answer for 0.") || reason.starts_with("no answer for 1."));
        // It may be slow, and a probe that was refused would take its vote away.
        let (_, probe) = start(&node, Request::Probe, None, SHORT);
        let (_, release_a) = start(&node, release("a", 1), None, SHORT);
        let (_, release_mine) = start(&node, release("mine", 1), None, SHORT);
        server.resume();
        assert_eq!(wait(first).await, Ok(Reply::Granted));
        assert!(matches!(wait(probe).await, Ok(Reply::Facts(_))));
        assert_eq!(wait(release_a).await, Ok(Reply::Released));
        assert_eq!(wait(release_mine).await, Ok(Reply::Released));
        assert_eq!(ask(&node, acquire("b", 1, 300), Some(&pass)).await, Ok(Reply::Granted));
        assert_eq!(*node.generation().borrow(), 1, "the same connection all along");
        assert!(!server.exists(&key("a")) && !server.exists(&key("mine")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_holds_a_bounded_backlog_and_is_left_after_ten_seconds() {
    let Some(server) = each_server().into_iter().next() else {
        return;
    };
    let proxy = Proxy::to(server.addr());
    let node = connect(&proxy.url());
    let pass = admit(&node, 100).await;
    proxy.set(Fault::BlackHole);
    let began = Instant::now();
    let (_, first) = start(&node, acquire("a", 1, 200), Some(&pass), SHORT);
    let count = 100_000;
    let refused = (0..count)
        .filter(|_| {
            let (_, mut answer) = start(&node, release("a", 1), None, SHORT);
            matches!(answer.try_recv(), Ok(Err(NodeError::Overloaded { .. })))
        })
        .count();
    assert_eq!(refused, count - 65_535, "the rest is turned away at once");
    let lost = wait(first).await;
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    let Err(NodeError::Unreachable { reason }) = lost else { panic!("{lost:?}") };
    assert!(reason.starts_with("no answer for 1"), "{reason}");
    proxy.set(Fault::Pass);
    assert_eq!(facts(&node).await.generation, 2);
    assert!(!server.exists(&key("a")));
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_are_never_a_grant() {
    let lies: [&[u8]; 12] = [
        b"+OK\r\n",
        b":0\r\n",
        b":2\r\n",
        b"$-1\r\n",
        b"_\r\n",
        b"*0\r\n",
        b"*1\r\n:1\r\n",
        b"*2\r\n$4\r\nBUSY\r\n:1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\xff\xfe garbage",
        b"$9999999999\r\n",
        &b"*1\r\n".repeat(5000),
    ];
    for server in each_server() {
        let proxy = Proxy::to(server.addr());
        for protocol in ["?protocol=3", "?protocol=2"] {
            for lie in lies {
                proxy.set(Fault::Pass);
                let node = connect(&format!("{}{protocol}", proxy.url()));
                let pass = admit(&node, 100).await;
                proxy.set(Fault::Garbage(lie.to_vec()));
                let answer = ask(&node, acquire("a", 1, 200), Some(&pass)).await;
                assert_garbled(&answer);
                // And the connection is not believed any more.
                let before = proxy.counts().connections;
                eventually(PATIENCE, "it is left", || proxy.counts().connections > before);
                let mut generation = node.generation();
                proxy.set(Fault::Pass);
                let changed = generation.wait_for(|generation| *generation == 2);
                tokio::time::timeout(PATIENCE, changed).await.unwrap().unwrap();
                assert!(!server.exists(&key("a")));
                server.command(&["DEL", "leasehold:node"]).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_come_byte_by_byte_are_put_together() {
    for server in each_server() {
        let proxy = Proxy::to(server.addr());
        let node = connect(&proxy.url());
        let pass = admit(&node, 100).await;
        proxy.set(Fault::OneByteAtATime);
        assert_eq!(ask(&node, acquire("a", 1, 200), Some(&pass)).await, Ok(Reply::Granted));
        let busy = ask(&node, acquire("a", 2, 300), Some(&pass)).await;
        assert!(matches!(busy, Ok(Reply::Busy { .. })), "{busy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_while_connecting_goes_out_unless_its_time_is_over() {
    for server in each_server() {
        let proxy = Proxy::to(server.addr());
        proxy.set(Fault::Stall);
        let node = connect(&proxy.url());
        let (_, hasty) = start(&node, Request::Probe, None, Duration::from_millis(1));
        let (_, patient) = start(&node, Request::Probe, None, PATIENCE);
        let (_, mut voting) = start(&node, acquire("a", 1, 9), Some(&pass("x", 1, 0)), PATIENCE);
        let not_voting = voting.try_recv();
        assert!(matches!(not_voting, Ok(Err(NodeError::NotVoting { .. }))), "{not_voting:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        proxy.set(Fault::Pass);
        let late = wait(hasty).await;
        assert!(matches!(late, Err(NodeError::TimedOut { .. })), "{late:?}");
        assert!(matches!(wait(patient).await, Ok(Reply::Facts(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_far_server_is_reached_although_nobody_waits_so_long() {
    let Some(server) = each_server().into_iter().next() else { return };
    let proxy = Proxy::to(server.addr());
    proxy.set(Fault::Delay(Duration::from_millis(150)));
    let config = parse_url(&proxy.url()).unwrap().0.remove(0);
    let limit = Duration::from_millis(100);
    let node = RedisNode::connect(config, "".into(), limit, Handle::current()).unwrap();
    let said = words(wait(start(&node, Request::Probe, None, limit).1).await);
    assert_eq!(said, "no connection within 100ms");
    assert_eq!(facts(&node).await.generation, 1);
    assert_eq!(proxy.counts().connections, 1);
}

// On one thread, so that nothing is sent between the last request and the drop.
#[tokio::test]
async fn a_node_that_is_dropped_still_sends_its_releases_and_then_hangs_up() {
    for server in each_server() {
        for round in 1..=10 {
            let node = connect(&server.url());
            let pass = admit(&node, 100).await;
            for i in 0..50 {
                let taken =
                    ask(&node, acquire(&format!("n{i}"), 1, 200 + round), Some(&pass)).await;
                assert_eq!(taken, Ok(Reply::Granted));
            }
            for i in 0..50 {
                let request = Arc::new(release(&format!("n{i}"), 1));
                node.ask(Ask::new(request, None, ReplyTo::nobody(), SHORT));
            }
            drop(node);
            let began = Instant::now();
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let keys = server.command(&["KEYS", "leasehold:lock:*"]).unwrap();
                let clients = server.command(&["CLIENT", "LIST"]).unwrap();
                if keys == Value::Array(vec![])
                    && !clients.as_text().unwrap().contains("name=leasehold ")
                {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "left in round {round}: {keys:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_cannot_keep_a_dropped_node_alive() {
    let Some(server) = each_server().into_iter().next() else {
        return;
    };
    let node = connect(&server.url());
    let pass = admit(&node, 100).await;
    server.pause();
    let (_, answer) = start(&node, acquire("a", 1, 200), Some(&pass), PATIENCE);
    let began = Instant::now();
    drop(node);
    let answer = wait(answer).await;
    assert!(
        matches!(&answer, Err(NodeError::Unreachable { reason }) if reason == "the node was closed")
    );
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_node_whose_runtime_is_gone_answers_at_once() {
    let Some(server) = each_server().into_iter().next() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(async {
        let node = connect(&server.url());
        facts(&node).await;
        node
    });
    drop(runtime);
    let (_, mut answer) = start(&node, Request::Probe, None, SHORT);
    assert!(matches!(answer.try_recv(), Ok(Err(NodeError::Unreachable { .. }))));
}
