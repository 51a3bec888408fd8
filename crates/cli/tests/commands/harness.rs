//! A user at a desk: a home of its own, a backend, and the binary.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use leasehold_testkit::{Need, RedisServer, skip};
use serde_json::Value;
use tempfile::TempDir;

/// Somebody who types commands.
pub(crate) struct Desk {
    home: TempDir,
    /// `None` for what is used by default.
    pub(crate) backend: Option<String>,
    /// Kept as long as somebody talks to them.
    pub(crate) servers: Vec<RedisServer>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Desk {
    /// With the file in the data folder.
    pub(crate) fn sqlite() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        Self { home, backend: None, servers: Vec::new() }
    }

    pub(crate) fn with(backend: impl Into<String>) -> Self {
        Self { backend: Some(backend.into()), ..Self::sqlite() }
    }

    /// With these servers as nodes. A busy machine gets a second to answer.
    pub(crate) fn of(servers: Vec<RedisServer>) -> Self {
        let addrs: Vec<_> = servers.iter().map(RedisServer::addr).collect();
        let backend = Some(format!("redis://{}?timeout=1s", addrs.join(",")));
        Self { backend, servers, ..Self::sqlite() }
    }

    /// With new Redis nodes that vote; `None` where there is no Redis and the run allows that.
    pub(crate) fn redis(count: usize) -> Option<Self> {
        let desk = Self::of(new_servers(count)?);
        desk.run(&["init"]).expect(0);
        Some(desk)
    }

    /// Both kinds of backend.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        [Some(Self::sqlite()), Self::redis(5)].into_iter().flatten()
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command
            .env("HOME", self.home())
            .env("XDG_DATA_HOME", self.home().join("data"))
            .env("XDG_CONFIG_HOME", self.home().join("config"))
            .env("USER", "ana")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .args(arguments);
        if let Some(backend) = &self.backend {
            command.env("LEASEHOLD_BACKEND", backend);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().expect("leasehold runs"))
    }

    /// Takes a lock for long and returns the token.
    pub(crate) fn acquire(&self, name: &str) -> String {
        self.acquire_for(name, "20s")
    }

    pub(crate) fn acquire_for(&self, name: &str, ttl: &str) -> String {
        self.run(&["acquire", name, "--ttl", ttl, "-n"]).expect(0).out.trim().to_owned()
    }

    pub(crate) fn fence(&self, name: &str) -> u64 {
        let status = self.run(&["status", name, "--json"]).expect(0).object();
        status["fence"].as_u64().expect("a fence")
    }
}

/// Servers that no client has seen yet.
pub(crate) fn new_servers(count: usize) -> Option<Vec<RedisServer>> {
    (!skip(Need::Redis)).then(|| RedisServer::redis().start_many(count))
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let code = output.status.code().expect("it exits by itself");
        let ran = Self { code, out: text(output.stdout), err: text(output.stderr) };
        assert!(!ran.err.contains("panicked"), "{ran:?}");
        ran
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Fails with `code` and a sentence that has `words`, and prints no data.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        let ran = self.expect(code);
        assert!(ran.out.is_empty(), "{ran:?}");
        for word in words {
            assert!(ran.err.contains(word), "no `{word}` in: {}", ran.err);
        }
        ran
    }

    /// The objects on stdout, each of which names its schema.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let read = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let schema = value["schema"].as_str().expect("a schema");
            assert!(schema.starts_with("leasehold/") && schema.ends_with("/v1"), "{schema}");
            value
        };
        self.out.lines().map(read).collect()
    }

    pub(crate) fn object(&self) -> Value {
        let [value] = <[Value; 1]>::try_from(self.objects()).expect("one object");
        value
    }

    pub(crate) fn all(&self) -> String {
        format!("{}\n{}", self.out, self.err)
    }
}
