//! Where a lock server is and how to get in, read from a URL:
//! `https://:TOKEN@locks.example:7717/?ca=/etc/ca.pem`.
//!
//! Nothing in here ever prints a token, whatever is wrong with the URL.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::node::NodeId;
use crate::nodes::dial::TlsPaths;
use crate::redaction::quotable;

/// Where `leasehold serve` listens, with TLS or without.
const PORT: u16 = 7717;

/// One lock server, or several behind one address.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<TlsPaths>,
    pub(super) token: Option<String>,
    pub(super) token_file: Option<PathBuf>,
}

/// Why a text is not the URL of a lock server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No URL at all.
    #[error("not a URL: it should look like https://host:7717")]
    NotAUrl,
    /// No host, or more than one.
    #[error(
        "a lock server is one node: give one host, and if several servers share their nodes, the \
         address of what stands before them"
    )]
    OneHost,
    /// A host or its port cannot be understood.
    #[error("`{host}` is not a host with an optional port")]
    Host {
        /// The host as written.
        host: String,
    },
    /// Something else than a token before the host, or a token that was not encoded.
    #[error(
        "a lock server knows tokens and no users: write https://:TOKEN@host; in the token a / is \
         written %2F, a ? %3F, a # %23 and an @ %40"
    )]
    UserInfo,
    /// A token that cannot be one.
    #[error("the token must be printable ASCII without spaces")]
    Token,
    /// A path.
    #[error("nothing follows the host but parameters")]
    Path,
    /// A parameter of the connection has a value that it cannot have.
    #[error("the parameter `{name}` needs a path")]
    NoPath {
        /// Its name.
        name: String,
    },
    /// A TLS parameter without TLS.
    #[error("the parameter `{name}` needs https://")]
    NeedsTls {
        /// Its name.
        name: String,
    },
    /// A client certificate without its key, or the other way round.
    #[error("`cert` and `key` go together")]
    HalfACertificate,
    /// Two tokens.
    #[error("a token in the URL and a `token_file` are one too many")]
    TwoTokens,
}

/// What a URL says: the server, and the parameters that do not concern the connection.
pub type Parsed = (ServerConfig, Vec<(String, String)>);

/// Reads a URL. Parameters that this file does not know are handed back, in order and decoded, for
/// the caller to judge.
pub fn parse_url(text: &str) -> Result<Parsed, UrlError> {
    parse(text.trim()).map_err(|error| match error {
        UrlError::Host { host } => UrlError::Host { host: quotable(&host, text) },
        error => error,
    })
}

fn parse(text: &str) -> Result<Parsed, UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotAUrl)?;
    let is_tls = match scheme {
        "https" => true,
        "http" => false,
        _ => return Err(UrlError::NotAUrl),
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user_info, host) = match authority.rsplit_once('@') {
        Some((user_info, host)) => (Some(user_info), host),
        None => (None, authority),
    };
    // A token with a raw `/`, `?` or `#` ends up here, and must not be quoted as a host.
    if user_info.is_none() && tail.contains('@') && !tail.starts_with(['?', '/']) {
        return Err(UrlError::UserInfo);
    }
    let token = user_info.map(token).transpose()?;
    // A host of our own keeps the mistakes of the given one out of the parameters.
    let tail = Url::parse(&format!("http://host{tail}")).map_err(|_| UrlError::NotAUrl)?;
    if tail.path().contains('@') {
        return Err(UrlError::UserInfo);
    }
    if tail.path() != "/" || tail.fragment().is_some() {
        return Err(UrlError::Path);
    }
    let (host, port) = host_and_port(host)?;
    let config =
        ServerConfig { host, port, tls: is_tls.then(TlsPaths::default), token, token_file: None };
    parameters(&tail, config)
}

fn token(user_info: &str) -> Result<String, UrlError> {
    let token = user_info.strip_prefix(':').ok_or(UrlError::UserInfo)?;
    let token = percent_decode_str(token).decode_utf8().map_err(|_| UrlError::Token)?;
    check_token(&token)
}

/// A token as it can stand in a header.
fn check_token(token: &str) -> Result<String, UrlError> {
    let is_one = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_one { Ok(token.to_owned()) } else { Err(UrlError::Token) }
}

fn host_and_port(text: &str) -> Result<(String, u16), UrlError> {
    if text.is_empty() || text.starts_with(':') || text.contains([',', ' ']) {
        return Err(UrlError::OneHost);
    }
    let wrong = || UrlError::Host { host: if text.len() > 300 { "…" } else { text }.to_owned() };
    let url = Url::parse(&format!("http://{text}/")).map_err(|_| wrong())?;
    let port = match text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((_, port)) => port.parse().map_err(|_| wrong())?,
        None => PORT,
    };
    let host = url.host_str().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
    if port == 0 || url.path() != "/" || url.query().is_some() {
        return Err(wrong());
    }
    Ok((host, port))
}

fn parameters(url: &Url, mut config: ServerConfig) -> Result<Parsed, UrlError> {
    let mut others = Vec::new();
    for (name, value) in url.query_pairs().into_owned() {
        let file = match (name.as_str(), &mut config.tls) {
            ("token_file", _) => &mut config.token_file,
            ("ca", Some(tls)) => &mut tls.ca,
            ("cert", Some(tls)) => &mut tls.cert,
            ("key", Some(tls)) => &mut tls.key,
            ("ca" | "cert" | "key", None) => return Err(UrlError::NeedsTls { name }),
            _ => {
                others.push((name, value));
                continue;
            }
        };
        if value.is_empty() {
            return Err(UrlError::NoPath { name });
        }
        *file = Some(value.into());
    }
    if config.tls.as_ref().is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
        return Err(UrlError::HalfACertificate);
    }
    if config.token.is_some() && config.token_file.is_some() {
        return Err(UrlError::TwoTokens);
    }
    Ok((config, others))
}

