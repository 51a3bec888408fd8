//! Leases by their ids: renew, release, look.

use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use leasehold::node::NodeId;
use leasehold::{
    ExtendError, LeaseToken, LockName, LockStatus, NodeError, NodeReport, NodeReports, Owner,
    ReleaseOutcome, Reply, Sighting,
};
use serde::Deserialize;
use serde_json::json;

use super::{LeaseAnswer, ok};
use crate::app::App;
use crate::ask::Ask;
use crate::body::{Response, response};
use crate::lease_id;
use crate::ledger::ended_early;
use crate::problem::{self, Kind, Problem};
use crate::view;

/// One part in so many may be spent to find out how long the nodes keep it.
const OF_WHAT_IS_LEFT: u32 = 8;

const NEVER_ITS_FENCE: &str = "it never had this fence";

/// What may be said about a renewal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    ttl_ms: Option<u64>,
}

pub(crate) async fn renew(mut ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, mut token) = (ask.caller()?, ask.lease()?);
    let wish: Wish = ask.json().await?.value;
    let (app, asked) = (&ask.app, &ask.asked);
    caller.may_lock(app, &token.name)?;
    if let Some(ttl) = wish.ttl_ms {
        token.ttl = Duration::from_millis(ttl);
    }
    claim(app, &token)?;
    match app.locks.extend_since(&token, Instant::now).await {
        Ok((now, left)) => {
            let until = now + left;
            app.ledger.renewed(&token, until);
            // A caller that asks for less than is left keeps what is left.
            let kept = match wish.ttl_ms {
                Some(_) => kept(app, &token.name, left / OF_WHAT_IS_LEFT).await,
                None => None,
            };
            let id = lease_id::encode(&token);
            let elapsed_ms =
                Some(view::millis(app.locks.drift().passed_at_least(asked.at.elapsed())));
            let left = left_until(until);
            let answer = LeaseAnswer {
                expires_in_ms: Some(view::millis(left)),
                elapsed_ms,
                nodes_keep_ms: kept.map(|end| view::millis(left_until(end))),
                ..LeaseAnswer::of(&token, &id)
            };
            Ok(ok(&answer))
        }
        Err(error @ ExtendError::Lost(_)) => {
            app.ledger.renewal_lost(&token);
            let status = app.locks.inspect(token.name.as_str()).await.ok();
            if status.as_ref().is_some_and(|status| has_another_fence(&token, status)) {
                let (name, fence) = (token.name.as_str(), token.fence.get());
                return Err(problem::lost(name, fence, NEVER_ITS_FENCE, None));
            }
            let (reason, owner) = why_lost(&token, status.as_ref());
            // Who renews has not given it back.
            let reason = match (reason, &status) {
                ("stolen", _) if app.ledger.would_last(&token) => "forced",
                ("expired", Some(status)) if app.ledger.would_last(&token) => {
                    ended_early(&token.holder, token.fence.get(), status)
                }
                (reason, _) => reason,
            };
            let was_released = app.ledger.was_released(&token);
            let why = match (reason, owner) {
                _ if was_released => "it was released".to_owned(),
                (_, Some(owner)) => format!("{owner} holds it now"),
                ("forced", None) => "another had it since, or it was taken away by force".into(),
                (_, None) if status.as_ref().is_some_and(|it| it.fence() < Some(token.fence)) => {
                    "no node has a fence as high: there never was such a lease".into()
                }
                ("expired" | "elsewhere" | "unknown", None) => {
                    "it ran out or was released before, or there never was such a lease here".into()
                }
                _ => "too few nodes kept it without interruption".to_owned(),
            };
            app.ledger.lost(&token.name, &token.holder, reason, &format!("{why}; {error}"));
            Err(problem::lost(token.name.as_str(), token.fence.get(), &why, owner))
        }
        Err(error) => {
            app.ledger.renewal_failed(&token);
            Err(error.into())
        }
    }
}

/// A caller that hands an id in knows of its lease: it is not given back because another answer did not arrive.
fn claim(app: &App, token: &LeaseToken) -> Result<(), Problem> {
    if app.ledger.claimed(token) {
        return Ok(());
    }
    let why = "the answer that told of it did not arrive, so it is being given back";
    Err(problem::lost(token.name.as_str(), token.fence.get(), why, None))
}

/// Until when the nodes keep a lease, if enough of them say so in time.
async fn kept(app: &App, lock: &LockName, limit: Duration) -> Option<Instant> {
    let look = app.locks.inspect_as_answered(lock.as_str());
    let status = tokio::time::timeout(limit, look).await.ok()?.ok()?;
    let now = Instant::now();
    Some(now + app.locks.told_now(&status).expires_in()?)
}

fn left_until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Whether it ran out or somebody has it by now, and who.
fn why_lost<'a>(
    token: &LeaseToken,
    status: Option<&'a LockStatus>,
) -> (&'static str, Option<&'a Owner>) {
    let owner = status.and_then(LockStatus::holder);
    let is_past = status.and_then(LockStatus::fence).is_some_and(|fence| fence > token.token);
    match owner {
        Some(owner) if !owner.is(&token.holder) => ("stolen", Some(owner)),
        // Its own, but not with these fences, or not on enough nodes.
        Some(_) => ("quorum", None),
        None if is_past => ("forced", None),
        None => ("expired", None),
    }
}

