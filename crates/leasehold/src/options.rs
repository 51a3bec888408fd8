//! How to reach the nodes: every setting, its default and its reason, and the one place where URLs
//! become settings. There is no way to get settings that were not checked.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AdmissionPolicy, Drift, Fingerprint, Holder, Ttl};
use tokio::runtime::Handle;

use crate::Locks;
use crate::background::Background;
use crate::clock::{Clock, SystemClock};
use crate::driver::{CaretakerSettings, Cluster, ClusterSettings, Limit};
use crate::error::{OpenError, OptionsError};
use crate::node::{Node, NodeId};
#[cfg(feature = "http")]
use crate::nodes::http::{self, ServerConfig, ServerNode};
use crate::nodes::memory::MemoryNode;
#[cfg(feature = "redis")]
use crate::nodes::redis::{DEFAULT_PREFIX, RedisConfig, RedisNode};
#[cfg(feature = "sqlite")]
use crate::nodes::sqlite::{self, SqliteNode};
use crate::redaction::{quotable, without_password};

/// A server answers within a millisecond; one that does not within this is as good as down.
#[cfg(feature = "redis")]
const REDIS_LIMIT: Limit = Limit { time: Duration::from_millis(50), share_of_ttl: 0.05 };

/// A lock server asks nodes of its own, and nobody else could answer instead.
#[cfg(feature = "http")]
const SERVER_LIMIT: Limit = Limit { time: Duration::from_secs(1), share_of_ttl: 0.25 };

/// A file or a table is one node: nobody else could answer instead, so patience costs nothing but
/// validity.
const LOCAL_LIMIT: Limit = Limit { time: Duration::from_secs(1), share_of_ttl: 0.5 };

/// The longest lease, and so the time a node that forgot must sit out.
const MAX_TTL: Duration = Duration::from_secs(30);

/// A quorum of one sits nothing out, so nothing speaks against long leases.
const MAX_TTL_OF_ONE: Duration = Duration::from_secs(24 * 3600);

/// How far wall clocks of nodes and clients may be apart. NTP keeps them within milliseconds.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// Longer than any lock is forgotten and then asked for with an old clock.
const FENCE_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long `open` waits for nodes that do not answer. It succeeds all the same.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// Settings of a [`Locks`]. Made by [`Locks::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `open`"]
pub struct Builder {
    source: Source,
    prefix: Option<String>,
    timeout: Option<Duration>,
    max_ttl: Option<Duration>,
    drift: Drift,
    max_clock_skew: Duration,
    quarantine: Option<bool>,
    strict: bool,
    trust_new_nodes: bool,
    fence_retention: Duration,
    forget_every: Duration,
    holder: Option<String>,
    token: Option<Token>,
    background: Background,
    clock: Arc<dyn Clock>,
}

