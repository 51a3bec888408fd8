//! Why H is promised: leases differ in length, which the model does not know. A late refresh of a
//! former user would give its own length to the lease that was handed over.

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

/// What another is told two seconds after a short lease was handed over to a user who wants a long
/// one, with this proposal, while the short one's refresh to 30 was under way.
fn another_is_told(proposal: u64) -> Reply {
    let mut node = Node::new();
    let holder = Holder::new("handed over", 1).unwrap();
    assert_eq!(node.acquire(0, &holder, 10, SHORT), Reply::Granted);
    let (token, next) = (number(10), number(30));
    let lock = node.lock.clone();
    let refresh = Request::Extend { lock, holder: holder.clone(), token, next, ttl: length(SHORT) };
    assert_eq!(node.acquire(100, &holder, proposal, LONG), Reply::Granted);
    node.ask(200, &refresh);
    node.acquire(2_000, &Holder::new("another", 2).unwrap(), 40, SHORT)
}

#[test]
fn a_late_refresh_would_shorten_what_was_handed_over_below_it() {
    assert_eq!(another_is_told(20), Reply::Granted, "the rule is not needed");
}

#[test]
fn a_proposal_above_all_that_was_sent_keeps_its_length() {
    let reply = another_is_told(31);
    assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
}
