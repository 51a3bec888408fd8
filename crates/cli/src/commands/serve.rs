//! `leasehold serve`: the lock server. It reads its settings, starts `leasehold_server`, and listens for
//! signals until it is told to end.

mod notify;
mod reload;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use leasehold_server::{Network, Server};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::args::Global;
use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::logging::LogFormat;
use crate::settings::{Serve, count};
use reload::InForce;

/// Serve locks over HTTP, with a dashboard and metrics
#[derive(Debug, Default, clap::Args)]
#[command(
    after_help = "Serves the SQLite file unless --backend says otherwise. Stateless: several may serve \
                  the same nodes behind a load balancer.\n\n\
                  Prints one line on standard output when it listens; logs go to standard error. \
                  SIGTERM ends it after --drain-notice, SIGINT now, when all requests are answered; a second \
                  signal ends it at once. SIGHUP makes it read the settings file, tokens and certificates \
                  again.\n\n\
                  All of it but --trust-new-nodes may also stand below [serve] in the settings file, by the \
                  name of the flag; a flag goes before it.\n\n\
                  Example:\n  leasehold token new --file tokens.toml --name billing --scope 'lock:billing/*' --scope read\n  \
                  leasehold --backend redis://a,b,c serve --listen 0.0.0.0:7717 --tokens tokens.toml \
                  --tls-cert cert.pem --tls-key key.pem\n\n\
                  Exit codes: 0 ended by a signal; 69 cannot listen, or not all requests ended in time; 78 bad \
                  configuration; 64 usage."
)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:7717]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The tokens that callers must show; made by `leasehold token new`
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// The certificate chain for HTTPS, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Callers must show a certificate that one of these signed, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Listen beyond this machine although tokens or TLS are missing
    #[arg(long)]
    pub(crate) insecure: bool,
    /// How logs are written [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// The longest a request may wait for a lock [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_wait: Option<Duration>,
    /// Connections at once; beyond it, the one idle for longest is closed [default: 12000]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) max_connections: Option<usize>,
    /// Requests that wait for a lock, at once [default: 10000]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) max_waiters: Option<usize>,
    /// The same for each token [default: 6000]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) max_waiters_per_token: Option<usize>,
    /// Requests of each token under way at once [default: 8000]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) max_requests_per_token: Option<usize>,
    /// A lock whose name may be a label of metrics; repeat it for more
    #[arg(long, value_name = "NAME")]
    pub(crate) metrics_lock: Vec<String>,
    /// Admit the nodes at once if all of them are there and none knows this cluster
    #[arg(long)]
    trust_new_nodes: bool,
    /// A load balancer that may say who sent a request; an address or a network, repeat it for more
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) trusted_proxies: Vec<Network>,
    /// Upon SIGTERM, how long to serve on while /readyz says no, for load balancers [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) drain_notice: Option<Duration>,
    /// How long shutting down may take after that [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) drain: Option<Duration>,
}

pub(crate) async fn exec(args: &Args, global: &Global, context: &Context) -> Result<Exit, Failure> {
    let serve = Serve::resolve(args, &context.settings)?;
    serve.check()?;
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
    let listen = serve.listen.value;
    let listener = TcpListener::bind(listen)
        .map_err(|error| Failure::System { what: format!("cannot listen at {listen}"), error })?;
    let server = Server::start(locks, serve.for_server(kind), listener)?;
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
    let mut in_force = InForce { flags: args, global, context, kind, serve };
    let has_time = loop {
        match ends.next().await {
            Told::ReadAgain => {
                notify::tell(&format!(
                    "RELOADING=1\nMONOTONIC_USEC={}",
                    notify::monotonic_micros()
                ));
                in_force.reload(&server);
                notify::tell("READY=1");
            }
            Told::EndSoon => break true,
            Told::EndNow => break false,
        }
    };
    info!(target: "leasehold_server", "shutting down");
    notify::tell("STOPPING=1");
    let notice = in_force.serve.drain_notice.value;
    let stopped = async {
        if has_time {
            server.announce_end();
            tokio::time::sleep(notice).await;
        }
        server.stop().await
    };
    let in_time = tokio::select! {
        in_time = stopped => in_time,
        // A second signal: at once.
        () = ends.end() => false,
    };
    Ok(if in_time { Exit::Success } else { Exit::Unavailable })
}

/// The word before the colon.
fn kind_of(backend: &str) -> &str {
    match backend.split_once(':').map_or(backend, |(kind, _)| kind) {
        "rediss" | "unix" => "redis",
        kind => kind,
    }
}

/// Each connection needs a file, and the usual limit is a thousand.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What a signal says.
#[derive(PartialEq, Eq)]
enum Told {
    /// Balancers are to notice first.
    EndSoon,
    /// Somebody waits at a terminal.
    EndNow,
    ReadAgain,
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

    async fn next(&mut self) -> Told {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Told::EndSoon,
            _ = self.interrupt.recv() => Told::EndNow,
            _ = self.hang_up.recv() => Told::ReadAgain,
        }
    }

    async fn end(&mut self) {
        while self.next().await == Told::ReadAgain {}
    }
}
