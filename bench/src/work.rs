//! A contestant's side of a slice: tasks that acquire, hold and release until the time is up.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::clients::Client;
use crate::order::{Names, Order, Outcome, Role};

/// Its own locks of one task: enough that a straggling release of the last is long done when a name
/// comes round again.
const NAMES_PER_TASK: usize = 8;

/// Carries out one order.
pub(crate) async fn work(client: &Arc<Client>, role: &Role, order: &Order) -> Outcome {
    if order.serve {
        return client.serve().await.unwrap_or_else(Outcome::failed);
    }
    let (votes_before, cpu_before) = (client.votes(), cpu_time());
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(order.secs);
    let tasks: Vec<_> = (0..order.concurrency)
        .map(|task| {
            let (client, order) = (client.clone(), order.clone());
            let names = names(role, task, order.names);
            tokio::spawn(async move { cycle(&client, &names, &order, end).await })
        })
        .collect();
    let mut outcome = Outcome::default();
    for task in tasks {
        match task.await {
            Ok(done) => outcome.add(done),
            Err(error) => outcome.fail(error.to_string()),
        }
    }
    tokio::time::sleep_until(end.into()).await;
    (outcome.lost, outcome.loss) = client.lost().await;
    outcome.elapsed_s = start.elapsed().as_secs_f64();
    outcome.cpu_us = (cpu_time() - cpu_before).as_secs_f64() * 1e6;
    if let (Some((attempts, splits)), Some(before)) = (client.votes(), votes_before) {
        outcome.attempts = Some(attempts - before.0);
        outcome.splits = Some(splits - before.1);
    }
    outcome
}

fn names(role: &Role, task: usize, names: Names) -> Vec<String> {
    let Role { realm, process, .. } = role;
    let own = |i| format!("{realm}/{process}/{task}/{i}");
    match names {
        Names::One => vec![format!("{realm}/one")],
        Names::Distinct => (0..NAMES_PER_TASK).map(own).collect(),
    }
}

async fn cycle(client: &Client, names: &[String], order: &Order, end: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut cycles = 0;
    for name in names.iter().cycle() {
        let asked = Instant::now();
        if asked >= end {
            break;
        }
        let held = match client.acquire(name).await {
            Ok(held) => held,
            Err(why) => {
                outcome.fail(why);
                // Whoever is refused in no time must not keep the others from running.
                tokio::task::yield_now().await;
                continue;
            }
        };
        let acquired = Instant::now();
        if order.hold_us > 0 {
            outcome.violations += hold(acquired, order).await;
        }
        let done = Instant::now();
        if let Err(why) = client.release(held).await {
            outcome.fail(why);
        }
        outcome.acquire_ns.push((acquired - asked).as_nanos() as u64);
        outcome.release_ns.push(done.elapsed().as_nanos() as u64);
        cycles += 1;
    }
    outcome.per_worker = vec![cycles];
    outcome
}

/// Holds for exactly the time ordered: a timer would add a millisecond. Counts who is inside
/// already.
async fn hold(acquired: Instant, order: &Order) -> u64 {
    let entered = order.inside.as_deref().map(enter);
    while acquired.elapsed() < Duration::from_micros(order.hold_us) {
        tokio::task::yield_now().await;
    }
    match (entered, &order.inside) {
        (Some(true), Some(inside)) => u64::from(fs::remove_file(inside).is_err()),
        (Some(false), _) => 1,
        _ => 0,
    }
}

/// False if somebody is inside. One process in the world can create a file that must not exist.
fn enter(inside: &Path) -> bool {
    File::create_new(inside).is_ok()
}

/// The processor time of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Outcome {
    fn failed(why: String) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.fail(why);
        outcome
    }

    pub(crate) fn fail(&mut self, why: String) {
        self.failures += 1;
        self.failure.get_or_insert(why);
    }

    /// Adds what another task did.
    pub(crate) fn add(&mut self, mut other: Outcome) {
        self.acquire_ns.append(&mut other.acquire_ns);
        self.release_ns.append(&mut other.release_ns);
        self.per_worker.append(&mut other.per_worker);
        self.violations += other.violations;
        self.failures += other.failures;
        self.failure = self.failure.take().or(other.failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hold_lasts_as_ordered_and_sees_who_is_inside_already() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        let order =
            Order { hold_us: 2_000, inside: Some(inside.clone()), ..Order::distinct(1.0, 1) };
        let start = Instant::now();
        assert_eq!(hold(start, &order).await, 0);
        assert!(start.elapsed() >= Duration::from_millis(2));
        assert!(!inside.exists());

        assert!(enter(&inside));
        assert_eq!(hold(Instant::now(), &order).await, 1);
        assert!(inside.exists(), "whoever was there first is not thrown out");
    }
}
