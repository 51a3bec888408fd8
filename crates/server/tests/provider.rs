//! A program may link several providers of cryptography. Alone in its process: the default is one for all.

use leasehold::Locks;
use leasehold_server::{Server, Settings, TlsFiles};
use tokio_rustls::rustls::crypto::CryptoProvider;

#[tokio::test]
async fn the_server_neither_needs_nor_sets_a_default_provider() {
    let files = leasehold_testkit::TlsFiles::generate();
    let mut settings = Settings::default();
    let client_ca = Some(files.ca());
    settings.tls = Some(TlsFiles { cert: files.server_cert(), key: files.server_key(), client_ca });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let locks = Locks::open("memory:").await.unwrap();
    let server = Server::start(locks, settings, listener).unwrap();
    assert_eq!(server.scheme(), "https");
    assert!(CryptoProvider::get_default().is_none(), "the whole program has another default now");
}
