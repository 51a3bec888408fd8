//! What the user typed: the commands and what all of them understand. Each command's own flags
//! stand in its file.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::{
    acquire, bench, completions, config, doctor, extend, force_release, hold, init, list, man,
    names, nodes, plan, release, run, serve, status, token, watch,
};
use crate::output::ColorChoice;

/// Distributed locks for people who cannot afford two holders
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    propagate_version = true,
    after_help = "Examples:\n  \
        leasehold run nightly-backup -- ./backup.sh\n  \
        leasehold --backend redis://a,b,c,d,e run deploy -w 5m -- ./deploy.sh\n  \
        leasehold status deploy\n  \
        leasehold doctor\n\n\
        Exit codes: 64 usage; 69 no quorum or backend; 74 cannot write; 75 busy; 77 refused; \
        78 bad configuration; 79 lease lost; doctor: 0, 1 warnings, 2 errors; run: the command's \
        own."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// What was typed, or what is wrong with it.
    ///
    /// `run` first and alone: to describe all commands to the parser takes as long as to acquire a
    /// lock.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        match OnlyRun::try_parse() {
            Ok(OnlyRun { global, command: RunCommand::Run(run) }) => {
                Ok(Self { global, command: Command::Run(run) })
            }
            Err(_) => Self::try_parse(),
        }
    }
}

/// [`Args`] with one command.
#[derive(Debug, Parser)]
struct OnlyRun {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(run::Args),
}

/// What every command understands.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Global {
    /// Where the locks live: sqlite:PATH, redis://a,b,c, rediss://…, unix://…, or a lock server,
    /// https://HOST [env: LEASEHOLD_BACKEND] [default: sqlite:]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) backend: Option<String>,
    /// The settings file, instead of leasehold.toml in the usual places [env: LEASEHOLD_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print data as JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colors; NO_COLOR is respected [env: LEASEHOLD_COLOR] [default: auto]
    #[arg(long, global = true, value_name = "WHEN")]
    pub(crate) color: Option<ColorChoice>,
    /// Say nothing but data and errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say on stderr what happens; twice for more. LEASEHOLD_LOG takes a filter such as
    /// leasehold=debug
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Hold(hold::Args),
    Acquire(acquire::Args),
    Extend(extend::Args),
    Release(release::Args),
    Status(status::Args),
    List(list::Args),
    Watch(watch::Args),
    ForceRelease(force_release::Args),
    Init(init::Args),
    Nodes(nodes::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
    Bench(bench::Args),
    Serve(Box<serve::Args>),
    Token(token::Args),
    Config(config::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(name = "__names", hide = true)]
    Names(names::Args),
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use leasehold_testkit::fuzz;

    use super::*;

    /// What people type, and what they type wrongly.
    const WORDS: [&str; 30] = [
        "run",
        "hold",
        "acquire",
        "extend",
        "release",
        "status",
        "list",
        "force-release",
        "doctor",
        "plan",
        "completions",
        "--",
        "-",
        "--help",
        "--json",
        "-q",
        "-vv",
        "--color",
        "always",
        "--backend",
        "redis://u:p@a,b",
        "--ttl",
        "5x",
        "-w",
        "1h30m",
        "-n",
        "--fence",
        "-1",
        "18446744073709551616",
        "",
    ];

    #[test]
    fn any_words_are_a_command_or_are_refused() {
        fuzz(300, &[], |input| {
            let mut words = vec![OsString::from("leasehold")];
            while !input.is_empty() && words.len() < 9 {
                words.push(match input.below(5) {
                    0 => OsString::from_vec(input.bytes().to_vec()),
                    1 => format!("{}={}", input.pick(&WORDS), input.text()).into(),
                    _ => input.pick(&WORDS).into(),
                });
            }
            let alone = OnlyRun::try_parse_from(&words);
            let with_all = Args::try_parse_from(&words);
            // The short way must not understand what the long way does not.
            if alone.is_ok() {
                assert!(matches!(with_all, Ok(Args { command: Command::Run(_), .. })), "{words:?}");
            }
        });
    }
}
