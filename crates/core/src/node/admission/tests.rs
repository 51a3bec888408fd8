//! One node's standing by what it says of itself.

use super::*;
use crate::node::clock_tests::Cluster;
use crate::{
    Drift, Fence, Fingerprint, Origin, Peers, RecordState, Role, Roster, ServerFacts, WallMicros,
};

const SECOND: u64 = 1_000_000;

fn policy(nodes: usize) -> AdmissionPolicy {
    AdmissionPolicy {
        cluster: Fingerprint::of_members(["a", "b", "c"]),
        nodes,
        max_ttl: None,
        max_ttl_default: Duration::from_secs(30),
        drift: Drift::DEFAULT,
        max_clock_skew: Duration::from_secs(1),
        quarantine: nodes > 1,
        strict: false,
    }
}

fn facts(clock: u64, record: Option<&Record>) -> Facts {
    Facts {
        generation: 1,
        clock: WallMicros(clock),
        record: record.map(Record::to_string),
        highest: Fence::ZERO,
        has_spent: false,
        server: ServerFacts {
            version: "redis 7.0.15".into(),
            run_id: "run1".into(),
            replication_id: "repl1".into(),
            role: Role::Primary,
            evicts: None,
            persists: false,
            expires_by_wall: true,
        },
        others: Vec::new(),
        unmet: 0,
        addresses: 1,
    }
}

/// Examines at the same time on both clocks, plus a constant. All connections meet one server,
/// unless the facts say otherwise.
fn examine(admission: &mut Admission, facts: &Facts) -> AdmissionStep {
    let now = Moment::from_nanos(facts.clock.0 * 1000);
    let mut facts = facts.clone();
    if facts.others.is_empty() {
        facts.others.push(facts.server.run_id.clone());
    }
    let peers = alone(now, &facts);
    admission.examine(now, now, &facts, 99, &peers)
}

fn look(admission: &mut Admission, now: Moment, facts: &Facts) -> AdmissionStep {
    admission.examine(now, now, facts, 99, &alone(now, facts))
}

/// Nobody else is known.
fn alone(now: Moment, facts: &Facts) -> Peers {
    Peers::none(ClockSample { sent: now, received: now, clock: facts.clock })
}

fn replaced(step: AdmissionStep) -> Record {
    match step {
        AdmissionStep::Replace { record, .. } => record,
        AdmissionStep::Settled => panic!("nothing to replace"),
    }
}

fn admitted(policy: &AdmissionPolicy) -> Record {
    Record {
        cluster: policy.cluster,
        nodes: policy.nodes,
        member: policy.member("a"),
        max_ttl: Duration::from_secs(30),
        life: 1,
        run_id: "run1".into(),
        replication_id: "repl1".into(),
        origin: Origin::First,
        state: RecordState::Admitted,
        floor: Fence::new(5).unwrap(),
        born: WallMicros(1),
        waits: None,
        clocks: Vec::new(),
    }
}

/// Fences of an old backup are no witness of what was granted after it.
#[test]
fn a_node_that_did_not_wait_heals_no_lease_from_before_its_floor() {
    let extend = |token| {
        Arc::new(Request::Extend {
            lock: crate::LockName::new("l").unwrap(),
            holder: crate::Holder::new("h", 1).unwrap(),
            token: Fence::new(token).unwrap(),
            next: Fence::new(9).unwrap(),
            unbroken: false,
            ttl: crate::Ttl::new(Duration::from_secs(1)).unwrap(),
        })
    };
    let token_of = |pass: &Pass, token| match &*pass.fitted(&extend(token)) {
        Request::Extend { token, unbroken: false, .. } => token.get(),
        other => panic!("{other:?}"),
    };
    let pass_of = |nodes| {
        let policy = policy(nodes);
        let mut admission = Admission::new(policy.clone(), "a");
        examine(&mut admission, &facts(10, Some(&admitted(&policy))));
        admission.standing().pass().expect("it votes").clone()
    };
    let one = pass_of(1);
    assert_eq!(token_of(&one, 4), 0, "below the floor, and so below every fence");
    assert_eq!(token_of(&one, 5), 5);
    assert_eq!(token_of(&pass_of(3), 4), 4, "it waited for that lease");
}

