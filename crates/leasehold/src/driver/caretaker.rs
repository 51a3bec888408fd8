//! One task per node that asks it once a second who it is and what time it is, and lets the core
//! judge. Also drops idle fences, and notices when our own machine slept.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{
    AdmissionStep, Answer, ClockSample, Facts, Moment, NodeError, Record, Reply, Request, Roster,
    Standing,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Cluster, Member, trail};
use crate::chance;

/// How often a node is looked at, and how long its idle fences are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaretakerSettings {
    /// Between two probes of a healthy node.
    pub(crate) probe_every: Duration,
    /// Fences of locks that nobody acquired for this long are dropped.
    pub(crate) fence_retention: Duration,
    /// Between two looks for idle fences.
    pub(crate) forget_every: Duration,
}

/// A probe may take longer than a vote: it decides nothing that somebody waits for.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Two examinations are at least so far apart, whatever calls for them: an address behind which servers
/// take turns would keep us busy otherwise.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// A connection on which somebody answers who may not vote is opened anew after this time. A fail-over may
/// keep our connection to a server that is a replica now, while the address leads to another.
const REDIAL_AFTER: Duration = Duration::from_secs(3);

/// A record can change under our hands, but not for ever.
const EXAMINATIONS_IN_A_ROW: usize = 8;

pub(super) fn spawn(
    cluster: &Arc<Cluster>,
    member: Arc<Member>,
    settings: CaretakerSettings,
    closing: CancellationToken,
) {
    let weak = Arc::downgrade(cluster);
    cluster.background.spawn(async move {
        tokio::select! {
            biased;
            () = care(weak, member, settings) => {}
            () = closing.cancelled() => {}
        }
    });
}

async fn care(cluster: Weak<Cluster>, member: Arc<Member>, settings: CaretakerSettings) {
    let mut generation = member.node.generation();
    // Spread, so that the clients of a cluster do not all look at the same time.
    let spread = f64::from(chance::jitter()) / f64::from(u32::MAX);
    let mut forget_at = tokio::time::Instant::now() + settings.forget_every.mul_f64(spread);
    let mut refused_since = None;
    loop {
        generation.mark_unchanged();
        let pause = {
            let Some(cluster) = cluster.upgrade() else {
                return;
            };
            examine(&cluster, &member).await;
            cluster.note_foreign_nodes();
            if tokio::time::Instant::now() >= forget_at {
                forget_idle(&cluster, &member, settings.fence_retention).await;
                forget_at = tokio::time::Instant::now() + settings.forget_every;
            }
            let notes = member.notes();
            let standing = notes.admission.standing();
            let now = tokio::time::Instant::now();
            refused_since = refused_since.or(Some(now)).filter(|_| standing.is_refusal());
            if refused_since.is_some_and(|since| now - since >= REDIAL_AFTER) {
                refused_since = None;
                member.node.redial();
            }
            standing.look_again_in(cluster.now(), settings.probe_every)
        };
        tokio::time::sleep(PAUSE_MIN).await;
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause.saturating_sub(PAUSE_MIN)) => {}
            () = member.examine.notified() => {}
            _ = generation.changed() => {}
        }
    }
}

/// Asks the node about itself until the core has nothing more to write there.
async fn examine(cluster: &Arc<Cluster>, member: &Arc<Member>) {
    for _ in 0..EXAMINATIONS_IN_A_ROW {
        let (before, compared) = {
            let admission = &member.notes().admission;
            (admission.standing().clone(), admission.compares() > 0)
        };
        let seen = match look(cluster, member).await {
            Ok(seen) => seen,
            Err(error) => return gone(cluster, member, &before, error),
        };
        match judge(cluster, member, &seen) {
            // Another server than the one that was compared.
            AdmissionStep::Settled if !compared && member.notes().admission.compares() > 0 => {}
            AdmissionStep::Settled => {
                let is_open = {
                    let admission = &member.notes().admission;
                    admission.wants_peers() && *admission.standing() == Standing::Unknown
                };
                // Nothing can be said of it before the others were tried.
                if !is_open {
                    member.examined(|_| {});
                }
                return report(member, &before);
            }
            AdmissionStep::Replace { expected, record } => {
                if let Err(error) = write(cluster, member, expected, &record).await {
                    return gone(cluster, member, &before, error);
                }
            }
        }
    }
    let error = NodeError::not_voting("its identity record keeps changing");
    member.examined(|notes| notes.admission.down(error));
}

