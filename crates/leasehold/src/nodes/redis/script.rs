//! The scripts. Each is known to a server by the SHA-1 of its text.
//!
//! Those that vote or write the record are *bound* to the server that was examined: its run id stands
//! in their text, so that a server that restarted, or is another, does not know them. It answers
//! NOSCRIPT, which means "examine again" and never "send it whole": behind a proxy that keeps our
//! connection nothing else would tell. Called without arguments they do nothing, which is how they are
//! left at a server. The others may be carried out by any server, and are sent whole to one that does
//! not know them.

use std::sync::LazyLock;

use leasehold_core::ServerFacts;

use super::resp::word;

/// A script and the name that a server gives it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
    /// The first two words of a call by name, as they go over the wire.
    pub(super) call: Vec<u8>,
}

impl Script {
    pub(super) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let (sha, mut call) = (sha1(&text), Vec::new());
        word(&mut call, b"EVALSHA");
        word(&mut call, sha.as_bytes());
        Self { text, sha, call }
    }
}

/// Who the server is.
pub(super) static EXAMINE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("examine.lua")));
/// Needs no identity.
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("release.lua")));
/// Only looks.
pub(super) static INSPECT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("inspect.lua")));

/// The scripts that one server knows, and no other.
#[derive(Debug)]
pub(super) struct Bound {
    run_id: String,
    replication_id: String,
    /// What the scripts compare themselves.
    doubts: Doubts,
    pub(super) acquire: Script,
    pub(super) extend: Script,
    pub(super) keep: Script,
    pub(super) force_release: Script,
    pub(super) replace_record: Script,
    pub(super) forget: Script,
}

/// What the scripts have to ask the server for, each at some 5 µs a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubts {
    /// Its run id: before Redis 7 a server finds its scripts again when it starts.
    pub(super) restart: bool,
    /// Its role and its replication id: it does not tell us when its data become another's. Over RESP2
    /// it never does. Over RESP3 it tells when it drops its data to copy another server; but one that
    /// has, or had, a replica can follow that replica without dropping anything.
    pub(super) copy: bool,
}

impl Bound {
    /// For this server.
    pub(super) fn to(server: &ServerFacts, doubts: Doubts) -> Self {
        let mut first = format!("-- run {}\n", server.run_id);
        let mut compare = |section: &str, lines: &[&str]| {
            let find = |line: &&str| format!("string.find(info, '{line}\\r', 1, true)");
            let found = lines.iter().map(find).collect::<Vec<_>>().join(" and ");
            first.push_str(&format!(
                "do local info = redis.call('INFO', '{section}') if not ({found}) then \
                 return redis.error_reply('NOSCRIPT not the server that was examined') end end\n"
            ));
        };
        if doubts.restart {
            compare("server", &[&format!("run_id:{}", server.run_id)]);
        }
        if doubts.copy {
            let history = format!("master_replid:{}", server.replication_id);
            compare("replication", &["role:master", &history]);
        }
        let script = |text: &str| Script::new(format!("{first}{text}"));
        Self {
            run_id: server.run_id.clone(),
            replication_id: server.replication_id.clone(),
            doubts,
            acquire: script(include_str!("acquire.lua")),
            extend: script(include_str!("extend.lua")),
            keep: script(include_str!("keep.lua")),
            force_release: script(include_str!("force_release.lua")),
            replace_record: script(include_str!("replace_record.lua")),
            forget: script(include_str!("forget.lua")),
        }
    }

    /// Whether they are bound to this server, and compare what they must.
    pub(super) fn is_to(&self, server: &ServerFacts, doubts: Doubts) -> bool {
        let is_same_history = || self.replication_id == server.replication_id;
        self.run_id == server.run_id && self.doubts == doubts && (!doubts.copy || is_same_history())
    }

    /// All of them, and those that are not bound but called often.
    pub(super) fn to_load(&self) -> [&Script; 8] {
        let Self { acquire, extend, keep, force_release, replace_record, forget, .. } = self;
        [acquire, extend, keep, force_release, replace_record, forget, &RELEASE, &INSPECT]
    }
}

/// What a script does and what it asks the server for, by its text, for a simulated server.
#[cfg(test)]
pub(crate) fn name_of(text: &str) -> Option<(&'static str, Vec<String>)> {
    let (mut body, mut asks) = (text, Vec::new());
    while let Some((first, rest)) = body.split_once('\n') {
        match first.strip_prefix("do local info = ") {
            Some(compares) => {
                let lines = compares.split("string.find(info, '").skip(1);
                asks.extend(lines.filter_map(|line| Some(line.split_once("\\r'")?.0.to_owned())));
            }
            None if first.starts_with("-- run ") => {}
            None => break,
        }
        body = rest;
    }
    [
        ("examine", include_str!("examine.lua")),
        ("release", include_str!("release.lua")),
        ("inspect", include_str!("inspect.lua")),
        ("acquire", include_str!("acquire.lua")),
        ("extend", include_str!("extend.lua")),
        ("keep", include_str!("keep.lua")),
        ("force_release", include_str!("force_release.lua")),
        ("replace_record", include_str!("replace_record.lua")),
        ("forget", include_str!("forget.lua")),
    ]
    .into_iter()
    .find_map(|(name, known)| (known == body).then(|| (name, asks.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_and_the_core_agree_on_which_fences_are_spent() {
        let most = leasehold_core::Fence::SPENT_ABOVE.to_string();
        assert!(EXAMINE.text.contains(&format!("highest('{most}')")), "{most}");
    }
}

/// As a server computes it, in 40 hexadecimal digits.
pub(crate) fn sha1(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

/// How a script is named in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallBy {
    /// By its name: 40 bytes instead of a kilobyte.
    Sha,
    /// By its text, after the server said that it does not know the name.
    Text,
}
