//! Time, chance and memory of one simulated run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Moment, WallMicros};
use leasehold_judge::Chance;
use tokio::time::Instant;

use crate::clock::Clock;

/// When the simulated wall clock starts, in microseconds.
const WALL_START: u64 = 1_800_000_000_000_000;
/// When the simulated boot clock starts.
const BOOT_START: Moment = Moment::from_millis(1_000_000);

/// What all of one run share. Its clock is true time.
#[derive(Debug)]
pub(super) struct World {
    start: Instant,
    skipped: AtomicU64,
    chance: Mutex<Chance>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    history: Vec<String>,
    violations: Vec<String>,
}

impl World {
    /// To be called inside of a runtime whose time is paused.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            start: Instant::now(),
            skipped: AtomicU64::new(0),
            // Not the library's dice, which are loaded with the seed itself.
            chance: Mutex::new(Chance::new(seed ^ 0x5eed_da7a)),
            told: Mutex::default(),
        }
    }

    /// Time passes while all timers stand still: as if every process had been stopped.
    pub(super) fn skip(&self, time: Duration) {
        self.skipped.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
        self.note(format_args!("time skips {time:?}"));
    }

    /// A number below `sides`.
    pub(super) fn below(&self, sides: u64) -> u64 {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).below(sides)
    }

    /// True in so many of a hundred cases.
    pub(super) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// So many milliseconds, or one of those between.
    pub(super) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to.saturating_sub(from) + 1))
    }

    pub(super) async fn sleep(&self, from: u64, to: u64) {
        tokio::time::sleep(self.millis(from, to)).await;
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line of history.
    pub(super) fn note(&self, line: impl std::fmt::Display) {
        let at = self.now().since(BOOT_START);
        self.told().history.push(format!("{:>10.3} ms  {line}", at.as_secs_f64() * 1e3));
    }

    /// Something happened that must never happen.
    pub(super) fn violation(&self, line: impl std::fmt::Display) {
        self.note(format_args!("VIOLATION: {line}"));
        self.told().violations.push(line.to_string());
    }

    pub(super) fn require(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.violation(otherwise());
        }
    }

    pub(super) fn history(&self) -> Vec<String> {
        self.told().history.clone()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.told().violations.clone()
    }
}

impl Clock for World {
    fn now(&self) -> Moment {
        let skipped = Duration::from_nanos(self.skipped.load(Ordering::SeqCst));
        BOOT_START.plus(self.start.elapsed()).plus(skipped)
    }

    fn wall(&self) -> WallMicros {
        WallMicros(WALL_START + self.now().since(BOOT_START).as_micros() as u64)
    }
}
