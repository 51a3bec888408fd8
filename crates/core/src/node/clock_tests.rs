//! Members with clocks of their own, examined by one client after the other: by whose clock a
//! quarantine is served, which clocks count, and what floor a member comes back with.

use std::time::Duration;

use crate::{
    Admission, AdmissionPolicy, AdmissionStep, Cause, ClockSample, Drift, Facts, Fence,
    Fingerprint, Holder, Line, LockName, MemberName, Moment, NodeError, Record, RecordState,
    Request, Role, Roster, ServerFacts, Standing, Ttl, WallMicros,
};

pub(crate) const SECOND: u64 = 1_000_000;
/// What right clocks show when ours begins.
const EPOCH: u64 = 1_800_000_000 * SECOND;
/// 30 s, 1 % and 2 ms of drift, and twice a second of skew.
const QUARANTINE: u64 = 32_302_000;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What one node has.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) record: Option<Record>,
    pub(crate) highest: Fence,
    has_spent: bool,
    /// Its clock minus a right one.
    pub(crate) off: i64,
    pub(crate) is_up: bool,
    process: u32,
}

/// The nodes, and one client.
pub(crate) struct Cluster {
    pub(crate) policy: AdmissionPolicy,
    pub(crate) nodes: Vec<Node>,
    pub(crate) members: Vec<Admission>,
    pub(crate) roster: Roster,
    /// In microseconds.
    now: u64,
    /// How much of that the client's clock missed.
    stood_still: u64,
    /// How long an answer takes.
    trip: u64,
    lives: u128,
}

pub(crate) fn policy(nodes: usize) -> AdmissionPolicy {
    AdmissionPolicy {
        cluster: Fingerprint::of_members(NAMES[..nodes].iter().copied()),
        nodes,
        max_ttl: Some(Duration::from_secs(30)),
        max_ttl_default: Duration::from_secs(30),
        drift: Drift::DEFAULT,
        max_clock_skew: Duration::from_secs(1),
        quarantine: nodes > 1,
        strict: false,
    }
}

fn names(policy: &AdmissionPolicy) -> Vec<MemberName> {
    NAMES[..policy.nodes].iter().map(|name| policy.member(name)).collect()
}

impl Cluster {
    /// All nodes have been admitted long ago.
    pub(crate) fn new(count: usize) -> Self {
        let policy = policy(count);
        let (record, highest, has_spent) = (None, Fence::ZERO, false);
        let blank = Node { record, highest, has_spent, off: 0, is_up: true, process: 0 };
        let mut cluster = Self {
            nodes: vec![blank; count],
            members: NAMES[..count].iter().map(|n| Admission::new(policy.clone(), n)).collect(),
            roster: Roster::new(names(&policy), &policy),
            policy,
            now: 1_000 * SECOND,
            stood_still: 0,
            trip: 0,
            lives: 100,
        };
        for (node, name) in NAMES[..count].iter().enumerate() {
            let record = Record {
                cluster: cluster.policy.cluster,
                nodes: count,
                member: cluster.policy.member(name),
                max_ttl: Duration::from_secs(30),
                life: node as u128,
                run_id: format!("{node}-0"),
                replication_id: "repl".into(),
                origin: crate::Origin::First,
                state: RecordState::Admitted,
                floor: Fence::new(5).unwrap(),
                born: WallMicros(EPOCH),
                waits: None,
                clocks: Vec::new(),
            };
            cluster.nodes[node].record = Some(record);
        }
        cluster
    }

    /// The client's clock.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos((self.now - self.stood_still) * 1000)
    }

    pub(crate) fn clock(&self, node: usize) -> WallMicros {
        WallMicros((EPOCH + self.now).saturating_add_signed(self.nodes[node].off))
    }

    fn facts(&self, node: usize) -> Facts {
        let Node { record, highest, has_spent, process, .. } = &self.nodes[node];
        let run_id = format!("{node}-{process}");
        Facts {
            generation: 1,
            clock: self.clock(node),
            record: record.as_ref().map(Record::to_string),
            highest: *highest,
            has_spent: *has_spent,
            others: vec![run_id.clone()],
            server: ServerFacts {
                version: "redis 7.0.15".into(),
                run_id,
                replication_id: "repl".into(),
                role: Role::Primary,
                evicts: None,
                persists: false,
                expires_by_wall: true,
            },
            unmet: 0,
            addresses: 1,
        }
    }

    /// Examines one member, and writes what that asks for. Says how many records were written.
    pub(crate) fn look(&mut self, member: usize) -> usize {
        let mut written = 0;
        loop {
            if !self.nodes[member].is_up {
                self.roster.hide(member);
                self.members[member].down(NodeError::TimedOut { after: Duration::ZERO });
                return written;
            }
            let sent = self.now();
            self.now += self.trip / 2;
            let facts = self.facts(member);
            self.now += self.trip.div_ceil(2);
            let received = self.now();
            let sample = ClockSample { sent, received, clock: facts.clock };
            self.lives += 1;
            let twin = self.roster.show(member, &facts);
            let peers = self.roster.peers(member, twin, sample);
            let step = self.members[member].examine(sent, received, &facts, self.lives, &peers);
            self.roster.note(member, sent, &self.members[member], &facts);
            for (other, admission) in self.members.iter_mut().enumerate() {
                admission.compared(received, self.roster.line(other));
            }
            let AdmissionStep::Replace { record, .. } = step else { return written };
            self.nodes[member].record = Some(record);
            written += 1;
            assert!(written < 5, "it is never content");
        }
    }

    pub(crate) fn look_at_all(&mut self) {
        for member in 0..self.members.len() {
            self.look(member);
        }
    }

    /// Lets time pass, with a look at all members each second.
    pub(crate) fn watch(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            self.now = (self.now + SECOND).min(end);
            self.look_at_all();
        }
    }

    /// Lets time pass while nobody looks.
    pub(crate) fn pass(&mut self, micros: u64) {
        self.now += micros;
    }

    /// Another client, which has seen nothing yet.
    pub(crate) fn newcomer(&mut self) {
        let policy = &self.policy;
        self.roster = Roster::new(names(policy), policy);
        let new = |name: &&str| Admission::new(policy.clone(), name);
        self.members = NAMES[..policy.nodes].iter().map(new).collect();
    }

    /// What one client knows stands aside while another one looks.
    fn exchange(&mut self, (members, roster): &mut (Vec<Admission>, Roster)) {
        std::mem::swap(&mut self.members, members);
        std::mem::swap(&mut self.roster, roster);
    }

    /// A node restarts with nothing.
    pub(crate) fn forget(&mut self, node: usize) {
        let process = self.nodes[node].process + 1;
        let (highest, has_spent, record) = (Fence::ZERO, false, None);
        self.nodes[node] = Node { record, highest, has_spent, process, ..self.nodes[node].clone() };
    }

    pub(crate) fn record(&self, node: usize) -> &Record {
        self.nodes[node].record.as_ref().expect("a record")
    }

    fn state(&self, node: usize) -> RecordState {
        self.record(node).state
    }

    fn votes(&self) -> Vec<bool> {
        self.members.iter().map(|member| member.standing().pass().is_some()).collect()
    }

    fn waits_for(&self, member: usize) -> String {
        self.members[member]
            .standing()
            .objection(self.now())
            .map_or_else(String::new, |o| o.to_string())
    }
}

