//! Asks a node one thing and waits for the answer.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::node::{Ask, Node, ReplySink, ReplyTo};
use leasehold_core::{Answer, Fence, Pass, Record, Request};

struct Slot(Mutex<Sender<Answer>>);

impl ReplySink for Slot {
    fn answer(&self, _node: usize, _round: u32, answer: Answer) {
        let _ = self.0.lock().unwrap().send(answer);
    }
}

/// Puts `request` to `node`, showing `record` as its identity, and returns where the answer comes.
pub(crate) fn send(
    node: &dyn Node,
    record: Option<&str>,
    request: Request,
    limit: Duration,
) -> std::sync::mpsc::Receiver<Answer> {
    let (sender, answers) = channel();
    let pass = record.map(|record| Pass {
        record: record.into(),
        generation: 1,
        floor: Record::parse(record).map_or(Fence::ZERO, |record| record.floor),
        max_ttl: Duration::from_secs(3600),
        has_waited: true,
    });
    let reply_to = ReplyTo::new(Arc::new(Slot(Mutex::new(sender))), 0, 0);
    node.ask(Ask::new(Arc::new(request), pass.map(Arc::new), reply_to, limit));
    answers
}

/// As [`send`], with time enough, and waits.
pub(crate) fn ask(node: &dyn Node, record: Option<&str>, request: Request) -> Answer {
    let answer = send(node, record, request, Duration::from_secs(10));
    answer.recv_timeout(Duration::from_secs(20)).expect("every request is answered")
}
