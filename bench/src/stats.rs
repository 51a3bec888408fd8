//! The few sums of a benchmark.

/// The middle value; the mean of the two middle ones of an even number. `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The smallest value that at least `share` of all values do not exceed. Sorts `values`.
pub(crate) fn percentile(values: &mut [u64], share: f64) -> Option<u64> {
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

/// Jain's index of fairness: 1 if all got the same, 1/n if one got everything. `None` if nobody got
/// anything.
pub(crate) fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The median of the ratios of values to the floors of the same rounds.
pub(crate) fn median_ratio(values: &[f64], floors: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = values
        .iter()
        .zip(floors)
        .filter(|(_, floor)| **floor > 0.0)
        .map(|(value, floor)| value / floor)
        .collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
    }

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        assert_eq!(percentile(&mut [], 0.5), None);
        assert_eq!(percentile(&mut [7], 0.999), Some(7));
        let mut hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut hundred, 0.0), Some(1));
        assert_eq!(percentile(&mut hundred, 0.5), Some(50));
        assert_eq!(percentile(&mut hundred, 0.99), Some(99));
        assert_eq!(percentile(&mut hundred, 0.999), Some(100));
        assert_eq!(percentile(&mut hundred, 1.0), Some(100));
    }

    #[test]
    fn fairness_is_one_for_equals_and_one_over_n_for_a_winner() {
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0, 0]), None);
        assert_eq!(jain(&[4, 4, 4, 4]), Some(1.0));
        assert_eq!(jain(&[8, 0, 0, 0]), Some(0.25));
    }

    #[test]
    fn a_ratio_compares_within_a_round() {
        // The machine was busy in the second round: the ratios do not show it.
        assert_eq!(median_ratio(&[50.0, 5.0, 51.0], &[100.0, 10.0, 100.0]), Some(0.5));
        assert_eq!(median_ratio(&[50.0, 5.0], &[100.0, 0.0]), Some(0.5));
        assert_eq!(median_ratio(&[50.0], &[]), None);
    }
}
