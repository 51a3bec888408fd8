//! The cases. Each is given a fresh node.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use leasehold::node::{InLine, Node, Place, Ticket, Watch, Watched};
use leasehold_core::{
    Fence, Fingerprint, Holder, LockName, MemberName, Origin, Record, RecordState, Reply, Request,
    Ttl, WallMicros,
};

use crate::Backend;
use crate::asking::ask;

/// Long enough for a machine that compiles on all cores.
const PATIENCE: Duration = Duration::from_secs(20);

fn lock(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn holder(label: &str) -> Holder {
    Holder::new(label, 1).unwrap()
}

/// Takes `name`, as somebody called `label`, on a node without an identity record.
fn take(node: &dyn Node, name: &str, label: &str) {
    ask(node, None, Request::Probe).unwrap();
    let (lock, holder) = (lock(name), holder(label));
    let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
    let proposal = Fence::new(1_000_000).unwrap();
    let record: std::sync::Arc<str> = record().into();
    let write = Request::ReplaceRecord { expected: None, record: record.clone() };
    assert_eq!(ask(node, None, write), Ok(Reply::Record { replaced: true }));
    let acquire = Request::Acquire { lock, holder, proposal, ttl };
    assert_eq!(ask(node, Some(&record), acquire), Ok(Reply::Granted));
}

fn record() -> String {
    let record = Record {
        cluster: Fingerprint::of_members(["a"]),
        nodes: 1,
        member: MemberName::of_one(),
        max_ttl: Duration::from_secs(30),
        life: 7,
        run_id: "r".into(),
        replication_id: "-".into(),
        origin: Origin::First,
        state: RecordState::Admitted,
        floor: Fence::ZERO,
        born: WallMicros(1),
        waits: None,
        clocks: Vec::new(),
    };
    record.to_string()
}

fn give_back(node: &dyn Node, name: &str, label: &str) {
    let request = Request::Release { lock: lock(name), holder: holder(label) };
    assert_eq!(ask(node, None, request), Ok(Reply::Released));
}

fn watch(node: &dyn Node, name: &str) -> (Watch, Receiver<Watched>) {
    let (tell, told) = channel();
    let tell = Box::new(move |word| {
        let _ = tell.send(word);
    });
    let watch = node.watch(&lock(name), tell);
    (watch.expect("it gives hints"), told)
}

fn stand(
    node: &dyn Node,
    name: &str,
    ticket: Option<Ticket>,
) -> (Box<dyn Place>, Receiver<InLine>) {
    let (tell, told) = channel();
    let tell = Box::new(move |word| {
        let _ = tell.send(word);
    });
    let place = node.stand_in_line(&lock(name), ticket, tell);
    (place.expect("it keeps lines"), told)
}

/// The next word that tells something new; a place may be told again what it knows.
fn first(told: &Receiver<InLine>) -> usize {
    loop {
        match told.recv_timeout(PATIENCE).expect("it comes to be first") {
            InLine::First { others, .. } => return others,
            InLine::Behind(_) => {}
            InLine::Over => panic!("it lost its place"),
        }
    }
}

fn behind(told: &Receiver<InLine>) -> Ticket {
    match told.recv_timeout(PATIENCE).expect("a word") {
        InLine::Behind(ticket) => ticket,
        other => panic!("it should be behind: {other:?}"),
    }
}

pub(crate) fn a_watch_on_a_free_lock_is_told_at_once(backend: &Backend) {
    let (_watch, told) = watch(&*backend.ana, "free");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Watched::Free));
}

pub(crate) fn a_watch_is_told_when_the_lock_is_given_back(backend: &Backend) {
    take(&*backend.ana, "l", "ana");
    let (_watch, told) = watch(&*backend.ben, "l");
    // Words come in order: when this one is there, the other one would be.
    let (_other, free) = watch(&*backend.ben, "free");
    assert_eq!(free.recv_timeout(PATIENCE), Ok(Watched::Free));
    assert_eq!(told.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    give_back(&*backend.ana, "l", "ana");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Watched::Free));
}

pub(crate) fn a_watch_that_is_over_is_told_nothing(backend: &Backend) {
    take(&*backend.ana, "l", "ana");
    let (over, told) = watch(&*backend.ben, "l");
    let (_watch, free) = watch(&*backend.ben, "l");
    drop(over);
    give_back(&*backend.ana, "l", "ana");
    assert_eq!(free.recv_timeout(PATIENCE), Ok(Watched::Free));
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

pub(crate) fn those_in_line_become_first_in_their_order(backend: &Backend) {
    let (one, told) = stand(&*backend.ana, "l", None);
    assert_eq!(first(&told), 0);
    let (two, told_two) = stand(&*backend.ben, "l", None);
    let ticket = behind(&told_two);
    let (three, told_three) = stand(&*backend.ana, "l", None);
    assert!(behind(&told_three) > ticket);
    drop(one);
    assert_eq!(first(&told_two), 1, "one is behind it");
    drop(two);
    assert_eq!(first(&told_three), 0);
    drop(three);
    let (_four, told) = stand(&*backend.ben, "l", None);
    assert_eq!(first(&told), 0, "the line is empty again");
}

pub(crate) fn a_ticket_keeps_its_place(backend: &Backend) {
    let (one, told) = stand(&*backend.ana, "l", None);
    first(&told);
    let (two, told_two) = stand(&*backend.ben, "l", None);
    let ticket = behind(&told_two);
    let (three, told_three) = stand(&*backend.ana, "l", None);
    behind(&told_three);
    // It lost its way for a moment, and comes back.
    drop(two);
    let (_two, told_two) = stand(&*backend.ben, "l", Some(ticket));
    assert_eq!(behind(&told_two), ticket);
    drop(one);
    assert_eq!(first(&told_two), 1);
    let is_first = |word| matches!(word, InLine::First { .. });
    assert!(!told_three.try_iter().any(is_first), "it came later");
    drop(three);
}

pub(crate) fn locks_have_lines_of_their_own(backend: &Backend) {
    let (_one, told) = stand(&*backend.ana, "l", None);
    let (_other, told_other) = stand(&*backend.ben, "l2", None);
    assert_eq!((first(&told), first(&told_other)), (0, 0));
}

pub(crate) fn a_nudge_is_heard_by_the_holder(backend: &Backend) {
    let (tell, told) = channel();
    backend.ana.on_nudge(Box::new(move |lock| drop(tell.send(lock.clone()))));
    // Connected, and so within earshot.
    ask(&*backend.ana, None, Request::Probe).unwrap();
    let (place, in_line) = stand(&*backend.ben, "l", None);
    // Before there is a way to the node, and after.
    place.nudge(&holder("ana"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(lock("l")));
    first(&in_line);
    place.nudge(&holder("ana"));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(lock("l")));
}
