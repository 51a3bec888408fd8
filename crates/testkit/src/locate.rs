//! Where the servers and the peers are. `./test` fetches them into `target/servers` and names them
//! in the environment; a plain `cargo test` afterwards finds them in the same place.
//!
//! Absent means failure, with the sentence that helps. Only `LEASEHOLD_TEST_REQUIRE=quick` turns an
//! absent one into a skipped test, and a skipped test always says so.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

/// Something from outside the repository that a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// `redis-server`.
    Redis,
    /// A `redis-server` of 6.2, the oldest that we support.
    OldRedis,
    /// `valkey-server`.
    Valkey,
    /// A Python that can import redis, redlock and pottery, and has mypy and schemathesis.
    PythonPeers,
    /// A folder whose `node_modules` holds redlock, redis-semaphore and ioredis.
    NodePeers,
    /// `zsh`, with its functions.
    Zsh,
    /// `fish`, with its functions.
    Fish,
    /// `prometheus`.
    Prometheus,
    /// `promtool`, which checks and tries Prometheus' rules.
    Promtool,
    /// `prometheus-alertmanager`.
    Alertmanager,
    /// `haproxy`.
    Haproxy,
    /// `java`, with the compiler.
    Java,
    /// `chromium`, or its variant without windows.
    Browser,
    /// A folder whose `node_modules` holds playwright-core and axe-core.
    Playwright,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Need::Redis => "redis-server",
            Need::OldRedis => "redis-server 6.2",
            Need::Valkey => "valkey-server",
            Need::PythonPeers => "python with the peer libraries",
            Need::NodePeers => "node with the peer libraries",
            Need::Zsh => "zsh",
            Need::Fish => "fish",
            Need::Prometheus => "prometheus",
            Need::Promtool => "promtool",
            Need::Alertmanager => "alertmanager",
            Need::Haproxy => "haproxy",
            Need::Java => "java",
            Need::Browser => "chromium",
            Need::Playwright => "node with playwright-core",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Need::Redis => "LEASEHOLD_TEST_REDIS",
            Need::OldRedis => "LEASEHOLD_TEST_OLD_REDIS",
            Need::Valkey => "LEASEHOLD_TEST_VALKEY",
            Need::PythonPeers => "LEASEHOLD_TEST_PYTHON",
            Need::NodePeers => "LEASEHOLD_TEST_NODE_PEERS",
            Need::Zsh => "LEASEHOLD_TEST_ZSH",
            Need::Fish => "LEASEHOLD_TEST_FISH",
            Need::Prometheus => "LEASEHOLD_TEST_PROMETHEUS",
            Need::Promtool => "LEASEHOLD_TEST_PROMTOOL",
            Need::Alertmanager => "LEASEHOLD_TEST_ALERTMANAGER",
            Need::Haproxy => "LEASEHOLD_TEST_HAPROXY",
            Need::Java => "LEASEHOLD_TEST_JAVA",
            Need::Browser => "LEASEHOLD_TEST_CHROMIUM",
            Need::Playwright => "LEASEHOLD_TEST_PLAYWRIGHT",
        }
    }

    fn usual_place(self) -> PathBuf {
        servers_dir().join(match self {
            Need::Redis => "redis-server",
            Need::OldRedis => "redis-server-6.2",
            Need::Valkey => "valkey-server",
            Need::PythonPeers => "peers-py/bin/python",
            Need::NodePeers => "peers-node",
            Need::Zsh => "zsh",
            Need::Fish => "fish",
            Need::Prometheus => "prometheus",
            Need::Promtool => "promtool",
            Need::Alertmanager => "prometheus-alertmanager",
            Need::Haproxy => "haproxy",
            Need::Java => "java",
            Need::Browser => "chromium",
            Need::Playwright => "playwright",
        })
    }

    fn find(self) -> Option<PathBuf> {
        let place = match env::var_os(self.variable()) {
            Some(named) if !named.is_empty() => PathBuf::from(named),
            _ => self.usual_place(),
        };
        let proof = match self {
            Need::NodePeers | Need::Playwright => place.join("node_modules"),
            _ => place.clone(),
        };
        proof.exists().then_some(place)
    }

    fn missing(self) -> String {
        format!("{} not found: run ./test once, it fetches it", self.name())
    }

    /// What to do when it is nowhere.
    pub fn check(self) -> Result<(), String> {
        self.find().map(drop).ok_or_else(|| self.missing())
    }

    /// Where it is; panics with what to do when it is nowhere.
    pub fn path(self) -> PathBuf {
        self.find().unwrap_or_else(|| panic!("{}", self.missing()))
    }
}

/// True when the calling test should return early because `need` is absent and the run asked for
/// what is there only (`LEASEHOLD_TEST_REQUIRE=quick`). Panics when it is absent in any other run.
///
/// ```no_run
/// # use leasehold_testkit::{Need, RedisServer, skip};
/// if skip(Need::Valkey) {
///     return;
/// }
/// let server = RedisServer::valkey().start();
/// ```
#[must_use]
pub fn skip(need: Need) -> bool {
    if need.find().is_some() {
        return false;
    }
    let quick = env::var("LEASEHOLD_TEST_REQUIRE").is_ok_and(|required| required == "quick");
    assert!(quick, "{}", need.missing());
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not eprintln!, which the test harness captures: `./test --quick` counts these lines.
    let line = format!("SKIPPED: {test}: {} not found\n", need.name());
    let _ = std::io::stderr().write_all(line.as_bytes());
    true
}

/// The repository's root, without the detours that an interpreter may read differently.
pub(crate) fn repository() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        fs::canonicalize(root).expect("the repository the tests were built from")
    })
}

/// Where `./test` puts what it fetches, and where the clock shim is built.
pub(crate) fn servers_dir() -> PathBuf {
    repository().join("target/servers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_names_the_command_that_fetches_it() {
        assert_eq!(Need::Redis.missing(), "redis-server not found: run ./test once, it fetches it");
    }

    #[test]
    fn the_root_is_where_the_test_command_lives() {
        assert!(repository().join("test").is_file());
    }
}