/// What opens a lock server. Never shown.
#[derive(Clone)]
struct Token(#[cfg_attr(not(feature = "http"), expect(dead_code))] String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

#[derive(Clone)]
enum Source {
    Urls(Vec<String>),
    Nodes(Vec<Arc<dyn Node>>),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_list();
        match self {
            Self::Urls(urls) => list.entries(urls.iter().map(|url| without_password(url))),
            Self::Nodes(nodes) => list.entries(nodes.iter().map(|node| node.id())),
        };
        list.finish()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            source: Source::Urls(Vec::new()),
            prefix: None,
            timeout: None,
            max_ttl: None,
            drift: Drift::DEFAULT,
            max_clock_skew: MAX_CLOCK_SKEW,
            quarantine: None,
            strict: false,
            trust_new_nodes: false,
            fence_retention: FENCE_RETENTION,
            forget_every: Duration::from_secs(3600),
            holder: None,
            token: None,
            background: Background::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl Builder {
    /// Adds a backend URL; several make one member list. See [`Locks::open`] for the forms. What a
    /// URL says goes before what the builder says.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        match &mut self.source {
            Source::Urls(urls) => urls.push(url.into()),
            Source::Nodes(_) => self.source = Source::Urls(vec![url.into()]),
        }
        self
    }

    /// Uses nodes that the caller made.
    pub fn nodes(mut self, nodes: Vec<Arc<dyn Node>>) -> Self {
        self.source = Source::Nodes(nodes);
        self
    }

    /// Stands before each lock's name on Redis; empty shares locks with every library that does
    /// `SET name random NX PX ttl`. Default: `leasehold:lock:`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// How long a node may take to answer, connecting included. Longer tolerates slow networks;
    /// shorter keeps more of each lease. Default: 50 ms and at most 5 % of the Ttl for Redis; one
    /// second and at most half of the Ttl for a file, a quarter for a lock server.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The longest Ttl of the cluster. All clients must be given the same, like the member list: a
    /// node that forgot waits for so long, and may have forgotten this as well. Where a node says
    /// otherwise, nothing is acquired. Default: 30 s; a quorum of one without quarantine takes what
    /// its node says, a day on a new one.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// How far clocks may drift. More shortens leases; less than the truth can end in two holders.
    /// Default: 1 % and 2 ms.
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// How far wall clocks of nodes and clients may be apart. Twice this is added to the quarantine.
    /// Default: 1 s.
    pub fn max_clock_skew(mut self, skew: Duration) -> Self {
        self.max_clock_skew = skew;
        self
    }

    /// Whether a node that lost its memory sits out. Always on with more than one node; off by
    /// default for a quorum of one, where nobody else could vote meanwhile.
    pub fn quarantine(mut self, on: bool) -> Self {
        self.quarantine = Some(on);
        self
    }

    /// Refuses nodes that are dangerously configured, instead of warning about them.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Admits a cluster at once if every one of its nodes is reachable and none of them knows it:
    /// a person says that it is new. Otherwise changes nothing. See [`Locks::init`].
    pub fn trust_new_nodes(mut self) -> Self {
        self.trust_new_nodes = true;
        self
    }

    /// Fences of locks that nobody acquired for this long are dropped. Default: 7 days.
    pub fn fence_retention(mut self, retention: Duration) -> Self {
        self.fence_retention = retention;
        self
    }

    /// How often idle fences are looked for. Default: hourly.
    pub fn forget_every(mut self, period: Duration) -> Self {
        self.forget_every = period;
        self
    }

    /// Who asks, for people, unless a request says otherwise. Default: `user@host:pid`.
    pub fn holder(mut self, label: impl Into<String>) -> Self {
        self.holder = Some(label.into());
        self
    }

    /// The token to show to a lock server, where the URL names none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token(token.into()));
        self
    }

    /// Where background work runs. Default: on a thread of our own.
    pub fn background(mut self, background: Background) -> Self {
        self.background = background;
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the backend. Nodes that are down do not make it fail, nor wait for more than a second.
    pub async fn open(mut self) -> Result<Locks, OpenError> {
        let background = self.background.handle().map_err(OpenError::Background)?;
        let (nodes, limit) = self.connect(&background)?;
        let policy = self.policy(&nodes)?;
        let settings = ClusterSettings {
            policy,
            limit: match self.timeout {
                Some(time) => Limit { time, share_of_ttl: 0.5 },
                None => limit,
            },
            caretaker: CaretakerSettings {
                probe_every: Duration::from_secs(1),
                fence_retention: self.fence_retention,
                forget_every: self.forget_every,
            },
        };
        let label = self.holder_label();
        Holder::check_label(&label).map_err(OptionsError::from)?;
        let cluster = Cluster::start(nodes, settings, self.clock.clone(), background);
        cluster.ready(CONNECT_WAIT).await;
        let locks = Locks::new(cluster, label.into());
        if self.trust_new_nodes {
            locks.trust_if_new().await;
        }
        Ok(locks)
    }

    fn holder_label(&self) -> String {
        self.holder.clone().unwrap_or_else(default_holder)
    }

    /// Reads the URLs and judges the settings, and opens nothing.
    #[cfg(test)]
    pub(crate) fn check(mut self) -> Result<AdmissionPolicy, OptionsError> {
        let Source::Urls(urls) = self.source.clone() else { return self.policy(&[]) };
        for url in &urls {
            self.read_url(url)?;
        }
        let node = |i| MemoryNode::new(NodeId::new(format!("{i}")), self.clock.clone());
        let nodes: Vec<_> = (0..urls.len()).map(|i| Arc::new(node(i)) as Arc<dyn Node>).collect();
        let policy = self.policy(&nodes)?;
        policy.quarantine_for(policy.max_ttl.unwrap_or(policy.max_ttl_default));
        Ok(policy)
    }

    /// The nodes, in the order given. URLs may change other settings.
    #[cfg_attr(
        not(any(feature = "redis", feature = "http")),
        expect(unused_variables, reason = "only servers need it")
    )]
    fn connect(&mut self, background: &Handle) -> Result<(Vec<Arc<dyn Node>>, Limit), OpenError> {
        let urls = match &self.source {
            Source::Nodes(nodes) => return Ok((nodes.clone(), LOCAL_LIMIT)),
            Source::Urls(urls) => urls.clone(),
        };
        let mut backends = Vec::new();
        for url in &urls {
            backends.push(self.read_url(url)?);
        }
        match backends.as_slice() {
            [] => Err(OptionsError::Nodes("no backend URL was given".into()).into()),
            [Backend::Memory { nodes }] => {
                let node =
                    |i| MemoryNode::new(NodeId::new(format!("memory:{i}")), self.clock.clone());
                let nodes = (1..=*nodes).map(|i| Arc::new(node(i)) as Arc<dyn Node>).collect();
                Ok((nodes, LOCAL_LIMIT))
            }
            #[cfg(feature = "sqlite")]
            [Backend::Sqlite { path }] => {
                let file = |error: sqlite::SqliteError| match error {
                    sqlite::SqliteError::Thread { .. } => OpenError::Thread(error.to_string()),
                    error => OpenError::File(error.to_string()),
                };
                let path = match path {
                    Some(path) => path.clone(),
                    None => sqlite::default_path().map_err(file)?,
                };
                let node = SqliteNode::open(&path, self.clock.clone()).map_err(file)?;
                Ok((vec![Arc::new(node)], LOCAL_LIMIT))
            }
            #[cfg(feature = "http")]
            [Backend::Server { config }] => {
                // The server judges its own nodes.
                self.quarantine = None;
                let around = http::Surroundings {
                    clock: self.clock.clone(),
                    runtime: background.clone(),
                    label: self.holder_label().into(),
                    max_ttl_default: MAX_TTL_OF_ONE,
                };
                let node = ServerNode::new(config.clone(), around)
                    .map_err(|error| OpenError::File(error.to_string()))?;
                Ok((vec![Arc::new(node)], SERVER_LIMIT))
            }
            #[cfg(feature = "redis")]
            backends if backends.iter().all(|b| matches!(b, Backend::Redis { .. })) => {
                let prefix: Arc<str> = self.prefix.as_deref().unwrap_or(DEFAULT_PREFIX).into();
                let limit = self.timeout.unwrap_or(REDIS_LIMIT.time);
                let mut nodes: Vec<Arc<dyn Node>> = Vec::new();
                for backend in backends {
                    let Backend::Redis { configs } = backend else {
                        continue;
                    };
                    for config in configs {
                        let node = RedisNode::connect(
                            config.clone().labelled(self.holder_label()),
                            prefix.clone(),
                            limit,
                            background.clone(),
                        )
                        .map_err(|error| OpenError::File(error.to_string()))?;
                        nodes.push(Arc::new(node));
                    }
                }
                Ok((nodes, REDIS_LIMIT))
            }
            _ => Err(OptionsError::Nodes(
                "only Redis nodes can be combined; a file, a table or a lock server is a quorum of \
                 one"
                    .into(),
            )
            .into()),
        }
    }

    fn read_url(&mut self, url: &str) -> Result<Backend, OptionsError> {
        let bad =
            |reason: &str| OptionsError::Url { url: without_password(url), reason: reason.into() };
        let (scheme, rest) = url
            .split_once(':')
            .ok_or_else(|| bad(&format!("it has no scheme; known are {KNOWN_SCHEMES}")))?;
        match scheme {
            "memory" => {
                let (path, mut parameters) = split_parameters(rest)?;
                if !path.is_empty() {
                    return Err(bad("nothing follows `memory:` but parameters"));
                }
                let mut nodes = 1;
                if let Some(at) = parameters.iter().position(|(name, _)| name == "nodes") {
                    let (_, value) = parameters.remove(at);
                    nodes = value
                        .parse()
                        .ok()
                        .filter(|n| (1..=99).contains(n))
                        .ok_or_else(|| bad("`nodes` is a number from 1 to 99"))?;
                }
                self.read_parameters(url, parameters)?;
                Ok(Backend::Memory { nodes })
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                let (path, parameters) = split_parameters(rest)?;
                let path = path.strip_prefix("//").unwrap_or(&path);
                self.read_parameters(url, parameters)?;
                Ok(Backend::Sqlite { path: (!path.is_empty()).then(|| PathBuf::from(path)) })
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "unix" | "redis+unix" => {
                let (configs, parameters) =
                    crate::nodes::redis::parse_url(url).map_err(|error| bad(&error.to_string()))?;
                self.read_parameters(url, parameters)?;
                Ok(Backend::Redis { configs })
            }
            #[cfg(feature = "http")]
            "http" | "https" => {
                let (config, parameters) =
                    http::parse_url(url).map_err(|error| bad(&error.to_string()))?;
                let token = self.token.as_ref().map(|token| token.0.as_str());
                let config = config.or_token(token).map_err(|error| bad(&error.to_string()))?;
                self.read_server_parameters(url, parameters)?;
                Ok(Backend::Server { config })
            }
            _ => Err(bad(&format!(
                "unknown scheme `{}`; known are {KNOWN_SCHEMES}",
                quotable(scheme, url)
            ))),
        }
    }

    /// What else there is to set, a lock server sets for all its clients.
    #[cfg(feature = "http")]
    fn read_server_parameters(
        &mut self,
        url: &str,
        parameters: Parameters,
    ) -> Result<(), OptionsError> {
        let is_known = |name: &str| matches!(name, "timeout" | "drift");
        if let Some((name, _)) = parameters.iter().find(|(name, _)| !is_known(name)) {
            return Err(OptionsError::UnknownParameter {
                url: without_password(url),
                name: quotable(name, url),
                known: "timeout, drift, token_file; for https also ca, cert, key; all else is set \
                        where `leasehold serve` runs"
                    .into(),
            });
        }
        self.read_parameters(url, parameters)
    }

    fn read_parameters(&mut self, url: &str, parameters: Parameters) -> Result<(), OptionsError> {
        for (name, value) in parameters {
            self.read_parameter(url, &name, value).map_err(|error| match error {
                // The value stands in the reason, too.
                OptionsError::Value { name, value, .. } if quotable(&value, url) != value => {
                    bad_value(&name, "…", "it cannot be understood")
                }
                error => error,
            })?;
        }
        Ok(())
    }

    fn read_parameter(&mut self, url: &str, name: &str, value: String) -> Result<(), OptionsError> {
        match name {
            "prefix" => self.prefix = Some(value),
            "timeout" => self.timeout = Some(duration(name, &value)?),
            "max_ttl" => self.max_ttl = Some(duration(name, &value)?),
            "max_clock_skew" => self.max_clock_skew = duration(name, &value)?,
            "fence_retention" => self.fence_retention = duration(name, &value)?,
            "drift" => self.drift = drift(name, &value)?,
            "quarantine" => self.quarantine = Some(switch(name, &value)?),
            "strict" => self.strict = switch(name, &value)?,
            _ => {
                return Err(OptionsError::UnknownParameter {
                    url: without_password(url),
                    name: quotable(name, url),
                    known: "prefix, timeout, max_ttl, max_clock_skew, fence_retention, drift, \
                            quarantine, strict; for rediss also ca, cert, key; for unix also \
                            db; for memory also nodes"
                        .into(),
                });
            }
        }
        Ok(())
    }

    fn policy(&self, nodes: &[Arc<dyn Node>]) -> Result<AdmissionPolicy, OptionsError> {
        let mut ids: Vec<&NodeId> = nodes.iter().map(|node| node.id()).collect();
        ids.sort_unstable();
        if ids.is_empty() {
            return Err(OptionsError::Nodes("a cluster has at least one node".into()));
        }
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(OptionsError::DuplicateNode { node: pair[0].clone() });
        }
        for (name, value) in [("max_ttl", self.max_ttl), ("timeout", self.timeout)] {
            if let Some(value) = value
                && (value.is_zero() || (name == "max_ttl" && Ttl::new(value).is_err()))
            {
                return Err(OptionsError::Value {
                    name: name.into(),
                    value: format!("{value:?}"),
                    reason: "it must be longer".into(),
                });
            }
        }
        if self.quarantine == Some(false) && nodes.len() > 1 {
            return Err(OptionsError::Nodes(
                "quarantine can be off for a quorum of one only: with more nodes, one that lost \
                 its memory would let two holders in"
                    .into(),
            ));
        }
        let quarantine = self.quarantine.unwrap_or(nodes.len() > 1);
        // In whole milliseconds, as the nodes keep it: otherwise it would differ from itself.
        let given = self.max_ttl.and_then(|max_ttl| Ttl::new(max_ttl).ok()).map(Ttl::get);
        let max_ttl_default = if nodes.len() > 1 { MAX_TTL } else { MAX_TTL_OF_ONE };
        Ok(AdmissionPolicy {
            cluster: fingerprint(&ids, quarantine),
            nodes: nodes.len(),
            // A quarantine rests on it, so nobody may take it from nodes that may have forgotten it.
            max_ttl: given.or(Some(max_ttl_default).filter(|_| quarantine)),
            max_ttl_default,
            drift: self.drift,
            max_clock_skew: self.max_clock_skew,
            quarantine,
            strict: self.strict,
        })
    }
}

