//! Opening a TCP connection to a server, and the system's words for why it failed. Shared by the
//! backends that are reached over the network.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::NodeError;
use tokio::net::TcpStream;

/// A dead peer is noticed after 10 + 3 · 5 s even on a connection that nobody uses.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

/// The files of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TlsPaths {
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Connects to the first address of `host` that answers, and says how many of its kind there are: one
/// host often has one of each kind, but two of one kind may be two hosts.
pub(super) async fn open_tcp(host: &str, port: u16) -> Result<(TcpStream, usize), NodeError> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(|error| {
        let reason = format!("no such host `{host}`: {}", system_words(&error));
        NodeError::Unreachable { reason }
    })?;
    let addresses: Vec<_> = addresses.collect();
    let mut last = io::Error::other(format!("no such host `{host}`"));
    for address in &addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                prepare(&stream).map_err(|e| unreachable(&e))?;
                let is_alike = |other: &&SocketAddr| other.is_ipv4() == address.is_ipv4();
                let alike: BTreeSet<_> = addresses.iter().filter(is_alike).collect();
                return Ok((stream, alike.len()));
            }
            Err(error) => last = error,
        }
    }
    Err(unreachable(&last))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// An error of the system as this node's reason.
pub(super) fn unreachable(error: &io::Error) -> NodeError {
    NodeError::Unreachable { reason: system_words(error) }
}

/// `connection refused`, not `Connection refused (os error 111)`.
pub(super) fn system_words(error: &io::Error) -> String {
    let words = error.to_string();
    // With TLS 1.3 a server's objection to our certificate comes with the first reply.
    #[cfg(feature = "tls")]
    if error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>()) {
        return format!("TLS: {words}");
    }
    let words = words.split(" (os error").next().unwrap_or_default();
    let mut letters = words.chars();
    match (letters.next(), letters.next()) {
        // Not an abbreviation such as TLS.
        (Some(first), Some(second)) if second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), &words[first.len_utf8()..])
        }
        _ => words.to_owned(),
    }
}