/// Three nodes, of which the first has just forgotten and been looked at with the others.
fn one_forgot() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    assert_eq!(cluster.votes(), [true; 3]);
    cluster.forget(0);
    cluster.look_at_all();
    assert_eq!(cluster.record(0).clocks.len(), 3);
    assert!(cluster.record(0).clocks.iter().all(Option::is_some));
    cluster
}

const SECONDS: fn(i64) -> i64 = |seconds| seconds * SECOND as i64;

// What an operator is told of fences.

#[test]
fn fences_far_ahead_of_a_right_clock_are_told() {
    let year = 364 * 86_400 * SECOND;
    for (ahead, off, says) in [
        (0, 0, None),
        (2 * SECOND - 10, 0, None),
        (2 * SECOND + 10, 0, Some("its highest fence is 2.0s ahead of its clock")),
        (year, 0, Some("its highest fence is 364 d ahead of its clock")),
        // It is the clock that is wrong.
        (600 * SECOND, -SECONDS(600), None),
    ] {
        let mut cluster = Cluster::new(3);
        cluster.look_at_all();
        cluster.nodes[1].highest = Fence::new(cluster.clock(1).0 + ahead).unwrap();
        cluster.nodes[1].off = off;
        cluster.look_at_all();
        let warning = cluster.members[1].warning().map(str::to_owned);
        assert_eq!(warning.is_some(), says.is_some(), "{ahead} {off}: {warning:?}");
        assert!(warning.unwrap_or_default().contains(says.unwrap_or_default()));
        // Its floor is told like a fence: it stands for fences that were dropped.
        cluster.nodes[1].record.as_mut().unwrap().floor = cluster.nodes[1].highest;
        cluster.nodes[1].highest = Fence::ZERO;
        cluster.look(1);
        assert_eq!(cluster.members[1].warning().is_some(), says.is_some());
    }
}

#[test]
fn a_lock_whose_fence_is_spent_is_told_and_is_no_floor_for_the_others() {
    let mut table = crate::LockTable::new();
    let mut cluster = Cluster::new(3);
    let text: std::sync::Arc<str> = cluster.record(0).to_string().into();
    let record = Request::ReplaceRecord { expected: None, record: text.clone() };
    table.apply(Moment::default(), WallMicros(0), None, &record);
    for (lock, fence) in [("used", 700), ("made-up", Fence::MAX.get())] {
        let (lock, holder) = (LockName::new(lock).unwrap(), Holder::new("h", 1).unwrap());
        let proposal = Fence::new(fence).unwrap();
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        let acquire = Request::Acquire { lock, holder, proposal, ttl };
        table.apply(Moment::default(), WallMicros(0), Some(&text), &acquire);
    }
    assert_eq!((table.highest().get(), table.has_spent()), (700, true));
    cluster.nodes[0].has_spent = true;
    cluster.look_at_all();
    let warning = cluster.members[0].warning().expect("a warning");
    assert!(warning.contains("is used up"), "{warning}");
    assert_eq!(cluster.members[1].warning(), None);
}

// The line of clocks.

#[test]
fn clocks_within_the_skew_of_a_quorum_are_in_line() {
    let mut cluster = Cluster::new(3);
    (cluster.nodes[0].off, cluster.nodes[2].off) = (-SECONDS(1) + 10, SECONDS(1) - 10);
    cluster.look_at_all();
    // The two at the ends are two seconds apart, and each is in line with the one in the middle.
    assert_eq!([0, 1, 2].map(|member| cluster.roster.line(member)), [Line::InLine; 3]);
    assert_eq!(cluster.votes(), [true; 3]);
}

#[test]
fn a_clock_that_is_off_a_quorum_grants_nothing_and_is_told_how_far_off_it_is() {
    for (off, says) in [
        (SECONDS(364 * 86_400), "its clock is 364 d ahead of the others"),
        (-SECONDS(600), "its clock is 600 s behind the others"),
        (i64::MAX, " d ahead of the others"),
    ] {
        let mut cluster = Cluster::new(3);
        cluster.nodes[1].off = off;
        cluster.look_at_all();
        assert_eq!(cluster.votes(), [true, false, true]);
        let Line::Off { micros, is_outvoted: true } = cluster.roster.line(1) else { panic!() };
        let most = SECONDS(3_600_000_000);
        assert!((micros - off).abs() < 10 || micros > most, "{micros}");
        assert!(cluster.waits_for(1).contains(says), "{}", cluster.waits_for(1));
        // It keeps what it has, unless it would end that when it is put right.
        assert_eq!(cluster.members[1].pass_to_extend().is_some(), off > 0);
        let request = Request::Extend {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            token: Fence::ZERO,
            next: Fence::ZERO,
            unbroken: false,
            ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
        };
        let pass = cluster.members[1].pass_for(|| cluster.now(), &request);
        assert_eq!(pass.is_ok(), off > 0, "{pass:?}");
        // With one that agrees away, nobody can tell which of the two is wrong, and both extend.
        cluster.nodes[2].is_up = false;
        cluster.look_at_all();
        cluster.look_at_all();
        assert_eq!(cluster.votes(), [false; 3]);
        for member in [0, 1] {
            let pass = cluster.members[member].pass_for(|| cluster.now(), &request);
            assert!(pass.is_ok(), "{pass:?}");
        }
        cluster.nodes[2].is_up = true;

        cluster.nodes[1].off = 0;
        cluster.watch(SECOND);
        assert_eq!(cluster.roster.line(1), Line::InLine, "somebody put it right");
    }
}

