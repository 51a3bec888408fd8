//! Looks at the nodes and the locks every so often: for the gauges, and for events that other instances
//! and the command line bring about.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use leasehold::{LockName, LockStatus, Owner};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::app::{App, Listing, RAN_OUT};
use crate::known::Owned;
use crate::table::{self, Wanted};
use crate::view;

/// How often the nodes' state is looked at, which asks nobody; and the locks, while somebody listens.
const TICK: Duration = Duration::from_millis(500);
/// How often the locks are looked at otherwise.
const SELDOM: Duration = Duration::from_secs(10);
/// A look may take at most one part in this many of the time.
const SHARE: u32 = 10;
/// By so much longer than it was told to be good a lease may be kept, if the grant took a while.
const A_MOMENT: Duration = Duration::from_millis(5);
/// So many leases whose time is over are looked at at once.
const ENDS_AT_ONCE: usize = 64;

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
            () = app.draining.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let nodes = app.locks.nodes();
        for health in &nodes {
            let (state, why) = view::state(&health.state);
            let was = states.insert(health.node.as_str().to_owned(), state);
            if let Some(was) = was.filter(|was| *was != state) {
                let members = json!({
                    "node": health.node.as_str(), "state": state, "was": was, "why": why,
                });
                app.events.tell("node", None, members);
                tracing::warn!(node = %health.node, was, state, why, "a node changed");
            }
        }
        let now = Instant::now();
        let is_watched = app.events.has_listeners();
        let pause = if is_watched { TICK } else { SELDOM };
        let is_due = |(at, took): (Instant, Duration)| {
            now.duration_since(at) + TICK / 2 >= pause.max(took * SHARE)
        };
        if last_look.is_none_or(is_due) {
            last_look = Some((now, look(&app).await));
        }
        if now >= next_count {
            next_count = now + Duration::from_secs(1);
            app.metrics.nodes.note(&nodes);
        }
        note(&app, view::available(&nodes));
        if is_watched {
            let mut value = overview(&app);
            value["point"] = json!(app.stats.point());
            app.overview.send_replace(value.to_string().into());
        }
    }
}

/// Brings the gauges up to date.
fn note(app: &App, available: usize) {
    let (listing, waiters) = (app.listing(), app.waiting.total());
    app.stats.note(available, listing.locks.len(), waiters);
    let of = |name: &str| {
        let is_held = listing.locks.iter().any(|status| status.name.as_str() == name);
        (is_held, LockName::new(name).map_or(0, |lock| app.waiting.count(&lock)))
    };
    app.metrics.leases.note(listing.locks.len(), waiters, app.stats.contention_rate(), of);
}