/// What a node said of itself, and when.
struct Seen {
    sent: Moment,
    received: Moment,
    facts: Box<Facts>,
}

/// What the node says of itself, and, before it votes for the first time, whom other connections to
/// its address meet.
async fn look(cluster: &Arc<Cluster>, member: &Arc<Member>) -> Result<Seen, NodeError> {
    let compares = member.notes().admission.compares();
    let probe = async {
        let sent = cluster.now();
        let answer = ask(cluster, member, Request::Probe, false).await;
        (sent, answer, cluster.now())
    };
    let ((sent, answer, received), met) = match compares {
        0 => (probe.await, Vec::new()),
        compares => tokio::join!(probe, member.node.meet(compares)),
    };
    match answer? {
        Reply::Facts(mut facts) => {
            facts.unmet = met.iter().filter(|met| met.is_none()).count();
            facts.others.extend(met.into_iter().flatten());
            Ok(Seen { sent, received, facts })
        }
        _ => Err(NodeError::Garbled { reason: "a probe was answered with something else".into() }),
    }
}

/// Has the core judge what a node said. The roster is held meanwhile, so that of two members that
/// show one server at the same time one is judged after the other.
fn judge(cluster: &Cluster, member: &Arc<Member>, seen: &Seen) -> AdmissionStep {
    let Seen { sent, received, facts } = seen;
    let mut roster = cluster.roster();
    let twin = roster.show(member.index, facts);
    let sample = ClockSample { sent: *sent, received: *received, clock: facts.clock };
    let peers = roster.peers(member.index, twin, sample);
    let (step, went_ahead, wants_peers) = {
        let mut notes = member.notes();
        notes.round_trip = Some(received.since(*sent));
        notes.server = Some(facts.server.clone());
        notes.record.clone_from(&facts.record);
        let admission = &mut notes.admission;
        let before = admission.jumps().last().copied();
        let wanted_peers = admission.wants_peers();
        let step = admission.examine(*sent, *received, facts, chance::nonce(), &peers);
        roster.note(member.index, *sent, admission, facts);
        let wants_peers = admission.wants_peers() && !wanted_peers;
        (step, admission.jumps().last().copied() != before, wants_peers)
    };
    if let Some(twin) = twin {
        let name = cluster.member_name(member.index);
        cluster.members[twin].notes().admission.is_one_server_with(&name);
    }
    compare_clocks(cluster, &roster);
    drop(roster);
    if went_ahead {
        cluster.clocks_went_ahead();
    }
    trail::tell_reading(member.node.id(), *sent, *received);
    let others = cluster.members.iter().filter(|other| other.index != member.index);
    others
        .filter(|other| wants_peers || other.notes().admission.wants_peers())
        .for_each(|other| other.examine_soon());
    step
}

/// Has each member know how its clock stands to those of the others.
fn compare_clocks(cluster: &Cluster, roster: &Roster) {
    let now = cluster.now();
    for other in &cluster.members {
        let mut notes = other.notes();
        let before = notes.admission.standing().clone();
        notes.admission.compared(now, roster.line(other.index));
        drop(notes);
        report(other, &before);
    }
}

/// Writes the record that the core wants, unless somebody was quicker.
async fn write(
    cluster: &Arc<Cluster>,
    member: &Arc<Member>,
    expected: Option<Arc<str>>,
    record: &Record,
) -> Answer {
    debug!(node = %member.node.id(), %record, "writing the identity record");
    let (text, was) = (record.to_string(), expected.clone().unwrap_or_default());
    let request = Request::ReplaceRecord { expected, record: text.clone().into() };
    let answer = ask(cluster, member, request, false).await;
    let replaced = matches!(answer, Ok(Reply::Record { replaced: true }));
    let (node, record, expected) = (member.node.id(), text.as_str(), &*was);
    tracing::trace!(target: "leasehold::record", %node, record, expected, replaced, "record");
    answer
}

