//! What may catch a bug, how it is started, and how its words are read.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::{self, End, Run};

/// Something that looks for bugs.
#[derive(Debug)]
pub(crate) struct Catcher {
    /// In the list of bugs.
    pub(crate) name: &'static str,
    /// Above its column.
    pub(crate) title: &'static str,
    how: How,
    /// A run that takes longer hangs. That is no catch: nobody would know what hangs, or why.
    limit: Duration,
}

#[derive(Debug, Clone, Copy)]
enum How {
    /// `cargo test` with what the bug says.
    Tests,
    /// The simulated driver: those of its scenarios whose names have one of the words that the bug
    /// says, with `--seeds` if it says so.
    Driver,
    /// A program of the workspace, with these arguments and what the bug says.
    Program {
        package: &'static str,
        arguments: &'static [&'static str],
        reads: fn(&[String]) -> Option<String>,
    },
}

/// All of them.
pub(crate) const ALL: &[Catcher] = &[
    Catcher {
        name: "model",
        title: "model",
        how: How::Program { package: "leasehold-model", arguments: &[], reads: broken_case },
        limit: Duration::from_secs(600),
    },
    Catcher {
        name: "sim",
        title: "simulation",
        how: How::Program {
            package: "leasehold-sim",
            // One thread, so that the first seed that is found out is always the same.
            arguments: &["--threads", "1"],
            reads: broken_seed,
        },
        limit: Duration::from_secs(600),
    },
    Catcher {
        name: "driver",
        title: "simulated driver",
        how: How::Driver,
        limit: Duration::from_secs(300),
    },
    Catcher { name: "tests", title: "tests", how: How::Tests, limit: Duration::from_secs(180) },
    Catcher {
        name: "chaos",
        title: "chaos",
        how: How::Program { package: "leasehold-chaos", arguments: &[], reads: broken_history },
        // After the last fault it waits for up to a minute until everybody is served.
        limit: Duration::from_secs(240),
    },
];

/// Where the simulated driver is.
const DRIVER: [&str; 3] = ["-p", "leasehold", "--lib"];

/// What building everything for the first time may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// What a catcher said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It noticed, in these words.
    Caught(String),
    /// It noticed nothing.
    Missed,
    /// It did not come to an end, or said something that nobody understands.
    Unclear(String),
    /// Somebody wants all of this to stop.
    Interrupted,
}

/// The catcher of that name.
pub(crate) fn by_name(name: &str) -> Option<&'static Catcher> {
    ALL.iter().find(|catcher| catcher.name == name)
}

impl Catcher {
    /// Builds what is needed. `Err` has the compiler's words.
    pub(crate) fn build(&self, tree: &Path, arguments: &str) -> Result<(), Verdict> {
        let mut cargo = cargo(tree);
        match self.how {
            How::Tests => {
                let (arguments, _) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
                cargo.args(["test", "--no-run"]).args(arguments.split_whitespace())
            }
            How::Driver => cargo.args(["test", "--no-run"]).args(DRIVER),
            How::Program { package, .. } => {
                cargo.args(["build", "-p", package]).args(beside(arguments))
            }
        };
        let run = finish(process::run(&mut cargo, tree, BUILD_LIMIT, |_| false))?;
        match run.end {
            End::Exited(status) if status.success() => Ok(()),
            End::Interrupted => Err(Verdict::Interrupted),
            _ => Err(Verdict::Unclear(format!("does not build:\n{}", last_of(&run.lines)))),
        }
    }

    /// Lets it look, and tells what it said and how long it took.
    pub(crate) fn look(&self, tree: &Path, arguments: &str) -> (Verdict, Duration) {
        let mut cargo = cargo(tree);
        let words = arguments.split_whitespace();
        let result = match self.how {
            How::Tests => {
                cargo.arg("test").args(words);
                process::run(&mut cargo, tree, self.limit, |_| false)
            }
            How::Driver => {
                let (scenarios, seeds) = scenarios(arguments);
                cargo.arg("test").args(DRIVER).arg("--").args(scenarios);
                if let Some(seeds) = seeds {
                    cargo.env("LEASEHOLD_SIM_SEEDS", seeds);
                }
                process::run(&mut cargo, tree, self.limit, |_| false)
            }
            How::Program { package, arguments, reads } => {
                cargo.args(["run", "--quiet", "-p", package, "--"]).args(arguments).args(words);
                process::run(&mut cargo, tree, self.limit, |lines| reads(lines).is_some())
            }
        };
        match finish(result) {
            Ok(run) => (self.judge(&run), run.time),
            Err(verdict) => (verdict, Duration::ZERO),
        }
    }

