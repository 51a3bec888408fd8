//! Tasks that acquire and release as fast as they can, and what became of it.

use std::time::{Duration, Instant};

use leasehold::{AcquireError, Guard, Locks, ReleaseOutcome};
use tokio::task::JoinSet;

/// Stands before the name of every lock that is taken.
const PREFIX: &str = "leasehold-bench/";
/// Nobody else should have these locks; another `bench` may, for a moment.
const WAIT: Duration = Duration::from_secs(5);
/// Often enough to look alive.
const REDRAW_EVERY: Duration = Duration::from_millis(100);
/// The median, and what one in a hundred and one in a thousand exceed.
const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

pub(super) struct Load<'a> {
    pub(super) locks: &'a Locks,
    /// Locks of each task.
    pub(super) names: u32,
    pub(super) duration: Duration,
}

/// What one number of tasks came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) concurrency: u32,
    pub(super) elapsed: Duration,
    pub(super) cycles: usize,
    /// By [`SHARES`]; `None` if there was no cycle.
    pub(super) acquire: [Option<Duration>; 3],
    pub(super) release: [Option<Duration>; 3],
    pub(super) failed: u64,
    pub(super) failure: Option<String>,
}

/// What one task did.
#[derive(Debug, Default)]
struct Done {
    acquire: Vec<Duration>,
    release: Vec<Duration>,
    failed: u64,
    failure: Option<String>,
}

impl Load<'_> {
    /// One cycle, or why there cannot be any.
    pub(super) async fn once(&self) -> Result<(), AcquireError> {
        let guard = acquire(self.locks, &name(0, 0)).await?;
        let _outcome = guard.release().await;
        Ok(())
    }

    /// Measures until the time is up, or gives everything back and returns what `interrupted` came
    /// to. `draw` is called with the time passed.
    pub(super) async fn run<I>(
        &self,
        concurrency: u32,
        interrupted: impl Future<Output = I>,
        draw: impl Fn(Duration),
    ) -> Result<Figures, I> {
        // At once: on a busy machine the next chance may come when all is over.
        draw(Duration::ZERO);
        let start = Instant::now();
        let end = start + self.duration;
        let mut tasks = JoinSet::new();
        for task in 0..concurrency {
            let names = (0..self.names).map(|i| name(task, i)).collect();
            tasks.spawn(cycle(self.locks.clone(), names, end));
        }
        let mut sum = Done::default();
        let mut redraw = tokio::time::interval(REDRAW_EVERY);
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                biased;
                came = &mut interrupted => {
                    // A task that is only told to end has not given back yet what it holds.
                    tasks.shutdown().await;
                    return Err(came);
                }
                done = tasks.join_next() => match done {
                    Some(Ok(done)) => sum.add(done),
                    Some(Err(error)) => sum.fail(&error.to_string()),
                    None => break,
                },
                _ = redraw.tick() => draw(start.elapsed()),
            }
        }
        Ok(Figures {
            concurrency,
            elapsed: start.elapsed(),
            cycles: sum.acquire.len(),
            acquire: percentiles(&mut sum.acquire),
            release: percentiles(&mut sum.release),
            failed: sum.failed,
            failure: sum.failure,
        })
    }
}

impl Figures {
    pub(super) fn cycles_per_s(&self) -> f64 {
        self.cycles as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Done {
    fn add(&mut self, mut other: Done) {
        self.acquire.append(&mut other.acquire);
        self.release.append(&mut other.release);
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }

    fn fail(&mut self, why: &str) {
        self.failed += 1;
        self.failure.get_or_insert_with(|| why.to_owned());
    }
}

fn name(task: u32, i: u32) -> String {
    format!("{PREFIX}{task}/{i}")
}

async fn acquire(locks: &Locks, name: &str) -> Result<Guard, AcquireError> {
    locks.lock(name).wait(WAIT).acquire().await
}

async fn cycle(locks: Locks, names: Vec<String>, end: Instant) -> Done {
    let mut done = Done::default();
    for name in names.iter().cycle() {
        let asked = Instant::now();
        if asked >= end {
            break;
        }
        let guard = match acquire(&locks, name).await {
            Ok(guard) => guard,
            Err(error) => {
                done.fail(&error.to_string());
                continue;
            }
        };
        let acquired = Instant::now();
        match guard.release().await {
            ReleaseOutcome::Released | ReleaseOutcome::HandedOver => {
                done.acquire.push(acquired - asked);
                done.release.push(acquired.elapsed());
            }
            ReleaseOutcome::Unknown { nodes } => {
                done.fail(&format!("lock `{name}`: the release was not confirmed: {nodes}"));
            }
            outcome => done.fail(&format!("lock `{name}` was not ours any more: {outcome:?}")),
        }
    }
    done
}

/// The smallest times that these shares of all do not exceed.
fn percentiles(times: &mut [Duration]) -> [Option<Duration>; 3] {
    times.sort_unstable();
    SHARES.map(|share| {
        let rank = (share * times.len() as f64).ceil() as usize;
        times.get(rank.max(1) - 1).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        assert_eq!(percentiles(&mut []), [None; 3]);
        let millis = |ms| Some(Duration::from_millis(ms));
        assert_eq!(percentiles(&mut [Duration::from_millis(7)]), [millis(7); 3]);
        let mut thousand: Vec<_> = (1..=1000).rev().map(Duration::from_millis).collect();
        assert_eq!(percentiles(&mut thousand), [millis(500), millis(990), millis(999)]);
    }

    #[tokio::test]
    async fn every_lock_is_given_back_also_after_an_interrupt() {
        let locks = Locks::open("memory:").await.unwrap();
        let load = Load { locks: &locks, names: 2, duration: Duration::from_millis(50) };
        load.once().await.unwrap();
        let figures = load.run(3, std::future::pending::<()>(), |_| {}).await.unwrap();
        assert!(figures.cycles >= 3, "{figures:?}");
        assert_eq!((figures.failed, figures.failure), (0, None));
        assert!(figures.acquire[0] <= figures.acquire[2] && figures.acquire[0].is_some());
        assert!(figures.elapsed >= load.duration);
        let long = Load { duration: Duration::from_secs(600), ..load };
        let soon = tokio::time::sleep(Duration::from_millis(20));
        long.run(3, soon, |_| {}).await.unwrap_err();
        locks.settle().await;
        let held = locks.list(PREFIX).await.unwrap();
        assert!(held.is_empty(), "{held:?}");
    }
}
