//! Runs seeds and tells what broke.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use leasehold_sim::history::Shown;
use leasehold_sim::scenario::{Assumption, Scenario, Wishes};
use leasehold_sim::timeline::relevant;
use leasehold_sim::world::{Figures, Outcome, World};

/// Simulate Leasehold's protocol under faults, one world per seed
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 2000, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run this seed alone and tell everything that happened
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// This many nodes instead of what the seed says
    #[arg(long, value_parser = value_parser!(u8).range(1..=7))]
    nodes: Option<u8>,
    /// This many holders
    #[arg(long, value_parser = value_parser!(u8).range(1..=50))]
    holders: Option<u8>,
    /// Let this assumption of the protocol not hold, and find out what it was good for
    #[arg(long = "break", value_name = "ASSUMPTION")]
    broken: Option<Assumption>,
    /// A day of what NTP does to clocks, in which one holder holds on and must lose nothing
    #[arg(long, conflicts_with = "broken")]
    day_of_ntp: bool,
    /// Change the member list in every world, and not only in one of four
    #[arg(long, conflicts_with_all = ["broken", "day_of_ntp"])]
    lists: bool,
    /// How many threads; all cores if nothing is said
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

/// After this many broken worlds the others are only counted.
const TOLD_MAX: u64 = 5;

impl Args {
    fn wishes(&self) -> Wishes {
        let (nodes, holders) = (self.nodes.map(usize::from), self.holders.map(usize::from));
        let (day_of_ntp, lists, broken) = (self.day_of_ntp, self.lists, self.broken);
        Wishes { nodes, holders, day_of_ntp, lists, broken }
    }

    fn run(&self, seed: u64, tells: bool) -> Outcome {
        World::new(Scenario::new(seed, self.wishes()), tells).run()
    }

    /// The command that runs this seed again, in this very world.
    fn replay_command(&self, seed: u64) -> String {
        let mut command = format!("cargo run --release -p leasehold-sim -- --replay {seed}");
        let wishes = [("nodes", self.nodes), ("holders", self.holders)];
        for (name, wish) in wishes.iter().filter_map(|(name, wish)| Some((name, (*wish)?))) {
            command += &format!(" --{name} {wish}");
        }
        if self.day_of_ntp {
            command += " --day-of-ntp";
        }
        if self.lists {
            command += " --lists";
        }
        if let Some(broken) = self.broken {
            command += &format!(" --break {}", format!("{broken:?}").to_lowercase());
        }
        command
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
    for (at, violation) in &outcome.violations {
        println!("{} {} BROKEN: {}", Shown(*at), violation.promise, violation.story);
    }
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(args: &Args) -> ExitCode {
    let (start, bar) = (Instant::now(), progress_bar(args.seeds));
    let next = AtomicU64::new(args.first);
    let sum = Mutex::new((Figures::default(), 0, BTreeMap::<_, u64>::new()));
    let all_cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = args.threads.unwrap_or_else(all_cores).get();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.first.saturating_add(args.seeds) {
                        return;
                    }
                    let outcome = args.run(seed, false);
                    let mut sum = sum.lock().expect("no thread panicked");
                    sum.0 += outcome.figures;
                    bar.inc(1);
                    for (_, violation) in &outcome.violations {
                        *sum.2.entry(violation.promise).or_default() += 1;
                    }
                    if !outcome.violations.is_empty() {
                        sum.1 += 1;
                        if sum.1 <= TOLD_MAX {
                            bar.suspend(|| tell(args, seed, &outcome));
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let (figures, broken, promises) = sum.into_inner().expect("no thread panicked");
    let promises: Vec<_> = promises.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let promises = if broken == 0 { String::new() } else { format!(": {}", promises.join(", ")) };
    let elapsed = start.elapsed();
    println!("{} seeds in {elapsed:.1?}: {figures}; {broken} violated{promises}", args.seeds);
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shown on a terminal only.
fn progress_bar(seeds: u64) -> ProgressBar {
    let style = "{bar:30} {pos}/{len} seeds, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a good template");
    ProgressBar::new(seeds).with_style(style)
}

fn tell(args: &Args, seed: u64, outcome: &Outcome) {
    println!("seed {seed}");
    // Ends where the first promise broke, so that the story is the last line.
    let end = outcome.violations[0].0;
    let mut timeline = args.run(seed, true).timeline;
    timeline.retain(|(at, _)| *at <= end);
    for line in relevant(&timeline) {
        println!("  {line}");
    }
    for (at, violation) in &outcome.violations {
        println!("  {} {} BROKEN: {}", Shown(*at), violation.promise, violation.story);
    }
    println!("  all of it: {}", args.replay_command(seed));
}
