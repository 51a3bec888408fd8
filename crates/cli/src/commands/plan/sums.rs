//! The probability that too few nodes are up, exact also where it is tiny.

use std::str::FromStr;

/// The share of the time in which a node is down, from its availability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unavailability(pub(super) f64);

impl FromStr for Unavailability {
    type Err = String;

    /// Reads `99.9%` or `0.999`. Subtracts in whole numbers: 1 - 0.999999999 as doubles would keep
    /// only seven digits.
    fn from_str(text: &str) -> Result<Self, String> {
        let explain = || format!("`{text}` is not an availability; write it like 99.9% or 0.999");
        let (number, whole) = match text.trim().strip_suffix('%') {
            Some(number) => (number.trim(), 100),
            None => (text.trim(), 1),
        };
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{integer}{fraction}");
        // 18 decimals are more than anybody measures, and fit.
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || fraction.len() > 18 {
            return Err(explain());
        }
        let scale = 10_u128.pow(fraction.len() as u32);
        let up: u128 = digits.parse().map_err(|_| explain())?;
        let down = (whole * scale).checked_sub(up).ok_or_else(explain)?;
        Ok(Self(down as f64 / (whole * scale) as f64))
    }
}

/// The probability that fewer than `nodes / 2 + 1` of `nodes` are up, each of them down with
/// probability `down`, independently: the upper tail of the binomial distribution.
pub(super) fn no_quorum(nodes: u32, down: f64) -> f64 {
    let fatal = nodes - (nodes / 2 + 1) + 1;
    // All terms are positive, so nothing cancels; the small ones come first.
    let tail: f64 = (fatal..=nodes).rev().map(|failed| term(nodes, failed, down)).sum();
    tail.min(1.0)
}

/// Exactly `failed` nodes are down.
fn term(nodes: u32, failed: u32, down: f64) -> f64 {
    let ways: f64 = (1..=failed).map(|i| f64::from(nodes - failed + i) / f64::from(i)).product();
    ways * down.powi(failed as i32) * (1.0 - down).powi((nodes - failed) as i32)
}

/// How many nines the availability has: 3 for 99.9 %.
pub(super) fn nines(unavailability: f64) -> f64 {
    if unavailability <= 0.0 { 30.0 } else { (-unavailability.log10()).clamp(0.0, 30.0) }
}

/// A probability for people.
pub(super) fn probability(p: f64) -> String {
    if p == 0.0 {
        "0".into()
    } else if p >= 0.001 {
        format!("{:.3}%", p * 100.0)
    } else {
        format!("{p:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{found:e} is not {expected:e}");
    }

    #[test]
    fn the_tail_is_what_it_is_by_hand() {
        let p: f64 = 0.001;
        near(no_quorum(1, p), p);
        near(no_quorum(2, p), 2.0 * p * 0.999 + p * p);
        // 3p²(1-p) + p³ = 3p² - 2p³
        near(no_quorum(3, p), 3e-6 - 2e-9);
        // 10p³(1-p)² + 5p⁴(1-p) + p⁵ = 10p³ - 15p⁴ + 6p⁵
        near(no_quorum(5, p), 1e-8 - 1.5e-11 + 6e-15);
        // C(4,2) = 6: two of four down leave no quorum: 6p² - 8p³ + 3p⁴
        near(no_quorum(4, p), 6e-6 - 8e-9 + 3e-12);
    }

    #[test]
    fn tiny_probabilities_keep_their_digits() {
        let Unavailability(p) = "99.9999999%".parse().unwrap();
        near(p, 1e-9);
        near(no_quorum(5, p), 1e-26 * (1.0 - 1.5e-9));
        assert!(no_quorum(99, 1e-9) > 0.0 || no_quorum(31, 1e-9) > 0.0);
    }

    #[test]
    fn the_ends_are_certain() {
        for nodes in [1, 2, 5, 99] {
            assert_eq!(no_quorum(nodes, 0.0), 0.0);
            assert_eq!(no_quorum(nodes, 1.0), 1.0);
        }
        near(no_quorum(99, 0.5), 0.5);
    }

    #[test]
    fn availability_is_a_share_or_a_percentage() {
        let read = |text: &str| text.parse::<Unavailability>().map(|down| down.0);
        near(read("99.9%").unwrap(), 0.001);
        near(read("0.999").unwrap(), 0.001);
        assert_eq!(read("100%"), Ok(0.0));
        assert_eq!(read("1"), Ok(0.0));
        for bad in ["", "%", "101%", "1.1", "-1%", "99,9%", "x", "1e-3", "."] {
            assert!(read(bad).unwrap_err().contains("like 99.9%"), "{bad}");
        }
    }
}
