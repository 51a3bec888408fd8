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
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::{Kind, Problem};

/// The template of the path that was asked for: a label of metrics.
#[derive(Clone)]
pub(crate) struct Matched(pub(crate) String);

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
    response.extensions_mut().insert(Matched(path.as_str().to_owned()));
    response
}

/// An answer with a JSON body.
fn answer(status: StatusCode, value: &Value) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, json)], value.to_string()).into_response()
}

fn ok(value: &Value) -> Response {
    answer(StatusCode::OK, value)
}

/// A lease, as whoever holds it sees it.
fn lease(token: &leasehold::LeaseToken) -> Value {
    json!({
        "lease_id": crate::lease_id::encode(token),
        "name": token.name.as_str(),
        "holder": token.holder.label(),
        "fence": token.fence.get(),
        "ttl_ms": crate::view::millis(token.ttl),
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
