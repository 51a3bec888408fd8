//! Runs a scenario once per seed, and says how to repeat one that failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::world::World;
use crate::chance::seeded;

/// No scenario takes so long in its own time; one that does waits for something that never comes.
const LONGEST: Duration = Duration::from_secs(3600);
/// Lines of history that a failure shows, up to the first violation.
const SHOWN: usize = 120;

/// Runs `scenario` with `usual` seeds, or with those that the environment asks for.
pub(super) fn for_seeds<F>(usual: u64, scenario: impl Fn(Arc<World>) -> F)
where
    F: Future<Output = ()>,
{
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("LEASEHOLD_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LEASEHOLD_SIM_SEEDS").unwrap_or(usual),
    };
    for seed in seeds {
        let (history, faults) = run(seed, &scenario);
        if faults.is_empty() {
            continue;
        }
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let end = history.iter().position(|line| line.contains("VIOLATION"));
        let end = end.map_or(history.len(), |at| at + 1);
        for line in &history[end.saturating_sub(SHOWN)..end] {
            eprintln!("{line}");
        }
        panic!(
            "seed {seed}: {}\nrepeat it with\n  LEASEHOLD_SIM_SEED={seed} cargo test -p leasehold \
             --lib {test} -- --nocapture",
            faults.join("\n")
        );
    }
}

/// One run: its history, and what went wrong.
pub(super) fn run<F>(seed: u64, scenario: impl Fn(Arc<World>) -> F) -> (Vec<String>, Vec<String>)
where
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    seeded::seed(Some(seed));
    let world = runtime.block_on(async { Arc::new(World::new(seed)) });
    let ended = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { tokio::time::timeout(LONGEST, scenario(world.clone())).await })
    }));
    drop(runtime);
    seeded::seed(None);
    let mut faults = world.violations();
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(_)) => faults.push(format!("it did not end within {LONGEST:?} of its own time")),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            faults.push(format!("it panicked: {}", words.unwrap_or("without words")));
        }
    }
    (world.history(), faults)
}
