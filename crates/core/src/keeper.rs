//! When to extend a lease, and when it is lost. Policy only: sending is the driver's work.

use std::fmt;
use std::time::Duration;

use crate::{Lease, Moment};

/// Why a holder may no longer believe that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed and no quorum had extended the lease.
    Expired {
        /// What the last failed extension met with, if one was tried.
        last: Option<String>,
    },
    /// The longest time that the caller allowed is over.
    MaxHold {
        /// That time.
        limit: Duration,
    },
}

/// Keeps one lease.
#[derive(Debug, Clone)]
pub struct Keeper {
    lease: Lease,
    extends: bool,
    max_hold: Option<(Moment, Duration)>,
    next_extend: Moment,
    last_failure: Option<String>,
}

/// What a keeper wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperStep {
    /// Nothing until then.
    WaitUntil(Moment),
    /// Ask all nodes to extend, now.
    Extend,
    /// Tell the holder.
    Lost(LossReason),
}

impl Keeper {
    /// Keeps `lease`, acquired at `now`. With `extends` off it only watches the deadline.
    pub fn new(lease: Lease, now: Moment, extends: bool, max_hold: Option<Duration>) -> Self {
        let next_extend = now.plus(Self::extend_every(&lease));
        let max_hold = max_hold.map(|limit| (now.plus(limit), limit));
        Self { lease, extends, max_hold, next_extend, last_failure: None }
    }

    /// A third of the Ttl: two whole extensions may fail before the deadline is near.
    fn extend_every(lease: &Lease) -> Duration {
        lease.ttl.get() / 3
    }

    /// The lease as it stands.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// What to do at `now`.
    pub fn step(&self, now: Moment) -> KeeperStep {
        if let Some((end, limit)) = self.max_hold
            && now >= end
        {
            return KeeperStep::Lost(LossReason::MaxHold { limit });
        }
        if now >= self.lease.deadline {
            return KeeperStep::Lost(LossReason::Expired { last: self.last_failure.clone() });
        }
        if self.extends && now >= self.next_extend {
            return KeeperStep::Extend;
        }
        let mut wake = self.lease.deadline;
        if self.extends {
            wake = wake.min(self.next_extend);
        }
        if let Some((end, _)) = self.max_hold {
            wake = wake.min(end);
        }
        KeeperStep::WaitUntil(wake)
    }

    /// A quorum extended the lease; the question had been sent when `deadline` began to count.
    ///
    /// An answer that comes after the old deadline is too late: lost is for ever.
    pub fn extended(&mut self, now: Moment, deadline: Moment) {
        if now >= self.lease.deadline {
            return;
        }
        self.lease.deadline = self.lease.deadline.max(deadline);
        self.lease.uncertain = false;
        self.last_failure = None;
        self.next_extend = now.plus(Self::extend_every(&self.lease));
    }

    /// No quorum extended the lease. The old deadline stands, and it is tried again: soon, but not
    /// so often that a struggling node is drowned. `jitter` keeps many leases apart.
    pub fn failed(&mut self, now: Moment, evidence: String, jitter: u32) {
        self.lease.uncertain = true;
        self.last_failure = Some(evidence);
        let pause = self.lease.ttl.get() / 30;
        let pause = pause + pause.mul_f64(f64::from(jitter) / f64::from(u32::MAX));
        self.next_extend = now.plus(pause);
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { last: None } => f.write_str("its deadline passed"),
            Self::Expired { last: Some(last) } => {
                write!(f, "its deadline passed and it could not be extended: {last}")
            }
            Self::MaxHold { limit } => write!(f, "it was held for max_hold, {limit:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Drift, Fence, Holder, LockName, Ttl};

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn lease() -> Lease {
        let ttl = Ttl::new(Duration::from_millis(3000)).unwrap();
        Lease {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            fence: Fence::new(7).unwrap(),
            ttl,
            deadline: Lease::deadline(
                ms(0),
                ttl,
                Drift { parts_per_million: 0, fixed: Duration::ZERO },
            ),
            uncertain: false,
        }
    }

    #[test]
    fn it_extends_at_a_third_and_is_lost_at_the_deadline() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        assert_eq!(keeper.step(ms(999)), KeeperStep::WaitUntil(ms(1000)));
        assert_eq!(keeper.step(ms(1000)), KeeperStep::Extend);
        keeper.extended(ms(1010), ms(4000));
        assert_eq!(keeper.step(ms(1010)), KeeperStep::WaitUntil(ms(2010)));
        assert_eq!(keeper.lease().deadline, ms(4000));
        let lost = KeeperStep::Lost(LossReason::Expired { last: None });
        assert_eq!(keeper.step(ms(4000)), lost);
    }

    #[test]
    fn a_failed_extension_changes_nothing_and_is_tried_again() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.failed(ms(1000), "no quorum".into(), 0);
        assert_eq!(keeper.lease().deadline, ms(3000));
        assert!(keeper.lease().uncertain);
        assert_eq!(keeper.step(ms(1000)), KeeperStep::WaitUntil(ms(1100)));
        assert_eq!(keeper.step(ms(1100)), KeeperStep::Extend);
        keeper.extended(ms(1200), ms(4100));
        assert!(!keeper.lease().uncertain);
    }

    #[test]
    fn no_answer_turns_lost_into_held() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.extended(ms(3000), ms(9000));
        assert_eq!(keeper.lease().deadline, ms(3000));
        assert!(matches!(keeper.step(ms(3000)), KeeperStep::Lost(_)));
    }

    #[test]
    fn an_older_answer_never_shortens_the_lease() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.extended(ms(1000), ms(3900));
        keeper.extended(ms(1001), ms(3800));
        assert_eq!(keeper.lease().deadline, ms(3900));
    }

    #[test]
    fn max_hold_ends_even_a_lease_that_could_be_kept() {
        let limit = Duration::from_millis(1500);
        let mut keeper = Keeper::new(lease(), ms(0), true, Some(limit));
        keeper.extended(ms(1000), ms(4000));
        assert_eq!(keeper.step(ms(1400)), KeeperStep::WaitUntil(ms(1500)));
        assert_eq!(keeper.step(ms(1500)), KeeperStep::Lost(LossReason::MaxHold { limit }));
    }

    #[test]
    fn a_manual_lease_is_watched_but_not_extended() {
        let keeper = Keeper::new(lease(), ms(0), false, None);
        assert_eq!(keeper.step(ms(2000)), KeeperStep::WaitUntil(ms(3000)));
    }
}
