//! Runs seeds and tells what broke.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use leasehold_sim::history::Shown;
use leasehold_sim::scenario::{Assumption, Scenario, Wishes};
use leasehold_sim::world::{Figures, Outcome, World};

/// Simulate Leasehold's protocol under faults, one world per seed
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run this seed alone and tell everything that happened
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// This many nodes instead of what the seed says
    #[arg(long)]
    nodes: Option<usize>,
    /// This many holders
    #[arg(long)]
    holders: Option<usize>,
    /// Let this assumption of the protocol not hold, and find out what it was good for
    #[arg(long = "break", value_name = "ASSUMPTION")]
    broken: Option<Assumption>,
    /// How many threads; all cores if nothing is said
    #[arg(long)]
    threads: Option<usize>,
}

impl Args {
    fn wishes(&self) -> Wishes {
        Wishes { nodes: self.nodes, holders: self.holders, broken: self.broken }
    }

    fn run(&self, seed: u64, tells: bool) -> Outcome {
        World::new(Scenario::new(seed, self.wishes()), tells).run()
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.replay {
        Some(seed) => replay(&args, seed),
        None => run_all(&args),
    }
}

fn replay(args: &Args, seed: u64) -> ExitCode {
    let outcome = args.run(seed, true);
    println!("{:?}", Scenario::new(seed, args.wishes()));
    for (at, happening) in &outcome.timeline {
        println!("{} {happening}", Shown(*at));
    }
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some((at, violation)) => {
            println!("{} {} BROKEN: {}", Shown(at), violation.promise, violation.story);
            ExitCode::FAILURE
        }
    }
}

fn run_all(args: &Args) -> ExitCode {
    let start = Instant::now();
    let next = AtomicU64::new(args.first);
    let sum = Mutex::new((Figures::default(), Vec::new()));
    let threads =
        args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.first + args.seeds {
                        return;
                    }
                    let outcome = args.run(seed, false);
                    let mut sum = sum.lock().expect("no thread panicked");
                    sum.0.events += outcome.figures.events;
                    sum.0.acquired += outcome.figures.acquired;
                    sum.0.extended += outcome.figures.extended;
                    sum.0.lost += outcome.figures.lost;
                    sum.0.faults += outcome.figures.faults;
                    if let Some((at, violation)) = outcome.violation {
                        eprintln!(
                            "seed {seed}: {} BROKEN at {}: {}",
                            violation.promise,
                            Shown(at),
                            violation.story
                        );
                        sum.1.push(seed);
                    }
                }
            });
        }
    });
    let (figures, broken) = sum.into_inner().expect("no thread panicked");
    println!(
        "{} seeds in {:.1?}: {} events, {} faults, {} acquired, {} extended, {} lost; {} violated",
        args.seeds,
        start.elapsed(),
        figures.events,
        figures.faults,
        figures.acquired,
        figures.extended,
        figures.lost,
        broken.len()
    );
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
