//! Plants known bugs into a copy of the source, one at a time, and says what catches them.

mod bugs;
mod catchers;
mod process;
mod report;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bugs::{Bug, ListError};
use catchers::{Catcher, Verdict};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use report::Result as BugResult;
use tree::Tree;

/// Plant known bugs, one at a time, and see what catches them
///
/// Exits with 0 only if every bug is caught: those of the protocol by two catchers. Writes
/// docs/planted-bugs.md if all bugs and all catchers were run.
#[derive(Debug, Parser)]
struct Args {
    /// Only the bugs of these names
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Only these catchers; then one of them must catch each bug that names it
    #[arg(long, value_name = "NAME", num_args = 1..)]
    catcher: Vec<String>,
    /// Show the list and run nothing
    #[arg(long)]
    list: bool,
}

enum Failure {
    List(ListError),
    System(io::Error),
    NotGreen(String),
    Interrupted,
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        Self::List(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => {
            let (words, code) = match failure {
                Failure::List(error) => (error.to_string(), 2),
                Failure::System(error) => (error.to_string(), 2),
                Failure::NotGreen(words) => (words, 2),
                Failure::Interrupted => ("interrupted".into(), 130),
            };
            eprintln!("planted: {words}");
            ExitCode::from(code)
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("planted/ is in the workspace").to_owned()
}

/// Whether all that were run were caught.
fn run(args: &Args) -> Result<bool, Failure> {
    let all = bugs::read(&root().join("planted/bugs"))?;
    let chosen = choose(&all, args)?;
    if args.list {
        for bug in &chosen {
            let catchers: Vec<_> = bug.catch.keys().map(String::as_str).collect();
            println!("{:<34} {:?}: {} [{}]", bug.name, bug.kind, bug.what, catchers.join(", "));
        }
        println!("{} bugs", chosen.len());
        return Ok(true);
    }
    process::prepare()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    let tree = Tree::copy(&root(), &std::path::absolute(target.join("planted/tree"))?)?;
    let wanted = |catcher: &Catcher| {
        args.catcher.is_empty() || args.catcher.iter().any(|name| name == catcher.name)
    };
    let start = Instant::now();
    baseline(&tree, &chosen, &wanted)?;
    let mut results = Vec::new();
    for (number, bug) in chosen.iter().enumerate() {
        let place = format!("{:>2}/{}", number + 1, chosen.len());
        results.push(try_bug(&tree, bug, &place, &wanted)?);
    }
    let demands = |bug: &Bug| if args.catcher.is_empty() { bug.kind.demands() } else { 1 };
    let escaped = results.iter().filter(|result| !result.is_caught(demands(&result.bug))).count();
    println!();
    for result in &results {
        println!("{}", report::line(result, demands(&result.bug)));
    }
    println!(
        "{} bugs in {} s: {} caught, {escaped} escaped",
        results.len(),
        start.elapsed().as_secs(),
        results.len() - escaped
    );
    if args.catcher.is_empty() && results.len() == all.len() && escaped == 0 {
        fs::write(root().join("docs/planted-bugs.md"), report::page(&results))?;
    }
    Ok(escaped == 0)
}

fn choose(all: &[Bug], args: &Args) -> Result<Vec<Bug>, ListError> {
    if let Some(unknown) = args.catcher.iter().find(|name| catchers::by_name(name).is_none()) {
        let known: Vec<_> = catchers::ALL.iter().map(|catcher| catcher.name).collect();
        let known = known.join(", ");
        return Err(ListError(format!("there is no catcher `{unknown}`, only {known}")));
    }
    if let Some(unknown) = args.only.iter().find(|name| all.iter().all(|bug| bug.name != **name)) {
        return Err(ListError(format!("there is no bug `{unknown}`; --list shows them")));
    }
    let is_chosen = |bug: &&Bug| {
        let by_name = args.only.is_empty() || args.only.contains(&bug.name);
        let by_catcher = args.catcher.is_empty()
            || args.catcher.iter().any(|catcher| bug.catch.contains_key(catcher));
        by_name && by_catcher
    };
    Ok(all.iter().filter(is_chosen).cloned().collect())
}

/// Without a bug every catcher must be green, otherwise what it says of a bug means nothing.
fn baseline(tree: &Tree, bugs: &[Bug], wanted: &impl Fn(&Catcher) -> bool) -> Result<(), Failure> {
    for catcher in catchers::ALL.iter().filter(|catcher| wanted(catcher)) {
        let asked: BTreeSet<_> =
            bugs.iter().filter_map(|bug| bug.catch.get(catcher.name)).collect();
        for arguments in asked {
            let what = format!("without a bug: {} {arguments}", catcher.name);
            match ask(tree, catcher, arguments, &what)? {
                Verdict::Missed => {}
                Verdict::Interrupted => return Err(Failure::Interrupted),
                Verdict::Caught(words) | Verdict::Unclear(words) => {
                    let what = format!(
                        "{} {arguments}: not green without a bug: {words}\n\
                         hint: `./test planted` provides the servers that the tests need",
                        catcher.name
                    );
                    return Err(Failure::NotGreen(what));
                }
            }
        }
    }
    Ok(())
}

fn try_bug(
    tree: &Tree,
    bug: &Bug,
    place: &str,
    wanted: &impl Fn(&Catcher) -> bool,
) -> Result<BugResult, Failure> {
    let files = bug.plant(tree.path())?;
    tree.plant(&files)?;
    let mut verdicts = Vec::new();
    for catcher in catchers::ALL.iter().filter(|catcher| wanted(catcher)) {
        let Some(arguments) = bug.catch.get(catcher.name) else { continue };
        let what = format!("{place} {}: {}", bug.name, catcher.name);
        match ask(tree, catcher, arguments, &what)? {
            Verdict::Interrupted => return Err(Failure::Interrupted),
            verdict => verdicts.push((catcher.name, verdict)),
        }
    }
    tree.heal(&files)?;
    Ok(BugResult { bug: bug.clone(), verdicts })
}

/// Builds the catcher, lets it look, and shows what it is about.
fn ask(tree: &Tree, catcher: &Catcher, arguments: &str, what: &str) -> Result<Verdict, Failure> {
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.set_message(format!("{what}: building"));
    let start = Instant::now();
    if let Err(verdict) = catcher.build(tree.path(), arguments) {
        bar.finish_and_clear();
        return match verdict {
            Verdict::Unclear(words) => Err(ListError(format!("{what}: {words}")).into()),
            verdict => Ok(verdict),
        };
    }
    let built = start.elapsed();
    bar.set_message(format!("{what}: looking"));
    let (verdict, time) = catcher.look(tree.path(), arguments);
    bar.finish_and_clear();
    let said = match &verdict {
        Verdict::Caught(evidence) => format!("caught: {evidence}"),
        Verdict::Missed => "nothing".into(),
        Verdict::Unclear(words) => format!("unclear: {words}"),
        Verdict::Interrupted => "interrupted".into(),
    };
    eprintln!("{what}: {said} ({:.0?} to build, {:.1?} to look)", built, time);
    Ok(verdict)
}