fn fingerprint(ids: &[&NodeId], quarantine: bool) -> Fingerprint {
    match ids {
        [_] if quarantine => Fingerprint::of_one_that_waits(),
        [_] => Fingerprint::of_one(),
        ids => Fingerprint::of_members(ids.iter().map(|id| id.as_str())),
    }
}

enum Backend {
    Memory {
        nodes: usize,
    },
    #[cfg(feature = "sqlite")]
    Sqlite {
        path: Option<PathBuf>,
    },
    #[cfg(feature = "redis")]
    Redis {
        configs: Vec<RedisConfig>,
    },
    #[cfg(feature = "http")]
    Server {
        config: ServerConfig,
    },
}

const KNOWN_SCHEMES: &str =
    "sqlite:, memory:, redis://, rediss://, unix:// and, for a lock server, https:// and http://";

type Parameters = Vec<(String, String)>;

fn split_parameters(rest: &str) -> Result<(String, Parameters), OptionsError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    Ok((path.to_owned(), pairs.map(|(k, v)| (k.into_owned(), v.into_owned())).collect()))
}

fn bad_value(name: &str, value: &str, reason: impl Into<String>) -> OptionsError {
    OptionsError::Value { name: name.into(), value: value.into(), reason: reason.into() }
}

fn duration(name: &str, value: &str) -> Result<Duration, OptionsError> {
    humantime::parse_duration(value)
        .map_err(|error| bad_value(name, value, format!("{error}; write it like 50ms, 30s or 5m")))
}

