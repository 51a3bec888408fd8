//! The one place that rolls dice. Everything else is handed what came up.

/// 128 fresh random bits from the operating system.
///
/// # Panics
/// If the operating system has no randomness to give: no lock can be taken safely then.
pub(crate) fn nonce() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u128::from_le_bytes(bytes)
}

/// 32 random bits, for jitter.
pub(crate) fn jitter() -> u32 {
    getrandom::u32().expect("the operating system gives random bytes")
}
