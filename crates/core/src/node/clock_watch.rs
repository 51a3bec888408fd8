//! Notices when a node's wall clock jumps. Redis and Valkey expire keys by that clock, so a jump
//! ends leases early (forward) or late (back).
//!
//! Each answer that carries the node's clock bounds the offset between that clock and ours: it was
//! read after we sent and before we received. Bounds of different answers must overlap once they
//! are widened by what drift may do in between; if they do not, the clock jumped. There is no
//! threshold to tune and a slow answer can never raise a false alarm.

use std::fmt;
use std::time::Duration;

use crate::{Drift, Moment, WallMicros};

/// One reading of a node's clock: when we asked, when we knew, and what it said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// When the question was sent, by our clock.
    pub sent: Moment,
    /// When the answer was read, by our clock.
    pub received: Moment,
    /// The node's clock.
    pub clock: WallMicros,
}

/// A node's clock moved by more than drift explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockJump {
    /// By how many microseconds, at least; negative for back.
    pub micros: i64,
    /// How far ahead it may have gone; zero if it went back.
    pub ahead: Duration,
    /// When we knew, by our clock.
    pub noticed: Moment,
    /// What the node's clock showed then.
    pub shown: WallMicros,
}

/// Follows the clock of one node.
#[derive(Debug, Clone)]
pub struct ClockWatch {
    drift: Drift,
    bounds: Option<Bounds>,
}

/// Node clock minus ours, in microseconds, lay within `low..=high` at `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    low: i64,
    high: i64,
    at: Moment,
}

impl Bounds {
    /// What `sample` tells by itself.
    pub(crate) fn of(sample: ClockSample) -> Self {
        // A node may say anything, and nothing that it says may overflow.
        let clock = i64::try_from(sample.clock.0).unwrap_or(i64::MAX);
        Self {
            low: clock.saturating_sub(micros(sample.received)).saturating_sub(1),
            high: clock.saturating_sub(micros(sample.sent)).saturating_add(1),
            at: sample.received,
        }
    }

    /// What both allow; only this, if nothing is.
    pub(crate) fn sharper(self, other: Self) -> Self {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Self { low, high, ..self } } else { self }
    }

    /// How far this clock is ahead of `other`, at least; negative if it is behind, zero if the two may
    /// agree.
    pub(crate) fn ahead_of(self, other: Self) -> i64 {
        let ahead = self.low.saturating_sub(other.high);
        let behind = other.low.saturating_sub(self.high);
        if ahead > 0 { ahead } else { behind.max(0).saturating_neg() }
    }

    /// What the node's clock shows at `now`, at most.
    pub(crate) fn latest(self, now: Moment) -> WallMicros {
        WallMicros(micros(now).saturating_add(self.high).max(0) as u64)
    }

    /// Node clock minus ours, in microseconds, at least.
    pub(crate) fn least_offset(self) -> i64 {
        self.low
    }

    /// What the node's clock shows at `now`, at least.
    pub(crate) fn earliest(self, now: Moment) -> WallMicros {
        WallMicros(micros(now).saturating_add(self.low).max(0) as u64)
    }
}

impl ClockWatch {
    /// Watches a clock that may drift by `drift` without anybody minding.
    pub fn new(drift: Drift) -> Self {
        Self { drift, bounds: None }
    }

    /// Takes a reading. Upon a jump, later readings are judged from the new time.
    pub fn observe(&mut self, sample: ClockSample) -> Option<ClockJump> {
        let fresh = Bounds::of(sample);
        let known = self.bounds.replace(fresh)?;
        if sample.received <= known.at {
            // An answer that was overtaken by a later one tells nothing new.
            self.bounds = Some(known);
            return None;
        }
        let slack = whole_micros(self.drift.allowance(sample.received.since(known.at)));
        if fresh.low > known.high.saturating_add(slack) {
            let most = fresh.high.saturating_sub(known.low);
            return Some(ClockJump {
                micros: fresh.low.saturating_sub(known.high),
                ahead: Duration::from_micros(most.unsigned_abs()),
                noticed: sample.received,
                shown: sample.clock,
            });
        }
        if fresh.high < known.low.saturating_sub(slack) {
            return Some(ClockJump {
                micros: fresh.high.saturating_sub(known.low),
                ahead: Duration::ZERO,
                noticed: sample.received,
                shown: sample.clock,
            });
        }
        // What both readings allow is sharper than either. The fixed part of the allowance must not
        // add up, so only the share of time widens, and a reading that agrees by the fixed part alone
        // does not become what later ones are judged by: a clock that gains a little with each
        // reading would never be found out.
        let share = Drift { fixed: Duration::ZERO, ..self.drift };
        let widen = whole_micros(share.allowance(sample.received.since(known.at)));
        let widen = widen.saturating_add(1);
        let known = Bounds {
            low: known.low.saturating_sub(widen),
            high: known.high.saturating_add(widen),
            at: fresh.at,
        };
        let (low, high) = (fresh.low.max(known.low), fresh.high.min(known.high));
        self.bounds = Some(if low <= high { Bounds { low, high, ..fresh } } else { known });
        None
    }

    /// What is known of the clock.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }

    /// Node clock minus ours in microseconds: the middle of what is known.
    pub fn offset_micros(&self) -> Option<i64> {
        self.bounds.map(|bounds| bounds.low.midpoint(bounds.high))
    }
}

