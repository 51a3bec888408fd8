//! Changes of member lists, step by step, on nodes that do what they are told.

use super::*;
use crate::{Drift, Fingerprint, Role, ServerFacts, WallMicros};

const TTL: Duration = Duration::from_secs(30);

fn list(names: &[&str]) -> MemberList {
    let policy = AdmissionPolicy {
        cluster: match names {
            [_] => Fingerprint::of_one(),
            _ => Fingerprint::of_members(names.iter().copied()),
        },
        nodes: names.len(),
        max_ttl: Some(TTL),
        max_ttl_default: TTL,
        drift: Drift::DEFAULT,
        max_clock_skew: Duration::from_secs(1),
        quarantine: names.len() > 1,
        strict: false,
    };
    MemberList::new(policy, names.iter().map(|name| (*name).to_owned()).collect())
}

/// What a node says that has this record of `list`.
fn facts(list: &MemberList, name: &str, origin: Origin, state: RecordState) -> Facts {
    let mut facts = Facts {
        generation: 1,
        clock: WallMicros(50_000_000),
        record: None,
        highest: Fence::ZERO,
        has_spent: false,
        server: ServerFacts {
            version: "redis 7.0.15".into(),
            run_id: format!("run-{name}"),
            replication_id: "repl".into(),
            role: Role::Primary,
            evicts: None,
            persists: false,
            expires_by_wall: true,
        },
        others: Vec::new(),
        unmet: 0,
        addresses: 1,
    };
    let life = u128::from(name.as_bytes()[0]);
    let record = list.record_of_a_change(name, &facts, state, life);
    let waits = (state == RecordState::Barred).then(|| list.policy.quarantine_for(TTL));
    facts.record = Some(Record { origin, waits, ..record }.to_string());
    facts
}

fn tell(change: &mut Succession, facts: &[Facts]) -> SuccessionStep {
    let now = Moment::from_nanos(1);
    change.told(Told { sent: now, received: now, facts }, || 7);
    change.step()
}

#[test]
fn a_member_whose_name_leads_to_several_servers_or_to_none_joins_no_list() {
    let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "c", "d"]));
    let all = ["a", "b", "c", "d"];
    let ours = all.map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
    let refusal = |ours: &[Facts]| {
        let mut change = Succession::new(old.clone(), new.clone());
        assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
        match tell(&mut change, ours) {
            SuccessionStep::Refused { of: Side::New, member: 3, reason } => Some(reason),
            step => {
                assert_eq!(step, SuccessionStep::Ask(Side::Old));
                None
            }
        }
    };
    let met = |others: &[&str], unmet| {
        let mut ours = ours.clone();
        ours[3].others = others.iter().map(|run_id| (*run_id).to_owned()).collect();
        ours[3].unmet = unmet;
        refusal(&ours)
    };
    assert_eq!(met(&["run-d", "run-d"], 0), None);
    assert!(met(&["run-d", "run-e"], 1).unwrap().contains("answered by several servers"));
    assert!(met(&["run-d"], 1).unwrap().contains("1 further connection(s) met nobody"));
}

/// A change was stopped before the added node began to wait, which had waited before.
#[test]
fn a_repeated_change_has_the_added_node_begin_to_wait() {
    use RecordState::Admitted;
    let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "c", "d"]));
    let theirs = ["a", "b", "c"].map(|name| facts(&new, name, Origin::First, Admitted));
    for (origin, is_over) in [(Origin::First, false), (Origin::Succession, true)] {
        let mut ours = theirs.to_vec();
        ours.push(facts(&new, "d", origin, Admitted));
        let mut change = Succession::new(old.clone(), new.clone());
        tell(&mut change, &ours);
        let step = tell(&mut change, &theirs);
        assert_eq!(step == SuccessionStep::Done, is_over, "{step:?}");
        if !is_over {
            let SuccessionStep::Replace { of: Side::New, member: 3, record, .. } = step else {
                panic!("{step:?}")
            };
            assert_eq!(record.state, RecordState::Barred);
            assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
            ours[3].record = Some(record.to_string());
            assert_eq!(tell(&mut change, &ours), SuccessionStep::Ask(Side::Old));
            assert_eq!(tell(&mut change, &theirs), SuccessionStep::Ask(Side::New));
            let step = tell(&mut change, &ours);
            let SuccessionStep::Replace { of: Side::New, member: 3, record, .. } = step else {
                panic!("{step:?}")
            };
            assert_eq!((record.state, record.life), (RecordState::Quarantined, 7));
        }
    }
}