#[test]
fn a_clock_behind_by_a_microsecond_more_than_the_skew_is_off() {
    for (beyond, is_off) in [(-10, false), (10, true)] {
        let mut cluster = Cluster::new(3);
        cluster.nodes[2].off = -SECONDS(1) - beyond;
        cluster.look_at_all();
        assert_eq!(matches!(cluster.roster.line(2), Line::Off { .. }), is_off);
    }
}

#[test]
fn without_a_quorum_of_clocks_nobody_is_off() {
    let mut cluster = Cluster::new(5);
    cluster.nodes[0].off = SECONDS(600);
    cluster.look(0);
    cluster.look(1);
    assert_eq!(cluster.roster.line(0), Line::Unknown);
    assert_eq!(cluster.roster.line(1), Line::Unknown);
    assert_eq!(cluster.roster.line(4), Line::Unknown, "nobody asked it");
    cluster.look(2);
    cluster.look(3);
    assert!(matches!(cluster.roster.line(0), Line::Off { .. }));
    assert_eq!(cluster.roster.line(1), Line::InLine);
    cluster.nodes[3].is_up = false;
    cluster.look(3);
    // Those who answer are still three, and two of them agree: no quorum does.
    assert!(matches!(cluster.roster.line(1), Line::Off { .. }));
    cluster.nodes[2].is_up = false;
    cluster.look(2);
    assert_eq!(cluster.roster.line(0), Line::Unknown);
}

#[test]
fn a_slow_answer_blurs_a_clock_and_a_sharp_one_is_remembered() {
    let mut cluster = Cluster::new(3);
    cluster.nodes[0].off = SECONDS(3);
    cluster.trip = 10 * SECOND;
    cluster.look_at_all();
    assert_eq!(cluster.roster.line(0), Line::InLine, "nobody can tell");
    cluster.trip = 0;
    cluster.watch(SECOND);
    assert!(matches!(cluster.roster.line(0), Line::Off { .. }));
    cluster.trip = 10 * SECOND;
    cluster.look(0);
    assert!(matches!(cluster.roster.line(0), Line::Off { .. }), "that is known already");
    assert_eq!(cluster.votes(), [false, true, true]);
}

#[test]
fn the_only_node_is_always_in_line() {
    let mut cluster = Cluster::new(1);
    cluster.nodes[0].off = SECONDS(86_400);
    cluster.look(0);
    assert_eq!(cluster.roster.line(0), Line::InLine);
    assert_eq!(cluster.votes(), [true]);
}

#[test]
fn the_clock_of_a_server_that_is_not_the_member_is_no_witness() {
    let mut cluster = Cluster::new(3);
    cluster.nodes[2].record.as_mut().unwrap().nodes = 5;
    cluster.nodes[2].off = SECONDS(600);
    cluster.nodes[1].is_up = false;
    cluster.look_at_all();
    assert!(matches!(cluster.members[2].standing(), Standing::Foreign { .. }));
    assert_eq!(cluster.roster.line(0), Line::Unknown);
    assert_eq!(cluster.roster.line(2), Line::Unknown);
}

#[test]
fn whatever_clocks_say_nothing_overflows() {
    let wild = [0, 1, SECOND, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
    for first in wild {
        for second in wild {
            let mut cluster = Cluster::new(3);
            cluster.forget(0);
            for clock in [first, second, first] {
                // As far as an offset can say it.
                let right = EPOCH + cluster.now;
                cluster.nodes[0].off = clock.wrapping_sub(right) as i64;
                cluster.nodes[1].off = second.wrapping_sub(right) as i64;
                cluster.watch(SECOND);
            }
            assert!(cluster.members[0].standing().pass().is_none());
        }
    }
}

// Steps of clocks.

#[test]
fn a_step_back_suspends_nothing_while_it_stays_within_the_skew() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    for node in 0..3 {
        cluster.nodes[node].off = -SECONDS(1) / 2;
    }
    cluster.watch(SECOND);
    assert_eq!(cluster.votes(), [true; 3]);
    for member in &cluster.members {
        assert_eq!(member.settles_for(cluster.now()), Duration::ZERO);
        assert!(member.jumps().is_empty());
    }
}

#[test]
fn a_small_step_ahead_makes_votes_count_later_until_the_quarantine_is_over() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    cluster.nodes[0].off = 100_000;
    cluster.watch(SECOND);
    let later = |cluster: &Cluster| cluster.members[0].settles_for(cluster.now()).as_micros();
    assert!((99_990..100_010).contains(&later(&cluster)), "{}", later(&cluster));
    cluster.nodes[0].off += 150_000;
    cluster.watch(SECOND);
    assert!((249_980..250_020).contains(&later(&cluster)), "{}", later(&cluster));
    assert_eq!(cluster.votes(), [true; 3], "within the allowance for 30 s, which is 302 ms");
    cluster.nodes[0].off += 100_000;
    cluster.watch(SECOND);
    assert_eq!(cluster.votes(), [false, true, true], "not any more");
    assert!(matches!(
        cluster.members[0].standing(),
        Standing::Waiting { cause: Cause::Clock(_), .. }
    ));
    assert!(cluster.members[0].pass_to_extend().is_some());
    cluster.watch(QUARANTINE);
    assert_eq!((cluster.votes(), later(&cluster)), (vec![true; 3], 0));
}

#[test]
fn a_clock_that_cannot_stand_still_does_not_fill_our_memory() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    for _ in 0..1_000 {
        cluster.nodes[0].off = if cluster.nodes[0].off == 0 { i64::MAX / 2 } else { 0 };
        cluster.pass(10_000);
        cluster.look(0);
    }
    let member = &cluster.members[0];
    assert!(member.jumps().len() < 100, "{}", member.jumps().len());
    let sum = member.settles_for(cluster.now());
    assert!(sum >= Duration::from_micros(i64::MAX as u64 / 2) * 490, "none is forgotten: {sum:?}");
}

