//! One request as Redis commands. Most need one step; what needs more (list, forget, a release
//! that finds nothing) goes through the stages of an [`Exchange`], each sent behind whatever was
//! asked meanwhile. How replies are read is in `answer`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use leasehold_core::{Fence, Holder, LockName, Pass, Request, ServerFacts, Sighting, Ttl};
use tokio::time::Instant;

use super::info::CompareAndDelete;
use super::resp::encode;
use super::script::{self, CallBy, Script};

/// The sorted set of all fences: member = the lock's key, score = the fence.
pub(super) const FENCES: &str = "leasehold:fences";
/// The identity record.
pub(super) const IDENTITY: &str = "leasehold:node";

/// How many fences one step of forgetting looks at: a script keeps the server from everybody else,
/// and this many take it well under a millisecond.
pub(super) const FORGET_PAGE: usize = 200;
/// How many locks one step of listing looks at.
pub(super) const LIST_PAGE: usize = 500;
/// Facts older than this are read again with the next probe.
const FACTS_AGE_MAX: Duration = Duration::from_secs(5);

/// What is known of the server behind one connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Which connection this is.
    pub(super) generation: u64,
    /// What stands before each lock's name.
    pub(super) prefix: Arc<str>,
    pub(super) facts: ServerFacts,
    pub(super) facts_read: Instant,
    pub(super) compare_and_delete: Option<CompareAndDelete>,
    /// Whether `CONFIG GET` is allowed.
    pub(super) reads_config: bool,
}

/// A request, and how far it is.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) request: Arc<Request>,
    pub(super) pass: Option<Pass>,
    pub(super) stage: Stage,
    pub(super) by: CallBy,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The request's only step.
    Only,
    /// A request that needs an identity came without one: only a stranger can be meant.
    Identify,
    /// Release by the server's own command.
    CompareAndDelete(CompareAndDelete),
    /// Release, after that command found nothing to release.
    WhoHolds,
    /// List: which locks have a fence?
    Scan { cursor: Vec<u8>, found: BTreeMap<LockName, Fence> },
    /// List: who owns the last `batch` of `todo`?
    Look { todo: Vec<(LockName, Fence)>, batch: usize, seen: Vec<Sighting> },
    /// Forget: which fences are low?
    Page { skipped: usize, gone: u64 },
    /// Forget: drop those that nobody owns.
    Drop { keys: Vec<Vec<u8>>, is_last: bool, others: usize, skipped: usize, gone: u64 },
}

impl Exchange {
    pub(super) fn new(request: Arc<Request>, pass: Option<Pass>, session: &Session) -> Self {
        let stage = match &*request {
            request if request.needs_identity() && pass.is_none() => Stage::Identify,
            Request::Release { .. } => {
                session.compare_and_delete.map_or(Stage::Only, Stage::CompareAndDelete)
            }
            Request::List { .. } => Stage::Scan { cursor: b"0".into(), found: BTreeMap::new() },
            Request::ForgetIdle { .. } => Stage::Page { skipped: 0, gone: 0 },
            _ => Stage::Only,
        };
        Self { request, pass, stage, by: CallBy::Sha }
    }

    /// Whether later steps are taken even if nobody waits any more: ownership is to end, and old
    /// fences are to go, for the sake of others.
    pub(super) fn is_duty(&self) -> bool {
        matches!(*self.request, Request::Release { .. } | Request::ForgetIdle { .. })
    }

