//! The one place that reads clocks. Everything else is told the time.

#[cfg(feature = "sqlite")]
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use leasehold_core::{Moment, WallMicros};

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The clock that leases are judged by. Must not stop while the machine sleeps, and must not
    /// jump.
    fn now(&self) -> Moment;

    /// The wall clock. Only makes first proposals likely to succeed; safety never rests on it.
    fn wall(&self) -> WallMicros;

    /// By how many nanoseconds `now` is ahead of the same clock of other processes of this machine:
    /// a container may have a boot clock of its own. Fails if nobody can tell.
    fn lead(&self) -> io::Result<i64> {
        Ok(0)
    }
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

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn lead(&self) -> io::Result<i64> {
        namespace::lead()
    }
}

/// A clock as all processes of the machine have it: what is written for others is told by it.
#[cfg(feature = "sqlite")]
#[derive(Debug)]
pub(crate) struct SharedClock {
    clock: Arc<dyn Clock>,
    lead: i64,
}

#[cfg(feature = "sqlite")]
impl SharedClock {
    pub(crate) fn of(clock: Arc<dyn Clock>) -> io::Result<Self> {
        clock.lead().map(|lead| Self { clock, lead })
    }
}

#[cfg(feature = "sqlite")]
impl Clock for SharedClock {
    fn now(&self) -> Moment {
        let lead = std::time::Duration::from_nanos(self.lead.unsigned_abs());
        match self.lead {
            0.. => self.clock.now().less(lead),
            _ => self.clock.now().plus(lead),
        }
    }

    fn wall(&self) -> WallMicros {
        self.clock.wall()
    }
}

/// Time namespaces, in which the boot clock is ahead of the machine's or behind it.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod namespace {
    use std::{fs, io};

    pub(super) fn lead() -> io::Result<i64> {
        let offsets = match fs::read_to_string("/proc/self/timens_offsets") {
            Ok(offsets) => offsets,
            Err(error) if error.kind() == io::ErrorKind::NotFound && has_proc() => {
                // The kernel has no such namespaces.
                return Ok(0);
            }
            Err(error) => return Err(unknown(&format!("/proc/self/timens_offsets: {error}"))),
        };
        // The offsets are those of its children, which it may have sent elsewhere.
        let [own, childrens] = ["time", "time_for_children"]
            .map(|name| fs::read_link(format!("/proc/self/ns/{name}")).ok());
        if own != childrens {
            return Err(unknown("its children are in another one, and /proc tells only of theirs"));
        }
        of_boot_clock(&offsets).ok_or_else(|| unknown(&format!("/proc has {offsets:?}")))
    }

    fn has_proc() -> bool {
        fs::metadata("/proc/self/ns").is_ok()
    }

    fn unknown(why: &str) -> io::Error {
        io::Error::other(format!("nobody can tell in which time namespace this process is: {why}"))
    }

    /// The nanoseconds in a line such as `boottime  3600  0`.
    pub(super) fn of_boot_clock(offsets: &str) -> Option<i64> {
        let line = offsets.lines().find_map(|line| line.trim().strip_prefix("boottime"))?;
        let mut numbers = line.split_whitespace().map(str::parse::<i64>);
        let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
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

    /// A clock that is as far ahead of the machine's.
    #[cfg(feature = "sqlite")]
    #[derive(Debug)]
    struct Ahead(i64);

    #[cfg(feature = "sqlite")]
    impl Clock for Ahead {
        fn now(&self) -> Moment {
            Moment::from_nanos(1_000_u64.saturating_add_signed(self.0))
        }

        fn wall(&self) -> WallMicros {
            WallMicros(0)
        }

        fn lead(&self) -> io::Result<i64> {
            Ok(self.0)
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn all_processes_of_a_machine_share_one_time_whatever_their_boot_clocks_show() {
        for lead in [0, 400, -400] {
            let shared = SharedClock::of(Arc::new(Ahead(lead))).unwrap();
            assert_eq!(shared.now(), Moment::from_nanos(1_000), "{lead}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_offset_of_the_boot_clock_is_read_with_its_sign_and_noise_is_not_taken_for_one() {
        let read = namespace::of_boot_clock;
        assert_eq!(read("monotonic  1  2\nboottime  3600  5\n"), Some(3_600_000_000_005));
        assert_eq!(read("boottime         -3         999999999\n"), Some(-2_000_000_001));
        for noise in [
            "",
            "monotonic 1 2",
            "boottime",
            "boottime 1",
            "boottime x 2",
            "boottime 99999999999999 0",
        ] {
            assert_eq!(read(noise), None, "{noise:?}");
        }
    }
}
