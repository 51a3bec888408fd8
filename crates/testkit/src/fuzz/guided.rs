//! Inputs by libFuzzer, which follows what they reach. See `./test fuzz`.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;

use super::Input;

/// Runs `target` on whatever reaches a line that none did before, until libFuzzer's time is over. The
/// examples are its first corpus.
pub fn fuzz(_: u64, examples: &[&[u8]], target: impl Fn(&mut Input<'_>)) {
    if let Some(corpus) = std::env::var_os("LEASEHOLD_FUZZ_CORPUS").map(PathBuf::from) {
        for (number, example) in examples.iter().enumerate() {
            let file = corpus.join(format!("example{number}"));
            std::fs::write(file, example).expect("the corpus can be written");
        }
    }
    let target = AssertUnwindSafe(target);
    bolero::check!().for_each(|bytes: &[u8]| target(&mut Input::new(bytes)));
}
