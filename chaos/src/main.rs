//! Runs chaos, judges a saved history, or is one of the processes of a run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use clap::{Parser, Subcommand};
use leasehold_chaos::clock::boot_nanos;
use leasehold_chaos::history::{History, META};
use leasehold_chaos::report::Report;
use leasehold_chaos::run::{Failure, Interrupt, run};
use leasehold_chaos::schedule::{Backend, Plan};
use leasehold_chaos::{hogs, holder, picture, store};

/// Make trouble for Leasehold on real servers and check the history
///
/// Starts servers behind proxies and holder processes that compete for locks. Meanwhile servers are
/// killed, stopped, emptied, copied over each other, started from other files and failed over; ways
/// are delayed, cut, led to other servers; holders are stopped and killed. Clocks are wrong from the
/// start, step ahead and back by up to minutes, also while a node waits in quarantine, and are put
/// right later; holders start right after that, and some stand still without their clocks knowing.
/// Clients come with another max_ttl, and somebody says again that the cluster is new. With an odd
/// seed a pooling proxy before some nodes hides their restarts. Where a node carries the record of
/// others afterwards, chaos plays the operator and deletes that record.
///
/// No majority of clocks agrees upon a wrong time; all else is judged. Two holders at once are
/// excused only until the first has read the clock that went ahead, and the report counts them.
///
/// The history is judged afterwards: two holders, fences, the votes of every ballot by the lives of
/// the servers that gave them, the fenced store, progress. It is always kept, in a folder that the
/// report names. For each overlap of two holders the report tells their votes and the faults around
/// it, and a picture lies beside the history (overlap-1.svg).
///
/// Ends with 0 if every promise was kept, 1 if one was broken, 2 if it could not be tried.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// What is tortured
    #[arg(long, value_enum, default_value = "redis")]
    backend: Backend,
    /// For how long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The same seed makes the same trouble; a fresh one if nothing is said
    #[arg(long)]
    seed: Option<u64>,
    /// How many processes compete
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=500))]
    holders: u16,
    /// How many servers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=15))]
    nodes: u16,
    /// How many locks they compete for
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    locks: u16,
    /// Break the protocol's assumptions too: the clocks of a majority jump together, locks are
    /// evicted. Exclusion is then reported, not judged; the fences are
    #[arg(long)]
    beyond: bool,
    /// Let most of them be callers of two lock servers and of the command line, which must lie beside
    /// this program; lock servers are killed and stopped, too
    #[arg(long)]
    through_servers: bool,
    /// Run so many busy loops beside it for half of the time, every second one with a lower priority
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    hogs: u16,
    /// Make only faults whose name in the report contains this, as 'kill -9'; may be given again
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// Leave report.md and report.json here, and the history in DIR/history
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Leave the history here; a folder of its own in the system's temporary one if nothing is said
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Judge a history that was kept
    Check {
        /// Where it is
        dir: PathBuf,
    },
    #[command(hide = true)]
    Holder { setup: String },
    #[command(hide = true)]
    Hog { nice: i32 },
    #[command(hide = true)]
    Store { socket: PathBuf, journal: PathBuf },
}

const BROKEN: u8 = 1;
const NOT_TRIED: u8 = 2;

fn main() -> ExitCode {
    let mut args = Args::parse();
    let done = match args.role.take() {
        None => chaos(&args),
        Some(Role::Check { dir }) => check(&dir),
        Some(Role::Holder { setup }) => hold(&setup).map(|()| ExitCode::SUCCESS),
        Some(Role::Hog { nice }) => hogs::spin(nice)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| format!("a busy loop: {error}")),
        Some(Role::Store { socket, journal }) => store::serve(&socket, &journal)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| format!("the store: {error}")),
    };
    done.unwrap_or_else(|error| {
        eprintln!("leasehold-chaos: {error}");
        ExitCode::from(NOT_TRIED)
    })
}

fn hold(setup: &str) -> Result<(), String> {
    let setup: holder::Setup = serde_json::from_str(setup).map_err(|error| error.to_string())?;
    let who = format!("holder {}.{}", setup.holder, setup.life);
    holder::work(&setup).map_err(|error| format!("{who}: {error}"))
}

fn check(dir: &Path) -> Result<ExitCode, String> {
    let is_history = dir.join(META).exists();
    let folder = if is_history { dir.to_owned() } else { dir.join("history") };
    let history = History::read(&folder).map_err(|error| error.to_string())?;
    tell(&history, &folder, None)
}

/// Judges, draws what went wrong, and says it.
fn tell(history: &History, folder: &Path, save: Option<&Path>) -> Result<ExitCode, String> {
    let report = Report::of(history, folder);
    if let Some(dir) = save {
        report.save(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    if !report.overlaps.is_empty() {
        // A history may lie where nobody can write; it is judged all the same.
        match picture::draw(history, folder) {
            Ok(drawn) => {
                drawn.iter().for_each(|path| eprintln!("leasehold-chaos: see {}", path.display()));
            }
            Err(error) => eprintln!("leasehold-chaos: no picture in {}: {error}", folder.display()),
        }
    }
    print!("{}", report.text());
    Ok(if report.kept { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

fn chaos(args: &Args) -> Result<ExitCode, String> {
    // Small enough to be typed.
    let seed = args.seed.unwrap_or_else(|| boot_nanos() % 1_000_000);
    let is_file = args.backend == Backend::Sqlite;
    if is_file && args.beyond {
        return Err("a SQLite file has no assumptions to break: leave out --beyond".into());
    }
    let plan = Plan {
        seed,
        backend: args.backend,
        time: Duration::from_secs(args.seconds),
        nodes: if is_file { 1 } else { args.nodes.into() },
        holders: args.holders.into(),
        locks: args.locks.into(),
        beyond: args.beyond,
        through_servers: args.through_servers,
        hogs: args.hogs.into(),
    };
    let folder = Folder::new(args)?;
    eprintln!("leasehold-chaos: seed {seed}, history in {}", folder.path.display());
    match run(plan, &args.only, &folder.path, &interrupt()?) {
        Ok(()) => {}
        Err(Failure::Signal(signal)) => {
            eprintln!("leasehold-chaos: ended by a signal, nothing was judged");
            return Ok(ExitCode::from(128_u8.saturating_add(signal as u8)));
        }
        Err(Failure::Io(error)) => return Err(error.to_string()),
    }
    let path = folder.keep();
    let history = History::read(&path).map_err(|error| error.to_string())?;
    let code = tell(&history, &path, args.report.as_deref())?;
    eprintln!("leasehold-chaos: judge it again: leasehold-chaos check {}", path.display());
    Ok(code)
}

/// Where the history is written; gone with this unless it is kept.
struct Folder {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl Folder {
    fn new(args: &Args) -> Result<Self, String> {
        let named = args.keep.clone().or_else(|| Some(args.report.as_ref()?.join("history")));
        if let Some(path) = named {
            if path.join(META).exists() {
                return Err(format!("{} has a history already: name another", path.display()));
            }
            return Ok(Self { path, temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir();
        let temporary = temporary.map_err(|error| format!("no temporary folder: {error}"))?;
        Ok(Self { path: temporary.path().to_owned(), temporary: Some(temporary) })
    }

    fn keep(self) -> PathBuf {
        self.temporary.map_or(self.path, tempfile::TempDir::keep)
    }
}

/// Ends the run in order when somebody asks for it; a second time at once.
fn interrupt() -> Result<Interrupt, String> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let interrupt: Interrupt = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, interrupt.clone(), signal as usize)
            .map_err(|error| format!("signal {signal}: {error}"))?;
    }
    Ok(interrupt)
}
