//! Fixed inputs: some of them random, some made from good examples by small and large mistakes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use leasehold_judge::Chance;

use super::Input;

/// The longest random input, in bytes.
const BYTES_MAX: u64 = 400;

/// Runs `target` on so many inputs; `examples` are good ones to begin with.
///
/// # Panics
/// If the target does, with the input and how to repeat it.
pub fn fuzz(cases: u64, examples: &[&[u8]], target: impl Fn(&mut Input<'_>)) {
    if let Ok(hex) = std::env::var("LEASEHOLD_FUZZ_INPUT") {
        return target(&mut Input::new(&from_hex(&hex)));
    }
    let seconds = std::env::var("LEASEHOLD_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut tried = 0;
    for seed in 0.. {
        let is_over = match until {
            Some(until) => seed % 64 == 0 && Instant::now() >= until,
            None => seed >= cases,
        };
        if is_over {
            break;
        }
        let bytes = case(seed, examples);
        let run = catch_unwind(AssertUnwindSafe(|| target(&mut Input::new(&bytes))));
        if run.is_err() {
            let name = std::thread::current().name().unwrap_or("the test").to_owned();
            panic!(
                "{name}: input {seed} failed: `{}`\nrepeat it with LEASEHOLD_FUZZ_INPUT={}",
                bytes.escape_ascii(),
                to_hex(&bytes)
            );
        }
        tried += 1;
    }
    if let (Some(seconds), Some(name)) = (seconds, std::thread::current().name()) {
        eprintln!("{name}: {tried} inputs in {seconds} s");
    }
}

/// Input number `seed`.
fn case(seed: u64, examples: &[&[u8]]) -> Vec<u8> {
    if let Some(example) = examples.get(seed as usize) {
        return example.to_vec();
    }
    let mut chance = Chance::new(seed);
    let random = |chance: &mut Chance| -> Vec<u8> {
        let mut bytes = vec![0; chance.below(BYTES_MAX) as usize];
        chance.fill(&mut bytes);
        bytes
    };
    if examples.is_empty() || chance.below(3) == 0 {
        return random(&mut chance);
    }
    let mut bytes = examples[chance.index(examples.len())].to_vec();
    for _ in 0..=chance.below(6) {
        damage(&mut bytes, examples, &mut chance);
    }
    bytes
}

/// One mistake.
fn damage(bytes: &mut Vec<u8>, examples: &[&[u8]], chance: &mut Chance) {
    let length = bytes.len() as u64;
    let from = chance.below(length + 1) as usize;
    let to = from + chance.below(length + 1 - from as u64) as usize;
    let piece = bytes[from..to].to_vec();
    match chance.below(7) {
        0 if from < bytes.len() => bytes[from] ^= 1 << chance.below(8),
        1 if from < bytes.len() => bytes[from] = chance.below(256) as u8,
        2 => drop(bytes.drain(from..to)),
        3 => drop(bytes.splice(from..from, piece)),
        4 => {
            let word = WORDS[chance.index(WORDS.len())];
            drop(bytes.splice(from..to.min(from + 3), word.iter().copied()));
        }
        5 => {
            let other = examples[chance.index(examples.len())];
            let cut = chance.below(other.len() as u64 + 1) as usize;
            bytes.truncate(from);
            bytes.extend_from_slice(&other[cut..]);
        }
        _ => bytes.insert(from, chance.below(256) as u8),
    }
}

/// What parsers trip over.
const WORDS: [&[u8]; 20] = [
    b"0",
    b"-1",
    b"9007199254740992",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999999999999999999",
    b"NaN",
    b"inf",
    b"1e308",
    b"\r\n",
    b"\0",
    b"%",
    b"%00",
    b"@",
    b":",
    b"/",
    b",",
    b" ",
    b"\xff\xfe",
    "é☂".as_bytes(),
];

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("pairs of hex digits");
    (0..text.len() / 2).map(|pair| digit(2 * pair)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_are_always_the_same_and_of_all_kinds() {
        let examples: [&[u8]; 2] = [b"good", b"also good"];
        let all: Vec<_> = (0..500).map(|seed| case(seed, &examples)).collect();
        assert_eq!(all, (0..500).map(|seed| case(seed, &examples)).collect::<Vec<_>>());
        assert_eq!(all[..2], [b"good".to_vec(), b"also good".to_vec()]);
        assert!(all.iter().filter(|bytes| bytes.starts_with(b"also")).count() > 20);
        assert!(all.iter().filter(|bytes| bytes.len() > 200).count() > 20);
        assert_eq!(from_hex(&to_hex(&all[9])), all[9]);
    }

    #[test]
    fn a_failure_shows_its_input() {
        let fails = || fuzz(9, &[b"ok", b"boom"], |input| assert_ne!(input.rest(), b"boom"));
        let panic = catch_unwind(fails).unwrap_err();
        let words = panic.downcast_ref::<String>().unwrap();
        assert!(words.contains("`boom`") && words.contains("INPUT=626f6f6d"), "{words}");
    }

    #[test]
    fn choices_never_run_out() {
        let mut input = Input::new(&[2, 1, 2, 250]);
        assert_eq!(input.number(), 0x0102);
        assert_eq!((input.bytes(), input.is_empty()), (&[][..], true));
        assert_eq!((input.number(), input.pick(&["a", "b"])), (0, "a"));
    }
}
