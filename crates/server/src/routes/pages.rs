//! What needs no lock: health, metrics, the description of the API, the dashboard.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use super::{json_answer, ok, typed};
use crate::ask::Ask;
use crate::body::Response;
use crate::dashboard;
use crate::ledger;
use crate::problem::{Kind, Problem};
use crate::view;

/// The description of the API.
pub(crate) const OPENAPI: &str = include_str!("../../openapi.json");

/// Scripts, styles and requests of our own only.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(crate) fn version(ask: &Ask) -> Response {
    let asks_for_token = ask.app.access.rules().tokens.is_some();
    let version = env!("CARGO_PKG_VERSION");
    ok(&json!({"name": "leasehold", "version": version, "asks_for_token": asks_for_token}))
}

pub(crate) fn health() -> Response {
    ok(&json!({"status": "ok"}))
}

/// What `/readyz` is asked to leave out of account.
#[derive(Debug, Deserialize)]
struct Readiness {
    #[serde(default)]
    ignore: Option<String>,
}

pub(crate) fn ready(ask: &Ask) -> Result<Response, Problem> {
    let app = &ask.app;
    let Readiness { ignore } = ask.query()?;
    if !matches!(ignore.as_deref(), None | Some("quorum")) {
        return Err(Problem::field("ignore", "only `quorum` can be ignored"));
    }
    let nodes = app.locks.nodes();
    let (available, quorum) = (view::available(&nodes), app.locks.quorum());
    let (status, word) = if app.tasks.is_leaving() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if available < quorum && ignore.is_none() {
        (StatusCode::SERVICE_UNAVAILABLE, "no-quorum")
    } else {
        (StatusCode::OK, "ready")
    };
    let value = json!({
        "status": word,
        "available": available,
        "quorum": quorum,
        "configured": nodes.len(),
    });
    Ok(json_answer(status, &value))
}

pub(crate) fn metrics(ask: &Ask) -> Result<Response, Problem> {
    let (caller, app) = (ask.caller()?, &ask.app);
    caller.may_read(app)?;
    let text = app.ledger.prometheus(app.connections.count());
    Ok(typed(StatusCode::OK, ledger::CONTENT_TYPE, text))
}

pub(crate) fn openapi() -> Response {
    typed(StatusCode::OK, "application/json", OPENAPI)
}

pub(crate) fn index() -> Result<Response, Problem> {
    page("index.html")
}

pub(crate) fn asset(ask: &Ask) -> Result<Response, Problem> {
    page(&ask.variable()?)
}

fn page(file: &str) -> Result<Response, Problem> {
    let found = dashboard::FILES.iter().find(|(name, ..)| *name == file);
    let (_, media_type, content) =
        found.ok_or_else(|| Problem::new(Kind::NotFound, "there is no such file"))?;
    let mut response = typed(StatusCode::OK, media_type, *content);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, PAGE_POLICY);
    // Asked for again after an update, and small.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