#[test]
fn jumps_are_remembered_for_as_long_as_the_longest_lease_that_the_record_allows() {
    let mut cluster = Cluster::new(1);
    cluster.policy.max_ttl = None;
    cluster.newcomer();
    cluster.nodes[0].record.as_mut().unwrap().max_ttl = Duration::from_secs(86_400);
    cluster.look(0);
    for _ in 0..2 {
        cluster.nodes[0].off += SECONDS(60);
        cluster.pass(3_600 * SECOND);
        cluster.look(0);
    }
    assert_eq!(cluster.members[0].jumps().len(), 2, "a lease of a day may have begun before");
}

#[test]
fn a_node_whose_clock_went_ahead_is_asked_for_leases_that_its_jump_does_not_matter_to() {
    let lock = LockName::new("l").unwrap();
    let holder = Holder::new("h", 1).unwrap();
    let ttl = |seconds| Ttl::new(Duration::from_secs(seconds)).unwrap();
    let fence = Fence::new(9).unwrap();
    let acquire = |seconds| Request::Acquire {
        lock: lock.clone(),
        holder: holder.clone(),
        proposal: fence,
        ttl: ttl(seconds),
    };
    let extend = |seconds| Request::Extend {
        lock: lock.clone(),
        holder: holder.clone(),
        token: fence,
        next: fence,
        unbroken: false,
        ttl: ttl(seconds),
    };
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    let later = |cluster: &Cluster, request: &Request| {
        let now = cluster.now();
        let later = || cluster.members[0].settles_for(now).as_millis();
        cluster.members[0].pass_for(|| now, request).map(|_| later())
    };
    assert_eq!(later(&cluster, &acquire(30)), Ok(0));
    assert!(matches!(later(&cluster, &acquire(31)), Err(NodeError::Rejected { .. })));
    assert!(matches!(later(&cluster, &extend(31)), Err(NodeError::Rejected { .. })));
    cluster.nodes[0].off = 150_000;
    cluster.watch(SECOND);
    // 1 % and 2 ms: 302 ms of 30 s, 102 ms of 10 s.
    assert_eq!(later(&cluster, &acquire(30)), Ok(150));
    assert!(matches!(later(&cluster, &acquire(10)), Err(NodeError::NotVoting { .. })));
    assert!(later(&cluster, &extend(10)).is_ok(), "what it keeps it keeps from now on");
    cluster.nodes[0].off = SECONDS(600);
    cluster.watch(SECOND);
    assert!(matches!(later(&cluster, &acquire(30)), Err(NodeError::NotVoting { .. })));
    assert!(later(&cluster, &extend(10)).is_ok());
}

#[test]
fn steps_of_the_only_node_take_no_vote_and_delay_none() {
    let mut cluster = Cluster::new(1);
    cluster.look(0);
    for step in [SECONDS(3_600), 20_000, -SECONDS(86_400)] {
        cluster.nodes[0].off += step;
        cluster.watch(SECOND);
        assert_eq!(cluster.votes(), [true]);
        assert_eq!(cluster.members[0].settles_for(cluster.now()), Duration::ZERO);
    }
    assert_eq!(cluster.members[0].jumps().len(), 2, "holders are told of those ahead");
}

#[test]
fn a_node_that_does_not_answer_is_not_asked_to_extend() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    assert!(cluster.members[0].pass_to_extend().is_some());
    cluster.nodes[0].is_up = false;
    cluster.look(0);
    assert!(cluster.members[0].pass_to_extend().is_none());
    cluster.nodes[0].is_up = true;
    cluster.forget(0);
    cluster.look(0);
    assert!(cluster.members[0].pass_to_extend().is_none(), "nor one that waits");
}

// Quarantines, by the clocks of all.

#[test]
fn a_quarantine_is_served_when_all_clocks_that_began_it_say_so_to_a_client_that_starts_then() {
    for (passed, serves) in [(QUARANTINE - 100, false), (QUARANTINE + 100, true)] {
        let mut cluster = one_forgot();
        cluster.pass(passed);
        cluster.newcomer();
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.state(0) == RecordState::Admitted, serves);
        assert_eq!(cluster.votes(), [serves, true, true]);
        if serves {
            assert!(cluster.record(0).clocks.is_empty());
            assert_eq!(cluster.record(0).floor.get(), cluster.clock(0).0, "above its clock");
        }
    }
}

#[test]
fn clocks_that_slow_answers_blur_end_a_quarantine_no_sooner() {
    for (short_of, serves) in [(1_700_000, false), (1_000_000, true)] {
        let mut cluster = one_forgot();
        cluster.pass(QUARANTINE - short_of);
        cluster.newcomer();
        // Four answers, of which each may be a fifth of a second off.
        cluster.trip = 400_000;
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.state(0) == RecordState::Admitted, serves);
    }
}

#[test]
fn a_witness_of_which_a_slow_answer_tells_little_does_not_begin_a_quarantine_anew() {
    let mut cluster = one_forgot();
    let born = cluster.record(0).born;
    for _ in 0..10 {
        cluster.pass(2 * SECOND);
        cluster.newcomer();
        cluster.look(0);
        cluster.look(1);
        // More than the skew and drift of what has passed.
        cluster.trip = 6 * SECOND;
        cluster.look(2);
        cluster.trip = 0;
        cluster.look(0);
        if cluster.state(0) == RecordState::Admitted {
            return;
        }
        assert_eq!(cluster.record(0).born, born);
    }
    panic!("{:?}", cluster.record(0));
}

#[test]
fn a_life_that_waited_while_another_voted_in_its_place_begins_anew() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    let first = cluster.nodes[0].clone();
    cluster.forget(0);
    cluster.watch(2 * SECOND);
    let mut other = cluster.nodes[0].clone();
    cluster.nodes[0] = first;
    cluster.watch(20 * SECOND);
    assert_eq!(cluster.votes(), [true; 3], "the other one gave no votes");
    std::mem::swap(&mut cluster.nodes[0], &mut other);
    let began = cluster.now;
    cluster.look_at_all();
    assert_eq!(cluster.record(0).born, cluster.clock(0));
    // The one that saw it wrote it down for those who did not.
    cluster.pass(QUARANTINE - 100);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    cluster.watch(SECOND);
    assert_eq!(cluster.state(0), RecordState::Admitted);
    assert!(cluster.now - began > QUARANTINE);
}

