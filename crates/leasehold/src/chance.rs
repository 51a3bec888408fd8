//! The one place that rolls dice. Everything else is handed what came up.

/// 128 fresh random bits from the operating system.
///
/// # Panics
/// If the operating system has no randomness to give: no lock can be taken safely then.
pub(crate) fn nonce() -> u128 {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    u128::from_le_bytes(bytes)
}

/// 32 random bits, for jitter.
pub(crate) fn jitter() -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

fn fill(bytes: &mut [u8]) {
    #[cfg(test)]
    if seeded::fill(bytes) {
        return;
    }
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

/// Loaded dice for this thread: a simulated run can be repeated from its seed.
#[cfg(test)]
pub(crate) mod seeded {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on this thread's dice follow from `seed`; `None` gives them back to chance.
    pub(crate) fn seed(seed: Option<u64>) {
        STATE.set(seed);
    }

    /// The next number from a state: splitmix64.
    pub(crate) fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        let Some(mut state) = STATE.get() else {
            return false;
        };
        for chunk in bytes.chunks_mut(8) {
            let number = next(&mut state).to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
        STATE.set(Some(state));
        true
    }
}
