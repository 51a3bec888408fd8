//! One request as Redis commands. Most need one step; what needs more (list, forget, a release
//! that finds nothing) goes through the stages of an [`Exchange`], each sent behind whatever was
//! asked meanwhile. How replies are read is in `answer`.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::{Fence, Holder, LockName, Pass, Request, ServerFacts, Sighting, Ttl};

use super::beside::Beside;
use super::info::CompareAndDelete;
use super::resp::{count, digits, encode, word};
use super::script::{self, Bound, CallBy, Script};

/// Before the SHA-1 of the identity record: the sorted set of all fences that were given under it.
/// Member = the lock's key, score = the fence.
pub(super) const FENCES: &str = "leasehold:fences:";
/// The identity record.
pub(super) const IDENTITY: &str = "leasehold:node";

/// How many fences one step of forgetting looks at: a script keeps the server from everybody else,
/// and this many take it well under a millisecond.
pub(super) const FORGET_PAGE: usize = 200;
/// How many locks one step of listing looks at.
pub(super) const LIST_PAGE: usize = 500;
/// So often in one examination another server may answer than the one before.
pub(super) const LOADS_MAX: usize = 3;

/// What is known of the server behind one connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Counts connections and the servers that were met on them: what was sent with the pass of an
    /// earlier one is not counted, however it is answered.
    pub(super) generation: u64,
    /// What stands before each lock's name.
    pub(super) prefix: Arc<str>,
    /// How many addresses the server's name has.
    pub(super) addresses: usize,
    /// Whether the server says on this connection that it dropped all its data.
    pub(super) is_told_of_flushes: bool,
    /// As of the last examination.
    pub(super) facts: Option<ServerFacts>,
    pub(super) compare_and_delete: Option<CompareAndDelete>,
    /// What the server that was examined knows by name.
    pub(super) scripts: Option<Arc<Bound>>,
    /// Whom our other connection met.
    pub(super) beside: Arc<Beside>,
    /// The record of the last pass, and the key of its fences.
    pub(super) fences: (Arc<str>, String),
}

impl Session {
    /// A connection on which nobody was examined yet.
    pub(super) fn new(
        generation: u64,
        prefix: Arc<str>,
        addresses: usize,
        is_told_of_flushes: bool,
        beside: Arc<Beside>,
    ) -> Self {
        Self {
            generation,
            prefix,
            addresses,
            is_told_of_flushes,
            facts: None,
            compare_and_delete: None,
            scripts: None,
            beside,
            fences: ("".into(), String::new()),
        }
    }

    /// The server may not be the one that was examined, or may have lost its memory: no pass
    /// counts until it is examined again.
    pub(super) fn void_passes(&mut self) {
        self.generation += 1;
    }

    /// The same, because it does not know our scripts.
    pub(super) fn lose_scripts(&mut self) {
        self.scripts = None;
        self.void_passes();
    }

    /// The key of a lock, in two parts.
    fn key<'a>(&'a self, lock: &'a LockName) -> [&'a str; 2] {
        [&self.prefix, lock.as_str()]
    }

    /// The digest is worked out once for each record, not once for each request.
    fn note_record(&mut self, record: &Arc<str>) {
        if !Arc::ptr_eq(&self.fences.0, record) {
            self.fences = (Arc::clone(record), fences_of(record));
        }
    }
}

/// The key of the fences that were given under `record`.
pub(crate) fn fences_of(record: &str) -> String {
    format!("{FENCES}{}", script::sha1(record))
}

/// A request, and how far it is.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) request: Arc<Request>,
    pub(super) pass: Option<Arc<Pass>>,
    pub(super) stage: Stage,
    pub(super) by: CallBy,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The request's only step.
    Only,
    /// Examine a member of a cluster, which may not have the identity's slot.
    Keyless,
    /// Examine: leave the scripts of this server there, and look whether it is still the same.
    Load { scripts: Arc<Bound>, tries: usize },
    /// A request that needs a bound script came while there is none.
    Unexamined,
    /// A request that needs an identity came without one: only a stranger can be meant.
    Identify,
    /// Release by the server's own command.
    CompareAndDelete(CompareAndDelete),
    /// Release, after that command found nothing to release.
    WhoHolds,
    /// List: whose node is this?
    Whose,
    /// List: which locks have a fence?
    Scan(Box<Scan>),
    /// List: who owns these?
    Look(Box<Look>),
    /// Forget: which fences are low?
    Page { skipped: usize, gone: u64 },
    /// Forget: drop those that nobody owns.
    Drop(Box<Drop>),
}