    /// Writes the commands of this stage; returns how many replies they get.
    pub(super) fn send(&self, session: &Session, out: &mut BytesMut) -> usize {
        let mut writer = Writer { out, replies: 0, by: self.by };
        let key = |lock: &LockName| [session.prefix.as_bytes(), lock.as_str().as_bytes()].concat();
        let pass = self.pass.as_ref().map_or(("", Fence::ZERO), |pass| (&*pass.record, pass.floor));
        match (&self.stage, &*self.request) {
            (Stage::Identify, _) => writer.command(&[b"GET", IDENTITY.as_bytes()]),
            (Stage::CompareAndDelete(native), Request::Release { lock, holder }) => {
                let (key, holder) = (key(lock), holder.as_str().as_bytes());
                match native {
                    CompareAndDelete::DelIfEq => writer.command(&[b"DELIFEQ", &key, holder]),
                    CompareAndDelete::DelEx => writer.command(&[b"DELEX", &key, b"IFEQ", holder]),
                }
            }
            (Stage::WhoHolds, Request::Release { lock, .. }) => writer.look(&key(lock)),
            (Stage::Scan { cursor, .. }, Request::List { prefix }) => {
                let pattern = glob(&format!("{}{prefix}", session.prefix));
                let count = LIST_PAGE.to_string();
                writer.command(&[
                    b"ZSCAN",
                    FENCES.as_bytes(),
                    cursor,
                    b"MATCH",
                    pattern.as_bytes(),
                    b"COUNT",
                    count.as_bytes(),
                ]);
            }
            (Stage::Look { todo, batch, .. }, _) => {
                for (lock, _) in &todo[todo.len().saturating_sub(*batch)..] {
                    writer.look(&key(lock));
                }
            }
            (Stage::Page { skipped, .. }, Request::ForgetIdle { below }) => {
                let bound = format!("({}", forgettable(*below, pass.1));
                let (skipped, count) = (skipped.to_string(), FORGET_PAGE.to_string());
                writer.command(&[
                    b"ZRANGEBYSCORE",
                    FENCES.as_bytes(),
                    b"-inf",
                    bound.as_bytes(),
                    b"LIMIT",
                    skipped.as_bytes(),
                    count.as_bytes(),
                ]);
            }
            (Stage::Drop { keys, .. }, Request::ForgetIdle { below }) => {
                let bound = forgettable(*below, pass.1).to_string();
                let mut all = vec![FENCES.as_bytes(), IDENTITY.as_bytes()];
                all.extend(keys.iter().map(Vec::as_slice));
                writer.script(&script::FORGET, &all, &[pass.0, &bound]);
            }
            (_, Request::Acquire { lock, holder, proposal, ttl }) => {
                writer.own(&script::ACQUIRE, &key(lock), pass, holder, &[*proposal], *ttl);
            }
            (_, Request::Extend { lock, holder, token, next, ttl }) => {
                let fences = [*token, *next];
                let fences = if token == next { &fences[..1] } else { &fences };
                writer.own(&script::EXTEND, &key(lock), pass, holder, fences, *ttl);
            }
            (_, Request::Release { lock, holder }) => {
                writer.script(&script::RELEASE, &[&key(lock)], &[holder.as_str()]);
            }
            (_, Request::ForceRelease { lock, holder, fence }) => {
                let keys: [&[u8]; 3] = [&key(lock), IDENTITY.as_bytes(), FENCES.as_bytes()];
                let (seen, next) = (fence.to_string(), fence.next().to_string());
                let floor = pass.1.to_string();
                let args = [pass.0, holder.as_str(), &seen, &next, &floor];
                writer.script(&script::FORCE_RELEASE, &keys, &args);
            }
            (_, Request::Inspect { lock }) => {
                let key = key(lock);
                writer.look(&key);
                writer.command(&[b"ZSCORE", FENCES.as_bytes(), &key]);
            }
            (_, Request::ReplaceRecord { expected, record }) => {
                let mut args = vec![&**record];
                args.extend(expected.as_deref());
                writer.script(&script::REPLACE_RECORD, &[IDENTITY.as_bytes()], &args);
            }
            (_, Request::Probe | Request::List { .. } | Request::ForgetIdle { .. }) => {
                writer.command(&[b"TIME"]);
                writer.command(&[b"GET", IDENTITY.as_bytes()]);
                if session.facts_read.elapsed() > FACTS_AGE_MAX {
                    writer.command(&[b"INFO"]);
                    if session.reads_config {
                        writer.command(&[b"CONFIG", b"GET", b"appendfsync"]);
                    }
                }
            }
        }
        writer.replies
    }
}

