//! Facts that were seen by looking at the nodes: what other instances and the command line did, what became
//! of leases that were granted here, how the nodes are.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use leasehold::{Holder, LockName, LockStatus, NodeHealth, Owner};
use serde_json::json;
use tracing::warn;

use super::{Ledger, Owned};
use crate::waiting::Waiting;

/// Why most leases are lost.
const RAN_OUT: &str = "it ran out before its holder gave it back";
/// How far from its last known end a lease may vanish and still have expired.
const NEAR_ITS_END: Duration = Duration::from_millis(750);
/// By so much longer than it was told to be good a lease may be kept, if the grant took a while.
const A_MOMENT: Duration = Duration::from_millis(5);

impl Ledger {
    /// These are all locks that are held, by a look that began at `at`.
    pub(crate) fn seen_all(&self, held: &[LockStatus], at: Instant) {
        let holders: HashMap<&LockName, &Owner> =
            held.iter().filter_map(|status| Some((&status.name, status.holder()?))).collect();
        for (lock, owned) in self.known.owners() {
            let has_it = holders.get(&lock).is_some_and(|owner| owner.is(&owned.holder));
            if !has_it {
                self.seen_free(&lock, &owned, at, None);
            }
        }
        held.iter().for_each(|status| self.seen_held(status, at));
    }

    /// This is how one lock is, by a look that began at `at`.
    pub(crate) fn seen(&self, status: &LockStatus, at: Instant) {
        let lock = &status.name;
        if let Some(owned) = self.known.owner(lock)
            && !status.holder().is_some_and(|owner| owner.is(&owned.holder))
        {
            self.seen_free(lock, &owned, at, Some(status));
        }
        self.seen_held(status, at);
    }

    /// This is how a lock is near the end that a holder was told here, or at it, by a look that began at
    /// `at`. If the nodes still have it then, nobody gave it back, at any instance, and it is lost.
    pub(crate) fn seen_near_end(&self, owned: &Owned, status: &LockStatus, at: Instant) {
        let lock = &status.name;
        if !status.holder().is_some_and(|owner| owner.is(&owned.holder)) {
            return self.seen_free(lock, owned, at, Some(status));
        }
        let (Some(granted), Some(left)) = (&owned.granted, status.expires_in()) else { return };
        // As the caller that renewed it last counts.
        let told = at + left.saturating_sub(self.drift.allowance(granted.ttl));
        if told > granted.until + A_MOMENT {
            self.known.lasts(lock, &owned.holder, told);
        } else if at < granted.until {
            self.known.seen(lock, &owned.holder, at, Some(at + left));
        } else {
            self.lost(lock, &owned.holder, "expired", RAN_OUT);
        }
    }

    /// Somebody holds a lock. If nobody was told of it, another instance or the command line granted it.
    fn seen_held(&self, status: &LockStatus, at: Instant) {
        let Some(Owner::Holder(holder)) = status.holder() else { return };
        let expires = status.expires_in().map(|left| at + left);
        let lock = &status.name;
        if self.known.has_ended(lock, holder) {
            return;
        }
        let fence = status.fence_of(&Owner::Holder(holder.clone())).map_or(0, |fence| fence.get());
        match self.known.owner(lock) {
            Some(owned) if owned.holder == *holder => {
                self.known.seen(lock, holder, at, expires);
            }
            // Told of after this look began.
            Some(owned) if owned.at >= at => {}
            _ => {
                let (holder, granted) = (holder.clone(), None);
                let members = json!({"holder": holder.label(), "fence": fence, "seen": true});
                self.began(lock, Owned { holder, fence, at, expires, granted }, members);
            }
        }
    }

    /// Somebody who was told of holds a lock no more; `status` is what the nodes say of it, if that was
    /// asked.
    fn seen_free(&self, lock: &LockName, owned: &Owned, at: Instant, status: Option<&LockStatus>) {
        if owned.at >= at || self.known.ended(lock, &owned.holder).is_none() {
            return;
        }
        self.gone(lock, owned, status);
    }