    fn runs_tests(&self) -> bool {
        matches!(self.how, How::Tests | How::Driver)
    }

    fn judge(&self, run: &Run) -> Verdict {
        match run.end {
            End::Interrupted => return Verdict::Interrupted,
            End::TimedOut => {
                return Verdict::Unclear(format!("no end within {:?}", self.limit));
            }
            End::Exited(_) | End::Seen => {}
        }
        let is_success = matches!(run.end, End::Exited(status) if status.success());
        let evidence = match self.how {
            How::Tests => failed_tests(&run.lines),
            How::Driver => failed_scenario(&run.lines),
            How::Program { reads, .. } => reads(&run.lines),
        };
        match (evidence, is_success) {
            (Some(evidence), false) => Verdict::Caught(evidence),
            (None, true) if self.runs_tests() && passed_tests(&run.lines) == 0 => {
                Verdict::Unclear("no test has such a name".into())
            }
            (None, true) => Verdict::Missed,
            _ => Verdict::Unclear(format!("nobody understands:\n{}", last_of(&run.lines))),
        }
    }
}

/// What else must lie beside a program that is given these arguments.
fn beside(arguments: &str) -> &'static [&'static str] {
    let is_asked = arguments.split_whitespace().any(|word| word == "--through-servers");
    if is_asked { &["-p", "leasehold-cli"] } else { &[] }
}

fn finish(run: std::io::Result<Run>) -> Result<Run, Verdict> {
    run.map_err(|error| Verdict::Unclear(format!("cannot be started: {error}")))
}

/// Cargo in the copy, with a target folder of its own beside it. What counts, core, simulation and
/// model, is optimised also in this profile; all else is built as fast as can be.
fn cargo(tree: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env("CARGO_TARGET_DIR", tree.with_file_name("build"));
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_TERM_COLOR", "never");
    cargo.env("CARGO_INCREMENTAL", "1").env("RUST_BACKTRACE", "0");
    cargo
}

/// `seed 7`, its story, and `  3.2s exclusion BROKEN: …`; or the words of a core that panicked.
fn broken_seed(lines: &[String]) -> Option<String> {
    if lines.iter().any(|line| line.contains("panicked at")) {
        return Some("a panic".into());
    }
    let broken = lines.iter().position(|line| line.contains(" BROKEN: "))?;
    let promise = lines[broken].trim_start().split_once(' ')?.1.split_once(" BROKEN: ")?.0;
    let seed = lines[..broken].iter().rev().find_map(|line| line.strip_prefix("seed "))?;
    Some(match seed {
        "1" => format!("{promise}, first seed"),
        _ => format!("{promise}, after {seed} seeds"),
    })
}

/// `FAILED acquire …: F1, F2 broken, 9 steps, but it should hold`. A case that has another number
/// of states than it should have has noticed a change, not a bug.
fn broken_case(lines: &[String]) -> Option<String> {
    lines.iter().find_map(|line| {
        let case = line.strip_prefix("FAILED ")?.split_whitespace().next()?;
        let broken = line.strip_suffix(", but it should hold")?.rsplit_once(": ")?.1;
        Some(format!("{broken}, case `{case}`"))
    })
}

