//! Connections to the lock server. Each carries one request at a time and is used again; one that
//! broke, or whose answer nobody waited for, is closed.
//!
//! A request is sent at most once, but for two kinds that go out once more, on a fresh connection, if
//! the server closed the idle one: whatever certainly was not written, and releases and looks, which
//! may be repeated. An acquire may not: the server gives back what it granted to a connection that
//! broke, and would take it from the second.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper_util::rt::TokioIo;
use leasehold_core::NodeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::answer::Response;
use super::call::Call;
use super::url::ServerConfig;
use crate::nodes::dial::{open_tcp, system_words};
#[cfg(feature = "tls")]
use crate::nodes::tls::Tls;

/// At most so many requests at once: each takes a server about a millisecond, so more would only wait
/// there instead of here.
const CONNECTIONS_MAX: usize = 64;
/// A connection that nobody needed for so long is closed; the caretaker keeps one in use.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// A page of a thousand locks, each with the longest name and holder, has three megabytes.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

type Request = hyper::Request<Full<Bytes>>;

/// The way to one server.
pub(super) struct Pool {
    config: ServerConfig,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    headers: Headers,
    idle: Mutex<Vec<Idle>>,
    room: Semaphore,
}

/// What all requests have in common.
struct Headers {
    host: HeaderValue,
    authorization: Option<HeaderValue>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// An open connection; closed when dropped.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Until when a request may be sent, and until when its answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) send_by: Instant,
    pub(super) answer_by: Instant,
    /// The limit behind `send_by`, for people.
    pub(super) limit: Duration,
}

impl Patience {
    fn is_over(&self) -> NodeError {
        NodeError::TimedOut { after: self.limit }
    }
}

