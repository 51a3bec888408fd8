//! How long to wait after a refusal before asking again. Jitter is handed in, so one seed replays
//! a run.

use std::time::Duration;

/// A node keeps an owner for at least its Ttl, so this much later it is surely free.
pub(super) const AFTER_EXPIRY: Duration = Duration::from_millis(1);

/// How often, and at which distance, a refused acquire is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The delay after the first refusal; doubled after each further one.
    pub first: Duration,
    /// The delay never grows beyond this.
    pub longest: Duration,
    /// Attempts in all; `None` for as many as the waiting time allows.
    pub attempts: Option<u32>,
}

impl RetryPolicy {
    /// From 20 ms to half a second. Shorter hands a released lock over sooner and asks the nodes
    /// more often; a waiter never sleeps past the moment at which the holder would expire.
    pub const DEFAULT: Self = Self {
        first: Duration::from_millis(20),
        longest: Duration::from_millis(500),
        attempts: None,
    };

    /// Five attempts, 100, 200, 400 and 800 ms apart: the classic Redlock retry.
    pub const FIVE_ATTEMPTS: Self = Self {
        first: Duration::from_millis(100),
        longest: Duration::from_millis(800),
        attempts: Some(5),
    };

    /// One attempt, no waiting.
    pub const ONCE: Self = Self { attempts: Some(1), ..Self::DEFAULT };
}

impl RetryPolicy {
    /// Whether hints may make it ask earlier. A waiter that counts its attempts makes them at its own
    /// times.
    pub fn takes_hints(self) -> bool {
        self.attempts.is_none()
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Where one waiter stands in its retries.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    policy: RetryPolicy,
    refusals: u32,
}

impl Backoff {
    /// Before the first attempt.
    pub(super) fn new(policy: RetryPolicy) -> Self {
        Self { policy, refusals: 0 }
    }

    /// How many refusals there were.
    pub(super) fn refusals(&self) -> u32 {
        self.refusals
    }

    /// How long to wait after one more refusal, or `None` if that was the last attempt.
    ///
    /// The delay lies between half and all of its step, by jitter, so that waiters do not ask in
    /// bursts. `expires_in` is when the present holder would expire: waiting longer than that helps
    /// nobody.
    pub(super) fn after_refusal(
        &mut self,
        jitter: u32,
        expires_in: Option<Duration>,
    ) -> Option<Duration> {
        self.refusals = self.refusals.saturating_add(1);
        if self.policy.attempts.is_some_and(|attempts| self.refusals >= attempts) {
            return None;
        }
        let doubled = 1u32.checked_shl(self.refusals - 1).unwrap_or(u32::MAX);
        let step = self.policy.first.saturating_mul(doubled).min(self.policy.longest);
        let delay = step / 2 + (step / 2).mul_f64(share(jitter));
        Some(match expires_in {
            Some(left) => delay.min(left + AFTER_EXPIRY),
            None => delay,
        })
    }
}

/// Jitter as a number from 0 to 1.
pub(super) fn share(jitter: u32) -> f64 {
    f64::from(jitter) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(policy: RetryPolicy, jitter: u32, times: usize) -> Vec<Option<u128>> {
        let mut backoff = Backoff::new(policy);
        (0..times).map(|_| backoff.after_refusal(jitter, None).map(|d| d.as_millis())).collect()
    }

    #[test]
    fn the_classic_policy_asks_five_times() {
        let upper = delays(RetryPolicy::FIVE_ATTEMPTS, u32::MAX, 5);
        assert_eq!(upper, [Some(100), Some(200), Some(400), Some(800), None]);
        let lower = delays(RetryPolicy::FIVE_ATTEMPTS, 0, 5);
        assert_eq!(lower, [Some(50), Some(100), Some(200), Some(400), None]);
    }

    #[test]
    fn delays_stay_within_their_bounds_for_ever() {
        for delay in delays(RetryPolicy::DEFAULT, u32::MAX, 1000) {
            assert!(delay.unwrap() <= 500);
        }
        assert_eq!(delays(RetryPolicy::ONCE, 7, 1), [None]);
    }

    #[test]
    fn nobody_sleeps_past_the_expiry_of_the_holder() {
        let mut backoff = Backoff::new(RetryPolicy::FIVE_ATTEMPTS);
        let delay = backoff.after_refusal(u32::MAX, Some(Duration::from_millis(7))).unwrap();
        assert_eq!(delay, Duration::from_millis(8));
    }
}
