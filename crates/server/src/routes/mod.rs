//! Where requests go: parse, one call, answer.

mod acquire;
mod leases;
mod locks;
mod pages;
mod streams;

use std::sync::Arc;

pub(crate) use streams::Streaming;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;

use crate::app::App;
use crate::problem::{Kind, Problem};

/// The template of the path that was asked for: a label of metrics.
#[derive(Clone)]
pub(crate) struct Matched(pub(crate) MatchedPath);

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/locks", get(locks::list))
        .route("/v1/locks/{name}", get(locks::inspect))
        .route("/v1/locks/{name}/leases", post(acquire::acquire))
        .route("/v1/locks/{name}/events", get(streams::of_lock))
        .route("/v1/locks/{name}/force-release", post(locks::force_release))
        .route("/v1/leases/{lease_id}", get(leases::look).delete(leases::release))
        .route("/v1/leases/{lease_id}/renew", post(leases::renew))
        .route("/v1/events", get(streams::of_all))
        .route("/v1/cluster", get(locks::cluster))
        .route("/v1/overview", get(locks::overview))
        .route("/v1/version", get(pages::version))
        .route("/healthz", get(pages::health))
        .route("/readyz", get(pages::ready))
        .route("/metrics", get(pages::metrics))
        .route("/openapi.json", get(pages::openapi))
        .route("/", get(pages::index))
        .route("/assets/{file}", get(pages::asset))
        .route_layer(middleware::from_fn(note_route))
        .fallback(async || Problem::new(Kind::NotFound, "there is no such path; see /openapi.json"))
        .with_state(app)
}

/// Passes the template on, and turns a wrong method into a problem.
async fn note_route(path: MatchedPath, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let problem = Problem::new(Kind::MethodNotAllowed, "see /openapi.json for what there is");
        response = problem.into_response();
    }
    response.extensions_mut().insert(Matched(path));
    response
}

/// An answer with a JSON body.
fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, json)], text(value)).into_response()
}

fn ok(value: &impl Serialize) -> Response {
    answer(StatusCode::OK, value)
}

/// As JSON. Nothing that we answer with can fail to be: no maps with odd keys, no foreign code.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A lease, as whoever holds it sees it.
#[derive(Serialize)]
struct LeaseAnswer<'a> {
    lease_id: &'a str,
    name: &'a str,
    holder: &'a str,
    fence: u64,
    ttl_ms: u64,
    expires_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_for_ms: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Option<&'a str>>,
}

impl<'a> LeaseAnswer<'a> {
    fn of(token: &'a leasehold::LeaseToken, lease_id: &'a str) -> Self {
        Self {
            lease_id,
            name: token.name.as_str(),
            holder: token.holder.label(),
            fence: token.fence.get(),
            ttl_ms: crate::view::millis(token.ttl),
            expires_in_ms: None,
            elapsed_ms: None,
            held_for_ms: None,
            reason: None,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
