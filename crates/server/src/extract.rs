//! What a handler is given: names and bodies, read and checked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use leasehold::{LeaseToken, LockName};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::lease_id;
use crate::problem::{Kind, Problem};

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The one variable part of a path, decoded.
async fn segment(parts: &mut Parts, app: &Arc<App>) -> Result<String, Problem> {
    let path: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, app).await;
    let Path(text) = path.map_err(|_| {
        let detail = "the path cannot be read: names are percent-encoded UTF-8, a slash is %2F";
        Problem::new(Kind::Malformed, detail)
    })?;
    Ok(text)
}

/// The lock that a path names.
pub(crate) struct Name(pub(crate) LockName);

impl FromRequestParts<Arc<App>> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let name = LockName::new(segment(parts, app).await?);
        name.map(Self).map_err(|error| Problem::field("name", error.to_string()))
    }
}

/// The lease that a path names.
pub(crate) struct Lease(pub(crate) LeaseToken);

impl FromRequestParts<Arc<App>> for Lease {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        lease_id::decode(&segment(parts, app).await?).map(Self)
    }
}

/// A JSON body; none counts as an empty object.
pub(crate) struct Json<T> {
    pub(crate) value: T,
    /// As it came, to tell requests apart.
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let media_type = request.headers().get(CONTENT_TYPE).cloned();
        let is_json = media_type.as_ref().is_some_and(|value| {
            let text = value.to_str().unwrap_or_default();
            let essence = text.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
        let read = read(request.into_body(), app.limits().max_body);
        let bytes = tokio::time::timeout(BODY_WITHIN, read)
            .await
            .map_err(|_| Problem::new(Kind::TimedOut, "the body did not come within 10 s"))??;
        // A form of another site's page can send anything but this type without being asked.
        if !is_json && (media_type.is_some() || !bytes.is_empty()) {
            let detail = "send the body as Content-Type: application/json";
            return Err(Problem::new(Kind::UnsupportedMediaType, detail));
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = serde_json::from_slice(text).map_err(|error| {
            let kind = if error.is_data() { Kind::Invalid } else { Kind::Malformed };
            Problem::new(kind, format!("the body: {error}"))
        })?;
        Ok(Self { value, bytes })
    }
}

async fn read(mut body: Body, most: usize) -> Result<Bytes, Problem> {
    let too_large =
        || Problem::new(Kind::PayloadTooLarge, format!("a body may have at most {most} bytes"));
    if http_body::Body::size_hint(&body).lower() > most as u64 {
        return Err(too_large());
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(Kind::Malformed, "the body was cut off"))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > most {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_not_waited_for() {
        let locks = leasehold::Locks::open("memory:").await.unwrap();
        let app = Arc::new(App::new(locks, Settings::default(), None));
        let never = futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let request = Request::new(Body::from_stream(never));
        let began = tokio::time::Instant::now();
        let refused = Json::<serde_json::Value>::from_request(request, &app).await.err().unwrap();
        assert_eq!(refused.kind, Kind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}
