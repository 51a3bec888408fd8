//! How a server is set up: every setting, its default and its reason.

use std::path::PathBuf;
use std::time::Duration;

use crate::proxies::Network;

/// Settings of a [`crate::Server`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// What the backend is called in metrics and answers: `redis`, `sqlite` …
    pub backend: String,
    /// The file of tokens; without one everybody who can connect may do everything.
    pub tokens: Option<PathBuf>,
    /// Certificates for HTTPS.
    pub tls: Option<TlsFiles>,
    /// Locks whose names may be labels of metrics.
    pub metrics_locks: Vec<String>,
    /// Load balancers that are believed when they say who sent a request.
    pub trusted_proxies: Vec<Network>,
    /// What is refused.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backend: "unknown".into(),
            tokens: None,
            tls: None,
            metrics_locks: Vec::new(),
            trusted_proxies: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Where certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Whoever connects must show a certificate that one of these signed, PEM.
    pub client_ca: Option<PathBuf>,
}

/// What is refused, so that nobody can stop the server for everybody else.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limits {
    /// The longest a request may wait for a lock. Load balancers cut off what takes much longer.
    pub max_wait: Duration,
    /// Connections at once. When there are more, the one that has been idle for longest is closed.
    pub max_connections: usize,
    /// Requests that wait for a lock, at once.
    pub max_waiters: usize,
    /// The same for each token.
    pub max_waiters_per_token: usize,
    /// Requests of each token under way at once, waiting ones and streams included.
    pub max_requests_per_token: usize,
    /// The largest body, in bytes: the largest that makes sense is below four kilobytes.
    pub max_body: usize,
    /// The largest head of a request, in bytes.
    pub max_head: usize,
    /// How long a connection may take to send a request, and stay idle between two.
    pub head_within: Duration,
    /// How long shutting down may take.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(60),
            max_connections: 12_000,
            max_waiters: 10_000,
            max_waiters_per_token: 6_000,
            max_requests_per_token: 8_000,
            max_body: 16 * 1024,
            max_head: 16 * 1024,
            head_within: Duration::from_secs(75),
            drain: Duration::from_secs(10),
        }
    }
}
