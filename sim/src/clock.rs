//! Clocks that are wrong: by an offset, by their rate, by a jump. All time in the world is true
//! time in nanoseconds since its beginning; a clock translates.

/// True time.
pub type Time = u64;

/// One microsecond, millisecond and second of true time.
pub const MICROS: Time = 1_000;
/// See [`MICROS`].
pub const MILLIS: Time = 1_000_000;
/// See [`MICROS`].
pub const SECOND: Time = 1_000_000_000;

/// A clock that shows `value` at `anchor` and runs `rate` millionths too fast.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    anchor: Time,
    value: u64,
    rate: i64,
}

impl Clock {
    /// A clock that shows `value` at the beginning of the world.
    pub fn new(value: u64, rate: i64) -> Self {
        Self { anchor: 0, value, rate }
    }

    /// What it shows, in nanoseconds.
    pub fn at(&self, time: Time) -> u64 {
        let elapsed = i128::from(time) - i128::from(self.anchor);
        let shown = i128::from(self.value) + elapsed + elapsed * i128::from(self.rate) / 1_000_000;
        u64::try_from(shown).unwrap_or(0)
    }

    /// The true time at which it shows `value`, rounded up; now if that is past.
    pub fn when(&self, value: u64, now: Time) -> Time {
        let left = i128::from(value) - i128::from(self.at(now));
        if left <= 0 {
            return now;
        }
        let per_million = i128::from(1_000_000 + self.rate);
        let elapsed = (left * 1_000_000 + per_million - 1) / per_million;
        let mut time = now + u64::try_from(elapsed).unwrap_or(u64::MAX / 2);
        // Whole numbers: the division may be off by one either way.
        while self.at(time) < value {
            time += 1;
        }
        while time > now && self.at(time - 1) >= value {
            time -= 1;
        }
        time
    }

    /// Has it run at another rate from now on.
    pub fn slew(&mut self, now: Time, rate: i64) {
        (self.value, self.anchor, self.rate) = (self.at(now), now, rate);
    }

    /// Sets it forward or back.
    pub fn jump(&mut self, now: Time, by: i64) {
        self.value = self.at(now).saturating_add_signed(by);
        self.anchor = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_inverse_of_at() {
        for rate in [-30_000, -3, 0, 7, 4_000, 100_000] {
            let clock = Clock::new(5 * SECOND, rate);
            for value in [0, 5 * SECOND + 1, 6 * SECOND, 100 * SECOND + 13] {
                let time = clock.when(value, 17);
                assert!(clock.at(time) >= value && (time == 17 || clock.at(time - 1) < value));
            }
        }
    }

    #[test]
    fn another_rate_counts_from_then_on() {
        let mut clock = Clock::new(0, 0);
        clock.slew(SECOND, 1_000);
        assert_eq!((clock.at(SECOND), clock.at(2 * SECOND)), (SECOND, 2 * SECOND + MILLIS));
    }

    #[test]
    fn a_jump_moves_it_once() {
        let mut clock = Clock::new(SECOND, 0);
        clock.jump(SECOND, -(SECOND as i64));
        assert_eq!((clock.at(SECOND), clock.at(2 * SECOND)), (SECOND, 2 * SECOND));
    }
}