#[test]
fn a_node_without_memory_sits_out_the_quarantine_and_returns_with_its_clock_as_floor() {
    let policy = policy(3);
    let mut admission = Admission::new(policy.clone(), "a");
    let born = 1_000 * SECOND;
    let record = replaced(examine(&mut admission, &facts(born, None)));
    assert_eq!(record.state, RecordState::Quarantined);
    assert_eq!(record.born, WallMicros(born));
    assert!(admission.standing().pass().is_none());

    // 30 s + 1 % + 2 ms of drift, and twice a second of skew.
    let served = born + 32 * SECOND + 302_000;
    for clock in [born, born + 20 * SECOND, served - 1] {
        assert_eq!(examine(&mut admission, &facts(clock, Some(&record))), AdmissionStep::Settled);
        let Standing::Waiting { until, cause: Cause::Forgot } = admission.standing() else {
            panic!("{:?}", admission.standing());
        };
        assert_eq!(*until, Moment::from_nanos(served * 1000));
    }
    let back = replaced(examine(&mut admission, &facts(served, Some(&record))));
    assert_eq!(back.state, RecordState::Admitted);
    assert_eq!(back.floor.get(), served);
    assert_eq!(back.life, record.life);
    examine(&mut admission, &facts(served, Some(&back)));
    assert_eq!(admission.standing().pass().unwrap().floor.get(), served);
}

#[test]
fn a_quorum_of_one_is_admitted_at_once_above_its_clock() {
    let mut admission = Admission::new(policy(1), "a");
    let record = replaced(examine(&mut admission, &facts(77, None)));
    assert_eq!((record.state, record.floor.get()), (RecordState::Admitted, 77));
}

#[test]
fn another_process_or_another_history_begins_a_new_life_whatever_is_on_disk() {
    let policy = policy(3);
    let old = admitted(&policy);
    for change in [
        |server: &mut ServerFacts| server.run_id = "run2".into(),
        |server: &mut ServerFacts| server.replication_id = "repl2".into(),
    ] {
        let mut admission = Admission::new(policy.clone(), "a");
        let mut after = facts(50 * SECOND, Some(&old));
        examine(&mut admission, &after);
        assert!(admission.standing().pass().is_some());
        change(&mut after.server);
        after.server.persists = true;
        let record = replaced(examine(&mut admission, &after));
        assert!(admission.standing().pass().is_none(), "it does not vote meanwhile");
        assert_eq!((record.state, record.origin), (RecordState::Quarantined, Origin::Later));
        assert_eq!(record.life, 99);
        assert!(record.is_by(&after.server));
        assert_eq!(record.floor, old.floor, "a clock that nobody compared gives no floor");
    }
}

#[test]
fn the_record_of_another_member_is_never_taken_over() {
    let policy = policy(3);
    let theirs = Record { member: policy.member("b"), ..admitted(&policy) };
    for run_id in ["run1", "run2"] {
        let mut admission = Admission::new(policy.clone(), "a");
        let mut copy = facts(9, Some(&theirs));
        copy.server.run_id = run_id.into();
        assert_eq!(examine(&mut admission, &copy), AdmissionStep::Settled);
        let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
        assert!(objection.contains("it is b, not a"), "{objection}");
    }
}

#[test]
fn a_quorum_of_one_needs_no_name() {
    let policy = policy(1);
    for name in ["a", "b"] {
        let mut admission = Admission::new(policy.clone(), name);
        examine(&mut admission, &facts(9, Some(&admitted(&policy))));
        assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
    }
}