impl ServerConfig {
    /// The node's name: `https://host:port`.
    pub fn id(&self) -> NodeId {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        NodeId::new(format!("{scheme}://{}", self.authority()))
    }

    /// The same with `token`, unless the URL names one.
    pub fn or_token(mut self, token: Option<&str>) -> Result<Self, UrlError> {
        if let Some(token) = token
            && self.token.is_none()
            && self.token_file.is_none()
        {
            self.token = Some(check_token(token)?);
        }
        Ok(self)
    }

    /// `host:port`, as it stands in requests.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Whether nothing that is sent leaves this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let is_loopback = |ip: IpAddr| ip.is_loopback();
        self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }

    /// What proves who we are, if anything does: the file is read now.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, TokenFileError> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(path)) => read_token(path)?,
            (None, None) => return Ok(None),
        };
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut header = header.expect("a token is printable ASCII");
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

/// A file that should hold a token and does not.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TokenFileError {
    path: PathBuf,
    reason: String,
}

fn read_token(path: &Path) -> Result<String, TokenFileError> {
    let wrong = |reason: String| TokenFileError { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    check_token(text.trim()).map_err(|error| wrong(error.to_string()))
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("id", &self.id())
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("token_file", &self.token_file)
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> ServerConfig {
        parse_url(url).unwrap_or_else(|error| panic!("{url}: {error}")).0
    }

    #[test]
    fn a_server_is_found_with_and_without_a_port_a_token_and_tls() {
        for (url, id, token) in [
            ("http://localhost", "http://localhost:7717", None),
            ("https://locks.example/", "https://locks.example:7717", None),
            ("https://:lh_x%2Fy@LOCKS.example:443", "https://locks.example:443", Some("lh_x/y")),
            ("http://[::1]:80?timeout=1s", "http://[::1]:80", None),
            ("http://127.0.0.1:7000/?token_file=/run/t", "http://127.0.0.1:7000", None),
        ] {
            let config = parsed(url);
            assert_eq!((config.id().as_str(), config.token.as_deref()), (id, token), "{url}");
            assert_eq!(config.tls.is_some(), url.starts_with("https"));
        }
        let (config, others) =
            parse_url("https://a/?ca=/ca&timeout=50ms&cert=/c&key=/k&drift=1%25").unwrap();
        let files =
            TlsPaths { ca: Some("/ca".into()), cert: Some("/c".into()), key: Some("/k".into()) };
        assert_eq!(config.tls, Some(files));
        let others: Vec<_> = others.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(others, [("timeout", "50ms"), ("drift", "1%")]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, error) in [
            ("http:a", UrlError::NotAUrl),
            ("ftp://a", UrlError::NotAUrl),
            ("https://", UrlError::OneHost),
            ("https://:t@", UrlError::OneHost),
            ("https://a,b", UrlError::OneHost),
            ("https://a:x", UrlError::Host { host: "a:x".into() }),
            ("https://a:0", UrlError::Host { host: "a:0".into() }),
            ("https://token@a", UrlError::UserInfo),
            ("https://user:token@a", UrlError::UserInfo),
            ("https://:to/ken@a", UrlError::UserInfo),
            ("https://:t%20t@a", UrlError::Token),
            ("https://:@a", UrlError::Token),
            ("https://a/v1", UrlError::Path),
            ("https://a/#x", UrlError::Path),
            ("http://a?ca=/x", UrlError::NeedsTls { name: "ca".into() }),
            ("https://a?ca=", UrlError::NoPath { name: "ca".into() }),
            ("https://a?cert=/x", UrlError::HalfACertificate),
            ("https://:t@a?token_file=/x", UrlError::TwoTokens),
        ] {
            assert_eq!(parse_url(url), Err(error), "{url}");
        }
    }

    #[test]
    fn a_token_is_never_shown_and_goes_before_the_one_at_hand() {
        let config = parsed("https://:hunter2@a");
        assert!(!format!("{config:?} {}", config.id()).contains("hunter2"));
        let header = config.clone().or_token(Some("other")).unwrap().authorization().unwrap();
        assert_eq!(header.as_ref().unwrap().as_bytes(), b"Bearer hunter2");
        assert!(!format!("{header:?}").contains("hunter2"), "{header:?}");
        let header = parsed("https://a").or_token(Some("other")).unwrap().authorization().unwrap();
        assert_eq!(header.unwrap().as_bytes(), b"Bearer other");
        assert_eq!(parsed("https://a").or_token(Some("a b")), Err(UrlError::Token));
        assert_eq!(parsed("https://a").authorization().unwrap(), None);
    }

    #[test]
    fn a_token_file_is_trimmed_and_a_bad_one_is_named_but_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let config = parsed(&format!("http://a/?token_file={}", path.display()));
        let missing = config.authorization().unwrap_err().to_string();
        assert!(missing.starts_with(&path.display().to_string()), "{missing}");
        std::fs::write(&path, "lh_abc\n").unwrap();
        assert_eq!(config.authorization().unwrap().unwrap().as_bytes(), b"Bearer lh_abc");
        std::fs::write(&path, "hunter 2").unwrap();
        let wrong = config.authorization().unwrap_err().to_string();
        assert!(wrong.contains("printable ASCII") && !wrong.contains("hunter"), "{wrong}");
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (url, is_loopback) in [
            ("http://localhost", true),
            ("http://127.0.0.9", true),
            ("http://[::1]", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(parsed(url).is_loopback(), is_loopback, "{url}");
        }
    }
}
