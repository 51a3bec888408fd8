//! `leasehold serve`: the lock server. It reads its settings, starts `leasehold_server`, and listens for
//! signals until it is told to end.

mod notify;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use leasehold_server::{Limits, Server, ServerError, Settings, TlsFiles};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::logging::LogFormat;

/// Serve locks over HTTP, with a dashboard and metrics
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Serves the SQLite file unless --backend says otherwise. Stateless: several may serve \
                  the same nodes behind a load balancer.\n\n\
                  Prints one line on standard output when it listens; logs go to standard error. \
                  SIGTERM and SIGINT end it when all requests are answered; SIGHUP makes it read tokens \
                  and certificates again.\n\n\
                  Example:\n  leasehold token new --file tokens.toml --name billing --scope 'lock:billing/*' --scope read\n  \
                  leasehold --backend redis://a,b,c serve --listen 0.0.0.0:7717 --tokens tokens.toml \
                  --tls-cert cert.pem --tls-key key.pem\n\n\
                  Exit codes: 0 ended by a signal; 69 cannot listen, or not all requests ended in time; 78 bad \
                  configuration; 64 usage."
)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7717")]
    listen: SocketAddr,
    /// The tokens that callers must show; made by `leasehold token new`
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// The certificate chain for HTTPS, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Callers must show a certificate that one of these signed, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Listen beyond this machine although tokens or TLS are missing
    #[arg(long)]
    insecure: bool,
    /// How logs are written
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// The longest a request may wait for a lock
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    max_wait: Duration,
    /// Connections at once; beyond it, the one idle for longest is closed
    #[arg(long, value_name = "N", default_value = "12000", value_parser = count)]
    max_connections: usize,
    /// Requests that wait for a lock, at once
    #[arg(long, value_name = "N", default_value = "10000", value_parser = count)]
    max_waiters: usize,
    /// The same for each token
    #[arg(long, value_name = "N", default_value = "6000", value_parser = count)]
    max_waiters_per_token: usize,
    /// Requests of each token under way at once
    #[arg(long, value_name = "N", default_value = "8000", value_parser = count)]
    max_requests_per_token: usize,
    /// A lock whose name may be a label of metrics; repeat it for more
    #[arg(long, value_name = "NAME")]
    metrics_lock: Vec<String>,
    /// Admit the nodes at once if all of them are there and none knows this cluster
    #[arg(long)]
    trust_new_nodes: bool,
    /// How long shutting down may take
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    drain: Duration,
}

impl Args {
    fn tls(&self) -> Option<TlsFiles> {
        let (cert, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(TlsFiles { cert, key, client_ca: self.client_ca.clone() })
    }

    /// Whoever can reach the port may otherwise take every lock, or read every token.
    fn check_reach(&self) -> Result<(), Failure> {
        if self.listen.ip().is_loopback() || self.insecure {
            return Ok(());
        }
        let missing = match (&self.tokens, &self.tls_cert) {
            (Some(_), Some(_)) => return Ok(()),
            (None, Some(_)) => "--tokens is",
            (Some(_), None) => "--tls-cert and --tls-key are",
            (None, None) => "--tokens, --tls-cert and --tls-key are",
        };
        Err(Failure::Usage(format!(
            "{} can be reached from other machines, and {missing} missing\n\
             hint: give them, or listen on 127.0.0.1, or say --insecure if something else protects it",
            self.listen
        )))
    }

    fn settings(&self, backend: &str) -> Settings {
        let mut limits = Limits::default();
        limits.max_wait = self.max_wait;
        limits.max_connections = self.max_connections;
        limits.max_waiters = self.max_waiters;
        limits.max_waiters_per_token = self.max_waiters_per_token;
        limits.max_requests_per_token = self.max_requests_per_token;
        limits.drain = self.drain;
        let mut settings = Settings::default();
        settings.backend = backend.to_owned();
        settings.tokens = self.tokens.clone();
        settings.tls = self.tls();
        settings.metrics_locks = self.metrics_lock.clone();
        settings.limits = limits;
        settings
    }
}

pub(crate) async fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    args.check_reach()?;
    let kind = kind_of(&context.backend);
    if kind.starts_with("http") {
        let text = "a lock server serves nodes, not another lock server: give it sqlite:PATH or redis://a,b,c";
        return Err(Failure::Config(text.into()));
    }
    let mut ends = Ends::listen().map_err(Failure::Signals)?;
    allow_many_files();
    let mut builder = context.builder();
    if args.trust_new_nodes {
        builder = builder.trust_new_nodes();
    }
    let locks = builder.open().await?;
    let nodes = locks.nodes().len();
    let listener = TcpListener::bind(args.listen).map_err(|error| Failure::System {
        what: format!("cannot listen at {}", args.listen),
        error,
    })?;
    let server = Server::start(locks, args.settings(kind), listener)?;
    let url = format!("{}://{}", server.scheme(), server.address());
    if context.output.json {
        context.output.object(&json!({
            "schema": "leasehold/serve/v1",
            "url": url,
            "backend": kind,
            "nodes": nodes,
        }))?;
    } else {
        let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        context.output.text(&format!("leasehold: serving {kind} ({nodes}) at {url}"))?;
    }
    info!(target: "leasehold_server", %url, backend = kind, nodes, "listening");
    notify::tell("READY=1");
    while !ends.next_is_end().await {
        notify::tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", notify::monotonic_micros()));
        reload(&server);
        notify::tell("READY=1");
    }
    info!(target: "leasehold_server", "shutting down");
    notify::tell("STOPPING=1");
    let in_time = tokio::select! {
        in_time = server.stop() => in_time,
        // A second signal: at once.
        () = ends.end() => false,
    };
    Ok(if in_time { Exit::Success } else { Exit::Unavailable })
}

/// What was good goes on if what is new is not.
fn reload(server: &Server) {
    if let Err(problem) = server.reload() {
        let problem: ServerError = problem;
        error!(target: "leasehold_server", "not read again, the old ones stand: {problem}");
    }
}

/// The word before the colon.
fn kind_of(backend: &str) -> &str {
    match backend.split_once(':').map_or(backend, |(kind, _)| kind) {
        "rediss" | "unix" => "redis",
        kind => kind,
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a number above zero")),
        Ok(number) => Ok(number),
    }
}

/// Each connection needs a file, and the usual limit is a thousand.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The signals that a server knows.
struct Ends {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Ends {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Whether the next one says to end; otherwise to read again.
    async fn next_is_end(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = self.hang_up.recv() => false,
        }
    }

    async fn end(&mut self) {
        while !self.next_is_end().await {}
    }
}