#[test]
fn two_members_that_show_one_server_do_not_vote_until_they_show_two() {
    let policy = policy(3);
    let names = ["a", "b", "c"].map(MemberName::new);
    let mut roster = Roster::new(names.to_vec(), &policy);
    let mut members = ["a", "b"].map(|name| Admission::new(policy.clone(), name));
    let mut look = |members: &mut [Admission; 2], member: usize, facts: &Facts| {
        let twin = roster.show(member, facts);
        let now = Moment::from_nanos(facts.clock.0 * 1000);
        let sample = ClockSample { sent: now, received: now, clock: facts.clock };
        members[member].examine(now, now, facts, 99, &roster.peers(member, twin, sample));
        if let Some(twin) = twin {
            members[twin].is_one_server_with(&names[member]);
        }
        members.each_ref().map(|member| member.standing().pass().is_some())
    };
    let shown = facts(9, Some(&admitted(&policy)));
    assert_eq!(look(&mut members, 0, &shown), [true, false]);
    assert_eq!(look(&mut members, 1, &shown), [false, false], "it was the same server");
    let Standing::Refused { reason } = members[0].standing() else { panic!() };
    assert!(reason.starts_with("a and b are one server"), "{reason}");
    // Another database of it has another record, but dies with it.
    let other = Record { member: names[1].clone(), life: 2, ..admitted(&policy) };
    assert_eq!(look(&mut members, 1, &facts(9, Some(&other))), [false, false]);
    assert_eq!(look(&mut members, 0, &shown), [false, false]);

    let mut second = facts(9, Some(&Record { run_id: "run2".into(), ..other }));
    second.server.run_id = "run2".into();
    second.others = vec!["run2".into()];
    assert_eq!(look(&mut members, 1, &second), [false, true]);
    assert_eq!(look(&mut members, 0, &shown), [true, true]);
    // A copy has the record of another server, and is not that server.
    let mut copy = shown.clone();
    copy.server.run_id = "run3".into();
    assert_eq!(look(&mut members, 1, &copy), [true, false]);
    assert_eq!(look(&mut members, 0, &shown), [true, false]);
}

#[test]
fn a_member_that_does_not_answer_shows_nobody() {
    let shown = facts(9, None);
    let names = ["a", "b"].map(MemberName::new);
    let mut roster = Roster::new(names.to_vec(), &policy(2));
    assert_eq!(roster.show(0, &shown), None);
    assert_eq!(roster.show(1, &shown), Some(0));
    roster.hide(0);
    assert_eq!(roster.show(1, &shown), None);
}

#[test]
fn an_address_with_several_servers_behind_it_is_refused_until_all_connections_agree() {
    let policy = policy(3);
    let mut admission = Admission::new(policy.clone(), "a");
    assert_eq!(admission.compares(), 2);
    let mut shown = facts(9, Some(&admitted(&policy)));
    shown.others = vec!["run1".into(), "run2".into()];
    examine(&mut admission, &shown);
    let Standing::Refused { reason } = admission.standing() else { panic!() };
    assert!(reason.contains("several servers"), "{reason}");
    assert_eq!(admission.compares(), 2, "so it is compared again");
    shown.others = vec!["run1".into(), "run1".into()];
    examine(&mut admission, &shown);
    assert!(admission.standing().pass().is_some());
    assert_eq!(admission.compares(), 0);
}

#[test]
fn a_server_that_answers_instead_of_the_compared_one_is_compared_before_it_votes() {
    let policy = policy(3);
    let mut admission = Admission::new(policy.clone(), "a");
    let now = Moment::default();
    let mut look = |facts: &Facts| {
        let step = admission.examine(now, now, facts, 99, &alone(now, facts));
        assert_eq!(step, AdmissionStep::Settled);
        (admission.standing().pass().is_some(), admission.compares())
    };
    let first = facts(9, Some(&admitted(&policy)));
    assert_eq!(look(&first), (true, 0), "nobody could be compared");
    let mut second =
        facts(9, Some(&Record { run_id: "run2".into(), life: 2, ..admitted(&policy) }));
    second.server.run_id = "run2".into();
    assert_eq!(look(&second), (false, 2), "a new connection met somebody else");
    second.others = vec!["run1".into(), "run2".into()];
    assert_eq!(look(&second), (false, 2));
    second.others = vec!["run2".into(), "run2".into()];
    assert_eq!(look(&second), (true, 0), "the first was replaced");
}

