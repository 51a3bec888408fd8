//! Who waits and what was sent for them, behind one mutex. What is to be said is said when the mutex
//! is free.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::NodeError;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::resp::{Value, encode};
use super::super::script::Script;
use super::owners::Owners;
use super::{LEAVE, LINE, SEEN, STAND, TURN, Word, nudge, say};
use crate::node::{InLine, Ticket, Watched};

pub(super) type TellWatch = dyn Fn(Watched) + Send + Sync;
pub(super) type TellPlace = dyn Fn(InLine) + Send + Sync;

/// How long a waiter that is not heard of keeps its place. One whose connection is closed loses it
/// as soon as anybody looks; this is for those whose machine went away, or that were stopped.
const LIFE: Duration = Duration::from_secs(3);
/// A connection that nobody needs is kept so long.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer for so long is given up; it may be hung, and waiters have others.
const SILENCE_MAX: Duration = Duration::from_secs(1);

pub(super) struct State {
    /// The channel on which this process hears of its places.
    pub(super) channel: String,
    process: String,
    inner: Mutex<Inner>,
    /// Told when there is something to send.
    pub(super) wake: Notify,
}

#[derive(Default)]
struct Inner {
    phase: Phase,
    last: u64,
    outgoing: Vec<u8>,
    /// Sent, in the order of the wire.
    pending: VecDeque<(Pending, Instant)>,
    watches: BTreeMap<Arc<str>, BTreeMap<u64, Box<TellWatch>>>,
    places: BTreeMap<u64, Entry>,
    owners: Owners,
    /// Since when nobody waits.
    idle_since: Option<Instant>,
    /// The server does not keep scripts for us.
    by_text: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No connection, because nobody waits.
    #[default]
    Closed,
    Opening,
    Up,
    /// It failed; not before then is it tried again.
    Down(Instant),
}

enum Pending {
    /// A reply that tells nothing.
    Plain,
    Look(Arc<str>),
    Stand(u64),
    Leave(Arc<str>, u64),
}

struct Entry {
    key: Arc<str>,
    ticket: Option<Ticket>,
    told: Arc<TellPlace>,
    /// Whom to nudge at once there is a connection.
    nudge: Option<String>,
}

