//! The core's only notions of time: a [`Moment`] and [`WallMicros`], which somebody else read from a
//! clock.

use std::fmt;
use std::time::Duration;

/// The shortest Ttl: below this a lease is eaten up by round trips and drift allowance.
pub const TTL_MIN: Duration = Duration::from_millis(100);

/// A point on the holder's own clock, which also runs while the machine sleeps. In nanoseconds
/// from an origin that only that clock knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// A moment from nanoseconds since the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A moment from milliseconds since the clock's origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment, later by `duration`; the end of time if that is too far.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// This moment, earlier by `duration`; the origin if that is too far.
    #[must_use]
    pub fn less(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this moment is; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// A node's (or a holder's) wall clock: microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallMicros(pub u64);

/// How long a node keeps an owner that nobody extends. Whole milliseconds, at least [`TTL_MIN`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// Why a duration cannot be a Ttl.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlError {
    /// Shorter than [`TTL_MIN`].
    TooShort {
        /// What was asked for.
        asked: Duration,
    },
    /// Longer than any backend can keep.
    TooLong {
        /// What was asked for.
        asked: Duration,
    },
}

impl Ttl {
    /// Ten years: far beyond use, far below where a backend's arithmetic would overflow.
    const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

    /// Checks `duration` and rounds it down to whole milliseconds.
    pub fn new(duration: Duration) -> Result<Self, TtlError> {
        if duration < TTL_MIN {
            return Err(TtlError::TooShort { asked: duration });
        }
        if duration > Self::MAX {
            return Err(TtlError::TooLong { asked: duration });
        }
        let whole = Duration::from_secs(duration.as_secs())
            + Duration::from_millis(u64::from(duration.subsec_millis()));
        Ok(Self(whole))
    }

    /// The duration.
    pub fn get(self) -> Duration {
        self.0
    }

    /// For the wire.
    pub fn as_millis(self) -> u64 {
        self.0.as_secs() * 1000 + u64::from(self.0.subsec_millis())
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { asked } => {
                write!(f, "a ttl must be at least {TTL_MIN:?}, {asked:?} was asked for")
            }
            Self::TooLong { asked } => {
                write!(f, "a ttl must be at most {:?}, {asked:?} was asked for", Ttl::MAX)
            }
        }
    }
}

impl std::error::Error for TtlError {}

/// Allowance for clocks that run at different speeds: a share of the time, and a fixed part for
/// the granularity with which nodes expire keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// Parts per million of the time that passes.
    pub parts_per_million: u32,
    /// Added once.
    pub fixed: Duration,
}

impl Drift {
    /// 1 % + 2 ms, as every Redlock uses. More makes leases shorter than their Ttl and survives
    /// clocks that are slewed harder; less does the opposite.
    pub const DEFAULT: Self = Self { parts_per_million: 10_000, fixed: Duration::from_millis(2) };

    /// How far two clocks may come apart while `elapsed` passes.
    pub fn allowance(self, elapsed: Duration) -> Duration {
        let share = elapsed.as_nanos() * u128::from(self.parts_per_million) / 1_000_000;
        Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX)).saturating_add(self.fixed)
    }

    /// How much of `elapsed`, by one clock, passed at least by every other: what may be told to somebody who
    /// counts it as past on a clock of its own.
    pub fn passed_at_least(self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.allowance(elapsed))
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_have_bounds_and_whole_milliseconds() {
        assert!(Ttl::new(Duration::ZERO).is_err());
        assert!(Ttl::new(Duration::from_micros(99_999)).is_err());
        assert!(Ttl::new(Duration::MAX).is_err());
        assert_eq!(Ttl::new(Duration::from_micros(100_999)).unwrap().as_millis(), 100);
        assert_eq!(Ttl::new(Duration::from_secs(30)).unwrap().as_millis(), 30_000);
    }

    #[test]
    fn the_default_drift_of_ten_seconds_is_102_milliseconds() {
        let allowance = Drift::DEFAULT.allowance(Duration::from_secs(10));
        assert_eq!(allowance, Duration::from_millis(102));
    }

    #[test]
    fn what_passed_at_least_is_less_by_the_drift_and_never_below_nothing() {
        let passed = |millis| Drift::DEFAULT.passed_at_least(Duration::from_millis(millis));
        assert_eq!(passed(10_000), Duration::from_millis(9898));
        assert_eq!(passed(1), Duration::ZERO);
    }

    #[test]
    fn moments_do_not_overflow() {
        let end = Moment::from_nanos(u64::MAX);
        assert_eq!(end.plus(Duration::MAX), end);
        assert_eq!(Moment::from_nanos(1).since(end), Duration::ZERO);
    }
}
