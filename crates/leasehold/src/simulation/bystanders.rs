//! What a simulated Redis tells without being asked: keys that changed, messages on channels; and the
//! lines of waiters, as the two scripts keep them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::commands::{array, bulk, int};
use super::site::Wire;

/// How bytes get to a client.
pub(super) type Deliver = Arc<dyn Fn(Vec<u8>) + Send + Sync>;

/// Everybody who may be told something, and every line.
#[derive(Default)]
pub(super) struct Bystanders {
    connections: BTreeMap<u64, Connection>,
    lines: BTreeMap<String, BTreeMap<String, Entry>>,
}

struct Connection {
    wire: Arc<Wire>,
    deliver: Deliver,
    tracks: bool,
    tracked: BTreeSet<String>,
    channels: BTreeSet<String>,
}

/// A waiter in line.
struct Entry {
    ticket: u64,
    /// Counts as alive until then, in milliseconds.
    until: u64,
}

impl std::fmt::Debug for Bystanders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lines.keys()).finish()
    }
}

impl Bystanders {
    pub(super) fn join(&mut self, wire: Arc<Wire>, deliver: Deliver) {
        let (tracked, channels) = (BTreeSet::new(), BTreeSet::new());
        let connection = Connection { wire, deliver, tracks: false, tracked, channels };
        self.connections.insert(connection.wire.number, connection);
    }

    /// The client closed its connection.
    pub(super) fn part(&mut self, number: u64) {
        self.connections.remove(&number);
    }

    pub(super) fn track(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.tracks = true;
        }
    }

    /// A connection read `key`.
    pub(super) fn read(&mut self, number: u64, key: &str) {
        if let Some(connection) = self.connections.get_mut(&number)
            && connection.tracks
        {
            connection.tracked.insert(key.to_owned());
        }
    }

    /// The key changed: each who read it is told once.
    pub(super) fn changed(&mut self, key: &str) {
        for connection in self.connections.values_mut() {
            if connection.tracked.remove(key) {
                (connection.deliver)(push(&[bulk("invalidate"), array(&[bulk(key)])]));
            }
        }
    }

    /// All data is gone: each who tracks is told.
    pub(super) fn flushed(&mut self) {
        for connection in self.connections.values_mut().filter(|connection| connection.tracks) {
            connection.tracked.clear();
            (connection.deliver)(push(&[bulk("invalidate"), b"_\r\n".to_vec()]));
        }
        self.lines.clear();
    }

    pub(super) fn subscribe(&mut self, number: u64, channel: &str) -> Vec<u8> {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.channels.insert(channel.to_owned());
        }
        push(&[bulk("subscribe"), bulk(channel), int(1)])
    }

    /// How many were told.
    pub(super) fn publish(&self, channel: &str, text: &str) -> i64 {
        let listens = |connection: &&Connection| {
            !connection.wire.cut.is_cancelled() && connection.channels.contains(channel)
        };
        let message = push(&[bulk("message"), bulk(channel), bulk(text)]);
        let listeners = self.connections.values().filter(listens);
        listeners.map(|connection| (connection.deliver)(message.clone())).count() as i64
    }

    /// The script `stand`, at `now` microseconds.
    pub(super) fn stand(&mut self, line: &str, args: &[&str], now: u64) -> Vec<u8> {
        let [waiter, ticket, life] = args else { panic!("stand {args:?}") };
        let (now_ms, life): (u64, u64) = (now / 1000, life.parse().expect("a life"));
        let entries = self.lines.entry(line.to_owned()).or_default();
        let before = entries.len();
        entries.retain(|_, entry| entry.until > now_ms);
        let moved = entries.len() != before || !ticket.is_empty();
        let ticket = if ticket.is_empty() { now } else { ticket.parse().expect("a ticket") };
        let fresh = || Entry { ticket, until: 0 };
        entries.entry((*waiter).to_owned()).or_insert_with(fresh).until = now_ms + life;
        let first = self.first(line, moved.then_some(*waiter));
        let others = self.lines[line].len() as i64 - 1;
        let is_first = i64::from(first.as_deref() == Some(waiter));
        array(&[bulk(&ticket.to_string()), int(is_first), int(others)])
    }

    /// The script `leave`.
    pub(super) fn leave(&mut self, line: &str, waiter: &str) -> Vec<u8> {
        let was_first = self.first(line, None).as_deref() == Some(waiter);
        if let Some(entries) = self.lines.get_mut(line) {
            entries.remove(waiter);
        }
        if was_first {
            self.first(line, Some(""));
        }
        int(self.lines.get(line).map_or(0, BTreeMap::len) as i64)
    }

    /// Who is first. If somebody looks, and is not first, the first one is told; one that nobody
    /// listens for is gone.
    fn first(&mut self, line: &str, looks: Option<&str>) -> Option<String> {
        loop {
            let entries = self.lines.get(line)?;
            let key = |(waiter, entry): (&String, &Entry)| (entry.ticket, waiter.clone());
            let (_, first) = entries.iter().map(key).min()?;
            if looks.is_none_or(|looks| looks == first) {
                return Some(first);
            }
            let (process, number) = first.split_once('.').expect("our waiters");
            let others = entries.len() - 1;
            let channel = format!("leasehold:turn:{process}");
            if self.publish(&channel, &format!("{number} {others}")) > 0 {
                return Some(first);
            }
            self.lines.get_mut(line)?.remove(&first);
        }
    }
}

fn push(items: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = array(items);
    bytes[0] = b'>';
    bytes
}