#[test]
fn a_life_that_comes_back_after_another_is_refused_and_so_is_the_other() {
    let policy = policy(3);
    let mut admission = Admission::new(policy.clone(), "a");
    let server = |number: u128| {
        let run_id = format!("run{number}");
        let record = Record { life: number, run_id: run_id.clone(), ..admitted(&policy) };
        let mut facts = facts(9, Some(&record));
        facts.server.run_id = run_id;
        facts
    };
    let mut votes = |number| {
        examine(&mut admission, &server(number));
        admission.standing().pass().is_some()
    };
    assert!(votes(1) && votes(1));
    assert!(votes(2) && votes(2), "a node that was replaced");
    assert!(!votes(1), "it was not replaced: they take turns");
    assert!(!votes(2) && !votes(1), "and nobody can tell who is the member");
    assert!(votes(3), "somebody put it right");
    assert!(votes(3) && votes(1), "what was before that is forgotten");

    // A failover that was called off before the other voted.
    let mut waiting = server(4);
    let record = Record::parse(waiting.record.as_deref().unwrap()).unwrap();
    let record = Record { state: RecordState::Quarantined, born: WallMicros(9), ..record };
    waiting.record = Some(record.to_string());
    examine(&mut admission, &waiting);
    assert!(matches!(admission.standing(), Standing::Waiting { .. }));
    examine(&mut admission, &server(1));
    assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
}

#[test]
fn a_life_that_began_while_another_was_there_is_refused_and_a_successor_is_not() {
    let policy = policy(3);
    let at = |s: u64| Moment::from_millis(s * 1000);
    let second = |born: u64| {
        let record = Record {
            life: 2,
            run_id: "run2".into(),
            born: WallMicros(born * SECOND),
            ..admitted(&policy)
        };
        let mut facts = facts(5_000 * SECOND, Some(&record));
        facts.server.run_id = "run2".into();
        facts.others = vec!["run2".into()];
        facts
    };
    // The first was last seen so many seconds ago. Clocks are not compared: only how old a life is.
    for (ago, age, votes) in
        [(10, 9, true), (10, 11, false), (10, 3_600, false), (32, 33, true), (32, 35, false)]
    {
        let mut admission = Admission::new(policy.clone(), "a");
        let first = facts(9_000 * SECOND, Some(&admitted(&policy)));
        admission.examine(at(100), at(100), &first, 0, &alone(at(100), &first));
        assert!(admission.standing().pass().is_some());
        let now = at(100 + ago);
        let second = second(5_000 - age);
        admission.examine(now, now, &second, 0, &alone(now, &second));
        // A jump of the clock, which this is as well, is another matter.
        let is_refused = matches!(admission.standing(), Standing::Refused { .. });
        assert_eq!(is_refused, !votes, "{age} s old: {:?}", admission.standing());
    }
}

#[test]
fn a_life_that_was_seen_to_wait_is_a_successor_however_old_its_clock_makes_it() {
    let policy = policy(3);
    let mut admission = Admission::new(policy.clone(), "a");
    let shown = |life: u128, state, born: u64| {
        let run_id = format!("run{life}");
        let born = WallMicros(born * SECOND);
        let record = Record { life, run_id: run_id.clone(), state, born, ..admitted(&policy) };
        let mut facts = facts(9_000 * SECOND, Some(&record));
        facts.server.run_id = run_id;
        facts
    };
    let first = shown(1, RecordState::Admitted, 5_000);
    let waiting = shown(2, RecordState::Quarantined, 8_999);
    // Its clock was set right meanwhile.
    let aged = shown(2, RecordState::Admitted, 1);
    for facts in [&first, &waiting, &aged, &aged] {
        examine(&mut admission, facts);
    }
    assert!(!admission.standing().is_refusal(), "{:?}", admission.standing());

    let mut admission = Admission::new(policy.clone(), "a");
    for facts in [&first, &waiting, &first, &aged] {
        examine(&mut admission, facts);
    }
    assert!(admission.standing().is_refusal(), "the first was there after it began");
}

#[test]
fn a_connection_that_meets_nobody_is_no_comparison() {
    let policy = policy(3);
    let mut admission = Admission::new(policy.clone(), "a");
    let mut shown = facts(9, Some(&admitted(&policy)));
    shown.others = vec!["run1".into()];
    shown.unmet = 1;
    examine(&mut admission, &shown);
    let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
    assert!(objection.contains("not compared yet"), "{objection}");
    assert_eq!(admission.compares(), 2);
    shown.others.push("run1".into());
    shown.unmet = 0;
    examine(&mut admission, &shown);
    assert!(admission.standing().pass().is_some());
}