fn switch(name: &str, value: &str) -> Result<bool, OptionsError> {
    match value {
        "true" | "yes" | "on" | "1" | "" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(bad_value(name, value, "say true or false")),
    }
}

/// `1%` or `1%+2ms`.
fn drift(name: &str, value: &str) -> Result<Drift, OptionsError> {
    let bad = || bad_value(name, value, "write it like 1% or 1%+2ms");
    let (share, fixed) = match value.split_once(['+', ' ']) {
        Some((share, fixed)) => (share, duration(name, fixed)?),
        None => (value, Drift::DEFAULT.fixed),
    };
    let percent: f64 = share.strip_suffix('%').ok_or_else(bad)?.parse().map_err(|_| bad())?;
    if !(0.0..50.0).contains(&percent) {
        return Err(bad_value(name, value, "it must be between 0% and 50%"));
    }
    Ok(Drift { parts_per_million: (percent * 10_000.0).round() as u32, fixed })
}

/// Who holds a lock, for people, if nobody says otherwise: `user@host:pid`.
pub fn default_holder() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy().into_owned();
    let plain = |text: String, most: usize| -> String {
        let shown = |c: char| if c.is_ascii_graphic() { c } else { '_' };
        text.chars().map(shown).take(most).collect()
    };
    format!("{}@{}:{}", plain(user, 60), plain(host, 100), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_password_is_not_quoted() {
        for url in [
            "redis://u:1?secret@a",
            "redis://u:1?timeout=secret@a",
            "redis://u:1?db=secret&x@a",
            "redis://u:1?protocol=secret&x@a",
            "redis://u:x,secret://b@a",
            "u:secret@a",
            "secret@a:1",
            "https://secret@a",
            "https://secret:x@a",
            "https://:x?secret@a",
            "https://:x/secret@a",
            "https://x:secret?@a",
            "https://:x#secret@a",
            "https://:x%20secret@a",
            "https://:secret@a?max_ttl=1s",
        ] {
            let error = Builder::default().url(url).check().unwrap_err();
            let words = format!("{error} {error:?}");
            assert!(!words.contains("secret"), "{url}: {words}");
        }
        let error = Builder::default().url("redis://u:secret@a:99999").check().unwrap_err();
        assert!(error.to_string().contains("`a:99999`"), "what is no password is: {error}");
        let builder = Builder::default().url("redis://u:secret@a");
        assert!(!format!("{builder:?}").contains("secret"), "{builder:?}");
        let builder = Builder::default().url("https://a").token("secret");
        assert!(!format!("{builder:?}").contains("secret"), "{builder:?}");
    }

    #[cfg(feature = "http")]
    #[test]
    fn a_lock_server_has_few_parameters_and_says_which() {
        Builder::default().url("https://a?timeout=2s&drift=1%25&ca=/ca.pem").check().unwrap();
        for name in ["prefix", "max_ttl", "quarantine", "nodes", "x"] {
            let url = format!("https://a?{name}=1s");
            let error = Builder::default().url(url).check().unwrap_err().to_string();
            assert!(error.contains(&format!("unknown parameter `{name}`")), "{error}");
            assert!(error.contains("timeout, drift, token_file"), "{error}");
        }
        let error = Builder::default().url("https://a").token("a b").check().unwrap_err();
        assert!(error.to_string().contains("printable ASCII"), "{error}");
    }

    #[test]
    fn a_longest_ttl_of_broken_milliseconds_agrees_with_itself() {
        let max_ttl = Duration::from_micros(1_500_700);
        let policy = Builder::default().url("memory:").max_ttl(max_ttl).check().unwrap();
        assert_eq!(policy.max_ttl, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn drift_and_switches_are_read_or_explained() {
        let five = Drift { parts_per_million: 50_000, fixed: Duration::from_millis(2) };
        assert_eq!(drift("drift", "5%"), Ok(five));
        let exact = Drift { parts_per_million: 2_500, fixed: Duration::from_millis(7) };
        assert_eq!(drift("drift", "0.25%+7ms"), Ok(exact));
        for bad in ["5", "x%", "-1%", "80%", "1%+2", "NaN%"] {
            assert!(drift("drift", bad).is_err(), "{bad}");
        }
        assert_eq!(switch("strict", "on"), Ok(true));
        assert!(switch("strict", "maybe").unwrap_err().to_string().contains("`maybe`"));
        assert!(duration("timeout", "50").unwrap_err().to_string().contains("like 50ms"));
    }

    #[test]
    fn the_default_holder_is_a_label() {
        Holder::check_label(&default_holder()).unwrap();
    }
}
