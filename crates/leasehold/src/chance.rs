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
    use std::cell::RefCell;

    use leasehold_judge::Chance;

    thread_local! {
        static CHANCE: RefCell<Option<Chance>> = const { RefCell::new(None) };
    }

    /// From now on this thread's dice follow from `seed`; `None` gives them back to chance.
    pub(crate) fn seed(seed: Option<u64>) {
        CHANCE.set(seed.map(Chance::new));
    }

    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        CHANCE.with_borrow_mut(|chance| match chance {
            Some(chance) => {
                chance.fill(bytes);
                true
            }
            None => false,
        })
    }
}