/// `| two holders are never valid at once | BROKEN | 3 time(s) |`, and further down the story, which
/// mostly tells from when to when the second holder held it.
fn broken_history(lines: &[String]) -> Option<String> {
    let is_over = lines.iter().any(|line| line.starts_with("The same trouble again"));
    let row = lines.iter().find(|line| line.contains("| BROKEN |")).filter(|_| is_over)?;
    let promise = row.trim_start_matches('|').split('|').next()?.trim();
    let story = lines.iter().skip_while(|line| !line.starts_with(&format!("{promise}: "))).nth(1);
    let seconds = |story: &String| {
        story.rsplit_once("from ")?.1.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some(match story.and_then(seconds) {
        Some(seconds) => format!("“{promise}”, after {:.0} s", seconds.ceil()),
        None => format!("“{promise}”"),
    })
}

/// The scenarios that are meant, and how many seeds of each.
fn scenarios(arguments: &str) -> (Vec<String>, Option<String>) {
    let (names, seeds) = match arguments.split_once("--seeds") {
        Some((names, seeds)) => (names, Some(seeds.trim().to_owned())),
        None => (arguments, None),
    };
    (names.split_whitespace().map(|name| format!("simulation::{name}")).collect(), seeds)
}

/// The scenarios that failed, and `seed 7: …` of the first that said so. Seeds begin with 0.
fn failed_scenario(lines: &[String]) -> Option<String> {
    let failed = failed_tests(lines)?;
    let seed = lines
        .iter()
        .find_map(|line| line.strip_prefix("seed ")?.split_once(": ")?.0.parse::<u64>().ok());
    Some(match seed {
        None => failed,
        Some(0) => format!("{failed}, first seed"),
        Some(seed) => format!("{failed}, after {} seeds", seed + 1),
    })
}

/// The names of the tests that failed.
fn failed_tests(lines: &[String]) -> Option<String> {
    let name =
        |line: &String| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    // What follows is what the tests said, which may be the like of it by processes of their own.
    let said = lines.iter().take_while(|line| *line != "failures:");
    let mut names: Vec<String> = said.filter_map(name).collect();
    names.sort();
    let last = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let first = last(names.first()?);
    Some(match names.len() {
        1 => format!("`{first}`"),
        count => format!("`{first}` and {} more", count - 1),
    })
}

fn passed_tests(lines: &[String]) -> u64 {
    let passed = |line: &String| {
        line.strip_prefix("test result: ok. ")?.split_once(" passed")?.0.parse::<u64>().ok()
    };
    lines.iter().filter_map(passed).sum()
}

fn last_of(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_violated_seed_is_read_and_a_summary_is_not() {
        let story =
            "seed 12\n  1.0s node 2 dies\n  3.2s own release BROKEN: a and b\n  all of it: x";
        assert_eq!(broken_seed(&lines(story)).unwrap(), "own release, after 12 seeds");
        let first = "seed 1\n  0.1s fences BROKEN: again";
        assert_eq!(broken_seed(&lines(first)).unwrap(), "fences, first seed");
        assert_eq!(broken_seed(&lines("2000 seeds in 3s: 5 events; 0 violated")), None);
    }

    #[test]
    fn a_broken_case_is_read_and_a_changed_one_is_not() {
        let line = "FAILED acquire  N=3 K=2  F1 F2  12 states, depth  9, 0.1 s:";
        let broken = format!("{line} F1, F2 broken, 9 steps, but it should hold");
        let wanted = "F1, F2 broken, 9 steps, case `acquire`";
        assert_eq!(broken_case(&lines(&broken)).unwrap(), wanted);
        let changed = format!("{line} holds, exhaustive, but 13 states were expected");
        assert_eq!(broken_case(&lines(&changed)), None);
    }

    #[test]
    fn a_broken_history_is_read_to_its_end() {
        let story = "| it goes on | kept | 5 |\n| one holds | BROKEN | 3 time(s) |\n\n\
                     one holds: 3 time(s)\n    a (from 1.0 to 9.1 s) and b (from 6.3 to 8.1 s) held\n";
        assert_eq!(broken_history(&lines(story)), None, "there is more to come");
        let story = format!("{story}\nThe same trouble again: `x`");
        assert_eq!(broken_history(&lines(&story)).unwrap(), "“one holds”, after 7 s");
    }

    #[test]
    fn chaos_through_servers_needs_the_command_line_beside_it() {
        assert_eq!(beside("--seconds 20 --through-servers --seed 5"), ["-p", "leasehold-cli"]);
        assert!(beside("--seconds 20 --seed 5").is_empty());
    }

    #[test]
    fn a_failed_scenario_is_told_with_its_seed() {
        let story = "test simulation::a::two ... FAILED\n\nfailures:\n\n\
                     thread 'x' panicked at run.rs:1:\nseed 6: a and b\nrepeat it with";
        assert_eq!(failed_scenario(&lines(story)).unwrap(), "`two`, after 7 seeds");
        assert_eq!(failed_scenario(&lines("test simulation::a::two ... ok")), None);
        let asked = (vec!["simulation::a::".into(), "simulation::b".into()], Some("9".into()));
        assert_eq!(scenarios("a:: b --seeds 9"), asked);
        assert_eq!(scenarios("a").1, None);
    }

    #[test]
    fn failed_and_passed_tests_are_counted() {
        let failed = lines(
            "running 3 tests\ntest a::two ... FAILED\ntest a::one ... ok\ntest a::b ... FAILED\n\
             failures:\ntest a::aa ... FAILED\ntest result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!(failed_tests(&failed).unwrap(), "`b` and 1 more");
        let passed =
            lines("test result: ok. 2 passed; 0 failed\ntest result: ok. 0 passed; 0 failed");
        assert_eq!((failed_tests(&passed), passed_tests(&passed)), (None, 2));
    }
}