/// How far a list is with the names.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) fences: String,
    pub(super) cursor: Vec<u8>,
    pub(super) found: BTreeMap<LockName, Fence>,
}

/// How far a list is with the owners: the last `batch` of `todo` is asked for.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) todo: Vec<(LockName, Fence)>,
    pub(super) batch: usize,
    pub(super) seen: Vec<Sighting>,
}

/// A page of fences that may go.
#[derive(Debug)]
pub(super) struct Drop {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) is_last: bool,
    pub(super) others: usize,
    pub(super) skipped: usize,
    pub(super) gone: u64,
}

impl Exchange {
    pub(super) fn new(request: Arc<Request>, pass: Option<Arc<Pass>>, session: &Session) -> Self {
        let stage = match &*request {
            request if request.needs_identity() && pass.is_none() => Stage::Identify,
            request if is_bound(request) && session.scripts.is_none() => Stage::Unexamined,
            Request::Release { .. } => {
                session.compare_and_delete.map_or(Stage::Only, Stage::CompareAndDelete)
            }
            Request::List { .. } => Stage::Whose,
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
    pub(super) fn send(&self, session: &mut Session, out: &mut Vec<u8>) -> usize {
        if let Some(pass) = &self.pass {
            session.note_record(&pass.record);
        }
        let mut writer = Writer { out, replies: 0, by: self.by };
        let scripts = session.scripts.as_deref();
        // Most requests by far are one of these.
        match (&self.stage, &*self.request, &self.pass.as_ref().zip(scripts)) {
            (
                Stage::Only,
                Request::Acquire { lock, holder, proposal, ttl },
                Some((pass, scripts)),
            ) => {
                let floor = (*proposal <= pass.floor).then_some(pass.floor);
                writer.call(&scripts.acquire, 2, 3 + usize::from(floor.is_some()));
                writer.own(session, lock, holder, *ttl);
                writer.number(proposal.get());
                floor.into_iter().for_each(|floor| writer.number(floor.get()));
                return writer.replies;
            }
            (
                Stage::Only,
                Request::Extend { lock, holder, token, next, unbroken: true, ttl },
                Some((_, scripts)),
            ) => {
                writer.call(&scripts.keep, 2, 4);
                writer.own(session, lock, holder, *ttl);
                writer.number(token.get());
                writer.number(next.get());
                return writer.replies;
            }
            (
                Stage::Only,
                Request::Extend { lock, holder, token, next, ttl, .. },
                Some((pass, scripts)),
            ) => {
                let next = (next != token).then_some(*next);
                writer.call(&scripts.extend, 2, 4 + usize::from(next.is_some()));
                writer.own(session, lock, holder, *ttl);
                writer.number(pass.floor.get());
                writer.number(token.get());
                next.into_iter().for_each(|next| writer.number(next.get()));
                return writer.replies;
            }
            (Stage::Only, Request::Release { lock, holder }, _) => {
                writer.call(&script::RELEASE, 1, 1);
                writer.key(session.key(lock));
                writer.word(holder.as_str().as_bytes());
                return writer.replies;
            }
            (Stage::CompareAndDelete(native), Request::Release { lock, holder }, _) => {
                match native {
                    CompareAndDelete::DelIfEq => writer.begin(3, b"DELIFEQ"),
                    CompareAndDelete::DelEx => writer.begin(4, b"DELEX"),
                }
                writer.key(session.key(lock));
                if *native == CompareAndDelete::DelEx {
                    writer.word(b"IFEQ");
                }
                writer.word(holder.as_str().as_bytes());
                return writer.replies;
            }
            _ => self.send_rarely(session, &mut writer),
        }
        writer.replies
    }

    fn send_rarely(&self, session: &Session, writer: &mut Writer<'_>) {
        let key = |lock: &LockName| session.key(lock).concat().into_bytes();
        let floor = self.pass.as_ref().map_or(Fence::ZERO, |pass| pass.floor);
        let fences = session.fences.1.as_bytes();
        let Some(scripts) = session.scripts.as_deref().filter(|_| self.is_bound()) else {
            return self.send_unbound(session, writer);
        };
        match (&self.stage, &*self.request) {
            (Stage::Drop(page), Request::ForgetIdle { below }) => {
                let bound = forgettable(*below, floor).to_string();
                let mut all = vec![fences];
                all.extend(page.keys.iter().map(Vec::as_slice));
                writer.script(&scripts.forget, &all, &[&bound]);
            }
            (_, Request::ForceRelease { lock, holder, fence, .. }) => {
                let (seen, next) = (fence.to_string(), fence.next().to_string());
                let args = [holder.as_str(), &seen, &next, &floor.to_string()];
                writer.script(&scripts.force_release, &[&key(lock), fences], &args);
            }
            (_, Request::ReplaceRecord { expected, record }) => {
                let (new, old) = (fences_of(record), expected.as_deref().map(fences_of));
                let mut keys = vec![IDENTITY.as_bytes(), new.as_bytes()];
                keys.extend(old.as_deref().map(str::as_bytes));
                let mut args = vec![&**record];
                args.extend(expected.as_deref());
                writer.script(&scripts.replace_record, &keys, &args);
            }
            _ => unreachable!("{:?} is sent by `send`", self.stage),
        }
    }

    /// Whether this stage is a bound script.
    pub(super) fn is_bound(&self) -> bool {
        match self.stage {
            Stage::Only => is_bound(&self.request),
            Stage::Drop(_) => true,
            _ => false,
        }
    }

    fn send_unbound(&self, session: &Session, writer: &mut Writer<'_>) {
        let key = |lock: &LockName| session.key(lock).concat().into_bytes();
        let floor = self.pass.as_ref().map_or(Fence::ZERO, |pass| pass.floor);
        let fences = session.fences.1.as_bytes();
        match (&self.stage, &*self.request) {
            // What is found there does not matter: it has to be examined first.
            (Stage::Identify | Stage::Whose | Stage::Unexamined, _) => {
                writer.command(&[b"GET", IDENTITY.as_bytes()])
            }
            (Stage::WhoHolds, Request::Release { lock, .. }) => writer.look(&key(lock)),
            (Stage::Scan(scan), Request::List { prefix }) => {
                let pattern = glob(&format!("{}{prefix}", session.prefix));
                let count = LIST_PAGE.to_string();
                writer.command(&[
                    b"ZSCAN",
                    scan.fences.as_bytes(),
                    &scan.cursor,
                    b"MATCH",
                    pattern.as_bytes(),
                    b"COUNT",
                    count.as_bytes(),
                ]);
            }
            (Stage::Look(look), _) => {
                for (lock, _) in &look.todo[look.todo.len().saturating_sub(look.batch)..] {
                    writer.look(&key(lock));
                }
            }
            (Stage::Page { skipped, .. }, Request::ForgetIdle { below }) => {
                let bound = format!("({}", forgettable(*below, floor));
                let (skipped, count) = (skipped.to_string(), FORGET_PAGE.to_string());
                writer.command(&[
                    b"ZRANGEBYSCORE",
                    fences,
                    b"-inf",
                    bound.as_bytes(),
                    b"LIMIT",
                    skipped.as_bytes(),
                    count.as_bytes(),
                ]);
            }
            (_, Request::Inspect { lock }) => {
                writer.script(&script::INSPECT, &[&key(lock)], &[]);
            }
            (Stage::Load { scripts, .. }, _) => {
                for script in scripts.to_load() {
                    writer.load(script);
                }
                writer.examine();
            }
            (Stage::Keyless, _) => {
                writer.command(&[b"EVAL", script::EXAMINE.text.as_bytes(), b"0"]);
            }
            (_, Request::Probe) => writer.examine(),
            _ => unreachable!("{:?} of {:?}", self.stage, self.request),
        }
    }
}

/// Whether it is carried out by a script that only the server knows that was examined.
fn is_bound(request: &Request) -> bool {
    matches!(
        request,
        Request::Acquire { .. }
            | Request::Extend { .. }
            | Request::ForceRelease { .. }
            | Request::ReplaceRecord { .. }
    )
}

/// Fences below this may go: the floor stands in for each of them, and for none above it.
fn forgettable(below: Fence, floor: Fence) -> Fence {
    below.min(floor)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    replies: usize,
    by: CallBy,
}

impl Writer<'_> {
    /// Begins a command of so many words; its first one is written.
    fn begin(&mut self, words: usize, verb: &[u8]) {
        count(self.out, b'*', words);
        self.word(verb);
        self.replies += 1;
    }

    fn word(&mut self, bytes: &[u8]) {
        word(self.out, bytes);
    }

    fn number(&mut self, number: u64) {
        word(self.out, digits(number, &mut [0; 20]));
    }

    fn key(&mut self, [prefix, name]: [&str; 2]) {
        count(self.out, b'$', prefix.len() + name.len());
        self.out.extend_from_slice(prefix.as_bytes());
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

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

    /// What acquire and extend have in common.
    fn own(&mut self, session: &Session, lock: &LockName, holder: &Holder, ttl: Ttl) {
        self.key(session.key(lock));
        self.word(session.fences.1.as_bytes());
        self.word(holder.as_str().as_bytes());
        self.number(ttl.as_millis());
    }

    /// Begins a call of `script`; its keys and arguments are to follow.
    fn call(&mut self, script: &Script, keys: usize, args: usize) {
        count(self.out, b'*', 3 + keys + args);
        match self.by {
            CallBy::Sha => self.out.extend_from_slice(&script.call),
            CallBy::Text => {
                self.word(b"EVAL");
                self.word(script.text.as_bytes());
            }
        }
        self.number(keys as u64);
        self.replies += 1;
    }

    /// Leaves a script at the server. It does nothing without arguments, and unlike `SCRIPT LOAD` this
    /// needs no further right and passes proxies.
    fn load(&mut self, script: &Script) {
        self.command(&[b"EVAL", script.text.as_bytes(), b"1", IDENTITY.as_bytes()]);
    }

    /// Asks who the server is. By its text: once a second it does not matter.
    fn examine(&mut self) {
        self.load(&script::EXAMINE);
    }

    fn script(&mut self, script: &Script, keys: &[&[u8]], args: &[&str]) {
        self.call(script, keys.len(), args.len());
        keys.iter().for_each(|key| word(self.out, key));
        args.iter().for_each(|arg| word(self.out, arg.as_bytes()));
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
    /// A server that was examined and can do nothing special.
    pub(super) fn of_connection(generation: u64) -> Self {
        let facts = ServerFacts {
            version: "redis 7.0.15".into(),
            run_id: "f00".into(),
            replication_id: "ba5".into(),
            role: leasehold_core::Role::Primary,
            evicts: None,
            persists: false,
            expires_by_wall: true,
        };
        let doubts = script::Doubts { restart: false, copy: false };
        Self {
            scripts: Some(Arc::new(Bound::to(&facts, doubts))),
            facts: Some(facts),
            ..Self::new(generation, "p:".into(), 1, true, Arc::default())
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
            let mut session =
                Session { compare_and_delete: Some(native), ..Session::of_connection(1) };
            let mut out = Vec::new();
            let exchange = Exchange::new(Arc::new(request.clone()), None, &session);
            assert_eq!(exchange.send(&mut session, &mut out), 1);
            assert_eq!(out, format!("{verb}{}\r\n", holder.as_str()).into_bytes());
        }
    }

    #[test]
    fn a_prefix_matches_nothing_but_itself() {
        assert_eq!(glob("a*b?[c]-\\d"), "a\\*b\\?\\[c\\]\\-\\\\d*");
        assert_eq!(glob(""), "*");
    }
}