#[test]
fn a_record_of_the_format_before_is_upgraded_in_one_step() {
    let policy = policy(3);
    let new = admitted(&policy);
    let text = new.to_string().replace("leasehold2", "leasehold1");
    let gone = ["member=a ", "replid=repl1 ", "origin=first "];
    let text = gone.iter().fold(text, |text, word| text.replace(word, ""));
    let mut old = facts(9, None);
    old.record = Some(text.clone());
    let mut admission = Admission::new(policy.clone(), "a");
    let AdmissionStep::Replace { expected, record } = examine(&mut admission, &old) else {
        panic!("{:?}", admission.standing());
    };
    assert_eq!(expected.as_deref(), Some(text.as_str()));
    assert_eq!(record, Record { origin: Origin::Later, ..new });
    assert!(admission.standing().pass().is_none());
    examine(&mut admission, &facts(9, Some(&record)));
    assert!(admission.standing().pass().is_some(), "it keeps its memory and its vote");

    old.server.run_id = "run2".into();
    let begun = replaced(examine(&mut Admission::new(policy, "a"), &old));
    assert_eq!((begun.state, begun.life), (RecordState::Quarantined, 99));
}

#[test]
fn a_clock_that_went_back_makes_the_quarantine_start_again() {
    // By more than it waited, and by less.
    for (waited, back) in [(5 * SECOND, 10 * SECOND as i64), (20 * SECOND, 10 * SECOND as i64)] {
        let mut cluster = Cluster::new(3);
        cluster.look_at_all();
        cluster.forget(0);
        cluster.look_at_all();
        let began = cluster.record(0).born;
        cluster.pass(waited);
        // All but one: a clock that is alone is off, and begins nothing.
        (cluster.nodes[0].off, cluster.nodes[1].off) = (-back, -back);
        cluster.newcomer();
        cluster.look_at_all();
        cluster.look(0);
        let record = cluster.record(0);
        assert_eq!(record.state, RecordState::Quarantined);
        assert_ne!(record.born, began);
        assert_eq!(record.born, cluster.clock(0));
    }
}

#[test]
fn another_member_list_is_refused_by_name() {
    let ours = policy(3);
    for record in [
        Record { cluster: Fingerprint::of_members(["a"]), ..admitted(&ours) },
        Record { nodes: 5, ..admitted(&ours) },
    ] {
        let mut admission = Admission::new(ours.clone(), "a");
        assert_eq!(examine(&mut admission, &facts(9, Some(&record))), AdmissionStep::Settled);
        let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
        assert!(objection.contains("belongs to cluster"), "{objection}");
        assert!(objection.contains(&format!("of {} node(s)", record.nodes)), "{objection}");
    }
}

#[test]
fn max_ttl_belongs_to_the_cluster() {
    let mut ours = policy(3);
    let record = Record { max_ttl: Duration::from_secs(300), ..admitted(&ours) };
    let mut adopting = Admission::new(ours.clone(), "a");
    examine(&mut adopting, &facts(9, Some(&record)));
    assert_eq!(adopting.standing().pass().unwrap().max_ttl, Duration::from_secs(300));

    ours.max_ttl = Some(Duration::from_secs(30));
    let mut insisting = Admission::new(ours, "a");
    examine(&mut insisting, &facts(9, Some(&record)));
    let objection = insisting.standing().objection(Moment::default()).unwrap().to_string();
    assert!(objection.contains("max_ttl 300s, you are configured for 30s"), "{objection}");
}

#[test]
fn replicas_cluster_members_and_garbage_never_vote() {
    let policy = policy(3);
    let mut replica = facts(9, Some(&admitted(&policy)));
    replica.server.role = Role::Replica;
    let mut shard = replica.clone();
    shard.server.role = Role::ClusterMember;
    let mut garbage = facts(9, None);
    garbage.record = Some("hello".into());
    for (facts, word) in
        [(replica, "replica"), (shard, "cluster mode"), (garbage, "not one of ours")]
    {
        let mut admission = Admission::new(policy.clone(), "a");
        assert_eq!(examine(&mut admission, &facts), AdmissionStep::Settled);
        let objection = admission.standing().objection(Moment::default()).unwrap().to_string();
        assert!(objection.contains(word), "{objection}");
    }
}

