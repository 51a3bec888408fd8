//! The one clock by which everybody writes, which is the machine's, and the clock that a holder goes
//! by, which may miss a pause.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold::clock::{Clock, SystemClock};
use leasehold_core::{Moment, WallMicros};

/// Nanoseconds since the machine was booted, suspend included. No process can disagree: the system
/// is asked, not the C library, whose clocks a test may move.
pub fn boot_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec.max(0) as u64
}

/// Two readings of different clocks are compared only if they were made within this.
const SAME_MOMENT: Duration = Duration::from_micros(50);

/// What this process misses is at least this: less is the drift of its two clocks.
const MISSED_AT_LEAST: Duration = Duration::from_millis(10);

/// A holder's clock: that of the C library, which [`WallClock::miss`] moves. It begins as the boot
/// clock and knows what it missed, so that its times can be told in true time.
///
/// [`WallClock::miss`]: leasehold_testkit::WallClock::miss
#[derive(Debug)]
pub struct HolderClock {
    start: Instant,
    /// The boot clock at `start`.
    boot: u64,
    missed: Mutex<Vec<Missed>>,
}

/// A pause that the clock missed.
#[derive(Debug, Clone, Copy)]
struct Missed {
    /// What the clock showed.
    own: u64,
    /// When it was noticed, in true time.
    noticed: u64,
    /// When nothing more was known to be missed, in true time.
    right: u64,
    /// All that was missed since the start.
    total: u64,
}

impl HolderClock {
    /// A clock that is right for now.
    pub fn start() -> Self {
        let (start, boot) = (Instant::now(), boot_nanos());
        let first = Missed { own: boot, noticed: boot, right: boot, total: 0 };
        Self { start, boot, missed: Mutex::new(vec![first]) }
    }

    fn missed(&self) -> MutexGuard<'_, Vec<Missed>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> u64 {
        self.boot + self.start.elapsed().as_nanos() as u64
    }

    /// Compares the clock with true time, and returns the latter.
    pub fn look(&self) -> u64 {
        loop {
            let before = boot_nanos();
            let own = self.own();
            let now = boot_nanos();
            if now - before > SAME_MOMENT.as_nanos() as u64 {
                continue;
            }
            let mut missed = self.missed();
            let last = missed.last_mut().expect("it begins with one");
            let total = now.saturating_sub(own);
            if total < last.total + MISSED_AT_LEAST.as_nanos() as u64 {
                last.right = now.max(last.right);
                return now;
            }
            missed.push(Missed { own, noticed: now, right: now, total });
            return now;
        }
    }

    /// A moment of this clock that is past, in true time; the earliest, if it stood still then.
    pub fn past(&self, own: u64) -> u64 {
        let missed = self.missed();
        let last = missed.iter().rev().find(|missed| missed.own < own);
        own + last.map_or(0, |missed| missed.total)
    }

    /// A moment of this clock that is to come, in true time, if nothing more is missed.
    pub fn to_come(&self, own: u64) -> u64 {
        own + self.missed().last().map_or(0, |missed| missed.total)
    }

    /// The pauses that were missed, from number `from` on: how long, and between when and when.
    pub fn pauses(&self, from: usize) -> Vec<(u64, u64, u64)> {
        let missed = self.missed();
        let pause =
            |pair: &[Missed]| (pair[1].total - pair[0].total, pair[0].right, pair[1].noticed);
        missed.windows(2).skip(from).map(pause).collect()
    }
}

impl Clock for HolderClock {
    fn now(&self) -> Moment {
        self.look();
        Moment::from_nanos(self.own())
    }

    fn wall(&self) -> WallMicros {
        SystemClock.wall()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pauses: &[(u64, u64)]) -> HolderClock {
        let clock = HolderClock::start();
        let mut total = 0;
        *clock.missed() = vec![Missed { own: 0, noticed: 0, right: 90, total }];
        for (own, nanos) in pauses {
            total += nanos;
            let noticed = own + total;
            clock.missed().push(Missed { own: *own, noticed, right: noticed + 5, total });
        }
        clock
    }

    #[test]
    fn a_clock_that_misses_nothing_shows_true_time() {
        let clock = HolderClock::start();
        let before = boot_nanos();
        let now = clock.now().as_nanos();
        let after = boot_nanos();
        let slack = MISSED_AT_LEAST.as_nanos() as u64;
        assert!((before - slack..=after + slack).contains(&now));
        assert_eq!((clock.past(now), clock.to_come(now)), (now, now));
        assert!(clock.pauses(0).is_empty());
    }

    #[test]
    fn what_was_missed_is_added_to_moments_after_it_and_to_all_that_come() {
        let clock = with(&[(100, 1_000), (200, 500)]);
        assert_eq!(clock.past(50), 50);
        assert_eq!(clock.past(100), 100, "the earliest, where the clock stood still");
        assert_eq!(clock.past(150), 1_150);
        assert_eq!(clock.past(250), 1_750);
        assert_eq!(clock.to_come(150), 1_650);
        assert_eq!(clock.pauses(0), [(1_000, 90, 1_100), (500, 1_105, 1_700)]);
        assert_eq!(clock.pauses(1), [(500, 1_105, 1_700)]);
    }
}