impl State {
    pub(super) fn new(process: u128) -> Self {
        let process = format!("{process:032x}");
        let channel = format!("{TURN}{process}");
        Self { channel, process, inner: Mutex::default(), wake: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller has to open the connection; `None` if it is no use.
    pub(super) fn is_to_be_opened(&self) -> Option<bool> {
        let mut inner = self.inner();
        match inner.phase {
            Phase::Opening | Phase::Up => Some(false),
            Phase::Down(until) if Instant::now() < until => None,
            Phase::Closed | Phase::Down(_) => {
                inner.phase = Phase::Opening;
                Some(true)
            }
        }
    }

    pub(super) fn watch(&self, key: &Arc<str>, told: Box<TellWatch>) -> u64 {
        let mut inner = self.inner();
        let number = inner.number();
        inner.watches.entry(key.clone()).or_default().insert(number, told);
        if inner.phase == Phase::Up {
            inner.look(key.clone());
            self.wake.notify_one();
        }
        number
    }

    pub(super) fn unwatch(&self, key: &Arc<str>, number: u64) {
        let mut inner = self.inner();
        if let Some(watches) = inner.watches.get_mut(key) {
            watches.remove(&number);
            if watches.is_empty() {
                inner.watches.remove(key);
            }
        }
    }

    pub(super) fn enter(
        &self,
        key: &Arc<str>,
        ticket: Option<Ticket>,
        told: Arc<TellPlace>,
    ) -> u64 {
        let mut inner = self.inner();
        let number = inner.number();
        inner.places.insert(number, Entry { key: key.clone(), ticket, told, nudge: None });
        if inner.phase == Phase::Up {
            inner.stand(&self.process, number);
            self.wake.notify_one();
        }
        number
    }

    pub(super) fn leave(&self, key: &Arc<str>, number: u64) {
        let mut inner = self.inner();
        let was_there = inner.places.remove(&number).is_some();
        if was_there && inner.phase == Phase::Up {
            inner.leave(&self.process, key, number);
            self.wake.notify_one();
        }
    }

    pub(super) fn nudge(&self, number: u64, label: &str) {
        let mut inner = self.inner();
        let is_up = inner.phase == Phase::Up;
        let Some(entry) = inner.places.get_mut(&number) else { return };
        if is_up {
            let key = entry.key.clone();
            inner.publish(label, &key);
            self.wake.notify_one();
        } else {
            entry.nudge = Some(label.to_owned());
        }
    }

    /// The connection is there: everybody who waited for it is served.
    pub(super) fn open(&self, keeps_scripts: bool) {
        let mut inner = self.inner();
        inner.phase = Phase::Up;
        inner.by_text = !keeps_scripts;
        let keys: Vec<_> = inner.watches.keys().cloned().collect();
        keys.into_iter().for_each(|key| inner.look(key));
        let numbers: Vec<_> = inner.places.keys().copied().collect();
        for number in numbers {
            inner.stand(&self.process, number);
            let nudge = inner
                .places
                .get_mut(&number)
                .and_then(|entry| entry.nudge.take().map(|label| (label, entry.key.clone())));
            if let Some((label, key)) = nudge {
                inner.publish(&label, &key);
            }
        }
        self.wake.notify_one();
    }

    /// There is no connection any more, and none is tried for before `pause` is over.
    pub(super) fn shut(&self, pause: Duration) {
        let words = {
            let mut inner = self.inner();
            inner.phase = Phase::Down(Instant::now() + pause);
            inner.outgoing.clear();
            inner.pending.clear();
            let watches = std::mem::take(&mut inner.watches).into_values().flatten();
            let watches = watches.map(|(_, told)| Word::Watch(told, Watched::Over));
            let places = std::mem::take(&mut inner.places).into_values();
            let places = places.map(|entry| Word::Place(entry.told, InLine::Over));
            watches.chain(places).collect()
        };
        say(words);
    }

    /// Closes it if nobody has waited for a while.
    pub(super) fn closes(&self) -> bool {
        let mut inner = self.inner();
        let is_needed = !(inner.watches.is_empty() && inner.places.is_empty());
        if is_needed {
            inner.idle_since = None;
            return false;
        }
        let closes = inner.idle_since.get_or_insert_with(Instant::now).elapsed() >= IDLE_MAX;
        if closes {
            inner.phase = Phase::Closed;
            inner.idle_since = None;
            inner.outgoing.clear();
            inner.pending.clear();
        }
        closes
    }

    /// Tells the server that everybody is still there, and asks whether it is.
    pub(super) fn beat(&self) -> Result<(), NodeError> {
        let mut inner = self.inner();
        if let Some((_, sent)) = inner.pending.front()
            && sent.elapsed() > SILENCE_MAX
        {
            let reason = format!("no answer for {:.1} s", sent.elapsed().as_secs_f64());
            return Err(NodeError::Unreachable { reason });
        }
        let numbers: Vec<_> = inner.places.keys().copied().collect();
        numbers.into_iter().for_each(|number| inner.stand(&self.process, number));
        if inner.pending.is_empty() && !inner.watches.is_empty() {
            inner.command(&[b"TIME"], Pending::Plain);
        }
        Ok(())
    }

    /// Takes everything that is to be sent; `out` is empty, and its room is used again.
    pub(super) fn take_outgoing(&self, out: &mut Vec<u8>) {
        std::mem::swap(out, &mut self.inner().outgoing);
    }

    /// A reply, in the order of the wire.
    pub(super) fn receive(&self, reply: &Value) -> Result<(), NodeError> {
        let words = {
            let mut inner = self.inner();
            let Some((pending, _)) = inner.pending.pop_front() else {
                let reason = "a reply that nobody asked for".to_owned();
                return Err(NodeError::Garbled { reason });
            };
            match (pending, reply) {
                (pending, Value::Error(words)) if words.starts_with("NOSCRIPT") => {
                    inner.by_text = true;
                    match pending {
                        Pending::Stand(number) => inner.stand(&self.process, number),
                        Pending::Leave(key, number) => inner.leave(&self.process, &key, number),
                        Pending::Plain | Pending::Look(_) => {}
                    }
                    self.wake.notify_one();
                    Vec::new()
                }
                (Pending::Look(key), Value::Nil) => inner.freed(&key),
                (Pending::Look(key), owner @ Value::Text(_)) => {
                    inner.owners.saw(&key, owner.str().unwrap_or_default());
                    Vec::new()
                }
                (Pending::Look(key), Value::Error(words)) if !words.starts_with("WRONGTYPE") => {
                    inner.told_off(&key)
                }
                (Pending::Stand(number), reply) => inner.stood(number, reply).into_iter().collect(),
                (Pending::Plain | Pending::Look(_) | Pending::Leave(..), _) => Vec::new(),
            }
        };
        say(words);
        Ok(())
    }

    /// A message that nobody asked for: a key changed, or somebody came to be first.
    pub(super) fn hear(&self, push: &Value) {
        let Value::Array(items) = push else { return };
        let words = match (items.first().and_then(Value::str), &items[..]) {
            (Some("invalidate"), [_, Value::Array(keys)]) => {
                let mut inner = self.inner();
                let keys = keys.iter().filter_map(Value::str);
                let words = keys.flat_map(|key| inner.changed(key)).collect();
                if !inner.outgoing.is_empty() {
                    self.wake.notify_one();
                }
                words
            }
            // Everything was flushed.
            (Some("invalidate"), _) => {
                let mut inner = self.inner();
                let keys: Vec<_> = inner.watches.keys().cloned().collect();
                keys.iter().flat_map(|key| inner.freed(key)).collect()
            }
            (Some("message"), [_, _, text]) => {
                let numbers = text.str().and_then(|text| text.split_once(' '));
                let numbers = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                let inner = self.inner();
                let word = numbers.and_then(|(number, others)| inner.is_first(number, others));
                word.into_iter().collect()
            }
            _ => Vec::new(),
        };
        say(words);
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn command(&mut self, words: &[&[u8]], pending: Pending) {
        encode(&mut self.outgoing, words);
        self.pending.push_back((pending, Instant::now()));
    }

    fn look(&mut self, key: Arc<str>) {
        encode(&mut self.outgoing, &[b"GET", key.as_bytes()]);
        self.pending.push_back((Pending::Look(key), Instant::now()));
    }

    fn publish(&mut self, label: &str, key: &str) {
        let channel = nudge::channel_of(label);
        self.command(&[b"PUBLISH", channel.as_bytes(), key.as_bytes()], Pending::Plain);
    }

    fn stand(&mut self, process: &str, number: u64) {
        let Some(entry) = self.places.get(&number) else { return };
        let (key, ticket) = (entry.key.clone(), entry.ticket);
        let waiter = format!("{process}.{number}");
        let ticket = ticket.map_or(String::new(), |ticket| ticket.0.to_string());
        let life = LIFE.as_millis().to_string();
        self.script(&STAND, &key, &[&waiter, &ticket, &life], Pending::Stand(number));
    }

    fn leave(&mut self, process: &str, key: &Arc<str>, number: u64) {
        let waiter = format!("{process}.{number}");
        self.script(&LEAVE, key, &[&waiter], Pending::Leave(key.clone(), number));
    }

    fn script(&mut self, script: &Script, key: &str, args: &[&str], pending: Pending) {
        // What a script reads would be watched as well, and each step of a line told to all.
        self.command(&[b"CLIENT", b"CACHING", b"NO"], Pending::Plain);
        let (line, seen) = (format!("{LINE}{key}"), format!("{SEEN}{key}"));
        let (verb, body): (&[u8], _) = match self.by_text {
            false => (b"EVALSHA", script.sha.as_bytes()),
            true => (b"EVAL", script.text.as_bytes()),
        };
        let mut words: Vec<&[u8]> = vec![verb, body, b"2", line.as_bytes(), seen.as_bytes()];
        words.extend(args.iter().map(|arg| arg.as_bytes()));
        self.command(&words, pending);
    }

    /// The lock at `key` may be free, or its owner may have kept it.
    fn changed(&mut self, key: &str) -> Vec<Word> {
        let watched = self.watches.get_key_value(key).map(|(key, _)| key.clone());
        match watched.filter(|key| self.owners.may_stay(key)) {
            Some(key) => {
                self.look(key);
                Vec::new()
            }
            None => self.freed(key),
        }
    }

    /// The lock at `key` may be free.
    fn freed(&mut self, key: &str) -> Vec<Word> {
        let watches = self.watches.remove(key).unwrap_or_default();
        watches.into_values().map(|told| Word::Watch(told, Watched::Free)).collect()
    }

    /// We may not watch the lock at `key`.
    fn told_off(&mut self, key: &str) -> Vec<Word> {
        let watches = self.watches.remove(key).unwrap_or_default();
        watches.into_values().map(|told| Word::Watch(told, Watched::Over)).collect()
    }

    fn is_first(&self, number: u64, others: usize) -> Option<Word> {
        let entry = self.places.get(&number)?;
        // The reply to its first question tells the ticket, and comes before.
        let word = InLine::First { ticket: entry.ticket?, others };
        Some(Word::Place(entry.told.clone(), word))
    }

    /// The server's word about a place.
    fn stood(&mut self, number: u64, reply: &Value) -> Option<Word> {
        let entry = self.places.get_mut(&number)?;
        let word = match reply {
            Value::Array(items) => read_place(items),
            _ => None,
        };
        let Some(word) = word else {
            let entry = self.places.remove(&number)?;
            return Some(Word::Place(entry.told, InLine::Over));
        };
        if let InLine::Behind(ticket) | InLine::First { ticket, .. } = word {
            entry.ticket = Some(ticket);
        }
        Some(Word::Place(entry.told.clone(), word))
    }
}

fn read_place(items: &[Value]) -> Option<InLine> {
    let [ticket, Value::Int(is_first), Value::Int(others)] = items else { return None };
    let ticket = Ticket(ticket.str()?.parse().ok()?);
    Some(match is_first {
        1 => InLine::First { ticket, others: usize::try_from(*others).ok()? },
        _ => InLine::Behind(ticket),
    })
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
