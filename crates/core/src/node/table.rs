//! What one node does, as a function of its state, the time and the request: the identity record, and a
//! [`Row`] per lock, which has the rules. The memory node, the model and the simulation run this code;
//! every other node is tested to answer like it.

use std::collections::BTreeMap;

use crate::{Fence, Holder, LockName, Moment, Owner, Record, Reply, Request, Row, WallMicros};

/// The memory of one node: an owner and a fence per lock name, and the identity record.
///
/// The fence of a name never decreases. It survives expiry and release; an absent one counts as the
/// record's floor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockTable {
    record: Option<String>,
    floor: Fence,
    locks: BTreeMap<LockName, Row>,
}

impl LockTable {
    /// A table that remembers nothing, not even who it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// The identity record, as it stands.
    pub fn record(&self) -> Option<&str> {
        self.record.as_deref()
    }

    /// The highest fence of any lock that is not spent.
    pub fn highest(&self) -> Fence {
        self.fences().filter(|fence| !fence.is_spent()).max().unwrap_or(Fence::ZERO)
    }

    /// Whether the fence of a lock is spent.
    pub fn has_spent(&self) -> bool {
        self.fences().any(Fence::is_spent)
    }

    fn fences(&self) -> impl Iterator<Item = Fence> {
        self.locks.values().filter_map(|row| row.fence)
    }

    /// Who owns `lock` at `now`, for those who watch from outside.
    pub fn owner(&self, now: Moment, lock: &LockName) -> Option<&Holder> {
        match self.locks.get(lock)?.owner_at(now)? {
            Owner::Holder(holder) => Some(holder),
            Owner::OtherLibrary { .. } | Owner::ForeignKey { .. } => None,
        }
    }

    /// One atomic step. `identity` is the record that the asker expects; `clock` is the node's.
    ///
    /// `Probe` is answered by whoever owns the table: it knows what kind of server it is.
    pub fn apply(
        &mut self,
        now: Moment,
        clock: WallMicros,
        identity: Option<&str>,
        request: &Request,
    ) -> Reply {
        if !request.may_come_from(identity, self.record.as_deref()) {
            return Reply::Stranger { record: self.record.clone() };
        }
        match request {
            Request::Acquire { lock, .. }
            | Request::Extend { lock, .. }
            | Request::Release { lock, .. }
            | Request::ForceRelease { lock, .. }
            | Request::Inspect { lock } => self.apply_to(lock, now, clock, request),
            Request::List { prefix } => self.list(now, prefix),
            Request::Probe => Reply::Stranger { record: self.record.clone() },
            Request::ReplaceRecord { expected, record } => {
                self.replace_record(expected.as_deref(), record)
            }
            Request::ForgetIdle { below } => self.forget_idle(now, *below),
        }
    }

    fn apply_to(
        &mut self,
        lock: &LockName,
        now: Moment,
        clock: WallMicros,
        request: &Request,
    ) -> Reply {
        let Some(row) = self.locks.get_mut(lock) else {
            let mut row = Row::default();
            let reply = row.apply(self.floor, now, clock, request);
            if row != Row::default() {
                self.locks.insert(lock.clone(), row);
            }
            return reply;
        };
        // Tables that differ in nothing but owners whose time is over shall be equal.
        if row.owner_at(now).is_none() {
            row.owner = None;
        }
        row.apply(self.floor, now, clock, request)
    }

    fn list(&self, now: Moment, prefix: &str) -> Reply {
        let is_wanted = |(lock, row): &(&LockName, &Row)| {
            lock.as_str().starts_with(prefix) && row.owner_at(now).is_some()
        };
        let wanted = self.locks.iter().filter(is_wanted);
        Reply::Locks(wanted.map(|(lock, row)| row.sighting(now, lock)).collect())
    }

    fn replace_record(&mut self, expected: Option<&str>, record: &str) -> Reply {
        let replaced = self.record.as_deref() == expected;
        if replaced {
            self.record = Some(record.to_owned());
            self.floor = Record::parse(record).map_or(Fence::MAX, |record| record.floor);
        }
        Reply::Record { replaced }
    }

