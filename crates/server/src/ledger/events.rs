//! What happened, told to everybody who listens: a ring of the last events and a broadcast.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold::{Holder, LeaseToken, LockName};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use crate::view;

/// How many events can be asked for again.
const KEPT: usize = 4096;
/// The same for what is for the record only, which those who are let in by nobody can cause.
const AUDIT_KEPT: usize = 1024;
/// How far a listener may fall behind before it is told to look anew.
const BEHIND: usize = 1024;

/// One thing that happened.
#[derive(Debug)]
pub(crate) struct Event {
    /// Its number at this instance; 0 for what nobody can ask for again.
    pub(crate) number: u64,
    /// The word that tells what.
    pub(crate) kind: &'static str,
    /// The lock it is about.
    pub(crate) lock: Option<LockName>,
    at: SystemTime,
    more: More,
    text: OnceLock<String>,
}

/// What there is to tell.
#[derive(Debug)]
pub(crate) enum More {
    /// Of a lease, which happens with every request: made into words only if somebody listens.
    Lease { holder: Holder, fence: u64, waited: Option<Duration>, reason: Option<String> },
    /// Whatever it is.
    Members(Value),
}

impl More {
    /// Of a lease that ends or goes on.
    pub(crate) fn lease(token: &LeaseToken) -> Self {
        let (holder, fence) = (token.holder.clone(), token.fence.get());
        Self::Lease { holder, fence, waited: None, reason: None }
    }