/// A client whose connection to the waiting server lasts sees it wait all the time, whatever answers
/// the others at its address.
#[test]
fn who_only_watched_a_life_wait_does_not_admit_it_if_another_voted_meanwhile() {
    for count in [3, 1] {
        let mut cluster = Cluster::new(count);
        cluster.policy.quarantine = true;
        cluster.newcomer();
        cluster.look_at_all();
        let first = cluster.nodes[0].clone();
        cluster.forget(0);
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.state(0), RecordState::Quarantined);
        let seer = (cluster.members.clone(), cluster.roster.clone());
        cluster.newcomer();
        cluster.look_at_all();
        let mut other = seer;
        cluster.exchange(&mut other);
        let waiting = std::mem::replace(&mut cluster.nodes[0], first);
        cluster.watch(20 * SECOND);
        assert!(cluster.votes()[0], "the first one is back");
        let life = waiting.record.as_ref().map(|record| record.life);
        cluster.nodes[0] = waiting;
        let began = cluster.now;
        cluster.look_at_all();
        assert_ne!(Some(cluster.record(0).life), life, "{count}");
        // The other client has seen it wait for long enough.
        cluster.exchange(&mut other);
        cluster.pass(QUARANTINE - 19 * SECOND);
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.state(0), RecordState::Quarantined, "{count}");
        cluster.watch(QUARANTINE + SECOND);
        assert_eq!(cluster.state(0), RecordState::Admitted, "{count}");
        assert!(cluster.now - began > QUARANTINE);
    }
}

/// Behind one address, with nobody else to ask for the time.
#[test]
fn a_single_node_that_waited_while_another_voted_in_its_place_begins_anew() {
    let mut cluster = Cluster::new(1);
    cluster.policy.quarantine = true;
    cluster.newcomer();
    cluster.look(0);
    let first = cluster.nodes[0].clone();
    cluster.forget(0);
    let mut voter = (cluster.members.clone(), cluster.roster.clone());
    // Somebody else meets the new one first.
    cluster.newcomer();
    cluster.look(0);
    let waiting = std::mem::replace(&mut cluster.nodes[0], first);
    let life = waiting.record.as_ref().map(|record| record.life);
    cluster.exchange(&mut voter);
    cluster.watch(20 * SECOND);
    assert_eq!(cluster.votes(), [true]);
    cluster.nodes[0] = waiting;
    cluster.look(0);
    assert_ne!(Some(cluster.record(0).life), life);
    // One that begins to wait when the one before it was last asked waits once.
    let life = cluster.record(0).life;
    cluster.watch(10 * SECOND);
    assert_eq!(cluster.record(0).life, life);
}

#[test]
fn a_life_that_begins_when_the_one_before_it_was_last_asked_waits_once() {
    let mut cluster = one_forgot();
    let born = cluster.record(0).born;
    cluster.watch(QUARANTINE - SECOND);
    assert_eq!(cluster.record(0).born, born);
    cluster.watch(2 * SECOND);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

#[test]
fn a_single_node_with_a_quarantine_is_admitted_by_a_client_that_watched_it() {
    let mut cluster = Cluster::new(1);
    cluster.policy.quarantine = true;
    cluster.newcomer();
    cluster.look(0);
    cluster.forget(0);
    cluster.newcomer();
    cluster.look(0);
    // By its own clock it has. But that may have been behind when the node started, and was put right.
    cluster.pass(10 * QUARANTINE);
    cluster.newcomer();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    cluster.watch(QUARANTINE - SECOND);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    cluster.watch(2 * SECOND);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

#[test]
fn a_single_node_waits_for_the_list_before_it_also_through_a_restart() {
    for (before, after) in [
        (RecordState::Barred, RecordState::Barred),
        (RecordState::Quarantined, RecordState::Quarantined),
        (RecordState::Admitted, RecordState::Admitted),
    ] {
        let mut cluster = Cluster::new(1);
        cluster.policy.quarantine = false;
        cluster.newcomer();
        let (waits, process) = (Some(Duration::from_secs(50)), 1);
        let waits = waits.filter(|_| before != RecordState::Admitted);
        let record = Record { state: before, waits, ..cluster.record(0).clone() };
        cluster.nodes[0].record = Some(record);
        cluster.nodes[0].process = process;
        cluster.look(0);
        assert_eq!(cluster.state(0), after);
        assert_eq!(cluster.votes(), [after == RecordState::Admitted]);
        if after == RecordState::Quarantined {
            cluster.watch(49 * SECOND);
            assert_eq!(cluster.votes(), [false]);
            cluster.watch(2 * SECOND);
            assert_eq!(cluster.votes(), [true]);
        }
    }
}

#[test]
fn if_a_witness_does_not_answer_the_wait_begins_anew_with_a_quorum_and_goes_on_with_fewer() {
    for (down, begins_anew) in [(&[1][..], true), (&[1, 2], false)] {
        let mut cluster = one_forgot();
        let born = cluster.record(0).born;
        cluster.pass(2 * QUARANTINE);
        cluster.newcomer();
        for node in down {
            cluster.nodes[*node].is_up = false;
        }
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.record(0).born, born, "it may just be slow");
        cluster.pass(20_000);
        cluster.look(0);
        assert_eq!(cluster.state(0), RecordState::Quarantined, "{down:?}");
        assert_eq!(cluster.record(0).born > born, begins_anew, "{down:?}");
        // The next one need not know of the first wait.
        cluster.pass(QUARANTINE + SECOND);
        cluster.newcomer();
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.state(0) == RecordState::Admitted, begins_anew, "{down:?}");
    }
}

#[test]
fn a_witness_that_is_away_for_a_while_costs_no_time() {
    let mut cluster = one_forgot();
    let born = cluster.record(0).born;
    cluster.nodes[1].is_up = false;
    cluster.pass(QUARANTINE / 2);
    for _ in 0..3 {
        cluster.newcomer();
        cluster.look_at_all();
        cluster.look(0);
        cluster.pass(SECOND);
    }
    cluster.nodes[1].is_up = true;
    cluster.pass(QUARANTINE / 2);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!((cluster.state(0), cluster.record(0).born), (RecordState::Admitted, born));
}

