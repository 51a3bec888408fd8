//! Hints for waiters: one stream of events for each lock that somebody of this process waits for. It
//! stays for a while after the last one, because whoever was refused watches again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use leasehold_core::{LockName, NodeError};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::answer::is_free;
use super::call::Call;
use super::events::Events;
use super::pool::{Patience, Pool, broken};
use crate::node::{OnWatched, Watch, Watched};

/// How long a stream stays although nobody watches: longer than between two looks of a waiter.
const LINGER: Duration = Duration::from_secs(3);
/// A stream says something every fifteen seconds; one that is silent for so long is broken.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// How long the server may take to open a stream, or to tell whether the lock is free.
const LIMIT: Duration = Duration::from_secs(2);

/// The streams that are open, by lock.
pub(super) struct Watches {
    pool: Arc<Pool>,
    runtime: Handle,
    streams: Mutex<HashMap<LockName, Arc<Stream>>>,
}

struct Stream {
    watchers: Mutex<Vec<(u64, OnWatched)>>,
    numbers: AtomicU64,
    phase: watch::Sender<Phase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    Over,
}

/// One watcher; gone when dropped.
struct Watcher {
    stream: Arc<Stream>,
    number: u64,
    look: AbortHandle,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.look.abort();
        self.stream.watchers().retain(|(number, _)| *number != self.number);
    }
}

impl Watches {
    pub(super) fn new(pool: Arc<Pool>, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { pool, runtime, streams: Mutex::default() })
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<LockName, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(self: &Arc<Self>, lock: &LockName, told: OnWatched) -> Watch {
        let stream = self.stream(lock);
        let number = stream.numbers.fetch_add(1, Ordering::Relaxed);
        stream.watchers().push((number, told));
        let (watches, watched, name) = (self.clone(), stream.clone(), lock.clone());
        let look = self.runtime.spawn(async move {
            if let Some(word) = watches.look(&watched, &name).await {
                watched.tell(|other| other == number, word);
            }
        });
        Box::new(Watcher { stream, number, look: look.abort_handle() })
    }

    /// The stream of a lock, opened if there is none.
    fn stream(self: &Arc<Self>, lock: &LockName) -> Arc<Stream> {
        let mut streams = self.streams();
        if let Some(stream) = streams.get(lock) {
            return stream.clone();
        }
        let stream = Arc::new(Stream {
            watchers: Mutex::default(),
            numbers: AtomicU64::new(0),
            phase: watch::Sender::new(Phase::Opening),
        });
        streams.insert(lock.clone(), stream.clone());
        let (watches, followed, lock) = (self.clone(), stream.clone(), lock.clone());
        self.runtime.spawn(async move {
            if let Err(error) = watches.follow(&followed, &lock).await {
                tracing::debug!(%lock, "no hints: {error}");
            }
            // Out of the map first: whoever comes now opens another.
            watches.streams().remove(&lock);
            followed.phase.send_replace(Phase::Over);
            followed.tell(|_| true, Watched::Over);
        });
        stream
    }

    /// Looks once, when nothing that happens from then on can be missed: it may be free already.
    async fn look(&self, stream: &Stream, lock: &LockName) -> Option<Watched> {
        let mut phase = stream.phase.subscribe();
        let phase = phase.wait_for(|phase| *phase != Phase::Opening).await.map(|phase| *phase);
        if !matches!(phase, Ok(Phase::Open)) {
            return Some(Watched::Over);
        }
        let answer = self.pool.exchange(&Call::inspect(lock), patience()).await;
        answer.is_ok_and(|response| is_free(&response)).then_some(Watched::Free)
    }

    async fn follow(&self, stream: &Stream, lock: &LockName) -> Result<(), NodeError> {
        let (_connection, body) = self.pool.stream(&Call::events(lock), patience()).await?;
        stream.phase.send_replace(Phase::Open);
        let mut incoming = EventsIn { body, events: Events::default() };
        let mut needed = Instant::now();
        loop {
            let event = timeout(LINGER, incoming.next()).await;
            let is_watched = !stream.watchers().is_empty();
            if is_watched {
                needed = Instant::now();
            }
            match event {
                Ok(Ok(Some(event))) if may_be_free(&event) => stream.tell(|_| true, Watched::Free),
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) if incoming.events.heard.elapsed() > SILENCE_MAX => {
                    let reason = "no event for too long".to_owned();
                    return Err(NodeError::Unreachable { reason });
                }
                Err(_) => {}
            }
            if needed.elapsed() >= LINGER {
                return Ok(());
            }
        }
    }
}

fn patience() -> Patience {
    let by = Instant::now() + LIMIT;
    Patience { send_by: by, answer_by: by, limit: LIMIT }
}

/// Whether an event is a reason to ask.
fn may_be_free(event: &str) -> bool {
    matches!(event, "released" | "expired" | "force-released" | "lost" | "reset")
}

impl Stream {
    fn watchers(&self) -> MutexGuard<'_, Vec<(u64, OnWatched)>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those watchers, once, and never with the mutex held.
    fn tell(&self, whom: impl Fn(u64) -> bool, word: Watched) {
        let mut watchers = self.watchers();
        let (told, others) = watchers.drain(..).partition(|(number, _)| whom(*number));
        *watchers = others;
        drop(watchers);
        let told: Vec<(u64, OnWatched)> = told;
        told.iter().for_each(|(_, told)| told(word));
    }
}

struct EventsIn {
    body: Incoming,
    events: Events,
}

impl EventsIn {
    /// The type of the next event; `None` at the end. Can be cancelled without losing one.
    async fn next(&mut self) -> Result<Option<String>, NodeError> {
        loop {
            if let Some(event) = self.events.next()? {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.events.push(&bytes);
                    }
                }
            }
        }
    }
}
