//! Runs cases and tells what came of them.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use leasehold_model::case::{Case, Effort, Expected, Outcome, Verdict};
use leasehold_model::{cases, line, lists, report};

/// Explore Leasehold's protocol to the last state, within bounds
#[derive(Debug, Parser)]
struct Args {
    /// Run the large bounds, too: hours, and gigabytes
    #[arg(long)]
    all: bool,
    /// Run this case alone; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Tell which cases there are
    #[arg(long)]
    list: bool,
    /// Tell each counterexample step by step
    #[arg(long)]
    trace: bool,
    /// Take every step by itself, also those that cannot matter: many times more states
    #[arg(long)]
    plain: bool,
    /// Print a table for the README
    #[arg(long)]
    markdown: bool,
    /// How many threads; with more than one a counterexample need not be the shortest
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Stop each case after this many seconds; what was not finished counts as failed
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let chosen = match choose(&args) {
        Ok(chosen) => chosen,
        Err(unknown) => {
            eprintln!("there is no case called `{unknown}`; `--list` tells which there are");
            return ExitCode::from(2);
        }
    };
    let is_chosen = |name, is_large| chooses(&args, name, is_large);
    let lines = line::all().into_iter().filter(|case| is_chosen(case.name, case.large));
    let lines: Vec<_> = lines.collect();
    let changes = lists::all().into_iter().filter(|case| is_chosen(case.name, case.large));
    let changes: Vec<_> = changes.collect();
    if args.list {
        chosen.iter().for_each(|case| println!("{}", report::listed(case)));
        lines.iter().for_each(|case| println!("{}", line::report::listed(case)));
        changes.iter().for_each(|case| println!("{}", lists::report::listed(case)));
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let outcomes: Vec<Outcome> = chosen.iter().map(|case| run(&args, case)).collect();
    let waits: Vec<line::Outcome> = lines.iter().map(|case| run_line(&args, case)).collect();
    let changes: Vec<lists::Outcome> = changes.iter().map(|case| run_lists(&args, case)).collect();
    if args.markdown {
        print!("{}\n{}", report::markdown(&outcomes), line::report::markdown(&waits));
        print!("\n{}", lists::report::markdown(&changes));
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.is_as_expected()).count()
        + waits.iter().filter(|outcome| !outcome.is_as_expected()).count()
        + changes.iter().filter(|outcome| !outcome.is_as_expected()).count();
    println!("{}", summary(&outcomes, &waits, &changes, failed, start.elapsed()));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn choose(args: &Args) -> Result<Vec<Case>, String> {
    let all = cases::all();
    let is_known = |name: &&String| {
        all.iter()
            .map(|case| case.name)
            .chain(line::all().iter().map(|case| case.name))
            .chain(lists::all().iter().map(|case| case.name))
            .any(|known| known == name.as_str())
    };
    if let Some(unknown) = args.cases.iter().find(|name| !is_known(name)) {
        return Err(unknown.clone());
    }
    let is_chosen = |case: &Case| match args.cases.as_slice() {
        [] => args.all || args.list || !case.large,
        names => names.iter().any(|name| name == case.name),
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn chooses(args: &Args, case: &str, is_large: bool) -> bool {
    match args.cases.as_slice() {
        [] => args.all || args.list || !is_large,
        names => names.iter().any(|name| name == case),
    }
}

fn run_line(args: &Args, case: &line::Case) -> line::Outcome {
    let shows = std::io::stderr().is_terminal();
    let outcome = case.run(|states| {
        if shows {
            eprint!("\r\x1b[K{}: {} states", case.name, report::grouped(states));
            let _ = std::io::stderr().flush();
        }
    });
    if shows {
        eprint!("\r\x1b[K");
    }
    println!("{}", line::report::line(&outcome));
    if let line::Verdict::Starves { trace } = &outcome.verdict
        && (args.trace || !outcome.is_as_expected())
    {
        tell(case.what, trace);
    }
    outcome
}

fn run_lists(args: &Args, case: &lists::Case) -> lists::Outcome {
    let shows = std::io::stderr().is_terminal();
    let outcome = case.run(args.limit.map(Duration::from_secs), |states| {
        if shows {
            eprint!("\r\x1b[K{}: {} states", case.name, report::grouped(states));
            let _ = std::io::stderr().flush();
        }
    });
    if shows {
        eprint!("\r\x1b[K");
    }
    println!("{}", lists::report::line(&outcome));
    if let lists::Verdict::Broken { trace, .. } = &outcome.verdict
        && (args.trace || !outcome.is_as_expected())
    {
        tell(case.what, trace);
    }
    outcome
}

fn tell(what: &str, trace: &[String]) {
    println!("       {what}");
    for (number, step) in trace.iter().enumerate() {
        println!("       {:>2}. {step}", number + 1);
    }
}

fn run(args: &Args, case: &Case) -> Outcome {
    let case = &if args.plain { case.clone().in_plain() } else { case.clone() };
    let effort = Effort { threads: args.threads, limit: args.limit.map(Duration::from_secs) };
    let shows = std::io::stderr().is_terminal();
    let outcome = case.run(effort, |states, depth| {
        if shows {
            eprint!("\r\x1b[K{}: {} states, depth {depth}", case.name, report::grouped(states));
            let _ = std::io::stderr().flush();
        }
    });
    if shows {
        eprint!("\r\x1b[K");
    }
    println!("{}", report::line(&outcome));
    let is_surprise = !outcome.is_as_expected();
    if let Verdict::Broken { trace, .. } = &outcome.verdict
        && (args.trace || is_surprise)
    {
        tell(case.what, trace);
    }
    outcome
}

fn summary(
    outcomes: &[Outcome],
    waits: &[line::Outcome],
    changes: &[lists::Outcome],
    failed: usize,
    took: Duration,
) -> String {
    let states = outcomes.iter().map(|outcome| outcome.states).sum::<usize>()
        + waits.iter().map(|outcome| outcome.states).sum::<usize>()
        + changes.iter().map(|outcome| outcome.states).sum::<usize>();
    let is_sound = |outcome: &&Outcome| matches!(outcome.case.expected, Expected::Holds { .. });
    let sound = outcomes.iter().filter(is_sound).count()
        + waits.iter().filter(|outcome| outcome.case.serves).count()
        + changes.iter().filter(|outcome| outcome.case.must_hold()).count();
    let cases = outcomes.len() + waits.len() + changes.len();
    format!(
        "{} cases in {:.1} s, {} states: {sound} must hold, {} mutations must be found; {failed} not as expected",
        cases,
        took.as_secs_f64(),
        report::grouped(states),
        cases - sound
    )
}