    /// The floor protects every number that is forgotten here, so nothing above it may go.
    fn forget_idle(&mut self, now: Moment, below: Fence) -> Reply {
        let below = below.min(self.floor);
        let before = self.locks.len();
        self.locks.retain(|_, row| {
            let is_owned = row.owner_at(now).is_some();
            is_owned || row.fence.is_some_and(|fence| fence >= below)
        });
        Reply::Forgot { fences: (before - self.locks.len()) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Fingerprint, MemberName, Origin, RecordState, Ttl};

    const CLOCK: WallMicros = WallMicros(7);

    struct Bench {
        table: LockTable,
        record: String,
        lock: LockName,
    }

    fn bench(floor: u64) -> Bench {
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
            floor: Fence::new(floor).unwrap(),
            born: WallMicros(0),
            waits: None,
            clocks: Vec::new(),
        }
        .to_string();
        let mut table = LockTable::new();
        table.replace_record(None, &record);
        Bench { table, record, lock: LockName::new("l").unwrap() }
    }

    impl Bench {
        fn at(&mut self, ms: u64, request: &Request) -> Reply {
            self.table.apply(Moment::from_millis(ms), CLOCK, Some(&self.record), request)
        }
        fn acquire(&self, holder: u128, proposal: u64) -> Request {
            Request::Acquire {
                lock: self.lock.clone(),
                holder: who(holder),
                proposal: Fence::new(proposal).unwrap(),
                ttl: Ttl::new(Duration::from_millis(100)).unwrap(),
            }
        }
        fn extend(&self, holder: u128, token: u64) -> Request {
            self.refresh(holder, token, token)
        }
        fn refresh(&self, holder: u128, token: u64, next: u64) -> Request {
            Request::Extend {
                lock: self.lock.clone(),
                holder: who(holder),
                token: Fence::new(token).unwrap(),
                next: Fence::new(next).unwrap(),
                unbroken: false,
                ttl: Ttl::new(Duration::from_millis(100)).unwrap(),
            }
        }
        fn claim(&self, holder: u128, lowest: u64, highest: u64) -> Request {
            let mut claim = self.refresh(holder, lowest, highest);
            if let Request::Extend { unbroken, .. } = &mut claim {
                *unbroken = true;
            }
            claim
        }
        fn release(&self, holder: u128) -> Request {
            Request::Release { lock: self.lock.clone(), holder: who(holder) }
        }
    }

    fn who(nonce: u128) -> Holder {
        Holder::new("h", nonce).unwrap()
    }

    fn behind(fence: u64) -> Reply {
        Reply::Behind { fence: Fence::new(fence).unwrap() }
    }

    #[test]
    fn a_number_is_given_at_most_once() {
        let mut node = bench(0);
        assert_eq!(node.at(0, &node.acquire(1, 5)), Reply::Granted);
        assert_eq!(node.at(0, &node.release(1)), Reply::Released);
        assert_eq!(node.at(0, &node.acquire(2, 5)), behind(5));
        assert_eq!(node.at(0, &node.acquire(2, 6)), Reply::Granted);
        assert_eq!(node.at(0, &node.acquire(2, 6)), behind(6), "not even to its own owner");
        assert_eq!(node.at(0, &node.acquire(2, 7)), Reply::Granted, "a second round goes higher");
    }

    #[test]
    fn an_absent_fence_counts_as_the_floor() {
        let mut node = bench(10);
        assert_eq!(node.at(0, &node.acquire(1, 10)), behind(10));
        let token = node.extend(1, 9);
        let superseded = Reply::Superseded { fence: Fence::new(10).unwrap() };
        assert_eq!(node.at(0, &token), superseded);
        assert_eq!(node.at(0, &node.acquire(1, 11)), Reply::Granted);
    }

    #[test]
    fn a_refused_acquire_writes_nothing() {
        let mut node = bench(0);
        node.at(0, &node.acquire(1, 5));
        let before = node.table.clone();
        assert!(matches!(node.at(1, &node.acquire(2, 9)), Reply::Busy { .. }));
        assert!(matches!(node.at(1, &node.extend(2, 9)), Reply::Busy { .. }));
        assert_eq!(node.at(1, &node.acquire(1, 4)), behind(5));
        assert_eq!(node.table, before);
    }

    #[test]
    fn a_stranger_changes_nothing_but_may_release() {
        let mut node = bench(0);
        node.at(0, &node.acquire(1, 5));
        let before = node.table.clone();
        let (acquire, extend, release) = (node.acquire(1, 9), node.extend(1, 5), node.release(1));
        for identity in [None, Some("someone else")] {
            let now = Moment::from_millis(1);
            let answer = node.table.apply(now, CLOCK, identity, &acquire);
            assert_eq!(answer, Reply::Stranger { record: Some(node.record.clone()) });
            let answer = node.table.apply(now, CLOCK, identity, &extend);
            assert!(matches!(answer, Reply::Stranger { .. }));
            assert_eq!(node.table, before);
        }
        let answer = node.table.apply(Moment::default(), CLOCK, None, &release);
        assert_eq!(answer, Reply::Released);
    }