#[test]
fn an_evicting_node_is_warned_about_and_in_strict_mode_refused() {
    let mut policy = policy(3);
    let mut evicting = facts(9, Some(&admitted(&policy)));
    evicting.server.evicts = Some("volatile-ttl".into());
    let mut lenient = Admission::new(policy.clone(), "a");
    examine(&mut lenient, &evicting);
    assert!(lenient.standing().pass().is_some());
    assert!(lenient.warning().unwrap().contains("volatile-ttl"));
    policy.strict = true;
    let mut strict = Admission::new(policy, "a");
    examine(&mut strict, &evicting);
    assert!(matches!(strict.standing(), Standing::Refused { .. }));
}

#[test]
fn a_clock_jump_takes_the_vote_away_for_the_quarantine() {
    let policy = policy(3);
    let record = admitted(&policy);
    let mut admission = Admission::new(policy, "a");
    let at = |s: u64| Moment::from_millis(s * 1000);
    let shows = |s: u64| facts(s * SECOND, Some(&record));
    look(&mut admission, at(100), &shows(5_000));
    assert!(admission.standing().pass().is_some());
    look(&mut admission, at(101), &shows(5_001 + 3_600));
    let Standing::Waiting { until, cause: Cause::Clock(jump) } = admission.standing() else {
        panic!("{:?}", admission.standing());
    };
    assert_eq!(*until, at(101).plus(Duration::from_millis(32_302)));
    assert!((jump.micros - 3_600_000_000).abs() < 20_000, "{jump:?}");
    look(&mut admission, at(120), &shows(5_020 + 3_600));
    assert!(admission.standing().pass().is_none(), "still sitting it out");
    look(&mut admission, at(134), &shows(5_034 + 3_600));
    assert!(admission.standing().pass().is_some());
}

#[test]
fn a_clock_by_which_nothing_expires_may_jump() {
    let policy = policy(1);
    let record = admitted(&policy);
    let mut admission = Admission::new(policy, "a");
    for (s, shown) in [(100, 5_000), (101, 8_601), (102, 5_002)] {
        let mut facts = facts(shown * SECOND, Some(&record));
        facts.server.expires_by_wall = false;
        let at = Moment::from_millis(s * 1000);
        look(&mut admission, at, &facts);
        assert!(admission.standing().pass().is_some(), "{:?}", admission.standing());
        let offset = (shown - s) as i64 * SECOND as i64;
        assert_eq!(admission.clock_offset_micros(), Some(offset), "it is followed all the same");
    }
}

/// A change of the list bars its nodes, and lets them in when all have left the old list.
#[test]
fn a_barred_node_that_restarts_is_barred_still() {
    for policy in [policy(1), policy(3)] {
        let waits = Some(Duration::from_secs(40));
        for state in [RecordState::Barred, RecordState::Quarantined] {
            let old = Record { state, waits, ..admitted(&policy) };
            let old = Record { origin: Origin::Succession, ..old };
            let mut after = facts(50 * SECOND, Some(&old));
            after.server.run_id = "run2".into();
            let mut admission = Admission::new(policy.clone(), "a");
            let record = replaced(examine(&mut admission, &after));
            assert_eq!((record.state, record.waits, record.life), (state, waits, 99));
            assert!(admission.standing().pass().is_none());
        }
    }
}

/// A quorum of one does not wait for having forgotten.
#[test]
fn a_quorum_of_one_waits_for_the_list_before_it() {
    let policy = policy(1);
    let (state, waits) = (RecordState::Quarantined, Some(Duration::from_secs(40)));
    let old = Record { state, waits, ..admitted(&policy) };
    let mut admission = Admission::new(policy, "a");
    for clock in [50, 51, 89] {
        let step = examine(&mut admission, &facts(clock * SECOND, Some(&old)));
        assert_eq!(step, AdmissionStep::Settled, "{clock}");
    }
    let record = replaced(examine(&mut admission, &facts(90 * SECOND, Some(&old))));
    assert_eq!((record.state, record.waits), (RecordState::Admitted, None));
}
