//! What needs no lock: health, metrics, the description of the API, the dashboard.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::{answer, ok};
use crate::app::App;
use crate::caller::Caller;
use crate::dashboard;
use crate::metrics;
use crate::problem::{Kind, Problem};
use crate::view;

/// The description of the API.
pub(crate) const OPENAPI: &str = include_str!("../../openapi.json");

/// Scripts, styles and requests of our own only.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(crate) async fn version() -> Response {
    ok(&json!({"name": "leasehold", "version": env!("CARGO_PKG_VERSION")}))
}

pub(crate) async fn health() -> Response {
    ok(&json!({"status": "ok"}))
}

pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    let nodes = app.locks.nodes();
    let (available, quorum) = (view::available(&nodes), app.locks.quorum());
    let (status, word) = if app.draining.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if available < quorum {
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
    answer(status, &value)
}

pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.may_read(&app)?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], app.metrics.text()).into_response())
}

pub(crate) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

pub(crate) async fn index() -> Result<Response, Problem> {
    page("index.html")
}

pub(crate) async fn asset(Path(file): Path<String>) -> Result<Response, Problem> {
    page(&file)
}

fn page(file: &str) -> Result<Response, Problem> {
    let found = dashboard::FILES.iter().find(|(name, ..)| *name == file);
    let (_, media_type, content) =
        found.ok_or_else(|| Problem::new(Kind::NotFound, "there is no such file"))?;
    let mut response = (*content).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_SECURITY_POLICY, PAGE_POLICY);
    // Asked for again after an update, and small.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
