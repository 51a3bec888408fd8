//! A request, as its handler sees it: names, queries and bodies, read and checked.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use leasehold::{LeaseToken, LockName};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::app::{App, Asked};
use crate::caller::Caller;
use crate::lease_id;
use crate::problem::{Kind, Problem};

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A request on its way to its handler.
pub(crate) struct Ask<B = Incoming> {
    pub(crate) app: Arc<App>,
    pub(crate) asked: Asked,
    pub(crate) head: Parts,
    pub(crate) body: B,
    /// Where the one variable part of the path stands.
    pub(crate) variable: Range<usize>,
}

/// A JSON body; none counts as an empty object.
pub(crate) struct Json<T> {
    pub(crate) value: T,
    /// As it came, to tell requests apart.
    pub(crate) bytes: Bytes,
}

impl<B> Ask<B> {
    /// Who sent it, if they may ask anything at all.
    pub(crate) fn caller(&self) -> Result<Caller, Problem> {
        Caller::of(&self.app, &self.head.headers, &self.asked.from)
    }

    /// The one variable part of its path, decoded.
    pub(crate) fn variable(&self) -> Result<Cow<'_, str>, Problem> {
        let text = self.head.uri.path().get(self.variable.clone()).unwrap_or_default();
        percent_decode_str(text).decode_utf8().map_err(|_| {
            let detail = "the path cannot be read: names are percent-encoded UTF-8, a slash is %2F";
            Problem::new(Kind::Malformed, detail)
        })
    }

    /// The lock that its path names.
    pub(crate) fn lock(&self) -> Result<LockName, Problem> {
        let name = LockName::new(self.variable()?);
        name.map_err(|error| Problem::field("name", error.to_string()))
    }

    /// The lease that its path names.
    pub(crate) fn lease(&self) -> Result<LeaseToken, Problem> {
        lease_id::decode(&self.variable()?)
    }

    /// What stands behind the question mark.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let text = self.head.uri.query().unwrap_or_default();
        serde_urlencoded::from_str(text)
            .map_err(|error| Problem::new(Kind::Invalid, format!("the query: {error}")))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Ask<B> {
    /// Its body.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<Json<T>, Problem> {
        let read = read(&mut self.body, self.app.limits().max_body);
        let bytes = tokio::time::timeout(BODY_WITHIN, read)
            .await
            .map_err(|_| Problem::new(Kind::TimedOut, "the body did not come within 10 s"))??;
        let media_type = self.head.headers.get(CONTENT_TYPE);
        let is_json = media_type.is_some_and(|value| {
            let text = value.to_str().unwrap_or_default();
            let essence = text.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
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
        Ok(Json { value, bytes })
    }
}

async fn read(body: &mut (impl Body<Data = Bytes> + Unpin), most: usize) -> Result<Bytes, Problem> {
    let too_large =
        || Problem::new(Kind::PayloadTooLarge, format!("a body may have at most {most} bytes"));
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(Kind::Malformed, "the body was cut off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > most {
            return Err(too_large());
        }
        // Nearly always it comes at once.
        if all.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;
    use crate::settings::Settings;

    /// The frames that are left, and then silence.
    struct Frames(Vec<&'static [u8]>, bool);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match (self.0.pop(), self.1) {
                (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
                (None, true) => Poll::Ready(None),
                (None, false) => Poll::Pending,
            }
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty() && self.1
        }
    }

    async fn ask(body: Frames) -> Ask<Frames> {
        let locks = leasehold::Locks::open("memory:").await.unwrap();
        let app = Arc::new(App::new(locks, Settings::default(), None));
        let request = hyper::Request::builder().header(CONTENT_TYPE, "application/json");
        let (head, body) = request.body(body).unwrap().into_parts();
        let (at, delivery) = (std::time::Instant::now(), Arc::default());
        let asked = Asked { at, from: "local".into(), delivery };
        Ask { app, asked, head, body, variable: 0..0 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_not_waited_for() {
        let mut ask = ask(Frames(Vec::new(), false)).await;
        let began = tokio::time::Instant::now();
        let refused = ask.json::<serde_json::Value>().await.err().unwrap();
        assert_eq!(refused.kind, Kind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_body_may_come_in_pieces() {
        for pieces in [vec![&b"[1,2,3]"[..]], vec![b"3]", b"2,", b"[1,"], vec![b"", b"[1,2,3]"]] {
            let read = ask(Frames(pieces, true)).await.json::<Vec<u8>>().await.unwrap();
            assert_eq!((read.value, &*read.bytes), (vec![1, 2, 3], &b"[1,2,3]"[..]));
        }
    }
}
