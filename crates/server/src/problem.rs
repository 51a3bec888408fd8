//! Errors as RFC 9457 problem documents: the one table error -> status.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use leasehold::{
    AcquireError, ExtendError, ForceReleaseError, InspectError, NodeReports, OptionsError, Owner,
};
use serde_json::{Map, Value, json};

use crate::body::{Response, response};
use crate::view;

/// What kind of problem: its name stands in `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Malformed,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    TimedOut,
    NoFence,
    IdempotencyInFlight,
    IdempotencyElsewhere,
    LeaseUnknown,
    LeaseLost,
    FenceMovedOn,
    PayloadTooLarge,
    UnsupportedMediaType,
    Invalid,
    IdempotencyMismatch,
    LockHeld,
    TooManyWaiters,
    TooManyRequests,
    NoQuorum,
    TooSlow,
    ShuttingDown,
}

impl Kind {
    /// Status, name and title.
    fn words(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::Malformed => (S::BAD_REQUEST, "malformed", "The request cannot be read"),
            Self::Unauthorized => (S::UNAUTHORIZED, "unauthorized", "A token is needed"),
            Self::Forbidden => (S::FORBIDDEN, "forbidden", "This is not allowed"),
            Self::NotFound => (S::NOT_FOUND, "not-found", "There is nothing here"),
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method-not-allowed", "This method does not exist here")
            }
            Self::TimedOut => (S::REQUEST_TIMEOUT, "timed-out", "The request came in too slowly"),
            Self::NoFence => (S::CONFLICT, "no-fence", "The lock is another library's"),
            Self::IdempotencyInFlight => (
                S::CONFLICT,
                "idempotency-in-flight",
                "A request with this idempotency key is still under way",
            ),
            Self::IdempotencyElsewhere => (
                S::CONFLICT,
                "idempotency-elsewhere",
                "The lease of this idempotency key was granted by another instance",
            ),
            Self::LeaseUnknown => (S::NOT_FOUND, "lease-unknown", "This is no lease id"),
            Self::LeaseLost => (S::GONE, "lease-lost", "The lease is lost"),
            Self::FenceMovedOn => {
                (S::PRECONDITION_FAILED, "fence-moved-on", "The lock has another fence")
            }
            Self::PayloadTooLarge => {
                (S::PAYLOAD_TOO_LARGE, "payload-too-large", "The body is too large")
            }
            Self::UnsupportedMediaType => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The body must be JSON")
            }
            Self::Invalid => (S::UNPROCESSABLE_ENTITY, "invalid", "The request makes no sense"),
            Self::IdempotencyMismatch => (
                S::UNPROCESSABLE_ENTITY,
                "idempotency-mismatch",
                "This idempotency key was used with another request",
            ),
            Self::LockHeld => (S::LOCKED, "lock-held", "The lock is held by another"),
            Self::TooManyWaiters => {
                (S::TOO_MANY_REQUESTS, "too-many-waiters", "Too many wait already")
            }
            Self::TooManyRequests => {
                (S::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests at once")
            }
            Self::NoQuorum => {
                (S::SERVICE_UNAVAILABLE, "no-quorum", "Too few nodes answered to decide")
            }
            Self::TooSlow => {
                (S::SERVICE_UNAVAILABLE, "too-slow", "The nodes answered too late to be of use")
            }
            Self::ShuttingDown => {
                (S::SERVICE_UNAVAILABLE, "shutting-down", "This server is shutting down")
            }
        }
    }
}

/// A problem on its way to whoever asked.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    more: Box<More>,
}

#[derive(Debug, Clone)]
struct More {
    detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let more = More { detail: detail.into(), members: Map::new(), headers: Vec::new() };
        let mut problem = Self { kind, more: Box::new(more) };
        match kind {
            Kind::Unauthorized => {
                problem.more.headers.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
            }
            Kind::NoQuorum
            | Kind::TooSlow
            | Kind::ShuttingDown
            | Kind::TooManyWaiters
            | Kind::TooManyRequests
            | Kind::IdempotencyInFlight => problem = problem.retry_after(Duration::ZERO),
            _ => {}
        }
        problem
    }

    /// A field of the request that makes no sense.
    /// The path takes these methods only.
    pub(crate) fn method_not_allowed(methods: &'static str) -> Self {
        let mut problem = Self::new(Kind::MethodNotAllowed, "see /openapi.json for what there is");
        problem.more.headers.push((ALLOW, HeaderValue::from_static(methods)));
        problem
    }

    pub(crate) fn field(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, detail).with("field", json!(field))
    }

    /// One more member.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.members.insert(name.to_owned(), value);
        self
    }

    /// When to try again: whole seconds, at least one.
    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        let seconds = after.as_secs_f64().ceil().clamp(1.0, 3600.0) as u64;
        self.more.headers.retain(|(name, _)| name != RETRY_AFTER);
        self.more.headers.push((RETRY_AFTER, seconds.into()));
        self
    }

    /// Why, for logs.
    pub(crate) fn detail(&self) -> &str {
        &self.more.detail
    }

    /// The answer itself.
    pub(crate) fn render(self, instance: &str) -> Response {
        let (status, name, title) = self.kind.words();
        let mut document = json!({
            "type": format!("urn:leasehold:problem:{name}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.more.detail,
            "instance": masked(instance),
        });
        if let Some(document) = document.as_object_mut() {
            document.extend(self.more.members);
        }
        let mut response = response(status, document.to_string());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        for (name, value) in self.more.headers {
            headers.insert(name, value);
        }
        response
    }
}

