//! The last five minutes, second by second: for the dashboard, and for the one rate that the alerts
//! want as a gauge.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// As long as the alerts' window.
const SECONDS: usize = 300;
/// What rates are told for.
const RATE_SECONDS: usize = 60;

/// Latencies, in steps of a quarter of the power of two, from 16 µs to over a minute.
const STEPS: usize = 96;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Acquired,
    Refused,
    Failed,
}

#[derive(Clone)]
struct Second {
    acquired: u32,
    contended: u32,
    failed: u32,
    attempts: u32,
    released: u32,
    lost: u32,
    latencies: Vec<u32>,
    available: usize,
    held: usize,
    waiters: usize,
}

impl Second {
    fn new() -> Self {
        Self {
            acquired: 0,
            contended: 0,
            failed: 0,
            attempts: 0,
            released: 0,
            lost: 0,
            latencies: Vec::new(),
            available: 0,
            held: 0,
            waiters: 0,
        }
    }
}

/// Counts by the second.
pub(crate) struct Stats {
    start: Instant,
    wall: SystemTime,
    state: Mutex<State>,
}

struct State {
    /// The number of the last second.
    number: u64,
    seconds: VecDeque<Second>,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let seconds = VecDeque::from([Second::new()]);
        let state = Mutex::new(State { number: 0, seconds });
        Self { start: Instant::now(), wall: SystemTime::now(), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.start.elapsed().as_secs();
        while state.number < number {
            // After a long sleep there is nothing to tell of most of it.
            state.number = (state.number + 1).max(number.saturating_sub(SECONDS as u64));
            let (available, held, waiters) = state
                .seconds
                .back()
                .map_or((0, 0, 0), |last| (last.available, last.held, last.waiters));
            state.seconds.push_back(Second { available, held, waiters, ..Second::new() });
            if state.seconds.len() > SECONDS + 1 {
                state.seconds.pop_front();
            }
        }
        state
    }

    fn count(&self, count: impl FnOnce(&mut Second)) {
        if let Some(second) = self.state().seconds.back_mut() {
            count(second);
        }
    }

    /// An attempt ended; contended, if it met a holder.
    pub(crate) fn attempt(&self, ended: Ended, is_contended: bool, took: Duration) {
        self.count(|second| {
            second.attempts += 1;
            second.contended += u32::from(is_contended);
            match ended {
                Ended::Acquired => {
                    second.acquired += 1;
                    second.latencies.resize(STEPS, 0);
                    second.latencies[step(took)] += 1;
                }
                Ended::Refused => {}
                Ended::Failed => second.failed += 1,
            }
        });
    }

    pub(crate) fn released(&self) {
        self.count(|second| second.released += 1);
    }

    pub(crate) fn lost(&self) {
        self.count(|second| second.lost += 1);
    }

    /// How things are now.
    pub(crate) fn note(&self, available: usize, held: usize, waiters: usize) {
        self.count(|second| {
            (second.available, second.held, second.waiters) = (available, held, waiters);
        });
    }

    /// Which share of the attempts met a holder, in five minutes.
    pub(crate) fn contention_rate(&self) -> f64 {
        let state = self.state();
        let sum = |count: fn(&Second) -> u32| -> u64 {
            state.seconds.iter().map(|second| u64::from(count(second))).sum()
        };
        let (contended, attempts) = (sum(|second| second.contended), sum(|second| second.attempts));
        if attempts == 0 { 0.0 } else { contended as f64 / attempts as f64 }
    }

