//! Where a node is and how to get in, read from a URL. One URL may name several nodes:
//! `redis://user:secret@a:6379,b:6379,c:6379/0?ca=/etc/ca.pem`.
//!
//! Nothing in here ever prints a password, whatever is wrong with the URL.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::node::NodeId;
use crate::nodes::dial::TlsPaths;
use crate::redaction::{is_scheme, quotable};

const PORT: u16 = 6379;

/// One Redis or Valkey server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    pub(super) address: Address,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: u32,
    pub(super) tls: Option<TlsPaths>,
    pub(super) resp2: bool,
    /// Under which label others may nudge us.
    pub(super) label: Option<std::sync::Arc<str>>,
}

impl RedisConfig {
    /// The same, for holders that go by `label`: those who wait for what they hold can let them
    /// know.
    #[must_use]
    pub fn labelled(self, label: impl AsRef<str>) -> Self {
        Self { label: Some(label.as_ref().into()), ..self }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    #[cfg(test)]
    Simulated(super::link::Dial),
}

/// Why a text is not the URL of a Redis node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No URL at all.
    #[error("not a URL: it should look like redis://host:6379/0")]
    NotAUrl,
    /// Not one of ours.
    #[error("unknown scheme `{scheme}`: it should be redis, rediss or unix")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// A host is missing.
    #[error("host number {position} is empty")]
    EmptyHost {
        /// Which one, counted from 1.
        position: usize,
    },
    /// A host or its port cannot be understood.
    #[error("`{host}` is not a host with an optional port")]
    Host {
        /// The host as written.
        host: String,
    },
    /// Credentials not at the beginning.
    #[error(
        "user and password stand once, before the first host; in them a comma is written %2C, \
         a / %2F, a ? %3F, a # %23 and an @ %40"
    )]
    UserInfo,
    /// Credentials that are not UTF-8 once decoded.
    #[error("user and password must be UTF-8 once they are percent-decoded")]
    NotUtf8,
    /// The database is not a number.
    #[error("the database `{db}` is not a number")]
    Database {
        /// As written.
        db: String,
    },
    /// A Unix socket without a path.
    #[error("a socket needs an absolute path: unix:///run/redis.sock")]
    NoPath,
    /// A parameter of the connection has a value that it cannot have.
    #[error("the parameter `{name}` cannot be `{value}`")]
    Parameter {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A TLS parameter without TLS.
    #[error("the parameter `{name}` needs rediss://")]
    NeedsTls {
        /// Its name.
        name: String,
    },
    /// A client certificate without its key, or the other way round.
    #[error("`cert` and `key` go together")]
    HalfACertificate,
}

impl UrlError {
    /// The same, without what may be a password that slipped into a wrong place.
    fn quoting(mut self, url: &str) -> Self {
        match &mut self {
            Self::Scheme { scheme } if is_scheme(scheme) && url.starts_with(&**scheme) => {}
            Self::Scheme { scheme: part }
            | Self::Host { host: part }
            | Self::Database { db: part }
            | Self::Parameter { value: part, .. } => *part = quotable(part, url),
            _ => {}
        }
        self
    }
}

/// What a URL says: the nodes, and the parameters that do not concern the connections.
pub type Parsed = (Vec<RedisConfig>, Vec<(String, String)>);

/// Reads a URL, or several with commas or spaces between them. Parameters that this file does not
/// know are handed back, in order and decoded, for the caller to judge.
pub fn parse_url(text: &str) -> Result<Parsed, UrlError> {
    let (mut nodes, mut parameters) = (Vec::new(), Vec::new());
    for url in split_list(text.trim()) {
        let (more, others) = parse_one(url).map_err(|error| error.quoting(text))?;
        nodes.extend(more);
        parameters.extend(others);
    }
    Ok((nodes, parameters))
}

/// Splits where a comma or a space is followed by another URL.
fn split_list(text: &str) -> Vec<&str> {
    let (mut urls, mut rest) = (Vec::new(), text);
    let mut from = 0;
    while let Some(at) = rest[from..].find([',', ' ', '\t', '\n', '\r']).map(|at| at + from) {
        let after = rest[at..].trim_start_matches([',', ' ', '\t', '\n', '\r']);
        let scheme = after.split_once("://").map_or("", |(scheme, _)| scheme);
        if is_scheme(scheme) {
            urls.push(&rest[..at]);
            (rest, from) = (after, 0);
        } else {
            from = at + 1;
        }
    }
    urls.push(rest);
    urls
}

