//! What goes out and what comes back, without a network.

use std::sync::Arc;

use leasehold_core::{Fence, Holder, LockName, Pass, Reply, Ttl};

use super::*;
use crate::node::ReplySink;

/// Keeps the answers by the number of the round.
#[derive(Default)]
struct Sink {
    answers: Mutex<Vec<(u32, Answer)>>,
    panics: bool,
}

impl ReplySink for Sink {
    fn answer(&self, _: usize, round: u32, answer: Answer) {
        self.answers.lock().unwrap().push((round, answer));
    }

    fn is_wanted(&self) -> bool {
        assert!(!self.panics, "a sink that panics");
        true
    }
}

fn acquire(name: &str) -> Request {
    Request::Acquire {
        lock: LockName::new(name).unwrap(),
        holder: Holder::new("me", 1).unwrap(),
        proposal: Fence::new(9).unwrap(),
        ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
    }
}

fn release(name: &str) -> Request {
    let (lock, holder) = (LockName::new(name).unwrap(), Holder::new("me", 1).unwrap());
    Request::Release { lock, holder }
}

fn extend(name: &str) -> Request {
    Request::Extend {
        lock: LockName::new(name).unwrap(),
        holder: Holder::new("me", 1).unwrap(),
        token: Fence::new(9).unwrap(),
        next: Fence::new(9).unwrap(),
        unbroken: false,
        ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
    }
}

fn ask(queue: &Queue, sink: &Arc<Sink>, round: u32, request: Request) {
    ask_within(Duration::from_secs(60), queue, sink, round, request);
}

fn ask_within(limit: Duration, queue: &Queue, sink: &Arc<Sink>, round: u32, request: Request) {
    let pass = request.needs_identity().then(|| Pass {
        record: "record".into(),
        generation: 1,
        floor: Fence::ZERO,
        max_ttl: Duration::from_secs(30),
        has_waited: true,
    });
    let reply_to = ReplyTo::new(sink.clone(), 0, round);
    queue.ask(Ask::new(Arc::new(request), pass.map(Arc::new), reply_to, limit));
}

fn receive(queue: &Queue, values: Vec<Value>) -> Result<(), NodeError> {
    queue.receive(&mut Replies { values, ..Replies::default() })
}

fn outgoing(queue: &Queue) -> String {
    let mut out = Vec::new();
    queue.take_outgoing(&mut out);
    String::from_utf8(out).unwrap()
}

fn lost() -> NodeError {
    NodeError::Unreachable { reason: "lost".into() }
}

#[test]
fn the_order_on_the_wire_is_the_order_of_the_calls() {
    let (queue, sink) = (Queue::new(), Arc::new(Sink::default()));
    ask(&queue, &sink, 0, release("early"));
    queue.open(Session::of_connection(1), None);
    ask(&queue, &sink, 1, acquire("a"));
    ask(&queue, &sink, 2, release("a"));
    ask(&queue, &sink, 3, acquire("b"));
    let sent = outgoing(&queue);
    let keys: Vec<_> = sent.lines().filter(|line| line.starts_with("p:")).collect();
    assert_eq!(keys, ["p:early", "p:a", "p:a", "p:b"]);
    receive(&queue, vec![Value::Int(1); 4]).unwrap();
    let expected = [
        (0, Ok(Reply::Released)),
        (1, Ok(Reply::Granted)),
        (2, Ok(Reply::Released)),
        (3, Ok(Reply::Granted)),
    ];
    assert_eq!(*sink.answers.lock().unwrap(), expected);
    assert!(queue.is_idle());
}

