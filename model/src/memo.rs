//! What lets states be small and steps be quick: values by number, and what was computed before.
//! Both are read without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Different values, numbered from 0 in the order in which they came up. None is ever removed.
pub struct Numbered<T> {
    values: Box<[OnceLock<T>]>,
    len: Mutex<usize>,
}

impl<T: PartialEq> Numbered<T> {
    /// Room for so many.
    pub fn with_room(room: usize) -> Self {
        Self { values: (0..room).map(|_| OnceLock::new()).collect(), len: Mutex::new(0) }
    }

    /// The number of a value.
    ///
    /// # Panics
    /// If there are more different values than there is room for.
    pub fn number(&self, value: T) -> usize {
        let mut len = self.len.lock().expect("no thread panicked");
        if let Some(number) = self.values[..*len].iter().position(|one| one.get() == Some(&value)) {
            return number;
        }
        assert!(*len < self.values.len(), "more than {len} different values");
        let number = *len;
        let _ = self.values[number].set(value);
        *len += 1;
        number
    }

    /// The value of a number.
    ///
    /// # Panics
    /// If the number was never given.
    pub fn get(&self, number: usize) -> &T {
        self.values[number].get().expect("a number that was given")
    }
}

/// A cache that forgets: each key has one place, and the last to come has it. A key and its value,
/// which has `VALUE_BITS` bits, share one word.
pub struct Cache<const VALUE_BITS: u32> {
    cells: Box<[AtomicU64]>,
}

impl<const VALUE_BITS: u32> Cache<VALUE_BITS> {
    const CELLS_BITS: u32 = 17;

    /// Nothing in it.
    pub fn new() -> Self {
        Self { cells: (0..1 << Self::CELLS_BITS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The value of `key`, computed if it is not there.
    pub fn get(&self, key: u64, compute: impl FnOnce() -> u64) -> u64 {
        // Never 0, which is an empty cell.
        let tag = key + 1;
        debug_assert!(tag >> (64 - VALUE_BITS) == 0, "a key too long");
        let place = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Self::CELLS_BITS);
        let cell = &self.cells[place as usize];
        let found = cell.load(Ordering::Relaxed);
        if found >> VALUE_BITS == tag {
            return found & ((1 << VALUE_BITS) - 1);
        }
        let value = compute();
        debug_assert!(value >> VALUE_BITS == 0, "a value too long");
        cell.store(tag << VALUE_BITS | value, Ordering::Relaxed);
        value
    }
}

impl<const VALUE_BITS: u32> Default for Cache<VALUE_BITS> {
    fn default() -> Self {
        Self::new()
    }
}