    fn members(&self) -> Map<String, Value> {
        let value = match self {
            Self::Lease { holder, fence, waited: Some(waited), reason } => json!({
                "holder": holder.label(),
                "fence": fence,
                "waited_ms": view::millis(*waited),
                "reason": reason,
            }),
            Self::Lease { holder, fence, .. } => json!({"holder": holder.label(), "fence": fence}),
            Self::Members(value) => value.clone(),
        };
        match value {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

impl From<Value> for More {
    fn from(value: Value) -> Self {
        Self::Members(value)
    }
}

impl Event {
    /// As JSON; made when somebody wants it, because mostly nobody does.
    pub(crate) fn text(&self) -> &str {
        self.text.get_or_init(|| self.json().to_string())
    }

    pub(crate) fn json(&self) -> Value {
        let mut value = json!({"type": self.kind, "at": view::time(self.at)});
        if let Some(object) = value.as_object_mut() {
            object.extend(self.lock.iter().map(|lock| ("name".to_owned(), json!(lock.as_str()))));
            object.extend(self.more.members());
        }
        value
    }

    /// Told only to those who listen to this one lock: it happens too often.
    pub(crate) fn is_small(&self) -> bool {
        self.kind == "renewed"
    }
}

/// Everything that happens at this instance.
pub(crate) struct Events {
    /// Tells instances, and lives of one, apart.
    pub(crate) instance: String,
    ring: Mutex<Ring>,
    sender: broadcast::Sender<Arc<Event>>,
    /// How many listen to everything; the nodes are looked at more often for them.
    listeners: AtomicUsize,
}

#[derive(Default)]
struct Ring {
    /// The number of the last event.
    last: u64,
    /// Events up to this number may be missing.
    gone: u64,
    kept: VecDeque<Arc<Event>>,
    audit: VecDeque<Arc<Event>>,
}

impl Ring {
    fn keep(&mut self, event: Arc<Event>) {
        if event.kind == "audit" {
            self.audit.truncate(AUDIT_KEPT - 1);
            self.audit.push_front(event);
            return;
        }
        if self.kept.len() == KEPT {
            self.gone = self.kept.pop_front().map_or(0, |event| event.number);
        }
        self.kept.push_back(event);
    }

    /// All that is known, the oldest first.
    fn all(&self) -> Vec<&Arc<Event>> {
        let mut all: Vec<_> = self.kept.iter().chain(&self.audit).collect();
        all.sort_by_key(|event| event.number);
        all
    }
}

impl Events {
    pub(crate) fn new(instance: String) -> Self {
        let ring = Mutex::default();
        Self {
            instance,
            ring,
            sender: broadcast::Sender::new(BEHIND),
            listeners: AtomicUsize::new(0),
        }
    }

    /// Tells that something happened.
    pub(crate) fn tell(&self, kind: &'static str, lock: Option<LockName>, more: impl Into<More>) {
        let more = more.into();
        let event = |number| {
            let (at, text) = (SystemTime::now(), OnceLock::new());
            Arc::new(Event { number, kind, lock, at, more, text })
        };
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.last += 1;
        let event = event(ring.last);
        if !event.is_small() {
            ring.keep(event.clone());
        }
        // Under the mutex, so that nobody hears of events in another order, or twice.
        let _ = self.sender.send(event);
    }

    /// What came after `last`, if all of it is still known, and what comes from now on.
    pub(crate) fn listen(&self, last: Option<&str>) -> (Option<Vec<Arc<Event>>>, Ear) {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let ear = self.sender.subscribe();
        let after = last.map(|id| {
            let number = id.strip_prefix(&self.instance)?.strip_prefix('-')?.parse::<u64>().ok()?;
            let is_known = (ring.gone..=ring.last).contains(&number);
            let missed = || ring.all().into_iter().filter(|event| event.number > number);
            is_known.then(|| missed().cloned().collect())
        });
        (after.unwrap_or(Some(Vec::new())), ear)
    }

    /// The last events of one lock, newest first; those for the record only if they may be seen.
    pub(crate) fn of(&self, lock: &LockName, most: usize, with_audit: bool) -> Vec<Value> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let all = ring.all();
        let own = all.into_iter().rev().filter(|event| event.lock.as_ref() == Some(lock));
        let own = own.filter(|event| with_audit || event.kind != "audit");
        let own: Vec<_> = own.take(most).cloned().collect();
        drop(ring);
        own.iter().map(|event| event.json()).collect()
    }

    /// Whether somebody listens.
    pub(crate) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }

    /// Counts a listener until it is dropped.
    pub(crate) fn counted(self: &Arc<Self>) -> Listener {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        Listener(self.clone())
    }
}

/// What is heard.
pub(crate) type Ear = broadcast::Receiver<Arc<Event>>;

/// Somebody who listens.
pub(crate) struct Listener(Arc<Events>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_told_again_while_it_is_known() {
        let events = Events::new("abc".into());
        for number in 0..10 {
            events.tell("acquired", LockName::new("l").ok(), json!({"fence": number}));
        }
        let numbers = |last: &str| {
            let (missed, _) = events.listen(Some(last));
            missed.map(|missed| missed.iter().map(|event| event.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers("abc-7"), Some(vec![8, 9, 10]));
        assert_eq!(numbers("abc-10"), Some(vec![]));
        assert_eq!(numbers("abc-11"), None, "from another life");
        assert_eq!(numbers("abd-7"), None, "of another instance");
        assert_eq!(numbers("nonsense"), None);
        for _ in 0..KEPT {
            events.tell("acquired", None, json!({}));
        }
        assert_eq!(numbers("abc-7"), None, "no longer known");
        assert_eq!(numbers("abc-10").map(|missed| missed.len()), Some(KEPT));
    }

    #[test]
    fn an_event_tells_what_when_and_of_which_lock() {
        let events = Events::new("abc".into());
        let (_, mut ear) = events.listen(None);
        events.tell("acquired", LockName::new("a/b").ok(), json!({"fence": 7}));
        let event = ear.try_recv().unwrap();
        let value: Value = serde_json::from_str(event.text()).unwrap();
        assert_eq!(
            (&value["type"], &value["name"], &value["fence"]),
            (&json!("acquired"), &json!("a/b"), &json!(7))
        );
        assert!(value["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{value}");
        events.tell("audit", LockName::new("a/b").ok(), json!({}));
        let lock = LockName::new("a/b").unwrap();
        assert_eq!((events.of(&lock, 9, false).len(), events.of(&lock, 9, true).len()), (1, 2));
        assert!(events.of(&LockName::new("a").unwrap(), 9, true).is_empty());
    }

    #[test]
    fn no_number_of_refusals_makes_anything_else_forgotten() {
        let events = Events::new("abc".into());
        let lock = LockName::new("l").unwrap();
        events.tell("acquired", Some(lock.clone()), json!({"fence": 1}));
        for _ in 0..3 * KEPT {
            events.tell("audit", None, json!({"what": "refused"}));
        }
        assert_eq!(events.of(&lock, 9, false).len(), 1);
        let (missed, _) = events.listen(Some("abc-0"));
        let missed = missed.expect("nothing else is gone");
        assert_eq!((missed[0].kind, missed.len()), ("acquired", 1 + AUDIT_KEPT));
        assert!(missed.is_sorted_by_key(|event| event.number));
    }
}
