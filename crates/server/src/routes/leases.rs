//! Leases by their ids: renew, release, look.

use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use leasehold::node::NodeId;
use leasehold::{
    ExtendError, LeaseToken, LockName, LockStatus, NodeError, NodeReport, NodeReports, Owner,
    ReleaseOutcome, Reply, Sighting,
};
use serde::Deserialize;

use super::{LeaseAnswer, ok};
use crate::app::App;
use crate::ask::Ask;
use crate::body::{Response, response};
use crate::lease_id;
use crate::problem::{self, Problem};
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
    match app.locks.extend_since(&token, Instant::now).await {
        Ok((now, left)) => {
            let until = now + left;
            app.metrics.leases.renewed("ok");
            app.renewed(&token, until);
            // A caller that asks for less than is left keeps what is left.
            let kept = match wish.ttl_ms {
                Some(_) => kept(app, &token.name, left / OF_WHAT_IS_LEFT).await,
                None => None,
            };
            let id = lease_id::encode(&token);
            let elapsed_ms =
                Some(view::millis(app.locks.drift().passed_at_least(asked.at.elapsed())));
            let left = until.saturating_duration_since(Instant::now());
            let answer = LeaseAnswer {
                expires_in_ms: Some(view::millis(left)),
                elapsed_ms,
                nodes_keep_ms: kept.map(view::millis),
                ..LeaseAnswer::of(&token, &id)
            };
            Ok(ok(&answer))
        }
        Err(error @ ExtendError::Lost(_)) => {
            app.metrics.leases.renewed("lost");
            let status = app.locks.inspect(token.name.as_str()).await.ok();
            if status.as_ref().is_some_and(|status| has_another_fence(&token, status)) {
                let (name, fence) = (token.name.as_str(), token.fence.get());
                return Err(problem::lost(name, fence, NEVER_ITS_FENCE, None));
            }
            let (reason, owner) = why_lost(&token, status.as_ref());
            let reason = match reason {
                "stolen" | "expired" if app.would_last(&token.name, &token.holder) => "forced",
                reason => reason,
            };
            let was_released = app.known.was_released(&token.name, &token.holder);
            let why = match (reason, owner) {
                _ if was_released => "it was released".to_owned(),
                (_, Some(owner)) => format!("{owner} holds it now"),
                ("forced", None) => "another had it since, or it was taken away by force".into(),
                ("expired", None) => {
                    "it ran out or was released before, or there never was such a lease here".into()
                }
                _ => "too few nodes kept it without interruption".to_owned(),
            };
            let is_ours = app.known.is_known(&token.name, &token.holder);
            if is_ours && matches!(reason, "stolen" | "forced") {
                app.metrics.leases.fencing_rejections.inc();
            }
            app.lost(&token.name, &token.holder, reason, &format!("{why}; {error}"));
            Err(problem::lost(token.name.as_str(), token.fence.get(), &why, owner))
        }
        Err(error) => {
            app.metrics.leases.renewed("failed");
            Err(error.into())
        }
    }
}

/// For how long the nodes keep a lease, if enough of them say so in time.
async fn kept(app: &App, lock: &LockName, limit: Duration) -> Option<Duration> {
    let status = tokio::time::timeout(limit, app.locks.inspect(lock.as_str())).await;
    status.ok()?.ok()?.expires_in()
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
    let was_released = app.known.was_released(&token.name, &token.holder);
    match app.release(&token).await {
        ReleaseOutcome::Released => Ok(no_content()),
        ReleaseOutcome::AlreadyExpired | ReleaseOutcome::TakenOver { .. } if was_released => {
            app.known.gave_back(&token.name, &token.holder);
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
    let status = app.locks.inspect(token.name.as_str()).await?;
    match status.holder() {
        Some(owner) if owner.is(&token.holder) && is_its_fence(&token, &status) => {
            let held_for = view::held_for(&status, SystemTime::now()).map(view::millis);
            let id = lease_id::encode(&token);
            let answer = LeaseAnswer {
                expires_in_ms: status.expires_in().map(view::millis),
                held_for_ms: Some(held_for),
                ..LeaseAnswer::of(&token, &id)
            };
            Ok(ok(&answer))
        }
        None if may_be_held(&token, &status) => {
            let detail = format!(
                "lock `{}`: the nodes that answered are too few to tell whether the lease is held",
                token.name
            );
            Err(problem::unknown(detail, &reports(&status)))
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