/// Looks at each lease that was granted here near the end that its holder was told, and at it, until the
/// server ends. If the nodes still have it nobody gave it back, at any instance, and it is lost.
pub(crate) async fn watch_ends(app: Arc<App>) {
    let room = Arc::new(Semaphore::new(ENDS_AT_ONCE));
    loop {
        let (lock, owned) = tokio::select! {
            biased;
            () = app.draining.cancelled() => return,
            next = app.known.next_end() => next,
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
    let (asked, status) = (Instant::now(), app.locks.inspect_as_answered(lock.as_str()).await);
    let Ok(status) = status else { return };
    if !status.holder().is_some_and(|owner| owner.is(&owned.holder)) {
        return tell_end(app, lock, owned, asked);
    }
    let (Some(granted), Some(left)) = (&owned.granted, status.expires_in()) else { return };
    // As the caller that renewed it last counts.
    let told = asked + left.saturating_sub(app.locks.drift().allowance(granted.ttl));
    if told > granted.until + A_MOMENT {
        app.known.renewed(lock, &owned.holder, granted.ttl, told);
    } else if asked < granted.until {
        app.known.seen(lock, &owned.holder, asked, Some(asked + left));
    } else {
        app.lost(lock, &owned.holder, "expired", RAN_OUT);
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
    let holders: HashMap<&LockName, &Owner> =
        locks.iter().filter_map(|status| Some((&status.name, status.holder()?))).collect();
    for (lock, owned) in app.known.owners() {
        let has_it = holders.get(&lock).is_some_and(|owner| owner.is(&owned.holder));
        if !has_it {
            tell_end(app, &lock, &owned, at);
        }
    }
    locks.iter().for_each(|status| tell_owner(app, status, at));
    let listing = Arc::new(Listing { at, wall, locks });
    *app.listing.lock().unwrap_or_else(PoisonError::into_inner) = listing;
    at.elapsed()
}

/// Looks at one lock.
pub(crate) async fn look_at(app: &App, lock: &LockName) {
    let at = Instant::now();
    let Ok(status) = app.locks.inspect_as_answered(lock.as_str()).await else { return };
    if let Some(owned) = app.known.owner(lock)
        && !status.holder().is_some_and(|owner| owner.is(&owned.holder))
    {
        tell_end(app, lock, &owned, at);
    }
    tell_owner(app, &status, at);
}

/// Somebody holds a lock whom nobody was told of: another instance or the command line granted it.
fn tell_owner(app: &App, status: &LockStatus, at: Instant) {
    let Some(Owner::Holder(holder)) = status.holder() else { return };
    let expires = status.expires_in().map(|left| at + left);
    let lock = &status.name;
    if app.known.has_ended(lock, holder) {
        return;
    }
    let fence = status.fence_of(&Owner::Holder(holder.clone())).map_or(0, |fence| fence.get());
    match app.known.owner(lock) {
        Some(owned) if owned.holder == *holder => {
            app.known.seen(lock, holder, at, expires);
        }
        // Told of after this look began.
        Some(owned) if owned.at >= at => {}
        _ => {
            let (holder, granted) = (holder.clone(), None);
            let members = json!({"holder": holder.label(), "fence": fence, "seen": true});
            app.began(lock, Owned { holder, fence, at, expires, granted }, members);
        }
    }
}

/// Somebody who was told of holds a lock no more.
fn tell_end(app: &App, lock: &LockName, owned: &Owned, at: Instant) {
    if owned.at >= at || app.known.ended(lock, &owned.holder).is_none() {
        return;
    }
    app.gone(lock, owned);
}

/// What the dashboard shows.
pub(crate) fn overview(app: &App) -> Value {
    json!({
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "instance": app.events.instance,
            "uptime_ms": view::millis(app.started.elapsed()),
            "at": view::time(SystemTime::now()),
        },
        "cluster": view::cluster(&app.locks, &app.backend),
        "locks": table::rows(app, &Wanted::default()),
        "rates": app.stats.rates(),
    })
}

#[cfg(test)]
mod tests {
    use leasehold::Locks;

    use super::*;
    use crate::settings::Settings;

    #[tokio::test]
    async fn a_look_that_began_before_a_release_is_no_news() {
        let locks = Locks::open("memory:").await.unwrap();
        let app = App::new(locks.clone(), Settings::default(), None);
        let guard = locks.lock("l").acquire().await.unwrap();
        let (lock, holder) = (guard.name().clone(), guard.holder().clone());
        let (began, seen) = (Instant::now(), locks.inspect_as_answered("l").await.unwrap());
        let _ = guard.release().await;
        app.known.ended(&lock, &holder);
        tell_owner(&app, &seen, began);
        assert!(app.events.of(&lock, 9, true).is_empty(), "{:?}", app.events.of(&lock, 9, true));

        // Nor is one that began before a grant the end of it.
        let guard = locks.lock("l").acquire().await.unwrap();
        let (holder, fence) = (guard.holder().clone(), guard.fence().get());
        let owned = Owned { holder, fence, at: Instant::now(), expires: None, granted: None };
        app.known.began(&lock, owned.clone());
        tell_end(&app, &lock, &owned, began);
        assert!(app.events.of(&lock, 9, true).is_empty(), "{:?}", app.events.of(&lock, 9, true));
        tell_end(&app, &lock, &owned, Instant::now());
        assert_eq!(app.events.of(&lock, 9, true)[0]["type"], "released");
    }
}