#[test]
fn what_was_not_sent_before_a_connection_was_lost_is_never_sent() {
    let (queue, sink) = (Queue::new(), Arc::new(Sink::default()));
    queue.open(Session::of_connection(1), None);
    ask(&queue, &sink, 1, acquire("a"));
    ask(&queue, &sink, 2, release("a"));
    queue.lose(&lost());
    assert_eq!(*sink.answers.lock().unwrap(), [(1, Err(lost())), (2, Err(lost()))]);
    queue.open(Session::of_connection(2), None);
    assert_eq!(outgoing(&queue), "");
    assert_eq!(*queue.generation.borrow(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_is_asked_for_anything_but_new_locks_and_a_hung_one_for_nothing_but_releases() {
    let (queue, sink) = (Queue::new(), Arc::new(Sink::default()));
    let limit = Duration::from_millis(50);
    let refused = |round: u32, request: Request| {
        ask_within(limit, &queue, &sink, round, request);
        let last = sink.answers.lock().unwrap().pop();
        matches!(last, Some((of, Err(NodeError::Overloaded { .. }))) if of == round)
    };
    queue.open(Session::of_connection(1), None);
    assert!(!refused(1, acquire("a")) && !refused(2, extend("a")));
    tokio::time::advance(Duration::from_millis(200)).await;
    assert!(refused(3, acquire("b")));
    assert!(!refused(4, extend("b")) && !refused(5, release("b")));
    assert!(!refused(9, Request::Probe), "a probe that was refused would take its vote away");
    tokio::time::advance(SLOW_FOR).await;
    assert!(refused(6, acquire("c")) && refused(7, extend("c")) && refused(10, Request::Probe));
    assert!(!refused(8, release("c")));
}

#[test]
fn a_reply_too_many_ends_the_connection() {
    let (queue, sink) = (Queue::new(), Arc::new(Sink::default()));
    queue.open(Session::of_connection(1), None);
    ask(&queue, &sink, 1, release("a"));
    let ended = receive(&queue, vec![Value::Int(1), Value::Int(1)]);
    assert!(matches!(ended, Err(NodeError::Garbled { .. })), "{ended:?}");
    assert_eq!(*sink.answers.lock().unwrap(), [(1, Ok(Reply::Released))]);
}

#[test]
fn a_server_that_does_not_know_our_scripts_is_not_sent_them_and_nothing_counts_until_it_is_examined()
 {
    let (queue, sink) = (Queue::new(), Arc::new(Sink::default()));
    queue.open(Session::of_connection(1), None);
    for (round, request) in [(1, acquire("a")), (2, extend("b")), (3, release("c"))] {
        ask(&queue, &sink, round, request);
    }
    outgoing(&queue);
    let unknown = || Value::Error("NOSCRIPT No matching script.".into());
    receive(&queue, vec![unknown(), Value::Int(1), unknown()]).unwrap();
    let stranger = || Ok(Reply::Stranger { record: None });
    assert_eq!(*sink.answers.lock().unwrap(), [(1, stranger()), (2, stranger())]);
    assert_eq!(*queue.generation.borrow(), 2, "so that it is examined");
    let sent = outgoing(&queue);
    assert!(sent.contains("EVAL") && sent.contains("$2\r\nme") | sent.contains("me:"), "{sent}");
    assert!(!sent.contains("proposal"), "only the release is sent whole: {sent}");

    ask(&queue, &sink, 4, acquire("a"));
    assert_eq!(sink.answers.lock().unwrap().last(), Some(&(4, stranger())));
    assert_eq!(outgoing(&queue), "", "it is not even sent");
}

#[test]
fn what_is_answered_after_the_server_dropped_its_data_does_not_count() {
    let (queue, sink) = (Queue::new(), Arc::new(Sink::default()));
    queue.open(Session::of_connection(1), None);
    ask(&queue, &sink, 1, acquire("a"));
    queue.void_passes();
    receive(&queue, vec![Value::Int(1)]).unwrap();
    let stranger = Ok(Reply::Stranger { record: None });
    assert_eq!(*sink.answers.lock().unwrap(), [(1, stranger)]);
    assert_eq!(*queue.generation.borrow(), 2, "so that it is examined");
}

#[test]
fn after_a_panic_half_way_no_reply_is_believed() {
    let (queue, sink) = (Queue::new(), Arc::new(Sink { panics: true, ..Sink::default() }));
    queue.open(Session::of_connection(1), None);
    ask(&queue, &sink, 1, Request::Inspect { lock: LockName::new("a").unwrap() });
    ask(&queue, &sink, 2, acquire("b"));
    let unknown = Value::Error("NOSCRIPT No matching script.".into());
    let panicked = std::panic::AssertUnwindSafe(|| receive(&queue, vec![unknown]));
    assert!(std::panic::catch_unwind(panicked).is_err());
    assert!(receive(&queue, vec![Value::Int(1)]).is_err());
    assert!(queue.objection(Instant::now()).is_some());
    queue.lose(&lost());
    queue.open(Session::of_connection(2), None);
    assert_eq!(outgoing(&queue), "");
    assert!(queue.objection(Instant::now()).is_none());
    assert!(!sink.answers.lock().unwrap().iter().any(|(_, answer)| answer.is_ok()));
}