    #[test]
    fn expiry_frees_the_lock_and_keeps_the_fence() {
        let mut node = bench(0);
        node.at(0, &node.acquire(1, 5));
        assert!(matches!(node.at(99, &node.acquire(2, 6)), Reply::Busy { .. }));
        assert_eq!(node.at(100, &node.acquire(2, 5)), behind(5));
        assert_eq!(node.at(100, &node.acquire(2, 6)), Reply::Granted);
        let late = Reply::NotHeld { owner: Some(Owner::Holder(who(2))) };
        assert_eq!(node.at(100, &node.release(1)), late, "nobody releases another's lock");
    }

    #[test]
    fn extend_heals_a_free_node_and_yields_to_a_later_fence() {
        let mut node = bench(0);
        assert_eq!(node.at(0, &node.extend(1, 5)), Reply::Healed { clock: CLOCK });
        assert_eq!(node.at(50, &node.extend(1, 5)), Reply::Extended { clock: CLOCK });
        assert_eq!(node.at(149, &node.release(1)), Reply::Released);
        node.at(149, &node.acquire(2, 6));
        node.at(149, &node.release(2));
        let superseded = Reply::Superseded { fence: Fence::new(6).unwrap() };
        assert_eq!(node.at(149, &node.extend(1, 5)), superseded);
    }

    #[test]
    fn an_extension_never_shortens_a_lease() {
        let mut node = bench(0);
        let mut long = node.acquire(1, 5);
        if let Request::Acquire { ttl, .. } = &mut long {
            *ttl = Ttl::new(Duration::from_millis(300)).unwrap();
        }
        node.at(0, &long);
        let extended = Reply::Extended { clock: CLOCK };
        assert_eq!(node.at(50, &node.extend(1, 5)), extended, "by 100 ms");
        assert!(matches!(node.at(299, &node.acquire(2, 6)), Reply::Busy { .. }));
        assert_eq!(node.at(299, &node.extend(1, 5)), extended);
        assert!(matches!(node.at(398, &node.acquire(2, 6)), Reply::Busy { .. }));
        assert_eq!(node.at(399, &node.acquire(2, 6)), Reply::Granted);
    }

    #[test]
    fn a_claim_that_the_owner_does_not_confirm_writes_nothing() {
        let mut node = bench(0);
        let most = Fence::MAX.get();
        let not_held = |owner: Option<u128>| Reply::NotHeld {
            owner: owner.map(|nonce| Owner::Holder(who(nonce))),
        };
        let refused = |node: &mut Bench, now, claim: Request, owner| {
            let before = node.table.clone();
            assert_eq!(node.at(now, &claim), not_held(owner));
            assert_eq!(node.table, before, "{claim:?}");
        };
        let claim = node.claim(1, 1, most);
        refused(&mut node, 0, claim, None);
        node.at(0, &node.acquire(1, 5));
        for (holder, lowest, highest) in [(2, 1, most), (1, 6, most), (1, 1, 4), (1, 6, 4)] {
            let claim = node.claim(holder, lowest, highest);
            refused(&mut node, 10, claim, Some(1));
        }
        // Its own: the time and nothing else.
        let extended = Reply::Extended { clock: CLOCK };
        assert_eq!(node.at(50, &node.claim(1, 1, most)), extended);
        assert_eq!(node.at(50, &node.acquire(1, 6)), Reply::Granted, "the fence is still 5");
        assert!(matches!(node.at(149, &node.acquire(2, 7)), Reply::Busy { .. }));
        // What lapsed is not revived.
        node.at(150, &node.release(2));
        let claim = node.claim(1, 6, 6);
        refused(&mut node, 150, claim, None);
    }

