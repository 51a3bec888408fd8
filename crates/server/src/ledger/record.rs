//! Facts for the record: who was kept from something, who took a lock away. Each is a line of the log that
//! no filter switches off, and an event.

use std::time::Instant;

use leasehold::{Holder, LockName};
use serde_json::json;
use tracing::warn;

use super::Ledger;

/// A lock that was taken away from its holder.
pub(crate) struct Forced<'a> {
    pub(crate) lock: &'a LockName,
    /// As it was seen just before.
    pub(crate) holder: Option<&'a Holder>,
    /// The fence that the caller named.
    pub(crate) fence: u64,
    pub(crate) reason: &'a str,
}

impl Ledger {
    fn audit(
        &self,
        what: &'static str,
        (by, from): (&str, &str),
        lock: Option<&LockName>,
        why: &str,
    ) {
        let name = lock.map(LockName::as_str);
        warn!(target: "leasehold::audit", what, by, from, lock = name, why, "audit");
        let members = json!({"what": what, "by": by, "from": from, "reason": why});
        self.events.tell("audit", lock.cloned(), members);
    }

    /// Somebody was kept from doing something. Not all of it is written: strangers cause it.
    pub(crate) fn denied(&self, who: (&str, &str), lock: Option<&LockName>, why: &str) {
        match self.refusals.admit(Instant::now()) {
            Some(0) => self.audit("refused", who, lock, why),
            Some(more) => {
                let why = format!("{why}; {more} refusals before this one are not on record");
                self.audit("refused", who, lock, &why);
            }
            None => _ = self.metrics.http.refusals_left_out.inc(),
        }
    }

    /// An admin wants a lock taken away. On record before it is tried.
    pub(crate) fn force_asked(&self, who: (&str, &str), lock: &LockName, reason: &str) {
        self.audit("force-release asked", who, Some(lock), reason);
    }

    /// A lock was not taken away.
    pub(crate) fn force_refused(
        &self,
        who: (&str, &str),
        lock: &LockName,
        why: &str,
        is_past_fence: bool,
    ) {
        self.audit("force-release refused", who, Some(lock), why);
        if is_past_fence {
            self.metrics.leases.fencing_rejections.inc();
        }
    }

    /// Nobody held the lock that was to be taken away.
    pub(crate) fn force_found_free(&self, who: (&str, &str), lock: &LockName, reason: &str) {
        self.audit("force-release of a free lock", who, Some(lock), reason);
    }

    /// A lock was taken away from its holder.
    pub(crate) fn forced(&self, who: (&str, &str), forced: &Forced<'_>) {
        let &Forced { lock, holder, fence, reason } = forced;
        self.audit("force-release", who, Some(lock), reason);
        self.metrics.leases.force_releases.inc();
        if let Some(holder) = holder {
            self.known.ended(lock, holder);
            self.keys.ended(holder);
            self.metrics.leases.lost("forced");
            self.stats.lost();
        }
        let (by, _) = who;
        let members = json!({
            "holder": holder.map(Holder::label),
            "fence": fence,
            "by": by,
            "reason": reason,
        });
        self.events.tell("force-released", Some(lock.clone()), members);
    }
}
