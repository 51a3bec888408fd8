//! What the bare client asks, by mode, as the bytes that go over the wire.

use std::time::{SystemTime, UNIX_EPOCH};

use super::reply::Yes;

/// Long against a cycle; nothing is ever extended.
const TTL_MS: &str = "10000";
const FENCES: &str = "bench:fences";
const IDENTITY_KEY: &str = "bench:node";
/// As long as one of Leasehold's own.
const IDENTITY: &str = "leasehold1 cluster=0123456789abcdef nodes=5 max_ttl=30000 \
     life=0123456789abcdef0123456789abcdef run=0123456789abcdef0123456789abcdef01234567 \
     state=admitted floor=1700000000000000 born=1700000000000000";

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// P2's release: an owner is `value:a` after an acquire and `value:b` once a script wrote it.
const DELETE_EITHER: &str = "local owner = redis.call('GET', KEYS[1]) \
     if owner == ARGV[1] or owner == ARGV[2] then return redis.call('DEL', KEYS[1]) end return 0";
const ACQUIRE: &str = include_str!("../../../crates/leasehold/src/nodes/redis/acquire.lua");
const RELEASE: &str = include_str!("../../../crates/leasehold/src/nodes/redis/release.lua");

/// Which questions the bare client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `SET NX PX`, and a script that compares and deletes.
    Plain,
    /// `SET NX PX`, and `DELIFEQ`.
    Native,
    /// Leasehold's own scripts; `DELIFEQ` instead of the second where there is one, as Leasehold
    /// does.
    Script {
        /// Whether there is.
        native_release: bool,
    },
    /// Fenced and identified without a script: a transaction of plain commands. Deletes by
    /// `DELIFEQ` where there is one.
    Transaction {
        /// Whether there is.
        native_release: bool,
    },
}

/// A question to all nodes.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) bytes: Vec<u8>,
    /// Replies that come before the one that counts.
    pub(super) skip: u8,
    pub(super) yes: Yes,
}

#[derive(Debug)]
pub(super) struct Commands {
    mode: Mode,
    /// The scripts of this mode, and how a server calls them.
    texts: [String; 2],
    acquire: String,
    release: String,
    /// Leasehold's scripts want the fences under a key that ends in the digest of the identity.
    fences: String,
}

impl Commands {
    pub(super) fn new(mode: Mode) -> Commands {
        let texts = scripts(mode);
        let [acquire, release] = texts.each_ref().map(|text| sha1(text));
        Commands { mode, texts, acquire, release, fences: format!("{FENCES}:{}", sha1(IDENTITY)) }
    }

    /// What a node is told once, and how many replies it gives: its identity, and the scripts.
    pub(super) fn preparations(&self) -> (Vec<u8>, usize) {
        let [acquire, release] = &self.texts;
        let mut out = Vec::new();
        encode(&mut out, &["SET", IDENTITY_KEY, IDENTITY]);
        encode(&mut out, &["SCRIPT", "LOAD", acquire]);
        encode(&mut out, &["SCRIPT", "LOAD", release]);
        (out, 3)
    }

    pub(super) fn acquire(&self, key: &str, value: &str) -> Question {
        let mut bytes = Vec::with_capacity(512);
        match self.mode {
            Mode::Plain | Mode::Native => {
                encode(&mut bytes, &["SET", key, value, "NX", "PX", TTL_MS]);
                Question { bytes, skip: 0, yes: Yes::Ok }
            }
            Mode::Script { .. } => {
                let proposal = now_micros().to_string();
                encode(
                    &mut bytes,
                    &["EVALSHA", &self.acquire, "2", key, &self.fences, value, TTL_MS, &proposal],
                );
                Question { bytes, skip: 0, yes: Yes::One }
            }
            Mode::Transaction { .. } => {
                let proposal = now_micros().to_string();
                encode(&mut bytes, &["MULTI"]);
                let owner = first_owner(value);
                encode(&mut bytes, &["SET", key, &owner, "NX", "PX", TTL_MS]);
                encode(&mut bytes, &["ZADD", FENCES, "GT", "CH", &proposal, key]);
                encode(&mut bytes, &["ZSCORE", FENCES, key]);
                encode(&mut bytes, &["GET", IDENTITY_KEY]);
                encode(&mut bytes, &["EXEC"]);
                Question { bytes, skip: 5, yes: Yes::Transaction }
            }
        }
    }

    pub(super) fn release(&self, key: &str, value: &str) -> Question {
        let mut bytes = Vec::with_capacity(160);
        match self.mode {
            Mode::Native | Mode::Script { native_release: true } => {
                encode(&mut bytes, &["DELIFEQ", key, value]);
            }
            Mode::Transaction { native_release: true } => {
                encode(&mut bytes, &["DELIFEQ", key, &first_owner(value)]);
            }
            Mode::Plain | Mode::Script { native_release: false } => {
                encode(&mut bytes, &["EVALSHA", &self.release, "1", key, value]);
            }
            Mode::Transaction { native_release: false } => {
                let (first, second) = (first_owner(value), format!("{value}:b"));
                encode(&mut bytes, &["EVALSHA", &self.release, "1", key, &first, &second]);
            }
        }
        Question { bytes, skip: 0, yes: Yes::One }
    }

    pub(super) fn identity() -> &'static [u8] {
        IDENTITY.as_bytes()
    }
}

/// The texts for acquire and release. A mode that uses no script for one of them loads it all the
/// same: once, and unmeasured.
fn scripts(mode: Mode) -> [String; 2] {
    // With an identity of its own, beside that of Leasehold on the same servers.
    let acquire = ACQUIRE.replace("leasehold:node", IDENTITY_KEY);
    let release = match mode {
        Mode::Plain | Mode::Native => COMPARE_AND_DELETE,
        Mode::Script { .. } => RELEASE,
        Mode::Transaction { .. } => DELETE_EITHER,
    };
    [acquire, release.to_owned()]
}

fn sha1(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

fn first_owner(value: &str) -> String {
    format!("{value}:a")
}

fn now_micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros())
}

fn encode(out: &mut Vec<u8>, words: &[&str]) {
    head(out, b'*', words.len());
    for word in words {
        head(out, b'$', word.len());
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn head(out: &mut Vec<u8>, kind: u8, mut number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_words() {
        let mut out = Vec::new();
        encode(&mut out, &["SET", "0123456789", ""]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$10\r\n0123456789\r\n$0\r\n\r\n");
    }

    #[test]
    fn a_transaction_writes_the_first_of_two_owners() {
        let commands = Commands::new(Mode::Transaction { native_release: false });
        let acquire = commands.acquire("k", "v");
        let text = String::from_utf8(acquire.bytes).unwrap();
        assert_eq!(text.matches("\r\n*").count(), usize::from(acquire.skip));
        assert!(text.contains("$3\r\nv:a\r\n"));
        let release = String::from_utf8(commands.release("k", "v").bytes).unwrap();
        assert!(release.ends_with("$3\r\nv:a\r\n$3\r\nv:b\r\n"), "{release}");
    }
}
