//! Leases by their ids: renew, release, look.

use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use leasehold::{ExtendError, LeaseToken, LockStatus, Owner, ReleaseOutcome};
use serde::Deserialize;

use super::{LeaseAnswer, ok};
use crate::ask::Ask;
use crate::body::{Response, response};
use crate::events::More;
use crate::lease_id;
use crate::problem::{self, Problem};
use crate::view;

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
    match app.locks.extend(&token).await {
        Ok(left) => {
            app.metrics.leases.renewed("ok");
            app.known.renewed(&token.name, &token.holder, token.ttl, Instant::now() + left);
            app.events.tell("renewed", Some(token.name.clone()), More::lease(&token));
            let id = lease_id::encode(&token);
            let answer = LeaseAnswer {
                expires_in_ms: Some(view::millis(left)),
                elapsed_ms: Some(view::millis(asked.at.elapsed())),
                ..LeaseAnswer::of(&token, &id)
            };
            Ok(ok(&answer))
        }
        Err(error @ ExtendError::Lost(_)) => {
            app.metrics.leases.renewed("lost");
            let status = app.locks.inspect(token.name.as_str()).await.ok();
            let (reason, owner) = why_lost(&token, status.as_ref());
            let why = match (reason, owner) {
                (_, Some(owner)) => format!("{owner} holds it now"),
                ("stolen", None) => "another had it since, or it was taken away by force".into(),
                ("expired", None) => "it ran out before it was renewed".into(),
                _ => "too few nodes kept it without interruption".to_owned(),
            };
            if reason == "stolen" {
                app.metrics.leases.fencing_rejections.inc();
            }
            // Told once, however often it is tried.
            if !app.known.has_ended(&token.holder) {
                app.lost(&token, reason, &format!("{why}; {error}"));
            }
            Err(problem::lost(token.name.as_str(), token.fence.get(), &why, owner))
        }
        Err(error) => {
            app.metrics.leases.renewed("failed");
            Err(error.into())
        }
    }
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
        Some(_) => ("quorum", None),
        None if is_past => ("stolen", None),
        None => ("expired", None),
    }
}

pub(crate) async fn release(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, token, app) = (ask.caller()?, ask.lease()?, &ask.app);
    caller.may_lock(app, &token.name)?;
    // A repeated release, because the answer to the first got lost.
    if app.known.was_released(&token.holder) {
        return Ok(no_content());
    }
    let (name, fence) = (token.name.as_str(), token.fence.get());
    match app.release(&token).await {
        ReleaseOutcome::Released => Ok(no_content()),
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
        Some(owner) if owner.is(&token.holder) => {
            let held_for = view::held_for(&status, SystemTime::now()).map(view::millis);
            let id = lease_id::encode(&token);
            let answer = LeaseAnswer {
                expires_in_ms: status.expires_in().map(view::millis),
                held_for_ms: Some(held_for),
                ..LeaseAnswer::of(&token, &id)
            };
            Ok(ok(&answer))
        }
        owner => {
            let why = match owner {
                Some(owner) => format!("{owner} holds it now"),
                None => "no quorum has it any more".to_owned(),
            };
            Err(problem::lost(token.name.as_str(), token.fence.get(), &why, owner))
        }
    }
}