/// Two restart empty with clocks that are ten minutes behind, and agree. When those are put right, the
/// only one that knows better does not answer.
#[test]
fn clocks_that_were_wrong_together_do_not_end_a_quarantine_while_the_right_one_is_away() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    for node in [0, 1] {
        cluster.forget(node);
        cluster.nodes[node].off = -SECONDS(600);
    }
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look_at_all();
    assert_eq!(cluster.record(0).clocks.iter().flatten().count(), 3, "{}", cluster.record(0));
    cluster.pass(SECOND);
    (cluster.nodes[0].off, cluster.nodes[1].off) = (0, 0);
    cluster.nodes[2].is_up = false;
    cluster.newcomer();
    for _ in 0..3 {
        cluster.look_at_all();
        cluster.pass(20_000);
    }
    assert_eq!(
        (cluster.state(0), cluster.state(1)),
        (RecordState::Quarantined, RecordState::Quarantined)
    );
    assert_eq!(cluster.votes(), [false; 3]);
}

#[test]
fn a_clock_that_was_not_written_down_is_no_witness() {
    let mut cluster = Cluster::new(5);
    cluster.nodes[4].is_up = false;
    cluster.nodes[3].is_up = false;
    cluster.look_at_all();
    cluster.forget(0);
    cluster.look_at_all();
    assert_eq!(cluster.record(0).clocks.iter().flatten().count(), 3);
    // Two more answer now, with clocks that were not asked when it began to wait.
    (cluster.nodes[3].is_up, cluster.nodes[4].is_up) = (true, true);
    cluster.pass(QUARANTINE + SECOND);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Admitted, "all that were asked agree");
}

#[test]
fn a_step_ahead_of_its_own_clock_does_not_end_a_quarantine() {
    let mut cluster = one_forgot();
    cluster.pass(SECOND);
    cluster.nodes[0].off = SECONDS(600);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    assert!(cluster.waits_for(0).contains("ahead of the others"), "{}", cluster.waits_for(0));
    // Put right, it goes on where it was.
    cluster.nodes[0].off = 0;
    cluster.pass(QUARANTINE);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

#[test]
fn steps_ahead_of_all_clocks_but_one_begin_a_quarantine_anew() {
    // A bad clock battery: both start ten minutes behind, and are set right while they wait.
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    for node in [0, 1] {
        cluster.forget(node);
        cluster.nodes[node].off = -SECONDS(600);
    }
    cluster.newcomer();
    cluster.watch(3 * SECOND);
    let began = cluster.record(0).clocks.clone();
    assert_eq!(began.iter().flatten().count(), 3, "those two are a quorum that agrees");
    cluster.pass(SECOND);
    (cluster.nodes[0].off, cluster.nodes[1].off) = (0, 0);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look_at_all();
    assert_eq!([0, 1].map(|node| cluster.state(node)), [RecordState::Quarantined; 2]);
    assert_ne!(cluster.record(0).clocks, began, "it begins anew");
    assert_eq!(cluster.record(0).born, cluster.clock(0));
    cluster.pass(QUARANTINE - 100);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look_at_all();
    assert_eq!(cluster.votes(), [false, false, true]);
    cluster.pass(200);
    cluster.look_at_all();
    cluster.look_at_all();
    assert_eq!(cluster.votes(), [true; 3]);
}

#[test]
fn a_step_of_another_members_clock_begins_a_quarantine_anew_once() {
    for step in [SECONDS(600), -SECONDS(600)] {
        let mut cluster = one_forgot();
        cluster.pass(20 * SECOND);
        cluster.nodes[2].off = step;
        cluster.newcomer();
        cluster.look_at_all();
        let anew: Vec<usize> = (0..3).map(|_| cluster.look(0)).collect();
        assert_eq!(anew.iter().sum::<usize>(), 1, "{anew:?}");
        assert_eq!(cluster.record(0).born, cluster.clock(0));
        cluster.pass(QUARANTINE + 100);
        cluster.newcomer();
        cluster.look_at_all();
        cluster.look(0);
        assert_eq!(cluster.state(0), RecordState::Admitted, "it is timed by its new clock");
    }
}

#[test]
fn a_quarantine_that_began_without_clocks_begins_anew_when_a_quorum_agrees() {
    let mut cluster = Cluster::new(3);
    cluster.forget(0);
    cluster.nodes[1].is_up = false;
    cluster.nodes[2].is_up = false;
    cluster.look_at_all();
    cluster.look(0);
    assert!(cluster.record(0).clocks.is_empty());
    cluster.pass(2 * QUARANTINE);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined, "nobody else can tell the time");
    cluster.nodes[1].is_up = true;
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    assert_eq!(cluster.record(0).clocks.iter().flatten().count(), 2);
    assert_eq!(cluster.record(0).born, cluster.clock(0));
}

#[test]
fn a_clock_that_is_off_the_others_begins_no_quarantine_that_they_could_end() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    cluster.forget(0);
    cluster.nodes[0].off = SECONDS(600);
    cluster.look_at_all();
    assert!(cluster.record(0).clocks.is_empty());
    assert!(cluster.waits_for(0).contains("ahead of the others"));
}