impl Pool {
    pub(super) fn new(
        config: ServerConfig,
        authorization: Option<HeaderValue>,
        #[cfg(feature = "tls")] tls: Option<Tls>,
    ) -> Self {
        let host = HeaderValue::from_str(&config.authority());
        let host = host.unwrap_or_else(|_| HeaderValue::from_static("localhost"));
        Self {
            config,
            #[cfg(feature = "tls")]
            tls,
            headers: Headers { host, authorization },
            idle: Mutex::default(),
            room: Semaphore::new(CONNECTIONS_MAX),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one request and reads its answer.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        patience: Patience,
    ) -> Result<Response, NodeError> {
        let room = timeout_at(patience.send_by, self.room.acquire()).await;
        let Ok(_room) = room else {
            let reason = format!("{CONNECTIONS_MAX} requests are under way already");
            return Err(NodeError::Overloaded { reason });
        };
        let request = self.request(call)?;
        let answer = match self.take_idle() {
            Some(connection) => match self.exchange_on(connection, request.clone(), patience).await
            {
                Err(failed) if failed.may_go_again(call) && Instant::now() < patience.send_by => {
                    let fresh = self.connect_by(patience).await?;
                    self.exchange_on(fresh, request, patience).await
                }
                answer => answer,
            },
            None => {
                let fresh = self.connect_by(patience).await?;
                self.exchange_on(fresh, request, patience).await
            }
        };
        answer.map_err(|failed| failed.error)
    }

    async fn exchange_on(
        &self,
        mut connection: Connection,
        request: Request,
        patience: Patience,
    ) -> Result<Response, Failed> {
        let answer = timeout_at(patience.answer_by, connection.exchange(request)).await;
        let response =
            answer.map_err(|_| Failed { was_sent: true, error: patience.is_over() })??;
        self.put_back(connection);
        Ok(response)
    }

    /// Sends one request on a connection of its own and hands over the answer's body as it comes.
    pub(super) async fn stream(
        &self,
        call: &Call,
        patience: Patience,
    ) -> Result<(Connection, Incoming), NodeError> {
        let request = self.request(call)?;
        let mut connection = self.connect_by(patience).await?;
        let head = connection.sender.send_request(request);
        let head = timeout_at(patience.answer_by, head).await.map_err(|_| patience.is_over())?;
        let head = head.map_err(|error| broken(&error))?;
        if head.status() != hyper::StatusCode::OK {
            let status = head.status();
            let body = timeout_at(patience.answer_by, read_body(head.into_body())).await;
            let body = body.map_err(|_| patience.is_over())??;
            return Err(Response { status, body }.refusal());
        }
        Ok((connection, head.into_body()))
    }

    fn request(&self, call: &Call) -> Result<Request, NodeError> {
        let agent = concat!("leasehold/", env!("CARGO_PKG_VERSION"));
        let mut request = hyper::Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(HOST, &self.headers.host)
            .header(USER_AGENT, agent)
            .header(ACCEPT, "application/json, application/problem+json, text/event-stream");
        if let Some(authorization) = &self.headers.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(call.body.clone().unwrap_or_default()));
        let words = |error: hyper::http::Error| NodeError::Rejected { reason: error.to_string() };
        request.body(body).map_err(words)
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle();
        while let Some(Idle { connection, since }) = idle.pop() {
            if since.elapsed() < IDLE_MAX && !connection.sender.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    fn put_back(&self, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        // The last one is taken first, so the first ones are those that nobody needs.
        idle.retain(|idle| idle.since.elapsed() < IDLE_MAX && !idle.connection.sender.is_closed());
        idle.push(Idle { connection, since: Instant::now() });
    }

    async fn connect_by(&self, patience: Patience) -> Result<Connection, NodeError> {
        let connection = timeout_at(patience.send_by, self.connect()).await;
        connection.map_err(|_| patience.is_over())?
    }

    async fn connect(&self) -> Result<Connection, NodeError> {
        let (stream, _) = open_tcp(&self.config.host, self.config.port).await?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let stream = tls.connector.connect(tls.name.clone(), stream).await;
            let stream = stream.map_err(|error| crate::nodes::dial::unreachable(&error))?;
            return Connection::open(stream).await;
        }
        Connection::open(stream).await
    }
}

/// Why a request was not answered.
struct Failed {
    /// Unless not a byte of it was written.
    was_sent: bool,
    error: NodeError,
}

impl Failed {
    fn may_go_again(&self, call: &Call) -> bool {
        let may_be_repeated = matches!(call.method, Method::GET | Method::DELETE);
        let is_broken = matches!(self.error, NodeError::Unreachable { .. });
        !self.was_sent || (may_be_repeated && is_broken)
    }
}

impl Connection {
    async fn open<S>(stream: S) -> Result<Self, NodeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let opened = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| broken(&error))?;
        // What goes wrong there is told to whoever waits for an answer.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, task: task.abort_handle() })
    }

    async fn exchange(&mut self, request: Request) -> Result<Response, Failed> {
        // One that was used before may have to be told first that its last answer is read.
        if let Err(error) = self.sender.ready().await {
            return Err(Failed { was_sent: false, error: broken(&error) });
        }
        let head = self.sender.try_send_request(request).await.map_err(|mut error| Failed {
            was_sent: error.take_message().is_none(),
            error: broken(error.error()),
        })?;
        let status = head.status();
        let body = read_body(head.into_body()).await;
        let body = body.map_err(|error| Failed { was_sent: true, error })?;
        Ok(Response { status, body })
    }
}

async fn read_body(mut body: Incoming) -> Result<Vec<u8>, NodeError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            let reason = format!("an answer of more than {BODY_BYTES_MAX} bytes");
            return Err(NodeError::Garbled { reason });
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// An error of the connection as this node's reason, in the system's words where it has some.
pub(super) fn broken(error: &hyper::Error) -> NodeError {
    if error.is_parse() {
        return NodeError::Garbled { reason: format!("no HTTP: {error}") };
    }
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<std::io::Error>() {
            return NodeError::Unreachable { reason: system_words(error) };
        }
        source = cause.source();
    }
    let reason = if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        "the server closed the connection".to_owned()
    } else {
        error.to_string()
    };
    NodeError::Unreachable { reason }
}
