//! Many odd inputs for one function, and always the same ones: some of them random, some made from
//! good examples by small and large mistakes. A target reads what it needs from an [`Input`].
//!
//! `LEASEHOLD_FUZZ_SECONDS=300 cargo test …` goes on with fresh inputs for so long and says how many
//! it tried. A failure prints the input; `LEASEHOLD_FUZZ_INPUT=<hex>` runs only that one.
//!
//! `./test fuzz` gives the same targets libFuzzer's inputs, guided by coverage.

#[cfg(not(fuzzing_libfuzzer))]
mod fixed;
#[cfg(fuzzing_libfuzzer)]
mod guided;

#[cfg(not(fuzzing_libfuzzer))]
pub use fixed::fuzz;
#[cfg(fuzzing_libfuzzer)]
pub use guided::fuzz;

/// Bytes as a source of choices. When they are used up every choice is the first one.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Reads its choices from `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        // Small and huge ones are as likely as those between.
        let bytes = self.byte() % 9;
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below `sides`, which must not be 0.
    pub fn below(&mut self, sides: usize) -> usize {
        usize::from(self.byte()) % sides
    }

    /// One of some.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Some bytes, fewer than 256.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (some, rest) = self.0.split_at(length);
        self.0 = rest;
        some
    }

    /// Some text, fewer than 256 bytes of it read.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// All that is left, as text.
    pub fn rest_as_text(&mut self) -> String {
        String::from_utf8_lossy(self.rest()).into_owned()
    }
}