/// Fences below this may go: the floor stands in for each of them, and for none above it.
fn forgettable(below: Fence, floor: Fence) -> Fence {
    below.min(floor)
}

struct Writer<'a> {
    out: &'a mut BytesMut,
    replies: usize,
    by: CallBy,
}

impl Writer<'_> {
    fn command(&mut self, words: &[&[u8]]) {
        encode(self.out, words);
        self.replies += 1;
    }

    /// What is at a lock's key?
    fn look(&mut self, key: &[u8]) {
        self.command(&[b"GET", key]);
        self.command(&[b"PTTL", key]);
        self.command(&[b"TYPE", key]);
    }

    fn own(
        &mut self,
        script: &Script,
        key: &[u8],
        (record, floor): (&str, Fence),
        holder: &Holder,
        fences: &[Fence],
        ttl: Ttl,
    ) {
        let keys = [key, IDENTITY.as_bytes(), FENCES.as_bytes()];
        let (ttl, floor) = (ttl.as_millis().to_string(), floor.to_string());
        let fences: Vec<_> = fences.iter().map(Fence::to_string).collect();
        let mut args = vec![record, holder.as_str(), &ttl, &floor];
        args.extend(fences.iter().map(String::as_str));
        self.script(script, &keys, &args);
    }

    fn script(&mut self, script: &Script, keys: &[&[u8]], args: &[&str]) {
        let count = keys.len().to_string();
        let (verb, body): (&[u8], _) = match self.by {
            CallBy::Sha => (b"EVALSHA", script.sha.as_bytes()),
            CallBy::Text => (b"EVAL", script.text.as_bytes()),
        };
        let mut words: Vec<&[u8]> = Vec::with_capacity(3 + keys.len() + args.len());
        words.extend([verb, body, count.as_bytes()]);
        words.extend(keys);
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        self.command(&words);
    }
}

/// A pattern for everything that begins with `text`.
fn glob(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('*');
    pattern
}

#[cfg(test)]
impl Session {
    /// A server that can do nothing special.
    pub(super) fn of_connection(generation: u64) -> Self {
        let facts = ServerFacts {
            version: "redis 7.0.15".into(),
            run_id: "f00".into(),
            role: leasehold_core::Role::Primary,
            evicts: None,
            durable: false,
            expires_by_wall: true,
        };
        Self {
            generation,
            prefix: "p:".into(),
            facts,
            facts_read: Instant::now(),
            compare_and_delete: None,
            reads_config: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_uses_the_servers_own_command() {
        let holder = Holder::new("me", 1).unwrap();
        let request =
            Request::Release { lock: LockName::new("a").unwrap(), holder: holder.clone() };
        for (native, verb) in [
            (CompareAndDelete::DelIfEq, "*3\r\n$7\r\nDELIFEQ\r\n$3\r\np:a\r\n$35\r\n"),
            (CompareAndDelete::DelEx, "*4\r\n$5\r\nDELEX\r\n$3\r\np:a\r\n$4\r\nIFEQ\r\n$35\r\n"),
        ] {
            let session = Session { compare_and_delete: Some(native), ..Session::of_connection(1) };
            let mut out = BytesMut::new();
            let exchange = Exchange::new(Arc::new(request.clone()), None, &session);
            assert_eq!(exchange.send(&session, &mut out), 1);
            assert_eq!(out, format!("{verb}{}\r\n", holder.as_str()));
        }
    }

    #[test]
    fn a_prefix_matches_nothing_but_itself() {
        assert_eq!(glob("a*b?[c]-\\d"), "a\\*b\\?\\[c\\]\\-\\\\d*");
        assert_eq!(glob(""), "*");
    }
}
