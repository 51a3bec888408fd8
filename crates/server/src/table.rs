//! The locks as the dashboard lists them: searched, sorted and cut into pages. Answered from the last
//! look at all locks, so that a search costs the nodes nothing.

use std::cmp::Reverse;
use std::time::SystemTime;

use leasehold::{Holder, LockStatus, Owner};
use serde_json::{Value, json};

use crate::app::App;
use crate::observer::Listing;
use crate::view;

/// What the locks are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Column {
    Name,
    Holder,
    #[default]
    Held,
    Left,
    Waiting,
}

impl Column {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "name" => Self::Name,
            "holder" => Self::Holder,
            "held" => Self::Held,
            "left" => Self::Left,
            "waiting" => Self::Waiting,
            _ => return None,
        })
    }
}

/// Which rows are wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// A part of a name or of a holder, in any case.
    pub(crate) search: String,
    pub(crate) column: Column,
    pub(crate) is_descending: bool,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Default for Wanted {
    /// The first page: held longest first.
    fn default() -> Self {
        let (search, column) = (String::new(), Column::Held);
        Self { search, column, is_descending: true, offset: 0, limit: 100 }
    }
}

impl Wanted {
    /// Equal ones stay sorted by name, as a look finds them.
    fn sort<K: Ord>(&self, found: &mut [&LockStatus], key: impl Fn(&LockStatus) -> K) {
        match self.is_descending {
            true => found.sort_by_cached_key(|status| Reverse(key(status))),
            false => found.sort_by_cached_key(|status| key(status)),
        }
    }
}

/// The rows, and how many there are to look through.
pub(crate) fn rows(app: &App, wanted: &Wanted) -> Value {
    let (listing, now) = (app.observed.listing(), SystemTime::now());
    let needle = wanted.search.to_lowercase();
    let mut found: Vec<_> =
        listing.locks.iter().filter(|status| matches(status, &needle)).collect();
    let held = |status: &LockStatus| status.since(listing.wall).map(Reverse);
    // What never ends comes last.
    let left = |status: &LockStatus| status.expires_in().map_or((1, None), |left| (0, Some(left)));
    match wanted.column {
        Column::Name => wanted.sort(&mut found, |status| status.name.clone()),
        Column::Holder => wanted.sort(&mut found, |status| status.holder().map(Owner::to_string)),
        Column::Held => wanted.sort(&mut found, held),
        Column::Left => wanted.sort(&mut found, left),
        Column::Waiting => wanted.sort(&mut found, |status| app.waiting.count(&status.name)),
    }
    let page = found.iter().skip(wanted.offset).take(wanted.limit);
    let items: Vec<Value> = page.map(|status| row(app, &listing, status, now)).collect();
    json!({
        "held": listing.locks.len(),
        "waiters": app.waiting.total(),
        "found": found.len(),
        "seen_ms_ago": view::millis(listing.at.elapsed()),
        "items": items,
    })
}

fn matches(status: &LockStatus, needle: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(needle);
    needle.is_empty()
        || has(status.name.as_str())
        || status.holder().is_some_and(|owner| has(&owner.to_string()))
}

fn row(app: &App, listing: &Listing, status: &LockStatus, now: SystemTime) -> Value {
    let mut value = view::lock(status, now, app.waiting.count(&status.name));
    let left = status.expires_in().map(|left| left.saturating_sub(listing.at.elapsed()));
    let granted = holder(status).and_then(|holder| app.ledger.grant_of(&status.name, holder));
    value["expires_in_ms"] = json!(left.map(view::millis));
    value["ttl_ms"] = json!(granted.as_ref().map(|granted| view::millis(granted.ttl)));
    value["reason"] = json!(granted.and_then(|granted| granted.reason));
    value
}

fn holder(status: &LockStatus) -> Option<&Holder> {
    match status.holder() {
        Some(Owner::Holder(holder)) => Some(holder),
        _ => None,
    }
}