pub(crate) async fn release(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, token, app) = (ask.caller()?, ask.lease()?, &ask.app);
    caller.may_lock(app, &token.name)?;
    let (name, fence) = (token.name.as_str(), token.fence.get());
    // A release that is repeated because the answer to the first got lost.
    let was_released = app.ledger.was_released(&token);
    match app.release(&token).await {
        ReleaseOutcome::Released => Ok(no_content()),
        ReleaseOutcome::AlreadyExpired
        | ReleaseOutcome::TakenOver { .. }
        | ReleaseOutcome::Superseded { .. }
            if was_released =>
        {
            app.ledger.released_again(&token);
            Ok(no_content())
        }
        ReleaseOutcome::AlreadyExpired => Err(problem::lost(
            name,
            fence,
            "it had run out before, or was taken away by force",
            None,
        )),
        ReleaseOutcome::TakenOver { by } => {
            let why = format!("it had run out before, and {by} holds it now");
            Err(problem::lost(name, fence, &why, Some(&by)))
        }
        ReleaseOutcome::Superseded { .. } => {
            let why = "it had run out or was released before, or was taken away by force, and others \
                       had the lock since";
            Err(problem::lost(name, fence, why, None))
        }
        ReleaseOutcome::Unknown { nodes } => {
            let detail = format!(
                "lock `{name}`: too few nodes answered to tell what became of the lease; at worst it \
                 stays until its TTL is over: {nodes}"
            );
            Err(problem::unknown(detail, &nodes))
        }
        _ => Err(problem::lost(name, fence, "nobody knows it any more", None)),
    }
}

fn no_content() -> Response {
    response(StatusCode::NO_CONTENT, "")
}

pub(crate) async fn look(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, token, app) = (ask.caller()?, ask.lease()?, &ask.app);
    caller.may_see(app, &token.name)?;
    claim(app, &token)?;
    let answered = app.locks.inspect_as_answered(token.name.as_str()).await?;
    // What is left counts from then, so that a pause makes it less.
    let now = Instant::now();
    let status = app.locks.told_now(&answered);
    let until = status.expires_in().map(|left| now + left);
    match status.holder() {
        Some(owner) if owner.is(&token.holder) && is_its_fence(&token, &status) => {
            let held_for = view::held_for(&status, SystemTime::now()).map(view::millis);
            let id = lease_id::encode(&token);
            let passed = app.locks.drift().passed_at_least(ask.asked.at.elapsed());
            let left = until.map(|until| view::millis(left_until(until)));
            if left == Some(0) {
                return Err(answered_too_late(&token));
            }
            let answer = LeaseAnswer {
                expires_in_ms: left,
                elapsed_ms: Some(view::millis(passed)),
                held_for_ms: Some(held_for),
                ..LeaseAnswer::of(&token, &id)
            };
            Ok(ok(&answer))
        }
        // It may be over, or renewed meanwhile.
        None if answered.holder().is_some_and(|owner| owner.is(&token.holder))
            && is_its_fence(&token, &answered) =>
        {
            Err(answered_too_late(&token))
        }
        None if may_be_held(&token, &answered) => {
            let detail = format!(
                "lock `{}`: the nodes that answered are too few to tell whether the lease is held",
                token.name
            );
            Err(problem::unknown(detail, &reports(&answered)))
        }
        owner => {
            let why = match owner {
                Some(owner) if owner.is(&token.holder) => NEVER_ITS_FENCE.to_owned(),
                Some(owner) => format!("{owner} holds it now"),
                None => "no quorum has it, or has it any more".to_owned(),
            };
            Err(problem::lost(token.name.as_str(), token.fence.get(), &why, owner))
        }
    }
}

/// Less was left of it than the look took.
fn answered_too_late(token: &LeaseToken) -> Problem {
    let (name, fence) = (&token.name, token.fence);
    let detail = format!(
        "lock `{name}` (fence {fence}): the nodes had it when they were asked, and it can be over by \
         now; a renewal tells"
    );
    Problem::new(Kind::TooSlow, detail).with("name", json!(name.as_str()))
}

/// Whether nodes that did not answer may be a quorum together with those that have the lease.
fn may_be_held(token: &LeaseToken, status: &LockStatus) -> bool {
    let may = |seen: &Result<Sighting, NodeError>| match seen {
        Ok(seen) => seen.owner.as_ref().is_some_and(|owner| owner.is(&token.holder)),
        Err(_) => true,
    };
    status.nodes.iter().filter(|(_, seen)| may(seen)).count() >= status.quorum()
}

fn reports(status: &LockStatus) -> NodeReports {
    let report = |(node, seen): &(NodeId, Result<Sighting, NodeError>)| NodeReport {
        node: node.clone(),
        answer: Some(seen.clone().map(Reply::Seen)),
        after: Duration::ZERO,
    };
    NodeReports(status.nodes.iter().map(report).collect())
}

/// Whether its holder has the lock, with a fence that its id does not name.
fn has_another_fence(token: &LeaseToken, status: &LockStatus) -> bool {
    status.holder().is_some_and(|owner| owner.is(&token.holder)) && !is_its_fence(token, status)
}

/// Whether the nodes gave it one of the fences that its id names.
fn is_its_fence(token: &LeaseToken, status: &LockStatus) -> bool {
    let fence = status.holder().and_then(|owner| status.fence_of(owner));
    fence.is_some_and(|fence| (token.fence..=token.token).contains(&fence))
}