    #[test]
    fn a_lease_is_given_back_to_a_node_that_kept_its_fence_and_to_none_that_forgot_it() {
        let raise = |node: &mut Bench| {
            let mut record = Record::parse(&node.record).unwrap();
            (record.life, record.floor) = (2, Fence::new(100).unwrap());
            let record = record.to_string();
            let former = node.table.record().map(str::to_owned);
            node.table.replace_record(former.as_deref(), &record);
            node.record = record;
        };
        let mut restarted = bench(0);
        restarted.at(0, &restarted.acquire(1, 5));
        raise(&mut restarted);
        assert_eq!(restarted.at(100, &restarted.extend(1, 5)), Reply::Healed { clock: CLOCK });
        let mut forgot = bench(0);
        raise(&mut forgot);
        let superseded = Reply::Superseded { fence: Fence::new(100).unwrap() };
        assert_eq!(forgot.at(100, &forgot.extend(1, 5)), superseded);
    }

    #[test]
    fn a_refresh_raises_the_fence_only_where_the_lease_is_known_or_nobody_came_after_it() {
        let superseded = |fence| Reply::Superseded { fence: Fence::new(fence).unwrap() };
        let extended = Reply::Extended { clock: CLOCK };
        let mut node = bench(0);
        node.at(0, &node.acquire(1, 5));
        assert_eq!(node.at(0, &node.refresh(1, 5, 8)), extended);
        assert_eq!(node.at(0, &node.extend(1, 8)), extended);
        assert_eq!(node.at(0, &node.refresh(1, 5, 9)), extended, "again, after a failed one");
        assert_eq!(node.at(0, &node.refresh(1, 5, 8)), superseded(9), "an older one comes late");
        assert_eq!(node.at(0, &node.extend(1, 8)), superseded(9));
        assert_eq!(node.at(0, &node.acquire(2, 9)), node.at(0, &node.acquire(2, 20)), "both busy");
        node.at(0, &node.release(1));
        let before = node.table.clone();
        assert_eq!(node.at(0, &node.refresh(1, 5, 30)), superseded(9), "9 may be another's");
        assert_eq!(node.table, before);
        assert_eq!(node.at(0, &node.refresh(1, 9, 30)), Reply::Healed { clock: CLOCK });
        assert_eq!(node.at(0, &node.acquire(1, 30)), behind(30));

        let mut forgot = bench(10);
        assert_eq!(forgot.at(0, &forgot.refresh(1, 5, 20)), superseded(10), "it knows nothing");
        assert_eq!(forgot.at(0, &forgot.extend(1, 20)), Reply::Healed { clock: CLOCK });
    }

    #[test]
    fn a_forced_release_cannot_be_healed_back() {
        let mut node = bench(0);
        node.at(0, &node.acquire(1, 5));
        let raised = Fence::new(16).unwrap();
        let force = |holder, fence| Request::ForceRelease {
            lock: LockName::new("l").unwrap(),
            holder: who(holder),
            fence: Fence::new(fence).unwrap(),
            reason: None,
        };
        assert_eq!(node.at(0, &force(1, 5)), Reply::Released);
        assert!(matches!(node.at(0, &node.extend(1, 5)), Reply::Superseded { .. }));
        assert!(matches!(node.at(0, &force(1, 5)), Reply::Superseded { .. }));
        node.at(0, &node.acquire(3, 10));
        node.at(0, &node.refresh(3, 10, 15));
        assert_eq!(node.at(0, &force(3, 10)), Reply::Released, "though it has raised the fence");
        assert_eq!(node.at(0, &node.extend(3, 15)), Reply::Superseded { fence: raised });
        node.at(0, &node.acquire(2, 17));
        let left_alone = Reply::NotHeld { owner: Some(Owner::Holder(who(2))) };
        assert_eq!(node.at(0, &force(1, 17)), left_alone);
    }

    #[test]
    fn idle_fences_go_only_below_the_floor_and_never_while_owned() {
        let mut node = bench(0);
        node.at(0, &node.acquire(1, 5));
        let forget = Request::ForgetIdle { below: Fence::new(100).unwrap() };
        assert_eq!(node.at(0, &forget), Reply::Forgot { fences: 0 }, "the floor is not raised");
        let mut raised = Record::parse(&node.record).unwrap();
        raised.floor = Fence::new(100).unwrap();
        let raised = raised.to_string();
        node.table.replace_record(Some(&node.record.clone()), &raised);
        node.record = raised;
        assert_eq!(node.at(0, &forget), Reply::Forgot { fences: 0 }, "it is owned");
        node.at(0, &node.release(1));
        assert_eq!(node.at(0, &forget), Reply::Forgot { fences: 1 });
        assert_eq!(node.at(0, &node.acquire(2, 6)), behind(100), "forgotten, yet not lowered");
    }
}