#[test]
fn clocks_that_all_go_back_make_a_quarantine_no_longer_than_one_that_begins_then() {
    let mut cluster = one_forgot();
    cluster.pass(5 * SECOND);
    for node in &mut cluster.nodes {
        node.off = -SECONDS(3_600);
    }
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    cluster.pass(QUARANTINE + 100);
    cluster.newcomer();
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

// Quarantines, by watching.

#[test]
fn who_watched_a_life_wait_for_long_enough_needs_no_other_clock() {
    let mut cluster = Cluster::new(3);
    cluster.look_at_all();
    cluster.forget(0);
    cluster.nodes[1].is_up = false;
    cluster.look_at_all();
    cluster.look(0);
    // The other one goes to and fro all the time, so no two clocks agree on how long it was.
    let mut sum = 0;
    while sum < QUARANTINE - SECOND {
        cluster.nodes[2].off = if cluster.nodes[2].off == 0 { SECONDS(600) } else { 0 };
        cluster.watch(SECOND);
        sum += SECOND;
        assert_eq!(cluster.state(0), RecordState::Quarantined);
    }
    cluster.nodes[2].off = 0;
    cluster.watch(2 * SECOND);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

#[test]
fn watching_begins_with_the_life_and_not_with_the_member() {
    let mut cluster = one_forgot();
    cluster.watch(QUARANTINE - SECOND);
    cluster.forget(0);
    cluster.watch(QUARANTINE - SECOND);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    // A second of them, because the others were asked again before it got a record.
    cluster.watch(3 * SECOND);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

#[test]
fn what_others_said_before_a_node_lost_its_record_does_not_tell_whose_it_is() {
    let mut cluster = Cluster::new(3);
    let is_of_others = |node: &mut Node| {
        let record = node.record.as_mut().expect("admitted");
        record.max_ttl = Duration::from_secs(60);
    };
    cluster.nodes.iter_mut().for_each(is_of_others);
    let theirs = cluster.nodes[1].record.clone();
    cluster.forget(1);
    cluster.look_at_all();
    assert_eq!(cluster.nodes[1].record, None, "the others are of another max_ttl");
    // Its own clients give it a record, which we do not see, and the other two lose theirs.
    cluster.nodes[1].record = theirs;
    cluster.now += SECOND / 10;
    cluster.forget(0);
    cluster.forget(2);
    cluster.look(0);
    for node in [2, 0] {
        cluster.look(node);
        assert_eq!(cluster.nodes[node].record, None);
        assert!(cluster.members[node].wants_peers());
    }
    cluster.look(1);
    cluster.look_at_all();
    assert!(cluster.nodes[0].record.is_none() && cluster.nodes[2].record.is_none());
    assert!(matches!(cluster.members[0].standing(), Standing::Foreign { .. }));
}

#[test]
fn all_clocks_together_do_not_tell_a_client_that_more_time_passed_than_it_saw() {
    for knew_the_life_before in [true, false] {
        let mut cluster = one_forgot();
        if !knew_the_life_before {
            cluster.newcomer();
        }
        cluster.watch(3 * SECOND);
        // One rack, one time server: all of them are set.
        for node in &mut cluster.nodes {
            node.off = SECONDS(600);
        }
        cluster.watch(SECOND);
        assert_eq!(cluster.state(0), RecordState::Quarantined);
        cluster.watch(QUARANTINE - 5 * SECOND);
        assert_eq!(cluster.state(0), RecordState::Quarantined);
        cluster.watch(2 * SECOND);
        assert_eq!(cluster.state(0), RecordState::Admitted, "it was there all the time");
    }
}

#[test]
fn a_client_that_stood_still_asks_all_members_again_before_it_finds_their_clocks_at_odds() {
    let mut cluster = one_forgot();
    cluster.watch(20 * SECOND);
    let began = cluster.record(0).clone();
    // The machine of the client was stopped, and its clock with it.
    cluster.pass(5 * SECOND);
    cluster.stood_still += 5 * SECOND - 1_000;
    for member in [0, 1, 0] {
        cluster.look(member);
        cluster.pass(1_000);
    }
    assert!(cluster.members[0].wants_peers());
    cluster.watch(SECOND);
    assert_eq!(*cluster.record(0), began, "it does not begin anew");
    cluster.newcomer();
    cluster.pass(QUARANTINE - 26 * SECOND);
    cluster.look_at_all();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Admitted);
}

#[test]
fn a_slow_answer_does_not_make_a_clock_right_that_is_known_to_be_wrong() {
    let mut cluster = one_forgot();
    cluster.watch(QUARANTINE - SECOND);
    cluster.nodes[0].off = -SECONDS(5);
    cluster.watch(10 * SECOND);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    cluster.trip = 9 * SECOND;
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined, "its clock would be its floor");
}

// Floors.

#[test]
fn a_floor_is_above_the_fences_and_floors_of_all_others_and_its_own_clock() {
    let fence = |number| Fence::new(number).unwrap();
    let ahead = fence(EPOCH + 86_400 * SECOND);
    for (highest, floor, expected) in [
        (ahead, Fence::ZERO, Some(ahead)),
        (Fence::ZERO, ahead, Some(ahead)),
        (fence(9), fence(8), None),
        (Fence::MAX, ahead, Some(ahead)),
    ] {
        let mut cluster = one_forgot();
        cluster.nodes[1].highest = highest;
        cluster.nodes[2].record.as_mut().unwrap().floor = floor;
        cluster.look_at_all();
        cluster.watch(QUARANTINE + SECOND);
        let clock = Fence::from_clock(cluster.clock(0));
        let floor = cluster.record(0).floor;
        match expected {
            Some(expected) => assert_eq!(floor, expected),
            None => assert!(clock.get() - floor.get() < 2 * SECOND, "{floor} {clock}"),
        }
    }
}

#[test]
fn a_floor_comes_from_answers_that_are_newer_than_what_was_forgotten() {
    let mut cluster = one_forgot();
    cluster.look_at_all();
    // The others were last asked when it began; a round of then may have been decided since.
    cluster.pass(QUARANTINE + 100);
    cluster.nodes[1].highest = Fence::new(EPOCH + 86_400 * SECOND).unwrap();
    cluster.look(0);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
    assert!(cluster.members[0].wants_peers());
    cluster.look(1);
    cluster.look(0);
    assert!(cluster.members[0].wants_peers(), "all of them");
    cluster.look(2);
    cluster.look(0);
    assert!(!cluster.members[0].wants_peers());
    assert_eq!(cluster.record(0).floor, cluster.nodes[1].highest);
}

#[test]
fn a_roster_of_another_length_than_the_list_times_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.forget(0);
    let names = names(&cluster.policy)[..2].to_vec();
    cluster.roster = Roster::new(names, &cluster.policy);
    cluster.members.truncate(2);
    cluster.look(1);
    cluster.look(0);
    let text = cluster.record(0).to_string();
    assert_eq!(Record::parse(&text).as_ref(), Ok(cluster.record(0)), "{text}");
    cluster.watch(5 * SECOND);
    assert_eq!(cluster.state(0), RecordState::Quarantined);
}

// Nodes without a record.

