//! What is needed to open a TLS connection, read from files once, so that a wrong file is told at
//! construction and not at three in the morning.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::dial::TlsPaths;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The machine has no certificates to trust.
    #[error("no certificate authority to trust on this machine: name one with ca=PATH")]
    NoRoots,
    /// Certificate and key do not fit, or cannot be used.
    #[error("the client certificate cannot be used: {reason}")]
    ClientCertificate {
        /// Why.
        reason: String,
    },
    /// TLS cannot speak to a host of this name.
    #[error("`{host}` is not a name that a certificate can have")]
    HostName {
        /// The name.
        host: String,
    },
}

/// A way to open TLS connections to one host.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl Tls {
    pub(super) fn new(paths: &TlsPaths, host: &str) -> Result<Self, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::HostName { host: host.to_owned() })?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::ClientCertificate { reason: error.to_string() })?
            .with_root_certificates(roots(paths.ca.as_deref())?);
        let config = match (&paths.cert, &paths.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error: rustls::Error| {
                    TlsError::ClientCertificate { reason: error.to_string() }
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| file(path, error))?;
        }
        return Ok(roots);
    }
    // Machines carry the odd certificate that rustls cannot read; the others still count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| file(path, error))?;
    let certificates: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| file(path, error))?;
    if certificates.is_empty() {
        return Err(file(path, "no certificate in it"));
    }
    Ok(certificates)
}

fn file(path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_missing_or_no_pem_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        std::fs::write(&text, "hello").unwrap();
        let missing = dir.path().join("missing");
        for path in [&text, &missing] {
            let ca = TlsPaths { ca: Some(path.clone()), ..TlsPaths::default() };
            let said = Tls::new(&ca, "localhost").err().unwrap().to_string();
            assert!(said.starts_with(&path.display().to_string()), "{said}");
        }
    }
}
