//! The scripts. Each is known to a server by the SHA-1 of its text.
//!
//! Those that vote or write the record are *bound* to the server that was examined: its run id stands
//! in their text, so that a server that restarted, or is another, does not know them. It answers
//! NOSCRIPT, which means "examine again" and never "send it whole": behind a proxy that keeps our
//! connection nothing else would tell. The others may be carried out by any server, and are sent whole
//! to one that does not know them.

use std::sync::LazyLock;

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
    pub(super) run_id: String,
    pub(super) acquire: Script,
    pub(super) extend: Script,
    pub(super) force_release: Script,
    pub(super) replace_record: Script,
    pub(super) forget: Script,
}

impl Bound {
    /// For the server with this run id. Before Redis 7 a server finds its scripts again when it
    /// starts; there they ask for the run id themselves, which costs it some 10 µs a call.
    pub(super) fn to(run_id: &str, keeps_scripts: bool) -> Self {
        let first = match keeps_scripts {
            false => format!("-- run {run_id}\n"),
            true => format!(
                "if not string.find(redis.call('INFO', 'server'), 'run_id:{run_id}', 1, true) then \
                 return redis.error_reply('NOSCRIPT this server restarted') end\n"
            ),
        };
        let script = |text: &str| Script::new(format!("{first}{text}"));
        Self {
            run_id: run_id.to_owned(),
            acquire: script(include_str!("acquire.lua")),
            extend: script(include_str!("extend.lua")),
            force_release: script(include_str!("force_release.lua")),
            replace_record: script(include_str!("replace_record.lua")),
            forget: script(include_str!("forget.lua")),
        }
    }

    /// All of them, and those that are not bound but called often.
    pub(super) fn to_load(&self) -> [&Script; 7] {
        let Self { acquire, extend, force_release, replace_record, forget, .. } = self;
        [acquire, extend, force_release, replace_record, forget, &RELEASE, &INSPECT]
    }
}

/// What a script does and to which server it is bound, by its text, for a simulated server.
#[cfg(test)]
pub(crate) fn name_of(text: &str) -> Option<(&'static str, Option<&str>)> {
    let (run_id, body) = match text.split_once('\n') {
        Some((first, body)) if first.starts_with("-- run ") => (first.rsplit(' ').next(), body),
        Some((first, body)) if first.starts_with("if not string.find") => {
            let (_, rest) = first.split_once("'run_id:")?;
            (rest.split('\'').next(), body)
        }
        _ => (None, text),
    };
    [
        ("examine", include_str!("examine.lua")),
        ("release", include_str!("release.lua")),
        ("inspect", include_str!("inspect.lua")),
        ("acquire", include_str!("acquire.lua")),
        ("extend", include_str!("extend.lua")),
        ("force_release", include_str!("force_release.lua")),
        ("replace_record", include_str!("replace_record.lua")),
        ("forget", include_str!("forget.lua")),
    ]
    .into_iter()
    .find_map(|(name, known)| (known == body).then_some((name, run_id)))
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
