//! Accepting connections and speaking HTTP on them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tracing::{Instrument as _, debug, info, warn};

use crate::app::{App, Asked};
use crate::ask::Ask;
use crate::body::{Body, Response};
use crate::connections::Connection;
use crate::delivery::Delivery;
use crate::problem::{Kind, Problem};
use crate::proxies::{self, Proxies};
use crate::wire::{Peer, Socket, Wire};
use crate::{routes, tls, trace};

/// How long the first words of TLS may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// A shortage lasts, and each attempt to accept meets it.
const SHORTAGE_TOLD_EVERY: Duration = Duration::from_secs(10);
/// More headers than anybody sends.
const HEADERS_MOST: usize = 64;
/// What all connections need.
pub(crate) struct Front {
    pub(crate) app: Arc<App>,
    pub(crate) tls: tls::Current,
    pub(crate) proxies: RwLock<Arc<Proxies>>,
    /// When it was last told that there are too few descriptors.
    pub(crate) told_of_shortage: Mutex<Option<Instant>>,
}

impl Front {
    /// Accepts until the server is to end.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.app.tasks.draining() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.clone().take_in(stream, peer),
                Err(error) => {
                    self.cannot_accept(&error);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    /// Out of file descriptors, or the peer left: neither is a reason to end.
    fn cannot_accept(&self, error: &std::io::Error) {
        use rustix::io::Errno;
        let out_of_files = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        let is_shortage = Errno::from_io_error(error).is_some_and(|it| out_of_files.contains(&it));
        let mut told = self.told_of_shortage.lock().unwrap_or_else(PoisonError::into_inner);
        if is_shortage && told.is_none_or(|at| at.elapsed() >= SHORTAGE_TOLD_EVERY) {
            *told = Some(Instant::now());
            let open = self.app.connections.count();
            warn!(%error, open, "no connection can be accepted: raise the limit of open files (LimitNOFILE, ulimit -n) or lower --max-connections");
        } else {
            debug!(%error, "cannot accept");
        }
    }

    fn take_in(self: Arc<Self>, mut stream: TcpStream, peer: SocketAddr) {
        let most = self.app.limits().max_connections;
        let Some(connection) = self.app.connections.enter(most) else {
            info!(%peer, "no room for one more connection");
            self.app.tasks.spawn(async move {
                let answer = no_room();
                let sent = stream.write_all(answer.as_bytes());
                let _ = tokio::time::timeout(Duration::from_secs(1), sent).await;
            });
            return;
        };
        let _ = stream.set_nodelay(true);
        notice_dead_peers(&stream);
        let tls = self.tls.acceptor();
        let tasks = self.app.tasks.clone();
        let proxies = self.proxies();
        tasks.spawn(async move {
            let mut peer = peer;
            if proxies.trusts(peer.ip()) {
                let greeting = Box::pin(self.introduce(&mut stream, peer, &connection));
                let Some(sender) = greeting.await else { return };
                peer = sender;
            }
            match tls {
                None => self.speak(TokioIo::new(stream), peer, connection).await,
                // Boxed: a task is as large as its largest branch, and there may be many that wait.
                Some(tls) => Box::pin(self.greet(tls, stream, peer, connection)).await,
            }
        });
    }

    fn proxies(&self) -> Arc<Proxies> {
        self.proxies.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who connected to a listed balancer; none if it does not say so in time.
    async fn introduce(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
        connection: &Connection,
    ) -> Option<SocketAddr> {
        let within = self.app.limits().head_within;
        let greeting = tokio::time::timeout(within, proxies::greeting(stream, peer));
        tokio::select! {
            biased;
            () = connection.close.cancelled() => None,
            greeting = greeting => match greeting {
                Ok(Ok(sender)) => Some(sender),
                Ok(Err(error)) => {
                    debug!(%peer, %error, "no PROXY protocol");
                    None
                }
                Err(_) => None,
            },
        }
    }

    async fn greet(
        self: Arc<Self>,
        tls: TlsAcceptor,
        stream: TcpStream,
        peer: SocketAddr,
        connection: Connection,
    ) {
        let accepted = tokio::select! {
            biased;
            // Like any idle connection, it makes room for others.
            () = connection.close.cancelled() => return,
            accepted = tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)) => accepted,
        };
        match accepted {
            Ok(Ok(stream)) => self.speak(TokioIo::new(stream), peer, connection).await,
            Ok(Err(error)) => debug!(%peer, %error, "no TLS"),
            Err(_) => debug!(%peer, "TLS took too long"),
        }
    }