    /// A holder was seen to have a lease no more, and nobody told us how that came.
    pub(super) fn gone(&self, lock: &LockName, owned: &Owned, status: Option<&LockStatus>) {
        // As a release, or as a loss.
        let (word, lost) = match &owned.granted {
            Some(granted) if self.is_early(granted) => {
                match status.map(|status| ended_early(&owned.holder, owned.fence, status)) {
                    // Counted where it was done.
                    Some("forced") => ("", ""),
                    Some(word) => (word, ""),
                    None => ("elsewhere", ""),
                }
            }
            Some(granted) if granted.is_wanted => ("", "quorum"),
            Some(granted) if granted.was_seen_near_its_end() => ("", "expired"),
            Some(_) => ("unknown", ""),
            // Seen only; the instance that granted it counts.
            None => ("", ""),
        };
        if owned.granted.is_some() {
            self.keys.ended(&owned.holder);
        }
        if !word.is_empty() {
            self.metrics.leases.released(word, None);
        }
        if !lost.is_empty() {
            self.count_loss(owned, lost);
            let (holder, fence) = (owned.holder.label(), owned.fence);
            warn!(%lock, holder, fence, reason = lost, why = RAN_OUT, "a lease is lost");
        }
        let has_run_out = match (&owned.granted, owned.expires) {
            (None, Some(expires)) => expires <= Instant::now() + NEAR_ITS_END,
            (None, None) => false,
            _ => word != "elsewhere",
        };
        let event = if has_run_out { "expired" } else { "released" };
        let members = json!({"holder": owned.holder.label(), "fence": owned.fence, "seen": true});
        self.events.tell(event, Some(lock.clone()), members);
    }

    /// A lease that was granted here and is near the end that its holder was told, or at it. Waits for one.
    pub(crate) async fn next_end(&self) -> (LockName, Owned) {
        self.known.next_end().await
    }

    /// A node votes no more, or votes again.
    pub(crate) fn node_changed(
        &self,
        health: &NodeHealth,
        was: &'static str,
        (state, why): (&'static str, Option<String>),
    ) {
        let members = json!({
            "node": health.node.as_str(), "state": state, "was": was, "why": why,
        });
        self.events.tell("node", None, members);
        warn!(node = %health.node, was, state, why, "a node changed");
    }

    /// How the nodes are, for their figures.
    pub(crate) fn nodes_seen(&self, nodes: &[NodeHealth]) {
        self.metrics.nodes.note(nodes);
    }

    /// How many nodes vote, what is held and who waits, for the gauges.
    pub(crate) fn gauged(&self, available: usize, held: &[LockStatus], waiting: &Waiting) {
        let waiters = waiting.total();
        self.stats.note(available, held.len(), waiters);
        let of = |name: &str| {
            let is_held = held.iter().any(|status| status.name.as_str() == name);
            (is_held, LockName::new(name).map_or(0, |lock| waiting.count(&lock)))
        };
        self.metrics.leases.note(held.len(), waiters, self.stats.contention_rate(), of);
    }
}

/// How a lease came to its end that had time left, by what the nodes say of its lock since: a release at
/// another instance leaves its fence, and force raises it by one. Where nodes still name its holder, or have
/// no fence, somebody deleted what they had. Where others had the lock since, nothing tells a release from
/// force; it counts as a release, which nearly all are.
pub(crate) fn ended_early(holder: &Holder, fence: u64, status: &LockStatus) -> &'static str {
    let mut sightings = status.nodes.iter().filter_map(|(_, seen)| seen.as_ref().ok());
    let is_named = sightings.any(|seen| seen.owner.as_ref().is_some_and(|o| o.is(holder)));
    let found = status.fence().map_or(0, |fence| fence.get());
    match status.owner() {
        _ if is_named || found < fence => "unknown",
        None if found == fence + 1 => "forced",
        _ => "elsewhere",
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Locks;

    use super::*;

    #[tokio::test]
    async fn a_look_that_began_before_a_release_is_no_news() {
        let locks = Locks::open("memory:").await.unwrap();
        let ledger = Ledger::new("memory", &[], &locks);
        let guard = locks.lock("l").acquire().await.unwrap();
        let (lock, holder) = (guard.name().clone(), guard.holder().clone());
        let (began, seen) = (Instant::now(), locks.inspect("l").await.unwrap());
        let _ = guard.release().await;
        ledger.known.ended(&lock, &holder);
        ledger.seen_held(&seen, began);
        let history = || ledger.history(&lock, 9, true);
        assert!(history().is_empty(), "{:?}", history());

        // Nor is one that began before a grant the end of it.
        let guard = locks.lock("l").acquire().await.unwrap();
        let (holder, fence) = (guard.holder().clone(), guard.fence().get());
        let owned = Owned { holder, fence, at: Instant::now(), expires: None, granted: None };
        ledger.known.began(&lock, owned.clone());
        ledger.seen_free(&lock, &owned, began, None);
        assert!(history().is_empty(), "{:?}", history());
        ledger.seen_free(&lock, &owned, Instant::now(), None);
        assert_eq!(history()[0]["type"], "released");
    }
}
