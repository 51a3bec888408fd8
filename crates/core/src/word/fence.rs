//! The fencing token: a number that grows with each acquisition of one lock name.

use std::fmt;

use crate::WallMicros;

/// A fence, below 2^53 so that Lua, JavaScript and SQL compare it exactly.
///
/// Storage keeps the highest fence it has seen and rejects lower ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(u64);

impl Fence {
    /// Below every fence that is ever given out.
    pub const ZERO: Self = Self(0);
    /// The largest number that a double holds exactly together with its successor.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A wall clock may propose at most this: a clock that shows the year 2200 by mistake must
    /// leave room for others to go one higher, more than 10^12 times.
    const CLOCK_MAX: u64 = (1 << 53) - (1 << 40);

    /// Half of that room: so many acquisitions after a wild clock, a lock is still like any other.
    pub const SPENT_ABOVE: u64 = Self::CLOCK_MAX + (1 << 39);

    /// A fence, if the number is below 2^53.
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// One higher; [`Fence::MAX`] stays where it is and is then refused by every node.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1).min(Self::MAX.0))
    }

    /// Whether neither a clock nor those who went one higher got here: somebody made it up. It is no floor for other locks, or
    /// one such lock would end them all.
    pub fn is_spent(self) -> bool {
        self.0 > Self::SPENT_ABOVE
    }

    /// What the clock proposes. Safety never rests on it: a good clock only makes the first round
    /// succeed.
    pub fn from_clock(clock: WallMicros) -> Self {
        Self(clock.0.min(Self::CLOCK_MAX))
    }

    /// The proposal of a first round: above everything seen, and near the clock.
    pub fn proposal(clock: WallMicros, seen: Self) -> Self {
        Self::from_clock(clock).max(seen.next())
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_stay_exact_in_a_double() {
        assert_eq!(Fence::new(1 << 53), None);
        assert_eq!(Fence::MAX.get() as f64 as u64, Fence::MAX.get());
        assert_eq!(Fence::MAX.next(), Fence::MAX);
    }

    #[test]
    fn a_proposal_is_above_what_was_seen_whatever_the_clock_says() {
        let seen = Fence::new(5_000).unwrap();
        assert_eq!(Fence::proposal(WallMicros(10), seen).get(), 5_001);
        assert_eq!(Fence::proposal(WallMicros(9_000), seen).get(), 9_000);
        let wild = Fence::proposal(WallMicros(u64::MAX), seen);
        assert!(wild > seen && wild.next() > wild, "a wild clock leaves room above it");
    }

    #[test]
    fn a_fence_is_spent_only_where_no_clock_and_no_use_can_have_brought_it() {
        let wild = Fence::from_clock(WallMicros(u64::MAX));
        assert!(!wild.is_spent() && !wild.next().is_spent(), "the next one after a wild clock");
        assert!(!Fence::new(wild.get() + 1_000_000_000).unwrap().is_spent());
        assert!(Fence::MAX.is_spent());
    }
}
