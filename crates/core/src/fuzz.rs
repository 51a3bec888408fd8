//! Odd inputs for everything here that reads what others wrote.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testkit::{Input, fuzz};

use crate::{
    Admission, AdmissionPolicy, AdmissionStep, ClockSample, Drift, Facts, Fence, Fingerprint,
    Holder, LABEL_BYTES_MAX, Lease, LockName, MemberName, Moment, NAME_BYTES_MAX, NodeError,
    Origin, Owner, Record, RecordState, Role, Roster, ServerFacts, Standing, Ttl, WallMicros,
};

const RECORD: &[u8] = b"leasehold2 cluster=00f1e2d3c4b5a697 nodes=5 member=a:6379/0 max_ttl=30000 \
    life=0123456789abcdef0123456789abcdef run=f00 replid=ba5 origin=first state=admitted \
    floor=1800000000000000 born=1800000000000000";
const RECORD_WAITING: &[u8] = b"leasehold2 cluster=00f1e2d3c4b5a697 nodes=3 member=a:6379/0 \
    max_ttl=30000 life=0123456789abcdef0123456789abcdef run=f00 replid=ba5 origin=later \
    state=quarantined floor=12 born=1800000000000000 waits=300000 \
    clocks=1800000000000000,-,1800000000000001";
const RECORD_BEFORE: &[u8] = b"leasehold1 cluster=00f1e2d3c4b5a697 nodes=5 max_ttl=30000 \
    life=0123456789abcdef0123456789abcdef run=f00 state=admitted floor=1800000000000000 \
    born=1800000000000000";

fn duration(input: &mut Input<'_>) -> Duration {
    Duration::new(input.number(), input.number() as u32 % 1_000_000_000)
}

fn fence(input: &mut Input<'_>) -> Fence {
    Fence::new(input.number() % (Fence::MAX.get() + 1)).unwrap()
}

/// What a server can call itself: printable, without a space.
fn word(input: &mut Input<'_>) -> String {
    let rest = input.bytes().iter().map(|byte| char::from(b'!' + byte % 94));
    std::iter::once('r').chain(rest).collect()
}

/// No clocks, or as many as there are nodes.
fn clocks(input: &mut Input<'_>, nodes: usize) -> Vec<Option<WallMicros>> {
    let count = if input.below(2) == 0 { nodes } else { 0 };
    (0..count).map(|_| (input.below(3) > 0).then(|| WallMicros(input.number()))).collect()
}

fn record(input: &mut Input<'_>) -> Record {
    let nodes = match input.below(2) {
        0 => input.number() as usize,
        _ => 1 + input.below(7),
    };
    Record {
        cluster: Fingerprint::of_members([input.text().as_str()]),
        nodes,
        member: MemberName::new(&format!("m{}", input.text())),
        max_ttl: Duration::from_millis(input.number()),
        life: u128::from(input.number()) << 64 | u128::from(input.number()),
        run_id: word(input),
        replication_id: word(input),
        origin: input.pick(&[Origin::First, Origin::Later, Origin::Succession]),
        state: input.pick(&[RecordState::Admitted, RecordState::Quarantined, RecordState::Barred]),
        floor: fence(input),
        born: WallMicros(input.number()),
        waits: (input.below(2) == 0).then(|| Duration::from_millis(input.number())),
        clocks: if nodes < 8 { clocks(input, nodes) } else { Vec::new() },
    }
}

#[test]
fn any_text_is_a_record_or_is_not_and_a_record_prints_back_to_itself() {
    fuzz(5000, &[RECORD, RECORD_WAITING, RECORD_BEFORE, b"leasehold3 x", b"leasehold1"], |input| {
        let text = input.rest_as_text();
        if let Ok(record) = Record::parse(&text) {
            if record.is_of_the_format_before() {
                assert!(text.starts_with("leasehold1 "), "{text}");
                return;
            }
            assert_eq!(Record::parse(&record.to_string()), Ok(record));
        }
    });
}

#[test]
fn any_record_reads_back_as_written() {
    fuzz(5000, &[], |input| {
        let record = record(input);
        let text = record.to_string();
        assert_eq!(Record::parse(&text), Ok(record), "{text}");
    });
}

#[test]
fn any_text_is_a_holder_or_is_not() {
    let good = b"ana@db1:4711:0000000000000000000000000000feed";
    fuzz(5000, &[good, b"x:", b":0000000000000000000000000000feed"], |input| {
        let nonce = u128::from(input.number());
        let text = input.rest_as_text();
        if let Ok(holder) = Holder::parse(&text) {
            assert_eq!(holder.as_str(), text);
            assert!(text.starts_with(holder.label()) && holder.label().len() <= LABEL_BYTES_MAX);
            assert_eq!(Owner::from_value(text.as_bytes()), Owner::Holder(holder));
        } else {
            let owner = Owner::from_value(text.as_bytes());
            let Owner::OtherLibrary { value } = &owner else { panic!("{owner:?}") };
            assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{value}");
        }
        if let Ok(holder) = Holder::new(&text, nonce) {
            assert_eq!(holder.label(), text);
            assert_eq!(Holder::parse(holder.as_str()), Ok(holder));
        }
    });
}

#[test]
fn any_text_is_a_name_or_is_not() {
    fuzz(5000, &[b"nightly", "émile ☂".as_bytes(), &[b'x'; NAME_BYTES_MAX]], |input| {
        let text = input.rest_as_text();
        match LockName::new(&text) {
            Ok(name) => {
                assert_eq!(name.as_str(), text);
                assert!((1..=NAME_BYTES_MAX).contains(&text.len()));
                assert!(!text.chars().any(char::is_control));
            }
            Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
        }
    });
}

