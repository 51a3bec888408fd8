//! Event streams (SSE): of everything, and of one lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use leasehold::LockName;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::typed;
use crate::app::App;
use crate::ask::Ask;
use crate::body::{Body, Response};
use crate::caller::Caller;
use crate::ledger::{Ear, Event, Listener};
use crate::observer;
use crate::problem::Problem;

/// How often one lock is looked at for those who listen to it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a silent stream shows that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// Where to go on.
#[derive(Debug, Deserialize)]
pub(crate) struct From {
    last_event_id: Option<String>,
}

pub(crate) fn of_all(ask: Box<Ask>) -> Result<Response, Problem> {
    let caller = ask.caller()?;
    caller.may_read(&ask.app)?;
    stream(ask, caller, None)
}

pub(crate) fn of_lock(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, lock) = (ask.caller()?, ask.lock()?);
    caller.may_see(&ask.app, &lock)?;
    stream(ask, caller, Some(lock))
}

fn stream(ask: Box<Ask>, caller: Caller, lock: Option<LockName>) -> Result<Response, Problem> {
    let from: From = ask.query()?;
    // One that is no text is none of ours, so its sender has missed something.
    let header = ask.head.headers.get("last-event-id");
    let header = header.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let last = header.or(from.last_event_id);
    let app = ask.app;
    let (missed, ear) = app.ledger.listen(last.as_deref());
    let mut out = VecDeque::new();
    let hello = json!({
        "instance": app.ledger.instance(),
        "version": env!("CARGO_PKG_VERSION"),
        "resumed": last.is_some() && missed.is_some(),
    });
    out.push_back(Bytes::from(format!("retry: 1000\nevent: hello\ndata: {hello}\n\n")));
    if missed.is_none() {
        out.push_back(RESET);
    }
    let replaced = app.access.rules().replaced.clone();
    let listener = lock.is_none().then(|| app.ledger.counted());
    let mut overview = app.observed.overview.subscribe();
    overview.mark_unchanged();
    let mut stream = Stream {
        app,
        caller,
        lock,
        ear,
        overview,
        out,
        replaced,
        look: tokio::time::interval(LOOK_EVERY),
        silent_for: Duration::ZERO,
        _listener: listener,
    };
    stream.look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for event in missed.unwrap_or_default() {
        stream.take(&event);
    }
    let frames = futures_util::stream::unfold(stream, async |mut stream| {
        let frame = stream.next().await?;
        Some((frame, stream))
    });
    let mut response = typed(StatusCode::OK, "text/event-stream", Body::Stream(Box::pin(frames)));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Something is missing: look anew.
const RESET: Bytes = Bytes::from_static(b"event: reset\ndata: {}\n\n");

struct Stream {
    app: Arc<App>,
    caller: Caller,
    lock: Option<LockName>,
    ear: Ear,
    overview: watch::Receiver<Arc<str>>,
    out: VecDeque<Bytes>,
    replaced: CancellationToken,
    look: tokio::time::Interval,
    silent_for: Duration,
    _listener: Option<Listener>,
}

/// What a stream waits for.
enum Heard {
    Event(Arc<Event>),
    Missed,
    Overview,
    Tick,
    End,
}

impl Stream {
    /// The next piece of text; none when the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(text) = self.out.pop_front() {
                self.silent_for = Duration::ZERO;
                return Some(text);
            }
            match self.hear().await {
                Heard::Event(event) => self.take(&event),
                Heard::Missed => self.out.push_back(RESET),
                Heard::Overview => {
                    let text = self.overview.borrow_and_update().clone();
                    self.out.push_back(format!("event: overview\ndata: {text}\n\n").into());
                }
                Heard::Tick if self.caller.is_over(SystemTime::now()) => return None,
                Heard::Tick => self.tick().await,
                Heard::End => return None,
            }
        }
    }

    async fn hear(&mut self) -> Heard {
        let is_of_lock = self.lock.is_some();
        tokio::select! {
            biased;
            () = self.app.tasks.draining() => Heard::End,
            () = self.replaced.cancelled() => Heard::End,
            event = self.ear.recv() => match event {
                Ok(event) => Heard::Event(event),
                Err(broadcast::error::RecvError::Lagged(_)) => Heard::Missed,
                Err(broadcast::error::RecvError::Closed) => Heard::End,
            },
            changed = self.overview.changed(), if !is_of_lock => match changed {
                Ok(()) => Heard::Overview,
                Err(_) => Heard::End,
            },
            _ = self.look.tick() => Heard::Tick,
        }
    }

    /// Looks at the one lock, and shows that the stream is alive.
    async fn tick(&mut self) {
        // What is seen is told to all who listen to this lock, so a look of any of them is enough.
        if let Some(lock) = &self.lock
            && self.app.observed.looks.is_due(lock, LOOK_EVERY * 4 / 5, Instant::now())
        {
            observer::look_at(&self.app, lock).await;
        }
        self.silent_for += LOOK_EVERY;
        if self.silent_for >= ALIVE_EVERY {
            self.out.push_back(Bytes::from_static(b": alive\n\n"));
        }
    }

    fn take(&mut self, event: &Event) {
        let is_wanted = match &self.lock {
            Some(lock) => event.lock.as_ref() == Some(lock),
            None => !event.is_small(),
        };
        if is_wanted && (event.kind != "audit" || self.caller.is_admin()) {
            let (instance, number) = (self.app.ledger.instance(), event.number);
            let (kind, text) = (event.kind, event.text());
            self.out.push_back(
                format!("id: {instance}-{number}\nevent: {kind}\ndata: {text}\n\n").into(),
            );
        }
    }
}
