//! Looking at locks and nodes, and taking a lock away.

use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leasehold::{Fence, Owner};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acquire::check_reason;
use super::ok;
use crate::ask::Ask;
use crate::body::Response;
use crate::ledger::Forced;
use crate::observer;
use crate::problem::{Kind, Problem};
use crate::view;

/// How much of its history a lock shows.
const HISTORY: usize = 50;

pub(crate) async fn inspect(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, lock, app) = (ask.caller()?, ask.lock()?, &ask.app);
    caller.may_see(app, &lock)?;
    let status = app.locks.inspect(lock.as_str()).await?;
    let mut value = view::lock(&status, SystemTime::now(), app.waiting.count(&lock));
    let granted = match status.owner() {
        Some((Owner::Holder(holder), _)) => app.ledger.grant_of(&lock, holder),
        _ => None,
    };
    value["highest_fence"] = json!(status.fence().map(Fence::get));
    value["ttl_ms"] = json!(granted.as_ref().map(|granted| view::millis(granted.ttl)));
    value["reason"] = json!(granted.and_then(|granted| granted.reason));
    value["nodes"] = view::votes(&status);
    value["history"] = json!(app.ledger.history(&lock, HISTORY, caller.is_admin()));
    Ok(ok(&value))
}

/// Which part of the list is wanted.
#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    #[serde(default)]
    prefix: String,
    limit: Option<String>,
    cursor: Option<String>,
}

pub(crate) async fn list(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, app) = (ask.caller()?, &ask.app);
    caller.may_read(app)?;
    let part: Part = ask.query()?;
    let limit = part.limit.as_deref().map_or(Some(100), |text| text.parse().ok());
    let limit = limit
        .filter(|limit| (1..=1000).contains(limit))
        .ok_or_else(|| Problem::field("limit", "limit is a number between 1 and 1000"))?;
    let after = match &part.cursor {
        None => None,
        Some(cursor) => {
            let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
            let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            Some(name.ok_or_else(|| {
                Problem::field("cursor", "take `next_cursor` from the answer before, unchanged")
            })?)
        }
    };
    let list = async || app.locks.list(&part.prefix).await.map(Arc::new);
    let listed = app.observed.lists.get(&part.prefix, list).await?;
    let now = SystemTime::now();
    let mut rest = listed
        .iter()
        .filter(|status| after.as_deref().is_none_or(|after| status.name.as_str() > after));
    let page: Vec<_> = rest.by_ref().take(limit).collect();
    let next = match (page.last(), rest.next()) {
        (Some(last), Some(_)) => Some(URL_SAFE_NO_PAD.encode(last.name.as_str())),
        _ => None,
    };
    let show =
        |status: &&leasehold::LockStatus| view::lock(status, now, app.waiting.count(&status.name));
    let locks: Vec<Value> = page.iter().map(show).collect();
    Ok(ok(&json!({"locks": locks, "next_cursor": next})))
}

/// What must be said to take a lock away.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Force {
    expected_fence: u64,
    reason: String,
}

pub(crate) async fn force_release(mut ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, lock) = (ask.caller()?, ask.lock()?);
    let Force { expected_fence, reason } = ask.json().await?.value;
    let app = &ask.app;
    caller.must_be_admin(app, &lock)?;
    check_reason(&reason)?;
    if reason.trim().is_empty() {
        return Err(Problem::field("reason", "say why, for the record"));
    }
    let fence = Fence::new(expected_fence)
        .ok_or_else(|| Problem::field("expected_fence", "a fence is between 1 and 2^53 - 1"))?;
    let status = app.locks.inspect_as_answered(lock.as_str()).await?;
    app.ledger.force_asked(caller.who(), &lock, &reason);
    let released = match app.locks.force_release(lock.as_str(), fence).await {
        Ok(released) => released,
        Err(error) => {
            let why = error.to_string();
            let problem = Problem::from(error);
            let is_past_fence = problem.kind == Kind::FenceMovedOn;
            app.ledger.force_refused(caller.who(), &lock, &why, is_past_fence);
            return Err(problem);
        }
    };
    if released {
        let holder = match status.owner() {
            Some((Owner::Holder(holder), _)) => Some(holder),
            _ => None,
        };
        let forced = Forced { lock: &lock, holder, fence: expected_fence, reason: &reason };
        app.ledger.forced(caller.who(), &forced);
    } else {
        app.ledger.force_found_free(caller.who(), &lock, &reason);
    }
    Ok(ok(&json!({"name": lock.as_str(), "released": released, "fence": expected_fence})))
}

pub(crate) fn cluster(ask: &Ask) -> Result<Response, Problem> {
    let (caller, app) = (ask.caller()?, &ask.app);
    // Whoever may lock needs to know how long a lease may be.
    let _ = caller;
    Ok(ok(&view::cluster(&app.locks, &app.backend)))
}

pub(crate) async fn overview(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, app) = (ask.caller()?, &ask.app);
    caller.may_read(app)?;
    app.observed.overviews.get("", async || _ = observer::look(app).await).await;
    let mut value = observer::overview(app);
    value["series"] = json!({"step_ms": 1000, "points": app.ledger.series()});
    value["caller"] = json!({"name": &*caller.name, "may_force_release": caller.is_admin()});
    Ok(ok(&value))
}
