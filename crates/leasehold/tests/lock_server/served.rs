//! A server on a runtime of its own, which can be ended as if it were killed.

use std::net::{SocketAddr, TcpListener};

use leasehold::{Background, Locks};
use leasehold_server::{Server, Settings};
use tokio::runtime::Runtime;

/// A server in this process, started on a free port.
pub(crate) struct Served {
    runtime: Option<Runtime>,
    address: SocketAddr,
    scheme: &'static str,
    backend: String,
    settings: Settings,
}

impl Served {
    pub(crate) fn on(backend: impl Into<String>) -> Self {
        Self::with(backend, Settings::default())
    }

    pub(crate) fn with(backend: impl Into<String>, settings: Settings) -> Self {
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut served = Self { runtime: None, address, scheme, backend: backend.into(), settings };
        served.start();
        served
    }

    /// Starts it again, at the same address.
    pub(crate) fn start(&mut self) {
        let listener = TcpListener::bind(self.address).expect("a port");
        self.address = listener.local_addr().expect("an address");
        let (backend, settings) = (self.backend.clone(), self.settings.clone());
        // A runtime cannot be waited for from inside of another.
        let started = std::thread::spawn(move || {
            let runtime = Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let builder = Locks::builder().url(backend).background(Background::CurrentRuntime);
                let locks = builder.trust_new_nodes().open().await.expect("a backend");
                Server::start(locks, settings, listener).expect("a server");
            });
            runtime
        });
        self.runtime = Some(started.join().expect("it starts"));
    }

    /// Ends it at once: nothing that is under way is finished or answered.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// `127.0.0.1:port`.
    pub(crate) fn addr(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(crate) async fn open(&self) -> Locks {
        Locks::open(self.url()).await.expect("open")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file that only one test uses.
pub(crate) fn file() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    (folder, url)
}
