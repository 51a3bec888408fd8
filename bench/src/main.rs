//! Measures, tells, and is each of the processes that are measured.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;
use leasehold_bench::args::{Args, Part};
use leasehold_bench::{child, interrupt, lock_server, report, scenarios};

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.part {
        Some(Part::Child { role }) => child::play(role),
        Some(Part::Serve { addrs, listen }) => lock_server::serve(addrs, listen.as_deref()),
        Some(Part::Draw { rows, svg }) => draw(rows, svg),
        None => bench(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw(files: &[PathBuf], svg: &Path) -> Result<(), String> {
    let mut rows = Vec::new();
    for file in files {
        rows.extend(report::json::read(file)?);
    }
    report::write(svg, &report::chart::svg(&rows))
}

fn bench(args: &Args) -> Result<(), String> {
    interrupt::listen().map_err(|error| format!("signals cannot be noticed: {error}"))?;
    let mut rows = Vec::new();
    for scenario in &args.scenarios {
        let found = scenarios::run(*scenario, args)?;
        print!("{}", report::table::table(&found.rows));
        found.facts.iter().for_each(|fact| println!("{fact}"));
        rows.extend(found.rows);
        // What is measured is kept, whatever becomes of the next scenario.
        if let Some(file) = &args.json {
            report::write(file, &report::json::json(&rows))?;
        }
        if let Some(file) = &args.svg {
            report::write(file, &report::chart::svg(&rows))?;
        }
    }
    Ok(())
}