/// Two add different nodes to a list of two, and each has one of the two: with the node that it
/// added, each would have a quorum.
#[test]
fn a_node_that_is_added_does_not_vote_before_all_others_follow() {
    use RecordState::{Admitted, Barred, Quarantined};
    let (old, new) = (list(&["a", "b"]), list(&["a", "b", "c"]));
    let (rival, first) = (list(&["a", "b", "d"]), Origin::First);
    let theirs = ["a", "b"].map(|name| facts(&old, name, first, Admitted));
    // A client of the new list met it before the change.
    let early = facts(&new, "c", first, Admitted);
    let mut change = Succession::new(old, new.clone());
    tell(&mut change, &[theirs[0].clone(), theirs[1].clone(), early]);
    let step = tell(&mut change, &theirs);
    let SuccessionStep::Replace { of: Side::New, member: 2, record, .. } = &step else {
        panic!("{step:?}")
    };
    assert_eq!(record.state, Barred);
    assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
    let barred = facts(&new, "c", Origin::Succession, Barred);
    let ours = [theirs[0].clone(), theirs[1].clone(), barred.clone()];
    assert_eq!(tell(&mut change, &ours), SuccessionStep::Ask(Side::Old));
    let steps = [tell(&mut change, &theirs), change.step()];
    for (step, rolls) in steps.iter().zip([0, 1]) {
        let SuccessionStep::Replace { of: Side::Old, member, record, .. } = step else {
            panic!("{step:?}")
        };
        assert_eq!((*member, record.state), (rolls, Admitted));
    }
    assert_eq!(change.step(), SuccessionStep::Ask(Side::Old));
    let followed = ["a", "b"].map(|name| facts(&new, name, first, Admitted));
    let taken = [followed[0].clone(), facts(&rival, "b", first, Admitted)];
    let mut beaten = change.clone();
    let step = tell(&mut beaten, &taken);
    assert!(matches!(step, SuccessionStep::Refused { of: Side::Old, member: 1, .. }), "{step:?}");
    assert_eq!(tell(&mut change, &followed), SuccessionStep::Ask(Side::New));
    let step = tell(&mut change, &[followed[0].clone(), followed[1].clone(), barred]);
    assert!(
        matches!(&step, SuccessionStep::Replace { of: Side::New, member: 2, record, .. }
            if record.state == Quarantined),
        "{step:?}"
    );
}

#[test]
fn the_nodes_that_join_are_barred_before_any_other() {
    use RecordState::{Admitted, Barred};
    let (old, new) = (list(&["a", "b", "c"]), list(&["a", "d", "e"]));
    let theirs = ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, Admitted));
    let joining = |name, state| facts(&new, name, Origin::Succession, state);
    let blank = |name| Facts { record: None, ..joining(name, Barred) };
    let mut change = Succession::new(old, new.clone());
    tell(&mut change, &[theirs[0].clone(), blank("d"), blank("e")]);
    let steps = [tell(&mut change, &theirs), change.step()];
    for (step, joins) in steps.iter().zip([1, 2]) {
        let SuccessionStep::Replace { of: Side::New, member, record, .. } = step else {
            panic!("{step:?}")
        };
        assert_eq!((*member, record.state), (joins, Barred));
    }
    // One of them did not follow: it is asked to again, and nobody else is.
    assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
    let step = tell(&mut change, &[theirs[0].clone(), joining("d", Barred), blank("e")]);
    assert!(matches!(step, SuccessionStep::Replace { of: Side::New, member: 2, .. }), "{step:?}");
    assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
    let barred = [theirs[0].clone(), joining("d", Barred), joining("e", Barred)];
    assert_eq!(tell(&mut change, &barred), SuccessionStep::Ask(Side::Old));
    let step = tell(&mut change, &theirs);
    assert!(matches!(step, SuccessionStep::Replace { of: Side::Old, member: 0, .. }), "{step:?}");
}