#[test]
fn no_record_is_written_to_a_blank_node_before_all_members_were_tried() {
    let mut cluster = Cluster::new(3);
    cluster.forget(0);
    assert_eq!(cluster.look(0), 0);
    assert_eq!(*cluster.members[0].standing(), Standing::Unknown);
    cluster.look(1);
    assert_eq!(cluster.look(0), 0, "the third may be another list's");
    cluster.nodes[2].is_up = false;
    cluster.look(2);
    assert!(cluster.look(0) > 0, "it was tried");
    assert_eq!(cluster.state(0), RecordState::Quarantined);
}

#[test]
fn no_record_is_written_to_a_blank_node_while_a_member_belongs_to_another_list() {
    let mut cluster = Cluster::new(3);
    cluster.forget(0);
    cluster.nodes[1].record.as_mut().unwrap().max_ttl = Duration::from_secs(100);
    cluster.look_at_all();
    assert_eq!(cluster.look(0), 0);
    assert!(cluster.nodes[0].record.is_none());
    let reason = cluster.waits_for(0);
    assert!(reason.contains("b belongs to another cluster or has another max_ttl"), "{reason}");
    cluster.nodes[1].record.as_mut().unwrap().max_ttl = Duration::from_secs(30);
    cluster.look_at_all();
    assert!(cluster.look(0) > 0 || cluster.nodes[0].record.is_some());
}

/// A change of the list barred all of them and was given up; two had no disk and restart.
#[test]
fn no_record_is_written_to_a_blank_node_while_a_member_is_barred() {
    let mut cluster = Cluster::new(3);
    cluster.nodes[0].record.as_mut().unwrap().state = RecordState::Barred;
    cluster.forget(1);
    cluster.forget(2);
    cluster.watch(3 * QUARANTINE);
    assert!(cluster.nodes[1..].iter().all(|node| node.record.is_none()));
    assert_eq!(cluster.votes(), [false; 3]);
    // It misses a probe, and a client writes what it must not.
    cluster.nodes[0].is_up = false;
    cluster.look_at_all();
    cluster.look_at_all();
    cluster.nodes[0].is_up = true;
    assert_eq!(cluster.record(1).origin, crate::Origin::First);
    cluster.watch(3 * QUARANTINE);
    assert_eq!(cluster.votes(), [false; 3]);
}

/// They wait for what an older list granted, and one of them loses its record meanwhile.
#[test]
fn a_node_that_forgets_how_long_it_has_to_wait_waits_for_as_long_as_the_others() {
    let mut cluster = Cluster::new(3);
    let day = Duration::from_secs(86_400);
    for node in &mut cluster.nodes {
        let record = node.record.as_mut().unwrap();
        (record.state, record.waits) = (RecordState::Quarantined, Some(day));
        record.origin = crate::Origin::Succession;
    }
    cluster.forget(2);
    cluster.look_at_all();
    cluster.look_at_all();
    let told = cluster.waits_for(0);
    assert!(told.contains("its member list was changed"), "{told}");
    assert_eq!(cluster.record(2).waits, Some(day));
    // Those that vote have nothing to wait for any more.
    for node in &mut cluster.nodes[..2] {
        let record = node.record.as_mut().unwrap();
        (record.state, record.waits) = (RecordState::Admitted, None);
    }
    cluster.forget(2);
    cluster.look_at_all();
    cluster.look_at_all();
    assert_eq!(
        (cluster.record(2).state, cluster.record(2).waits),
        (RecordState::Quarantined, None)
    );
}

/// The next life of such a node begins with what its clock shows, as it does not wait.
#[test]
fn a_proposal_is_never_ahead_of_the_clock_of_a_node_that_does_not_wait() {
    for waits in [false, true] {
        let mut cluster = Cluster::new(1);
        cluster.policy.quarantine = waits;
        cluster.newcomer();
        // Slow on its way there only: the clock is read at the end.
        let sent = cluster.now();
        cluster.pass(SECOND);
        let (received, facts) = (cluster.now(), cluster.facts(0));
        let peers = crate::Peers::none(ClockSample { sent, received, clock: facts.clock });
        cluster.members[0].examine(sent, received, &facts, 1, &peers);
        let mut outlook = crate::Outlook::default();
        outlook.add(&cluster.members[0]);
        let (lock, wall) = (LockName::new("l").unwrap(), || WallMicros(0));
        let next =
            crate::Proposals::default().next(&lock, Fence::ZERO, outlook, cluster.now(), wall);
        assert_eq!(next <= Fence::from_clock(cluster.clock(0)), !waits, "{next}");
    }
}

#[test]
fn a_clock_that_is_not_in_line_raises_no_floor() {
    let retention = Duration::from_secs(3600);
    let mut cluster = Cluster::new(3);
    cluster.look(0);
    let raised = |cluster: &Cluster| {
        let facts = cluster.facts(0);
        Some(cluster.members[0].raised(&facts, retention)?.1.floor)
    };
    assert_eq!(raised(&cluster), None, "it votes, but nobody has compared its clock yet");
    cluster.pass(SECOND);
    cluster.look(1);
    cluster.look(0);
    let idle = Fence::new(cluster.clock(0).0 - 3600 * SECOND);
    assert_eq!(raised(&cluster), idle);
    cluster.nodes[0].off = 365 * 86_400 * SECOND as i64;
    cluster.pass(SECOND);
    cluster.look(2);
    cluster.look(0);
    assert_eq!(raised(&cluster), None, "a year ahead");
}

#[test]
fn a_refresh_follows_the_nodes_clocks_though_all_of_them_went_ahead() {
    let mut cluster = Cluster::new(3);
    cluster.watch(3 * SECOND);
    cluster.nodes.iter_mut().for_each(|node| node.off = SECOND as i64 / 2);
    cluster.watch(2 * SECOND);
    assert_eq!(cluster.votes(), [false; 3]);
    let mut outlook = crate::Outlook::default();
    cluster.members.iter().for_each(|member| outlook.add(member));
    let (lock, day) = (LockName::new("l").unwrap(), 86_400 * SECOND);
    let wall = || WallMicros(cluster.clock(0).0 + day);
    let above = Fence::new(7).unwrap();
    let next = crate::Proposals::default().next(&lock, above, outlook, cluster.now(), wall);
    assert!(next.get().abs_diff(cluster.clock(0).0) < SECOND, "{next} by {:?}", cluster.clock(0));
}