    /// Rates and latencies of the last minute.
    pub(crate) fn rates(&self) -> Value {
        let contention_rate = self.contention_rate();
        let state = self.state();
        let last = || state.seconds.iter().rev().take(RATE_SECONDS);
        // The first minute is shorter.
        let window = (self.start.elapsed().as_secs_f64()).clamp(1.0, RATE_SECONDS as f64);
        let per_second = |count: fn(&Second) -> u32| {
            let sum: u64 = last().map(|second| u64::from(count(second))).sum();
            (sum as f64 / window * 100.0).round() / 100.0
        };
        let latencies = last().map(|second| &second.latencies);
        let lost: u64 = state.seconds.iter().map(|second| u64::from(second.lost)).sum();
        let (p50, p99) = quantiles(latencies);
        json!({
            "window_s": window.round() as u64,
            "acquired_per_s": per_second(|second| second.acquired),
            "contended_per_s": per_second(|second| second.contended),
            "failed_per_s": per_second(|second| second.failed),
            "released_per_s": per_second(|second| second.released),
            "contention_rate": contention_rate,
            "lost_5m": lost,
            "acquire_p50_ms": p50,
            "acquire_p99_ms": p99,
        })
    }

    /// One row per second that is over, oldest first.
    pub(crate) fn series(&self) -> Vec<Value> {
        let state = self.state();
        let first = state.number + 1 - state.seconds.len() as u64;
        let over = state.seconds.len() - 1;
        let rows = state.seconds.iter().take(over).zip(first..);
        rows.map(|(second, number)| self.row(second, number)).collect()
    }

    /// The last second that is over.
    pub(crate) fn point(&self) -> Option<Value> {
        let state = self.state();
        let number = state.number.checked_sub(1)?;
        let second = state.seconds.iter().rev().nth(1)?;
        Some(self.row(second, number))
    }

    fn row(&self, second: &Second, number: u64) -> Value {
        let began = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + number;
        let (p50, p99) = quantiles(std::iter::once(&second.latencies));
        json!([
            began,
            second.acquired,
            second.contended,
            second.failed,
            p50,
            p99,
            second.available,
            second.held,
            second.waiters
        ])
    }
}

fn step(took: Duration) -> usize {
    let micros = (took.as_secs_f64() * 1e6).max(16.0);
    (((micros / 16.0).log2() * 4.0) as usize).min(STEPS - 1)
}

/// The upper end of a step, in milliseconds.
fn end_of(step: usize) -> f64 {
    let millis = 0.016 * 2f64.powf((step as f64 + 1.0) / 4.0);
    (millis * 1000.0).round() / 1000.0
}

fn quantiles<'a>(latencies: impl Iterator<Item = &'a Vec<u32>>) -> (Option<f64>, Option<f64>) {
    let mut sums = [0u64; STEPS];
    for counts in latencies {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += u64::from(*count);
        }
    }
    let total: u64 = sums.iter().sum();
    let quantile = |share: f64| {
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        sums.iter().position(|count| {
            seen += count;
            seen >= wanted
        })
    };
    (quantile(0.5).map(end_of), quantile(0.99).map(end_of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_is_the_share_of_attempts_that_met_a_holder() {
        let stats = Stats::new();
        assert_eq!(stats.contention_rate(), 0.0);
        for n in 0..10 {
            stats.attempt(Ended::Acquired, n < 2, Duration::from_millis(1));
        }
        stats.attempt(Ended::Refused, true, Duration::from_millis(1));
        stats.attempt(Ended::Failed, false, Duration::from_millis(1));
        assert_eq!(stats.contention_rate(), 0.25);
        assert_eq!(stats.rates()["acquired_per_s"], json!(10.0));
        assert_eq!(stats.rates()["failed_per_s"], json!(1.0));
    }

    #[test]
    fn quantiles_are_the_upper_ends_of_their_steps() {
        let stats = Stats::new();
        for _ in 0..98 {
            stats.attempt(Ended::Acquired, false, Duration::from_millis(1));
        }
        for _ in 0..2 {
            stats.attempt(Ended::Acquired, false, Duration::from_millis(100));
        }
        let rates = stats.rates();
        let (p50, p99) = (rates["acquire_p50_ms"].as_f64(), rates["acquire_p99_ms"].as_f64());
        assert!(p50.is_some_and(|ms| (1.0..1.2).contains(&ms)), "{rates}");
        assert!(p99.is_some_and(|ms| (100.0..120.0).contains(&ms)), "{rates}");
        assert_eq!(step(Duration::ZERO), 0);
        assert_eq!(step(Duration::from_secs(1000)), STEPS - 1);
    }
}