/// All lists of one look alike: what stands on the old node does not tell that it was left.
#[test]
fn a_change_from_one_node_to_another_bars_the_first() {
    let (old, new) = (list(&["a"]), list(&["b"]));
    let theirs = [facts(&old, "a", Origin::First, RecordState::Admitted)];
    let ours = [facts(&new, "b", Origin::First, RecordState::Admitted)];
    let mut change = Succession::new(old.clone(), new.clone());
    tell(&mut change, &ours);
    let step = tell(&mut change, &theirs);
    let SuccessionStep::Replace { of: Side::New, member: 0, record, .. } = step else {
        panic!("{step:?}")
    };
    assert_eq!(record.state, RecordState::Barred);
    assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
    let barred = [facts(&new, "b", Origin::Succession, RecordState::Barred)];
    assert_eq!(tell(&mut change, &barred), SuccessionStep::Ask(Side::Old));
    let step = tell(&mut change, &theirs);
    let SuccessionStep::Replace { of: Side::Old, member: 0, record, .. } = step else {
        panic!("{step:?}")
    };
    assert_eq!(record.state, RecordState::Barred);
    // The same node under another name, which nobody has to leave.
    let mut change = Succession::new(old.clone(), new.clone());
    tell(&mut change, &theirs);
    assert_eq!(tell(&mut change, &theirs), SuccessionStep::Done);
    // Another one, which copied the first.
    let mut copy = theirs[0].clone();
    copy.server.run_id = "run-b".into();
    let mut change = Succession::new(old, new);
    tell(&mut change, &[copy]);
    let step = tell(&mut change, &theirs);
    assert!(matches!(step, SuccessionStep::Replace { of: Side::New, .. }), "{step:?}");
}

/// A client met the next node before the change, and the change ended when the first node was barred.
#[test]
fn a_change_to_one_node_that_was_begun_before_has_it_wait_all_the_same() {
    use RecordState::{Admitted, Barred, Quarantined};
    let (old, new) = (list(&["a"]), list(&["b"]));
    let theirs = [facts(&new, "a", Origin::Succession, Barred)];
    for state in [Quarantined, Admitted] {
        for (origin, is_over) in [(Origin::First, false), (Origin::Succession, true)] {
            let ours = [facts(&new, "b", origin, state)];
            let mut change = Succession::new(old.clone(), new.clone());
            tell(&mut change, &ours);
            let step = tell(&mut change, &theirs);
            assert_eq!(step == SuccessionStep::Done, is_over, "{step:?}");
        }
    }
}

/// The next record that a change wants written, of which list and which member.
fn next_record(step: SuccessionStep) -> (Side, usize, Record) {
    match step {
        SuccessionStep::Replace { of, member, record, .. } => (of, member, record),
        other => panic!("{other:?}"),
    }
}

fn with(facts: Facts, change: impl FnOnce(Record) -> Record) -> Facts {
    let record = Record::parse(facts.record.as_deref().unwrap_or_default()).unwrap();
    Facts { record: Some(change(record).to_string()), ..facts }
}

/// The first change is from a list with far longer leases, and nobody has waited for them yet.
#[test]
fn two_changes_in_a_row_wait_for_as_long_as_the_first_must() {
    let day = Duration::from_secs(86_400);
    let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "d"]));
    let theirs = ["a", "b", "c"].map(|name| {
        let facts = facts(&old, name, Origin::Succession, RecordState::Quarantined);
        with(facts, |record| Record { waits: Some(day), ..record })
    });
    let d = Facts { record: None, ..facts(&new, "d", Origin::First, RecordState::Admitted) };
    let ours = [theirs[0].clone(), theirs[1].clone(), d];
    let mut change = Succession::new(old, new);
    tell(&mut change, &ours);
    let (_, member, record) = next_record(tell(&mut change, &theirs));
    assert_eq!((member, record.waits), (2, Some(day)));
}

