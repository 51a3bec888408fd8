//! Why H is promised: leases differ in length, which the model does not know. A late refresh of a
//! former user would give its own length, if that is more, to the lease that was handed over.

use std::time::Duration;

use leasehold_core::{
    Fence, Fingerprint, Holder, LockName, LockTable, MemberName, Moment, Origin, Record,
    RecordState, Reply, Request, Ttl, WallMicros,
};

const SHORT: u64 = 1_000;
const LONG: u64 = 10_000;

struct Node {
    table: LockTable,
    record: String,
    lock: LockName,
}

impl Node {
    fn new() -> Self {
        let record = Record {
            cluster: Fingerprint::of_members(["a"]),
            nodes: 1,
            member: MemberName::of_one(),
            max_ttl: Duration::from_secs(30),
            life: 1,
            run_id: "run".into(),
            replication_id: "-".into(),
            origin: Origin::First,
            state: RecordState::Admitted,
            floor: Fence::ZERO,
            born: WallMicros(0),
            waits: None,
            clocks: Vec::new(),
        };
        let mut node = Self {
            table: LockTable::new(),
            record: record.to_string(),
            lock: LockName::new("lock").unwrap(),
        };
        let record = node.record.as_str().into();
        node.ask(0, &Request::ReplaceRecord { expected: None, record });
        node
    }

    fn ask(&mut self, millis: u64, request: &Request) -> Reply {
        let now = Moment::from_millis(millis);
        self.table.apply(now, WallMicros(0), Some(&self.record), request)
    }

    fn acquire(&mut self, millis: u64, holder: &Holder, proposal: u64, ttl: u64) -> Reply {
        let (lock, holder, proposal) = (self.lock.clone(), holder.clone(), number(proposal));
        self.ask(millis, &Request::Acquire { lock, holder, proposal, ttl: length(ttl) })
    }
}

fn number(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn length(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
}

/// What another is told two seconds after a lease was handed over to a user who wants it for `next`
/// milliseconds, with this proposal, while a refresh to 30 of the one before it, for `first`, was under way.
fn another_is_told(proposal: u64, first: u64, next: u64) -> Reply {
    let mut node = Node::new();
    let holder = Holder::new("handed over", 1).unwrap();
    assert_eq!(node.acquire(0, &holder, 10, first), Reply::Granted);
    let (token, raised) = (number(10), number(30));
    let (lock, ttl) = (node.lock.clone(), length(first));
    let refresh =
        Request::Extend { lock, holder: holder.clone(), token, next: raised, unbroken: false, ttl };
    assert_eq!(node.acquire(100, &holder, proposal, next), Reply::Granted);
    node.ask(200, &refresh);
    node.acquire(2_000, &Holder::new("another", 2).unwrap(), 40, SHORT)
}

#[test]
fn a_late_refresh_would_lengthen_what_was_handed_over_below_it() {
    let reply = another_is_told(20, LONG, SHORT);
    assert!(matches!(reply, Reply::Busy { .. }), "the rule is not needed: {reply:?}");
}

#[test]
fn a_late_refresh_shortens_nothing() {
    let reply = another_is_told(20, SHORT, LONG);
    assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
}

#[test]
fn a_proposal_above_all_that_was_sent_keeps_its_length() {
    assert_eq!(another_is_told(31, LONG, SHORT), Reply::Granted);
    let reply = another_is_told(31, SHORT, LONG);
    assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
}
