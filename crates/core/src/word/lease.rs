//! The right a holder has, and the one formula for how long it lasts.

use std::time::Duration;

use crate::{Drift, Fence, Holder, LockName, Moment, Ttl};

/// What a holder has after a won round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which lock.
    pub lock: LockName,
    /// Who holds it.
    pub holder: Holder,
    /// The fencing token.
    pub fence: Fence,
    /// What the nodes have for it: the fence, or a higher number since it was refreshed.
    pub token: Fence,
    /// How long the nodes keep it after each extension.
    pub ttl: Ttl,
    /// The moment from which the holder must act as if it had lost it.
    pub deadline: Moment,
    /// Whether the last attempt to extend failed.
    pub uncertain: bool,
}

/// What a holder may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The lock is held.
    Held {
        /// Until then, without another extension.
        until: Moment,
    },
    /// The lock is held, but the last extension failed.
    Uncertain {
        /// Until then.
        until: Moment,
    },
    /// No more, and never again.
    Lost,
}

impl Lease {
    /// The deadline of a round that was sent at `asked_at`.
    ///
    /// Counted from before the first request left. The nodes started to count later, so a slow
    /// answer can only shorten what we believe, never lengthen it. Drift is what a node's clock may
    /// run ahead of ours within the Ttl.
    pub fn deadline(asked_at: Moment, ttl: Ttl, drift: Drift) -> Moment {
        Self::end(asked_at, ttl.get(), drift)
    }

    /// Until when what a node keeps for `lasts` can be relied on, if it was asked at `asked_at`.
    pub(crate) fn end(asked_at: Moment, lasts: Duration, drift: Drift) -> Moment {
        asked_at.plus(lasts.saturating_sub(drift.allowance(lasts)))
    }

    /// What the holder may believe at `now`.
    pub fn state_at(&self, now: Moment) -> LeaseState {
        if now >= self.deadline {
            LeaseState::Lost
        } else if self.uncertain {
            LeaseState::Uncertain { until: self.deadline }
        } else {
            LeaseState::Held { until: self.deadline }
        }
    }

    /// Time left until the deadline.
    pub fn validity_at(&self, now: Moment) -> Duration {
        self.deadline.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_ten_seconds_is_good_for_102_milliseconds_less() {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let deadline = Lease::deadline(Moment::from_millis(5), ttl, Drift::DEFAULT);
        assert_eq!(deadline, Moment::from_millis(5 + 10_000 - 102));
    }

    #[test]
    fn a_drift_larger_than_the_ttl_leaves_nothing_and_does_not_wrap() {
        let ttl = Ttl::new(Duration::from_millis(100)).unwrap();
        let wild = Drift { parts_per_million: 0, fixed: Duration::from_secs(5) };
        assert_eq!(Lease::deadline(Moment::from_millis(5), ttl, wild), Moment::from_millis(5));
    }
}
