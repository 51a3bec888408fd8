//! Where requests go: parse, one call, answer.
//!
//! Matched by hand: a router with layers took a third of the allocations of a request, for eighteen
//! paths.

mod acquire;
mod leases;
mod locks;
mod pages;
mod same_key;
mod streams;
mod table;

use std::ops::Range;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Serialize;

use crate::ask::Ask;
use crate::body::{Body, Response, response};
use crate::problem::Problem;

/// A path that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Leases,
    Lease,
    Renew,
    Lock,
    Locks,
    LockEvents,
    ForceRelease,
    Events,
    Cluster,
    Overview,
    Table,
    Version,
    Health,
    Ready,
    Metrics,
    OpenApi,
    Index,
    Asset,
}

/// Each with its template, which is a label of metrics, and its methods; those first that are asked for
/// most.
const ROUTES: [(Route, &str, &str); 18] = [
    (Route::Leases, "/v1/locks/{name}/leases", "POST"),
    (Route::Lease, "/v1/leases/{lease_id}", "GET,HEAD,DELETE"),
    (Route::Renew, "/v1/leases/{lease_id}/renew", "POST"),
    (Route::Lock, "/v1/locks/{name}", "GET,HEAD"),
    (Route::Locks, "/v1/locks", "GET,HEAD"),
    (Route::LockEvents, "/v1/locks/{name}/events", "GET,HEAD"),
    (Route::ForceRelease, "/v1/locks/{name}/force-release", "POST"),
    (Route::Events, "/v1/events", "GET,HEAD"),
    (Route::Cluster, "/v1/cluster", "GET,HEAD"),
    (Route::Overview, "/v1/overview", "GET,HEAD"),
    (Route::Table, "/v1/overview/locks", "GET,HEAD"),
    (Route::Version, "/v1/version", "GET,HEAD"),
    (Route::Health, "/healthz", "GET,HEAD"),
    (Route::Ready, "/readyz", "GET,HEAD"),
    (Route::Metrics, "/metrics", "GET,HEAD"),
    (Route::OpenApi, "/openapi.json", "GET,HEAD"),
    (Route::Index, "/", "GET,HEAD"),
    (Route::Asset, "/assets/{file}", "GET,HEAD"),
];

/// A route that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    route: Route,
    pub(crate) template: &'static str,
    methods: &'static str,
    /// Where the variable part of the path stands, if it has one.
    pub(crate) variable: Range<usize>,
}

/// The route of a path.
pub(crate) fn find(path: &str) -> Option<Found> {
    ROUTES.iter().find_map(|&(route, template, methods)| {
        let variable = variable(template, path)?;
        Some(Found { route, template, methods, variable })
    })
}

/// Where the variable part of `path` stands, if it is one of `template`: one segment, and not empty.
fn variable(template: &str, path: &str) -> Option<Range<usize>> {
    let Some((before, rest)) = template.split_once('{') else {
        return (path == template).then_some(0..0);
    };
    let (_, after) = rest.split_once('}')?;
    let segment = path.strip_prefix(before)?.strip_suffix(after)?;
    let is_one = !segment.is_empty() && !segment.contains('/');
    is_one.then(|| before.len()..before.len() + segment.len())
}

/// Answers. What few ask for is boxed: a future is as large as its largest branch, and every
/// connection has one.
pub(crate) async fn answer(found: &Found, ask: Box<Ask>) -> Result<Response, Problem> {
    const POST: Method = Method::POST;
    const DELETE: Method = Method::DELETE;
    // Whoever asks for the head only is not sent the rest.
    let is_get = matches!(ask.head.method, Method::GET | Method::HEAD);
    match (found.route, &ask.head.method) {
        (Route::Leases, &POST) => acquire::acquire(ask).await,
        (Route::Lease, &DELETE) => leases::release(ask).await,
        (Route::Renew, &POST) => leases::renew(ask).await,
        (Route::ForceRelease, &POST) => Box::pin(locks::force_release(ask)).await,
        _ if is_get => Box::pin(get(found, ask)).await,
        _ => Err(Problem::method_not_allowed(found.methods)),
    }
}

async fn get(found: &Found, ask: Box<Ask>) -> Result<Response, Problem> {
    match found.route {
        Route::Lease => leases::look(ask).await,
        Route::Lock => locks::inspect(ask).await,
        Route::Locks => locks::list(ask).await,
        Route::LockEvents => streams::of_lock(ask),
        Route::Events => streams::of_all(ask),
        Route::Cluster => locks::cluster(&ask),
        Route::Overview => locks::overview(ask).await,
        Route::Table => table::table(ask).await,
        Route::Version => Ok(pages::version(&ask)),
        Route::Health => Ok(pages::health()),
        Route::Ready => pages::ready(&ask),
        Route::Metrics => pages::metrics(&ask),
        Route::OpenApi => Ok(pages::openapi()),
        Route::Index => pages::index(),
        Route::Asset => pages::asset(&ask),
        Route::Leases | Route::Renew | Route::ForceRelease => {
            Err(Problem::method_not_allowed(found.methods))
        }
    }
}

/// An answer of this type.
fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = response(status, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// An answer with a JSON body.
fn json_answer(status: StatusCode, value: &impl Serialize) -> Response {
    typed(status, "application/json", text(value))
}

fn ok(value: &impl Serialize) -> Response {
    json_answer(StatusCode::OK, value)
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
    nodes_keep_ms: Option<u64>,
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
            nodes_keep_ms: None,
            elapsed_ms: None,
            held_for_ms: None,
            reason: None,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
