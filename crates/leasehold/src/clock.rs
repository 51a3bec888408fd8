//! The one place that reads clocks. Everything else is told the time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::{Moment, WallMicros};

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The clock that leases are judged by. Must not stop while the machine sleeps, and must not
    /// jump.
    fn now(&self) -> Moment;

    /// The wall clock. Only makes first proposals likely to succeed; safety never rests on it.
    fn wall(&self) -> WallMicros;
}

/// The machine's clocks: CLOCK_BOOTTIME on Linux, which goes on counting during suspend (Rust's
/// `Instant` does not), and the wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(LEASE_CLOCK);
        let (seconds, nanos) = (time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u64);
        Moment::from_nanos(seconds * 1_000_000_000 + nanos)
    }

    fn wall(&self) -> WallMicros {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallMicros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const LEASE_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
// Elsewhere the monotonic clock is the best that can be had without unsafe code; on macOS it counts
// suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const LEASE_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_forward() {
        let (a, wall) = (SystemClock.now(), SystemClock.wall());
        std::thread::yield_now();
        assert!(SystemClock.now() >= a);
        assert!(wall.0 > 1_600_000_000_000_000, "the wall clock is in microseconds: {wall:?}");
    }
}