    async fn speak<S>(self: Arc<Self>, stream: S, peer: SocketAddr, connection: Connection)
    where
        S: Read + Write + Socket + Unpin + Send + 'static,
    {
        let limits = self.app.limits();
        let (connection, delivery) = (Arc::new(connection), Arc::new(Delivery::default()));
        let peer_state = Arc::new(Peer::default());
        let (ip, from): (_, Arc<str>) = (peer.ip(), peer.ip().to_string().into());
        let proxies = self.proxies();
        let service = hyper::service::service_fn({
            let (front, connection, delivery, peer_state) =
                (self.clone(), connection.clone(), delivery.clone(), peer_state.clone());
            move |request: hyper::Request<Incoming>| {
                let delivery = delivery.clone();
                let from = match proxies.sender(ip, request.headers()) {
                    sender if sender == ip => from.clone(),
                    sender => sender.to_string().into(),
                };
                let asked = Asked { at: Instant::now(), from, delivery };
                front.clone().handle(request, asked, connection.clone(), peer_state.clone())
            }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_within)
            .max_buf_size(limits.max_head.max(8192))
            .max_headers(HEADERS_MOST);
        let wire = Wire::new(stream, delivery, peer_state.clone());
        let mut speaking = std::pin::pin!(builder.serve_connection(wire, service));
        let mut is_ending = false;
        loop {
            tokio::select! {
                biased;
                outcome = speaking.as_mut() => {
                    if let Err(error) = outcome {
                        debug!(%peer, %error, "connection");
                    }
                    return;
                }
                () = connection.close.cancelled() => return,
                () = so(|| peer_state.is_gone()) => {
                    debug!(%peer, "the peer left");
                    return;
                }
                () = self.app.tasks.draining(), if !is_ending => {
                    is_ending = true;
                    speaking.as_mut().graceful_shutdown();
                }
            }
        }
    }

    async fn handle(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        asked: Asked,
        connection: Arc<Connection>,
        peer: Arc<Peer>,
    ) -> Result<Response, Infallible> {
        connection.busy();
        let _in_flight = InFlight::begin(&self.app);
        let began = asked.at;
        let (head, body) = request.into_parts();
        let has_body = !http_body::Body::is_end_stream(&body);
        let (method, span) = (trace::method(&head.method), trace::span(&head));
        // A copy: the head is a part of what was read, and would keep all of that while somebody waits.
        let path: Box<str> = head.uri.path().into();
        let found = routes::find(&path);
        let answered = match &found {
            Some(found) => {
                let (app, variable) = (self.app.clone(), found.variable.clone());
                // Boxed: it is moved through several futures, and whoever waits needs it no more.
                let ask = Box::new(Ask { app, asked, head, body, variable });
                routes::answer(found, ask).instrument(span.clone()).await
            }
            None => Err(Problem::new(Kind::NotFound, "there is no such path; see /openapi.json")),
        };
        let mut response = answered.unwrap_or_else(|problem| {
            // As a field: it may quote the request, and a line break in a message begins another line.
            span.in_scope(|| debug!(kind = ?problem.kind, why = problem.detail(), "refused"));
            problem.render(&path)
        });
        secure(&mut response);
        let took = began.elapsed();
        let route = found.map_or("none", |found| found.template);
        let code = response.status().as_u16();
        peer.may_send_on(has_body && code >= 400);
        if self.app.tasks.is_leaving() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.app.ledger.answered(route, method, code, took);
        span.in_scope(|| debug!(code, ms = took.as_secs_f64() * 1e3, "answered"));
        // A stream goes on, unless only its head was asked for.
        if method == "HEAD" || !matches!(response.body(), Body::Stream(_)) {
            connection.idle();
        }
        Ok(response)
    }
}

/// Ready once this is so. Asked only when the task is polled, so for what changes while it is.
async fn so(is_so: impl Fn() -> bool) {
    std::future::poll_fn(|_| if is_so() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// What goes out when there is no room for one more connection, before anything was read.
fn no_room() -> String {
    let body = r#"{"type":"urn:leasehold:problem:too-many-requests","title":"Too many requests at once","status":429,"detail":"too many connections, and all of them are busy","instance":"/"}"#;
    format!(
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\n\
         Content-Type: application/problem+json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What every answer says to a browser.
fn secure(response: &mut Response) {
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// A host that went down says nothing: whoever waits there would wait in our queue for as long as it
/// asked for.
fn notice_dead_peers(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
    let _ = sockopt::set_tcp_user_timeout(stream, 20_000);
}

/// Counts a request until it is answered, or dropped.
struct InFlight<'a>(&'a App);

impl<'a> InFlight<'a> {
    fn begin(app: &'a App) -> Self {
        app.ledger.request_began();
        Self(app)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.ledger.request_ended();
    }
}