fn parse_one(text: &str) -> Result<Parsed, UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotAUrl)?;
    let (tls, unix) = match scheme {
        "redis" => (false, false),
        "rediss" => (true, false),
        "unix" | "redis+unix" => (false, true),
        _ => {
            return Err(UrlError::Scheme { scheme: shown(scheme) });
        }
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let items: Vec<&str> = authority.split(',').collect();
    if items[1..].iter().any(|item| item.contains('@')) {
        return Err(UrlError::UserInfo);
    }
    let (user_info, first) = match items[0].rsplit_once('@') {
        Some((user_info, first)) => (Some(user_info), first),
        None => (None, items[0]),
    };
    // A password with a raw `/`, `?` or `#` ends up here, and must not be quoted as a host.
    if user_info.is_none() && tail.contains('@') && !tail.starts_with('?') && !unix {
        return Err(UrlError::UserInfo);
    }
    let (user, password) = credentials(user_info)?;
    // The tail is the same for all; a host of our own keeps the hosts' mistakes out of it.
    let tail = Url::parse(&format!("redis://host{tail}")).map_err(|_| UrlError::NotAUrl)?;
    let Parameters { mut db, tls: files, resp2, others } = parameters(&tail, tls)?;
    let path = tail.path();
    let mut addresses = Vec::new();
    if unix {
        if !authority.is_empty() && (user_info.is_none() || !first.is_empty()) || items.len() > 1 {
            return Err(UrlError::NoPath);
        }
        let path = decoded(path)?;
        if path.len() < 2 {
            return Err(UrlError::NoPath);
        }
        addresses.push(Address::Unix(path.into()));
    } else {
        let number = path.trim_matches('/');
        if !number.is_empty() {
            db = Some(database(number)?);
        }
        for (index, item) in std::iter::once(&first).chain(&items[1..]).enumerate() {
            addresses.push(host(item, index + 1).map_err(|error| match error {
                UrlError::Host { .. } if tail.as_str().contains('@') => UrlError::UserInfo,
                error => error,
            })?);
        }
    }
    let nodes = addresses.into_iter().map(|address| RedisConfig {
        address,
        user: user.clone(),
        password: password.clone(),
        db: db.unwrap_or(0),
        tls: tls.then(|| files.clone()),
        resp2,
        label: None,
    });
    Ok((nodes.collect(), others))
}

fn credentials(user_info: Option<&str>) -> Result<(Option<String>, Option<String>), UrlError> {
    let Some(user_info) = user_info else {
        return Ok((None, None));
    };
    let (user, password) = match user_info.split_once(':') {
        Some((user, password)) => (user, Some(decoded(password)?)),
        None => (user_info, None),
    };
    let user = decoded(user)?;
    Ok(((!user.is_empty()).then_some(user), password))
}

fn host(item: &str, position: usize) -> Result<Address, UrlError> {
    if item.is_empty() || item.starts_with(':') {
        return Err(UrlError::EmptyHost { position });
    }
    let wrong = || UrlError::Host { host: shown(item) };
    // As http, so that names are checked and written one way: lower case, no needless zeros.
    let url = Url::parse(&format!("http://{item}/")).map_err(|_| wrong())?;
    let explicit = item.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let port = match explicit {
        Some((_, port)) => port.parse().map_err(|_| wrong())?,
        None => PORT,
    };
    let host = url.host_str().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
    if port == 0 || url.path() != "/" || url.query().is_some() {
        return Err(wrong());
    }
    Ok(Address::Tcp { host, port })
}

struct Parameters {
    db: Option<u32>,
    tls: TlsPaths,
    resp2: bool,
    others: Vec<(String, String)>,
}

fn parameters(url: &Url, is_tls: bool) -> Result<Parameters, UrlError> {
    let mut read =
        Parameters { db: None, tls: TlsPaths::default(), resp2: false, others: Vec::new() };
    for (name, value) in url.query_pairs().into_owned() {
        let file = match name.as_str() {
            "ca" => &mut read.tls.ca,
            "cert" => &mut read.tls.cert,
            "key" => &mut read.tls.key,
            "db" => {
                read.db = Some(database(&value)?);
                continue;
            }
            "protocol" => {
                read.resp2 = match value.as_str() {
                    "2" => true,
                    "3" => false,
                    _ => return Err(UrlError::Parameter { name, value }),
                };
                continue;
            }
            _ => {
                read.others.push((name, value));
                continue;
            }
        };
        if !is_tls {
            return Err(UrlError::NeedsTls { name });
        }
        if value.is_empty() {
            return Err(UrlError::Parameter { name, value });
        }
        *file = Some(value.into());
    }
    if read.tls.cert.is_some() != read.tls.key.is_some() {
        return Err(UrlError::HalfACertificate);
    }
    Ok(read)
}

fn database(number: &str) -> Result<u32, UrlError> {
    number.parse().map_err(|_| UrlError::Database { db: shown(number) })
}

fn decoded(text: &str) -> Result<String, UrlError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::NotUtf8)?;
    Ok(text.into_owned())
}

/// A part of the URL for an error: short.
fn shown(part: &str) -> String {
    if part.len() > 300 { "…".to_owned() } else { part.to_owned() }
}

impl RedisConfig {
    /// The node's name: `host:port/db`, or `unix:/path/db`.
    pub fn id(&self) -> NodeId {
        let db = self.db;
        NodeId::new(match &self.address {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}/{db}"),
            Address::Tcp { host, port } => format!("{host}:{port}/{db}"),
            Address::Unix(path) => format!("unix:{}/{db}", path.display()),
            #[cfg(test)]
            Address::Simulated(dial) => format!("{dial:?}"),
        })
    }
}

#[cfg(test)]
impl RedisConfig {
    /// A server that is reached by other means than the system's.
    pub(crate) fn simulated(dial: super::link::Dial, resp2: bool) -> Self {
        let address = Address::Simulated(dial);
        Self { address, user: None, password: None, db: 0, tls: None, resp2, label: None }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("id", &self.id())
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