/// Two nodes were barred by a change that was given up, when leases were shorter.
#[test]
fn a_node_that_was_barred_to_wait_for_less_is_barred_again() {
    let (old, new) = (list(&["a", "b", "c"]), list(&["a", "d", "e"]));
    let theirs =
        ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
    let joining = |name, waits| {
        let facts = facts(&new, name, Origin::Succession, RecordState::Barred);
        with(facts, |record| Record { waits, ..record })
    };
    let short = Some(Duration::from_secs(4));
    let mut change = Succession::new(old, new.clone());
    tell(&mut change, &[theirs[0].clone(), joining("d", short), joining("e", None)]);
    let steps = [tell(&mut change, &theirs), change.step()];
    let waits = steps.map(|step| next_record(step).2.waits.unwrap());
    assert!(waits.iter().all(|waits| *waits > TTL), "{waits:?}");
    // One that must wait for longer than this change asks for, goes on doing so.
    let long = Some(Duration::from_secs(600));
    assert_eq!(change.step(), SuccessionStep::Ask(Side::New));
    let ours = [theirs[0].clone(), joining("d", long), joining("e", long)];
    assert_eq!(tell(&mut change, &ours), SuccessionStep::Ask(Side::Old));
}

#[test]
fn a_server_that_gets_another_name_is_called_by_it() {
    let (old, new) = (list(&["a", "b", "c"]), list(&["x", "b", "z"]));
    let theirs =
        ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
    let mut change = Succession::new(old.clone(), new.clone());
    tell(&mut change, &theirs);
    let mut steps = vec![tell(&mut change, &theirs)];
    steps.extend([change.step(), change.step()]);
    let names = steps.into_iter().map(|step| {
        let (of, member, record) = next_record(step);
        (of, member, record.member.to_string())
    });
    let expected = ["x", "b", "z"].map(str::to_owned);
    let all = expected.into_iter().enumerate().map(|(at, name)| (Side::Old, at, name));
    assert_eq!(names.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    // A change that left the old names there is not over.
    let left =
        ["a", "b", "c"].map(|name| facts(&new, name, Origin::Succession, RecordState::Admitted));
    let mut change = Succession::new(old, new);
    tell(&mut change, &left);
    assert_ne!(tell(&mut change, &left), SuccessionStep::Done);
}

/// It leaves because its clock is a year ahead.
#[test]
fn a_clock_that_leaves_is_no_floor_for_those_that_stay() {
    let year = 365 * 86_400 * 1_000_000;
    let (old, new) = (list(&["a", "b", "c"]), list(&["a", "b", "d"]));
    let mut theirs =
        ["a", "b", "c"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
    theirs[2].clock = WallMicros(theirs[2].clock.0 + year);
    let barred = facts(&new, "d", Origin::Succession, RecordState::Barred);
    let mut change = Succession::new(old, new);
    tell(&mut change, &[theirs[0].clone(), theirs[1].clone(), barred]);
    let steps = [tell(&mut change, &theirs), change.step(), change.step()];
    let floors = steps.map(|step| next_record(step).2.floor.get());
    let right = 50_000_000;
    assert_eq!(floors[..2], [right; 2]);
    assert!((right..=right + 1_000_001).contains(&floors[2]), "{floors:?}");
}

/// It left by an earlier change, which barred it for the list that is the old one now.
#[test]
fn a_server_that_left_may_join_again() {
    let (old, new) = (list(&["a", "b", "d"]), list(&["a", "b", "c"]));
    let theirs =
        ["a", "b", "d"].map(|name| facts(&old, name, Origin::First, RecordState::Admitted));
    let left = facts(&old, "c", Origin::Succession, RecordState::Barred);
    let mut change = Succession::new(old, new);
    tell(&mut change, &[theirs[0].clone(), theirs[1].clone(), left]);
    let (of, member, record) = next_record(tell(&mut change, &theirs));
    assert_eq!((of, member, record.member.as_str()), (Side::New, 2, "c"));
}