/// It did not answer: the next answer may come from another server.
fn gone(cluster: &Cluster, member: &Member, before: &Standing, error: NodeError) {
    let is_forgotten = {
        let admission = &mut member.notes().admission;
        match error {
            NodeError::Gone { reason } => admission.forgot(cluster.now(), reason),
            error => {
                admission.down(error);
                false
            }
        }
    };
    if is_forgotten {
        cluster.clocks_went_ahead();
    }
    {
        let mut roster = cluster.roster();
        roster.hide(member.index);
        compare_clocks(cluster, &roster);
    }
    member.examined(|_| {});
    report(member, before);
}

/// Drops fences of locks that nobody acquired for `retention`. First the floor goes up, so that
/// nothing that is dropped can be given again.
async fn forget_idle(cluster: &Arc<Cluster>, member: &Arc<Member>, retention: Duration) {
    if !member.votes(cluster.now()) {
        return;
    }
    let Ok(seen) = look(cluster, member).await else {
        return;
    };
    // Its clock becomes the floor, so it is held against the others' first.
    if judge(cluster, member, &seen) != AdmissionStep::Settled {
        return;
    }
    let raised = member.notes().admission.raised(&seen.facts, retention);
    let Some((expected, record)) = raised else {
        return;
    };
    let below = record.floor;
    let expected = Some(expected.into());
    let Ok(Reply::Record { replaced: true }) = write(cluster, member, expected, &record).await
    else {
        return;
    };
    examine(cluster, member).await;
    match ask(cluster, member, Request::ForgetIdle { below }, true).await {
        Ok(Reply::Forgot { fences }) => {
            info!(node = %member.node.id(), fences, "dropped idle fences");
        }
        other => debug!(node = %member.node.id(), ?other, "idle fences were not dropped"),
    }
}

/// One question to one node.
async fn ask(
    cluster: &Arc<Cluster>,
    member: &Arc<Member>,
    request: Request,
    with_pass: bool,
) -> Answer {
    let pass = if with_pass { Some(member.pass(|| cluster.now())?) } else { None };
    cluster.ask_member(member, request, pass, PROBE_LIMIT).await
}

fn report(member: &Member, before: &Standing) {
    let notes = member.notes();
    let after = notes.admission.standing();
    if std::mem::discriminant(before) == std::mem::discriminant(after) {
        return;
    }
    let node = member.node.id();
    match after {
        Standing::Voting(_) => {
            let version = notes.server.as_ref().map(|server| server.version.as_str());
            info!(%node, version, "the node votes");
            if let Some(warning) = notes.admission.warning() {
                warn!(%node, "{warning}");
            }
        }
        Standing::Waiting { cause: leasehold_core::Cause::Forgot, .. } => warn!(
            %node,
            "it is new or lost its memory, and sits out its quarantine; if the whole cluster is \
             new, `leasehold init` (library: `trust_new_nodes`) admits it at once"
        ),
        Standing::Waiting { cause, .. } => warn!(%node, "it does not vote: {cause}"),
        Standing::Refused { reason } | Standing::Foreign { reason } => {
            warn!(%node, "it does not vote: {reason}")
        }
        Standing::Down(error) => warn!(%node, "it does not answer: {error}"),
        Standing::Unknown => {}
    }
}

/// Timers stand still while the machine sleeps, our clock does not. When the clock is found ahead,
/// the keeper looks at all leases again.
pub(super) fn watch_for_suspend(cluster: &Arc<Cluster>, closing: CancellationToken) {
    /// Small against the shortest Ttl; large against a tick of the timer.
    const TICK: Duration = Duration::from_millis(100);
    let weak = Arc::downgrade(cluster);
    cluster.background.spawn(async move {
        let Some(start) = weak.upgrade().map(|cluster| cluster.now()) else {
            return;
        };
        let started = tokio::time::Instant::now();
        let mut ahead = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(TICK) => {}
                () = closing.cancelled() => return,
            }
            let Some(cluster) = weak.upgrade() else {
                return;
            };
            let by_clock = cluster.now().since(start);
            let now_ahead = by_clock.saturating_sub(started.elapsed());
            if now_ahead > ahead + TICK / 2 {
                warn!(by = ?(now_ahead - ahead), "the machine slept");
                ahead = now_ahead;
                cluster.rota.look_now();
            }
        }
    });
}
