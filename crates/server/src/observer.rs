//! Looks at the nodes and the locks every so often: for the gauges, and for events that other instances
//! and the command line bring about.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use leasehold::{InspectError, LockName, LockStatus};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::app::App;
use crate::ledger::Owned;
use crate::shared::{Looks, Shared};
use crate::table::{self, Wanted};
use crate::view;

/// How often the nodes' state is looked at, which asks nobody; and the locks, while somebody listens.
const TICK: Duration = Duration::from_millis(500);
/// How often the locks are looked at otherwise.
const SELDOM: Duration = Duration::from_secs(10);
/// A look may take at most one part in this many of the time.
const SHARE: u32 = 10;
/// So many leases whose time is over are looked at at once.
const ENDS_AT_ONCE: usize = 64;

/// What was seen of the locks, for all who want it.
pub(crate) struct Observed {
    /// The last look at all locks.
    listing: Mutex<Arc<Listing>>,
    /// Lists under way, by prefix, and looks at everything: one for all who ask at once.
    pub(crate) lists: Shared<Result<Arc<Vec<LockStatus>>, InspectError>>,
    pub(crate) overviews: Shared<()>,
    /// When locks were looked at for those who listen to them.
    pub(crate) looks: Looks,
    /// The overview as text, while somebody listens.
    pub(crate) overview: watch::Sender<Arc<str>>,
}

/// All locks that were held at a moment.
pub(crate) struct Listing {
    pub(crate) at: Instant,
    pub(crate) wall: SystemTime,
    pub(crate) locks: Vec<LockStatus>,
}

impl Observed {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        let listing = Listing { at: Instant::now(), wall: SystemTime::now(), locks: Vec::new() };
        Self {
            listing: Mutex::new(Arc::new(listing)),
            lists: Shared::default(),
            overviews: Shared::default(),
            looks: Looks::default(),
            overview: watch::Sender::new(Arc::from("")),
        }
    }

    pub(crate) fn listing(&self) -> Arc<Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, listing: Listing) {
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(listing);
    }
}

/// Looks until the server ends.
pub(crate) async fn run(app: Arc<App>) {
    let mut states: HashMap<String, &'static str> = HashMap::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_look: Option<(Instant, Duration)> = None;
    let mut next_count = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = app.tasks.draining() => return,
            _ = ticks.tick() => {}
        }
        let nodes = app.locks.nodes();
        for health in &nodes {
            let (state, why) = view::state(&health.state);
            let was = states.insert(health.node.as_str().to_owned(), state);
            if let Some(was) = was.filter(|was| *was != state) {
                app.ledger.node_changed(health, was, (state, why));
            }
        }
        let now = Instant::now();
        let is_watched = app.ledger.has_listeners();
        let pause = if is_watched { TICK } else { SELDOM };
        let is_due = |(at, took): (Instant, Duration)| {
            now.duration_since(at) + TICK / 2 >= pause.max(took * SHARE)
        };
        if last_look.is_none_or(is_due) {
            last_look = Some((now, look(&app).await));
        }
        if now >= next_count {
            next_count = now + Duration::from_secs(1);
            app.ledger.nodes_seen(&nodes);
        }
        app.ledger.gauged(view::available(&nodes), &app.observed.listing().locks, &app.waiting);
        if is_watched {
            let mut value = overview(&app);
            value["point"] = json!(app.ledger.point());
            app.observed.overview.send_replace(value.to_string().into());
        }
    }
}

/// Looks at each lease that was granted here near the end that its holder was told, and at it, until the
/// server ends. If the nodes still have it nobody gave it back, at any instance, and it is lost.
pub(crate) async fn watch_ends(app: Arc<App>) {
    let room = Arc::new(Semaphore::new(ENDS_AT_ONCE));
    loop {
        let (lock, owned) = tokio::select! {
            biased;
            () = app.tasks.draining() => return,
            next = app.ledger.next_end() => next,
        };
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let app = app.clone();
        tokio::spawn(async move {
            look_at_end(&app, &lock, &owned).await;
            drop(permit);
        });
    }
}

async fn look_at_end(app: &App, lock: &LockName, owned: &Owned) {
    let (at, status) = (Instant::now(), app.locks.inspect_as_answered(lock.as_str()).await);
    if let Ok(status) = status {
        app.ledger.seen_near_end(owned, &status, at);
    }
}

/// Looks at all locks, and says how long it took.
pub(crate) async fn look(app: &App) -> Duration {
    let (at, wall) = (Instant::now(), SystemTime::now());
    // Too few nodes answer: what was seen last stands, and the nodes tell the rest.
    let Ok(mut locks) = app.locks.list_as_answered("").await else {
        return at.elapsed();
    };
    locks.retain(|status| status.holder().is_some());
    app.ledger.seen_all(&locks, at);
    app.observed.replace(Listing { at, wall, locks });
    at.elapsed()
}

/// Looks at one lock.
pub(crate) async fn look_at(app: &App, lock: &LockName) {
    let at = Instant::now();
    if let Ok(status) = app.locks.inspect_as_answered(lock.as_str()).await {
        app.ledger.seen(&status, at);
    }
}

/// What the dashboard shows.
pub(crate) fn overview(app: &App) -> Value {
    json!({
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "instance": app.ledger.instance(),
            "uptime_ms": view::millis(app.ledger.uptime()),
            "at": view::time(SystemTime::now()),
        },
        "cluster": view::cluster(&app.locks, &app.backend),
        "locks": table::rows(app, &Wanted::default()),
        "rates": app.ledger.rates(),
    })
}
