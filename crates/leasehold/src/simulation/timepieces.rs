//! The clocks of one run. The world's clock is true time. A node has a wall clock that can be wrong
//! from the start, step and slew; a client has a boot clock that can miss a pause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Moment, WallMicros};

use super::world::World;
use crate::clock::Clock;

/// Clocks that NTP keeps are at most so far from true time: two of them are within the skew.
pub(super) const KEPT_WITHIN_MICROS: i64 = 40_000;

/// The wall clock of one node.
#[derive(Debug)]
pub(super) struct WallClock {
    world: Arc<World>,
    stretches: Mutex<Vec<Stretch>>,
}

/// From `since` on, the clock is `ahead` of true time and gains `ppm` millionths.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    since: Moment,
    ahead_nanos: i64,
    ppm: i64,
}

impl Stretch {
    fn ahead_nanos(&self, at: Moment) -> i64 {
        let gained = i128::from(at.since(self.since).as_nanos() as u64) * i128::from(self.ppm);
        self.ahead_nanos + (gained / 1_000_000) as i64
    }
}

impl WallClock {
    /// A clock that is about right, as NTP keeps it.
    pub(super) fn new(world: &Arc<World>) -> Self {
        let ahead = world.below(2 * KEPT_WITHIN_MICROS as u64) as i64 - KEPT_WITHIN_MICROS;
        let first = Stretch { since: world.now(), ahead_nanos: ahead * 1000, ppm: 0 };
        Self { world: world.clone(), stretches: Mutex::new(vec![first]) }
    }

    fn stretches(&self) -> MutexGuard<'_, Vec<Stretch>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is ahead of true time, in microseconds; negative for behind.
    pub(super) fn ahead_micros(&self) -> i64 {
        self.ahead_at(self.world.now()) / 1000
    }

    fn ahead_at(&self, at: Moment) -> i64 {
        let stretches = self.stretches();
        let current = stretches.iter().rev().find(|one| one.since <= at).unwrap_or(&stretches[0]);
        current.ahead_nanos(at)
    }

    /// It is set to be so far ahead of true time.
    pub(super) fn set(&self, ahead_micros: i64) {
        let (since, ppm) = (self.world.now(), self.ppm());
        self.stretches().push(Stretch { since, ahead_nanos: ahead_micros * 1000, ppm });
    }

    /// It gains so many millionths from now on; negative for less than none.
    pub(super) fn slew(&self, ppm: i64) {
        let since = self.world.now();
        let ahead_nanos = self.ahead_at(since);
        self.stretches().push(Stretch { since, ahead_nanos, ppm });
    }

    fn ppm(&self) -> i64 {
        self.stretches().last().map_or(0, |last| last.ppm)
    }

    /// How much it went ahead at most between any two moments from `from` until `to`.
    pub(super) fn gained(&self, from: Moment, to: Moment) -> Duration {
        let mut points = vec![self.ahead_at(from)];
        let stretches = self.stretches();
        for (before, after) in stretches.iter().zip(stretches.iter().skip(1)) {
            if from < after.since && after.since <= to {
                points.extend([before.ahead_nanos(after.since), after.ahead_nanos]);
            }
        }
        drop(stretches);
        points.push(self.ahead_at(to));
        let (mut lowest, mut most) = (i64::MAX, 0);
        for point in points {
            lowest = lowest.min(point);
            most = most.max(point - lowest);
        }
        Duration::from_nanos(most as u64)
    }
}

impl Clock for WallClock {
    /// The boot clock of a node is true: only wall clocks are set.
    fn now(&self) -> Moment {
        self.world.now()
    }

    fn wall(&self) -> WallMicros {
        WallMicros(self.world.wall().0.saturating_add_signed(self.ahead_micros()))
    }
}

/// The clocks of one client.
#[derive(Debug)]
pub(super) struct ClientClock {
    world: Arc<World>,
    label: String,
    missed: AtomicU64,
    /// When it last stood still, in nanoseconds of true time.
    stood_still: AtomicU64,
    wall_ahead_micros: i64,
}

impl ClientClock {
    /// A boot clock that missed nothing yet, and any wall clock: nothing rests on that.
    pub(super) fn new(world: &Arc<World>, label: &str) -> Arc<Self> {
        let far = [40, 40, 600_000, 365 * 86_400_000][world.below(4) as usize] * 1000;
        Arc::new(Self {
            world: world.clone(),
            label: label.to_owned(),
            missed: AtomicU64::new(0),
            stood_still: AtomicU64::new(0),
            wall_ahead_micros: world.below(2 * far) as i64 - far as i64,
        })
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The client's machine stands still, and its boot clock does not count that. Nobody else gets
    /// anything done meanwhile, and everybody else's clock goes on.
    pub(super) fn miss(&self, time: Duration) {
        self.world.note(format_args!("{} stands still and does not know", self.label));
        self.world.skip(time);
        self.missed.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
        self.stood_still.store(self.world.now().as_nanos(), Ordering::SeqCst);
    }

    /// How much its boot clock is behind true time.
    pub(super) fn missed(&self) -> Duration {
        Duration::from_nanos(self.missed.load(Ordering::SeqCst))
    }

    /// Whether it stood still and came back within the last `time`.
    pub(super) fn stood_still_within(&self, time: Duration) -> bool {
        let stood_still = Moment::from_nanos(self.stood_still.load(Ordering::SeqCst));
        self.world.now() < stood_still.plus(time)
    }
}

impl Clock for ClientClock {
    fn now(&self) -> Moment {
        self.world.now().less(self.missed())
    }

    fn wall(&self) -> WallMicros {
        WallMicros(self.world.wall().0.saturating_add_signed(self.wall_ahead_micros))
    }
}