#[test]
fn any_length_of_time_is_a_ttl_or_is_not_and_no_sum_overflows() {
    fuzz(5000, &[], |input| {
        let (asked, elapsed) = (duration(input), duration(input));
        let drift = Drift { parts_per_million: input.number() as u32, fixed: duration(input) };
        let now = Moment::from_nanos(input.number());
        assert!(drift.allowance(elapsed) >= drift.fixed.min(Duration::from_secs(1)));
        if let Ok(ttl) = Ttl::new(asked) {
            assert_eq!(ttl.get(), Duration::from_millis(ttl.as_millis()));
            assert!(ttl.get() <= asked && asked - ttl.get() < Duration::from_millis(1));
            assert!(Lease::deadline(now, ttl, drift) >= now);
        }
        let policy = AdmissionPolicy { drift, max_clock_skew: duration(input), ..policy() };
        assert!(policy.quarantine_for(asked) >= asked);
    });
}

fn policy() -> AdmissionPolicy {
    AdmissionPolicy {
        cluster: Fingerprint::of_members(["a", "b", "c"]),
        nodes: 3,
        max_ttl: None,
        max_ttl_default: Duration::from_secs(30),
        drift: Drift::DEFAULT,
        max_clock_skew: Duration::from_secs(1),
        quarantine: true,
        strict: false,
    }
}

/// What a node may say of itself, whatever its state of mind.
fn facts(input: &mut Input<'_>, written: Option<&str>) -> Facts {
    let record = match input.below(4) {
        0 => None,
        1 => Some(input.text()),
        2 => {
            let foreign = record(input);
            let cluster = if input.below(4) == 0 { foreign.cluster } else { policy().cluster };
            let member = match input.below(4) {
                0 => foreign.member.clone(),
                1 => policy().member("b"),
                _ => policy().member("a"),
            };
            let (run_id, replication_id) = ("one".into(), "one".into());
            let clocks = clocks(input, 3);
            let ours =
                Record { cluster, nodes: 3, member, run_id, replication_id, clocks, ..foreign };
            Some(ours.to_string())
        }
        _ => written.map(str::to_owned),
    };
    Facts {
        generation: input.number(),
        clock: WallMicros(input.number()),
        record,
        highest: fence(input),
        has_spent: false,
        server: ServerFacts {
            version: input.text(),
            run_id: input.pick(&["one", "two"]).to_owned(),
            replication_id: input.pick(&["one", "one", "two"]).to_owned(),
            role: input.pick(&[Role::Primary, Role::Primary, Role::Replica, Role::ClusterMember]),
            evicts: (input.below(4) == 0).then(|| input.text()),
            persists: input.below(2) == 0,
            expires_by_wall: input.below(2) == 0,
        },
        others: (0..input.below(3)).map(|_| input.pick(&["one", "two"]).to_owned()).collect(),
        unmet: input.below(2),
        addresses: input.number() as usize,
    }
}

#[test]
fn whatever_a_node_says_it_votes_only_with_an_admitted_record_of_our_cluster_and_its_own() {
    fuzz(5000, &[], |input| {
        let names = ["a", "b", "c"].map(MemberName::new);
        let mut roster = Roster::new(names.to_vec(), &policy());
        let mut members = ["a", "b", "c"].map(|name| Admission::new(policy(), name));
        let (mut written, mut at) = (None, Moment::default());
        while !input.is_empty() {
            let sent = at.plus(Duration::from_nanos(input.number()));
            at = sent.plus(Duration::from_nanos(input.number()));
            let number = input.below(8).min(2);
            if input.below(8) == 0 {
                roster.hide(number);
                members[number].down(NodeError::TimedOut { after: Duration::ZERO });
                continue;
            }
            let facts = facts(input, written.as_deref());
            let twin = (input.below(8) == 0).then_some((number + 1) % 3);
            let life = u128::from(input.number());
            let sample = ClockSample { sent, received: at, clock: facts.clock };
            let peers = roster.peers(number, twin, sample);
            match members[number].examine(sent, at, &facts, life, &peers) {
                AdmissionStep::Settled => {}
                AdmissionStep::Replace { record, .. } => {
                    // What nobody could read back would never vote again.
                    assert_eq!(Record::parse(&record.to_string()), Ok(record.clone()));
                    written = Some(record.to_string());
                }
            }
            roster.note(number, sent, &members[number], &facts);
            for (other, admission) in members.iter_mut().enumerate() {
                admission.compared(at, roster.line(other));
            }
            let admission = &mut members[number];
            let clock = WallMicros(input.number());
            admission.observe_clock(ClockSample { sent, received: at, clock });
            let standing = admission.standing();
            standing.look_again_in(at, Duration::from_secs(1));
            assert_eq!(standing.objection(at).is_none(), standing.pass().is_some());
            let late = admission.settles_for(at);
            let _: Moment = at.plus(late);
            if let Standing::Voting(pass) = standing {
                let record = Record::parse(&pass.record).unwrap();
                assert_eq!(record.cluster, policy().cluster);
                assert_eq!(record.state, RecordState::Admitted);
                assert_eq!(&record.member, admission.member());
                assert!(record.is_by(&facts.server) && twin.is_none());
                assert!(facts.others.iter().all(|other| *other == facts.server.run_id));
                assert_eq!((pass.floor, pass.max_ttl), (record.floor, record.max_ttl));
                assert!(late <= policy().drift.allowance(pass.max_ttl));
            }
            if let Some((text, raised)) = Record::raised(&facts, duration(input)) {
                assert!(Record::parse(&text).unwrap().floor < raised.floor);
            }
        }
        let _: Option<Arc<str>> = members[0].standing().pass().map(|pass| pass.record.clone());
    });
}