/// The path without the id of a lease: a reader of a log could release the lease by it.
fn masked(path: &str) -> String {
    match path.strip_prefix("/v1/leases/") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            format!("/v1/leases/-{}", &rest[end..])
        }
        None => path.to_owned(),
    }
}

/// Rendered at the very end, where the path is known.
fn no_quorum(detail: String, nodes: &NodeReports) -> Problem {
    Problem::new(Kind::NoQuorum, detail)
        .with("available", json!(nodes.answered()))
        .with("quorum", json!(nodes.0.len() / 2 + 1))
        .with("configured", json!(nodes.0.len()))
        .with("nodes", view::reports(nodes))
}

fn options(error: &OptionsError) -> Problem {
    let field = match error {
        OptionsError::Name(_) => "name",
        OptionsError::Holder(_) => "holder",
        OptionsError::Ttl(_) | OptionsError::TtlAboveMax { .. } => "ttl_ms",
        _ => return Problem::new(Kind::Invalid, error.to_string()),
    };
    Problem::field(field, error.to_string())
}

impl From<AcquireError> for Problem {
    fn from(error: AcquireError) -> Self {
        match &error {
            AcquireError::Held { owner, expires_in, nodes, .. } => {
                held(error.to_string(), owner.as_ref(), *expires_in)
                    .with("nodes", view::reports(nodes))
            }
            AcquireError::NoQuorum { nodes, .. } => no_quorum(error.to_string(), nodes),
            AcquireError::TooLate { nodes, .. } => {
                Self::new(Kind::TooSlow, error.to_string()).with("nodes", view::reports(nodes))
            }
            AcquireError::TimedOut { last: Some(last), .. } => {
                let mut problem = Self::from((**last).clone());
                problem.more.detail = error.to_string();
                problem
            }
            AcquireError::TimedOut { last: None, .. } => held(error.to_string(), None, None),
            AcquireError::Options(wrong) => options(wrong),
            other => Self::new(Kind::TooSlow, other.to_string()),
        }
    }
}

/// Held by `owner`, for so long yet.
pub(crate) fn held(detail: String, owner: Option<&Owner>, expires_in: Option<Duration>) -> Problem {
    Problem::new(Kind::LockHeld, detail)
        .with("holder", json!(owner.map(Owner::to_string)))
        .with("holder_id", json!(owner.map(view::holder_id)))
        .with("expires_in_ms", json!(expires_in.map(view::millis)))
        .retry_after(expires_in.unwrap_or(Duration::from_secs(1)))
}

impl From<ExtendError> for Problem {
    fn from(error: ExtendError) -> Self {
        match &error {
            ExtendError::Lost(loss) => Self::new(Kind::LeaseLost, error.to_string())
                .with("name", json!(loss.lock.as_str()))
                .with("fence", json!(loss.fence.get()))
                .with("why", json!(loss.reason.to_string())),
            ExtendError::NoQuorum { nodes, .. } => no_quorum(error.to_string(), nodes),
            ExtendError::Options(wrong) => options(wrong),
            other => Self::new(Kind::TooSlow, other.to_string()),
        }
    }
}

impl From<InspectError> for Problem {
    fn from(error: InspectError) -> Self {
        match &error {
            InspectError::NoQuorum { nodes } => no_quorum(error.to_string(), nodes),
            InspectError::Options(wrong) => options(wrong),
            other => Self::new(Kind::TooSlow, other.to_string()),
        }
    }
}

impl From<ForceReleaseError> for Problem {
    fn from(error: ForceReleaseError) -> Self {
        match &error {
            ForceReleaseError::FenceMovedOn { lock, expected, found } => {
                Self::new(Kind::FenceMovedOn, error.to_string())
                    .with("name", json!(lock.as_str()))
                    .with("expected_fence", json!(expected.get()))
                    .with("fence", json!(found.get()))
            }
            ForceReleaseError::NoFence { lock, .. } => {
                Self::new(Kind::NoFence, error.to_string()).with("name", json!(lock.as_str()))
            }
            ForceReleaseError::NoQuorum { nodes, .. } => no_quorum(error.to_string(), nodes),
            ForceReleaseError::Options(wrong) => options(wrong),
            other => Self::new(Kind::TooSlow, other.to_string()),
        }
    }
}

/// A lease that its nodes do not know any more.
pub(crate) fn lost(name: &str, fence: u64, why: &str, owner: Option<&Owner>) -> Problem {
    Problem::new(Kind::LeaseLost, format!("lock `{name}` (fence {fence}) is lost: {why}"))
        .with("name", json!(name))
        .with("fence", json!(fence))
        .with("why", json!(why))
        .with("holder", json!(owner.map(Owner::to_string)))
        .with("holder_id", json!(owner.map(view::holder_id)))
}

/// Too few nodes said what became of it.
pub(crate) fn unknown(detail: String, nodes: &NodeReports) -> Problem {
    no_quorum(detail, nodes)
}
