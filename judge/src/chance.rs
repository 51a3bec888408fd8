//! Chance from a seed: one seed, one run, on every machine. Simulations, chaos and tests that draw
//! something draw it from here; the library's own chance is the operating system's.

use std::ops::Range;
use std::time::Duration;

/// A stream of random numbers (xoshiro256**).
#[derive(Debug, Clone)]
pub struct Chance([u64; 4]);

impl Chance {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        // SplitMix64 spreads the seed: neighbouring seeds have nothing in common.
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self([next(), next(), next(), next()])
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// 128 random bits.
    pub fn nonce(&mut self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }

    /// 32 random bits, as the core wants its jitter.
    pub fn jitter(&mut self) -> u32 {
        (self.bits() >> 32) as u32
    }

    /// Random bytes, all over `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }

    /// A number of the range.
    ///
    /// # Panics
    /// If it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "an empty range");
        range.start + self.bits() % (range.end - range.start)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.within(0..end)
    }

    /// A number from `-most` to `most`.
    pub fn around(&mut self, most: u64) -> i64 {
        self.within(0..2 * most + 1) as i64 - most as i64
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.within(0..len as u64) as usize
    }

    /// One of several.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// True `percent` times of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// A time, in whole milliseconds.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// A duration of the range, short ones more often: half of them lie in the lowest eighth.
    pub fn duration(&mut self, range: Range<Duration>) -> Duration {
        let (low, high) = (range.start.as_nanos() as u64, range.end.as_nanos() as u64);
        let span = high.saturating_sub(low).max(1);
        let scale = [8, 8, 4, 1][self.index(4)];
        Duration::from_nanos(low + self.within(0..span / scale + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        let numbers = |seed| (0..5).map(move |_| 0).scan(Chance::new(seed), |c, _| Some(c.bits()));
        assert!(numbers(1).eq(numbers(1)));
        assert!(numbers(1).ne(numbers(2)));
    }

    #[test]
    fn a_seed_in_an_old_report_is_still_the_same_stream() {
        let mut chance = Chance::new(1);
        let first = [12_966_619_160_104_079_557, 9_600_361_134_598_540_522];
        assert_eq!([(); 2].map(|()| chance.bits()), first);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut chance = Chance::new(7);
        let drawn: Vec<_> = (0..1000).map(|_| chance.around(2)).collect();
        assert!((-2..=2).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| n.abs() <= 2));
    }

    #[test]
    fn every_byte_is_drawn() {
        let mut drawn = [0_u8; 19];
        let mut chance = Chance::new(3);
        for _ in 0..20 {
            let mut bytes = [0; 19];
            chance.fill(&mut bytes);
            drawn.iter_mut().zip(bytes).for_each(|(all, byte)| *all |= byte);
        }
        assert_eq!(drawn, [0xff; 19]);
    }
}