fn micros(moment: Moment) -> i64 {
    (moment.as_nanos() / 1000) as i64
}

fn whole_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = Duration::from_micros(self.micros.unsigned_abs());
        let way = if self.micros < 0 { "back" } else { "forward" };
        write!(f, "its clock jumped {way} by {by:.1?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_says_anything_at_all_overflows_nothing() {
        let mut watch = ClockWatch::new(Drift { parts_per_million: u32::MAX, ..Drift::DEFAULT });
        let moments = [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX].map(Moment::from_nanos);
        for (index, clock) in [0, u64::MAX, 1 << 63, 0, i64::MAX as u64].into_iter().enumerate() {
            let (sent, received) = (Moment::default(), moments[index]);
            watch.observe(ClockSample { sent, received, clock: WallMicros(clock) });
            assert!(watch.offset_micros().is_some());
        }
    }

    /// A reading at `ms` of our clock with a round trip of `trip_ms`, by a clock that is `offset_ms`
    /// ahead and was read in the middle.
    fn sample(ms: u64, trip_ms: u64, offset_ms: i64) -> ClockSample {
        ClockSample {
            sent: Moment::from_millis(ms),
            received: Moment::from_millis(ms + trip_ms),
            clock: WallMicros(((ms + trip_ms / 2) as i64 * 1000 + offset_ms * 1000) as u64),
        }
    }

    #[test]
    fn a_steady_clock_never_alarms_however_slow_its_answers() {
        let mut watch = ClockWatch::new(Drift::DEFAULT);
        for i in 0..1000 {
            let trip = [0, 1, 400, 3, 2000][i % 5];
            assert_eq!(watch.observe(sample(10_000 + i as u64 * 3000, trip, 5_000_000)), None);
        }
        assert!((watch.offset_micros().unwrap() - 5_000_000_000).abs() < 2_000);
    }

    #[test]
    fn a_clock_that_drifts_within_the_allowance_never_alarms() {
        let mut watch = ClockWatch::new(Drift::DEFAULT);
        for i in 0..1000u64 {
            let drifted = (i as i64) * 9; // 9 ms a second: 0.9 %
            assert_eq!(watch.observe(sample(10_000 + i * 1000, 1, drifted)), None, "{i}");
        }
    }

    /// After how many milliseconds a clock is noticed that gains `ppm` millionths, if it is read
    /// `every_ms`.
    fn noticed_after(ppm: i64, every_ms: u64) -> Option<u64> {
        let mut watch = ClockWatch::new(Drift::DEFAULT);
        (0..1_000_000).step_by(every_ms as usize).find(|ms| {
            let mut reading = sample(10_000_000 + ms, 1, 0);
            reading.clock.0 = reading.clock.0.saturating_add_signed(*ms as i64 * ppm / 1000);
            watch.observe(reading).is_some()
        })
    }

    #[test]
    fn a_clock_that_runs_at_another_speed_is_noticed_within_seconds_however_often_it_is_read() {
        for (ppm, within) in [(12_000, 5_000), (15_000, 2_000), (83_333, 1_000), (500_000, 1_000)] {
            for (ppm, every_ms) in [(ppm, 1000), (-ppm, 1000), (ppm, 5), (-ppm, 5)] {
                let noticed = noticed_after(ppm, every_ms);
                assert!(noticed.is_some_and(|ms| ms <= within), "{ppm}, {every_ms}: {noticed:?}");
            }
        }
        assert_eq!((noticed_after(9_900, 1000), noticed_after(-9_900, 5)), (None, None));
    }

    #[test]
    fn a_clock_that_stands_still_is_noticed_at_the_next_reading() {
        assert_eq!(noticed_after(-1_000_000, 1000), Some(1000));
    }

    #[test]
    fn jumps_either_way_are_noticed_at_the_next_reading() {
        for jump in [3_600_000, -3_600_000, 50, -50] {
            let mut watch = ClockWatch::new(Drift::DEFAULT);
            assert_eq!(watch.observe(sample(9_000_000, 1, 7)), None);
            assert_eq!(watch.observe(sample(9_001_000, 1, 7)), None);
            let seen = watch.observe(sample(9_002_000, 1, 7 + jump)).expect("a jump");
            assert_eq!(seen.micros.signum(), jump.signum());
            assert!((seen.micros - jump * 1000).abs() < 5_000, "{seen:?}");
            assert_eq!(watch.observe(sample(9_003_000, 1, 7 + jump)), None, "judged anew");
        }
    }

    #[test]
    fn a_sharp_reading_is_not_forgotten_for_a_blurred_one() {
        let mut watch = ClockWatch::new(Drift::DEFAULT);
        watch.observe(sample(1_000_000, 1, 0));
        watch.observe(sample(1_001_000, 900, 0));
        assert!(watch.observe(sample(1_002_000, 1, 200)).is_some());
    }

    #[test]
    fn an_answer_that_arrives_out_of_order_is_ignored() {
        let mut watch = ClockWatch::new(Drift::DEFAULT);
        watch.observe(sample(5_000, 1, 0));
        assert_eq!(watch.observe(sample(1_000, 1, 0)), None);
        assert_eq!(watch.observe(sample(6_000, 1, 0)), None);
    }
}
