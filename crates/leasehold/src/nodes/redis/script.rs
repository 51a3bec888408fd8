//! The seven scripts. Each is known to a server by the SHA-1 of its text, loaded when connecting, and
//! sent whole once a server has forgotten it.

use std::sync::LazyLock;

use super::resp::word;

/// A script and the name that a server gives it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: &'static str,
    pub(super) sha: String,
    /// The first two words of a call by name, as they go over the wire.
    pub(super) call: Vec<u8>,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        let (sha, mut call) = (sha1(text), Vec::new());
        word(&mut call, b"EVALSHA");
        word(&mut call, sha.as_bytes());
        Self { text, sha, call }
    }
}

pub(super) static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("acquire.lua")));
pub(super) static EXTEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("extend.lua")));
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("release.lua")));
pub(super) static FORCE_RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("force_release.lua")));
pub(super) static REPLACE_RECORD: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("replace_record.lua")));
pub(super) static FORGET: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("forget.lua")));
pub(super) static INSPECT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("inspect.lua")));

/// All of them.
pub(super) fn all() -> [&'static Script; 7] {
    [&ACQUIRE, &EXTEND, &RELEASE, &FORCE_RELEASE, &REPLACE_RECORD, &FORGET, &INSPECT]
}

/// What each script does, its SHA-1 and its text, for a simulated server.
#[cfg(test)]
pub(crate) fn names() -> Vec<(&'static str, &'static str, &'static str)> {
    let words =
        ["acquire", "extend", "release", "force_release", "replace_record", "forget", "inspect"];
    let scripts = all();
    assert_eq!(words.len(), scripts.len(), "a word for each script");
    words.into_iter().zip(scripts).map(|(word, s)| (word, s.sha.as_str(), s.text)).collect()
}

/// As a server computes it, in 40 hexadecimal digits.
pub(super) fn sha1(text: &str) -> String {
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
