//! HTTPS: certificates from files, read again when asked to and when the files change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tracing::{error, info};

use crate::serve::Front;
use crate::settings::TlsFiles;

/// Whoever renews a certificate does so days before the old one ends.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The certificates that are shown now, and where they came from.
pub(crate) struct Current(RwLock<(Option<TlsFiles>, Option<TlsAcceptor>)>);

impl Current {
    pub(crate) fn new(files: Option<TlsFiles>, acceptor: Option<TlsAcceptor>) -> Self {
        Self(RwLock::new((files, acceptor)))
    }

    pub(crate) fn replace(&self, files: Option<TlsFiles>, acceptor: Option<TlsAcceptor>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (files, acceptor);
    }

    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn files(&self) -> Option<TlsFiles> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// Reads the certificates again when their files are others, until the server is to end.
pub(crate) async fn watch(front: Arc<Front>) {
    let Some(mut files) = front.tls.files() else { return };
    let mut seen = state(&files);
    loop {
        tokio::select! {
            biased;
            () = front.app.tasks.draining() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let Some(now) = front.tls.files() else { continue };
        let state = state(&now);
        if now != files {
            // Others were named, and read.
            (files, seen) = (now, state);
        } else if state != seen {
            seen = state;
            match acceptor(&files) {
                Ok(acceptor) => {
                    front.tls.replace(Some(now), Some(acceptor));
                    info!("the certificates changed and were read again");
                }
                // The key may come a moment after its certificate, and is a change then.
                Err(error) => error!("the old certificates stay: {error}"),
            }
        }
    }
}

/// Device, inode, length and time of a file.
type Stamp = (u64, u64, u64, i64, i64);

/// What tells one content of the files from another.
fn state(files: &TlsFiles) -> Vec<Option<Stamp>> {
    let all = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
    let of = |path: &std::path::PathBuf| {
        let data = fs::metadata(path).ok()?;
        Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
    };
    all.into_iter().flatten().map(of).collect()
}

/// Reads the files; the error names the one that is wrong.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("the private key {}: {error}", files.key.display()))?;
    // By name: in a program with several providers there is no default, and asking for it panics.
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("the client CA {}: {error}", path.display()))?;
            }
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| format!("the client CA {}: {error}", path.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        format!("the certificate {} with its key: {error}", files.cert.display())
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: String| format!("the certificates {}: {error}", path.display());
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?.collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is none in it".into()));
    }
    Ok(found)
}
