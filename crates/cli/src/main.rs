//! The binary `leasehold`: parse, one call, exit.

mod args;
mod child;
mod commands;
mod context;
mod duration;
mod exit;
mod given;
mod logging;
mod output;
mod settings;
mod shown;
mod waiting;

use std::fs::File;
use std::process::ExitCode;

use args::{Args, Command};
use context::Context;
use exit::{Exit, Failure};
use settings::{Serve, Settings};

/// The stacks of three threads, and what else is needed until a command runs and has ended.
const ROOM: usize = 16 * 1024 * 1024;

/// With so many files a command that holds a lock on one node comes through.
const FILES_MIN: usize = 12;

fn main() -> ExitCode {
    // Before anything else: warden and guardian are started with each `run`, and have to be quick.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == child::guardian::COMMAND => {
            return child::guardian::main(arguments);
        }
        Some(first) if first == child::warden::COMMAND => return child::warden::main(arguments),
        _ => {}
    }
    if let Err(failure) = has_enough_memory() {
        let exit = Exit::from(&failure);
        output::complain(false, &failure, exit);
        return exit.into();
    }
    let args = match Args::read() {
        Ok(args) => args,
        Err(error) => {
            let is_help = !error.use_stderr();
            // A closed terminal is no reason to fail otherwise than for what was asked.
            let _ = error.print();
            return if is_help { Exit::Success } else { Exit::Usage }.into();
        }
    };
    match run(&args) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let exit = Exit::from(&failure);
            output::complain(args.global.json, &failure, exit);
            exit.into()
        }
    }
}

fn run(args: &Args) -> Result<Exit, Failure> {
    let settings = Settings::resolve(&args.global, |name| std::env::var_os(name))?;
    let logs = match &args.command {
        Command::Serve(args) => Some(Serve::resolve(args, &settings)?.log_format.value),
        _ => None,
    };
    let context = Context::new(&args.global, settings, logs);
    has_enough_files()?;
    // Threads are for many requests at once; to start them would cost `run` more than its lock.
    let mut builder = match logs {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::System { what: "cannot start".into(), error })?;
    runtime.block_on(dispatch(args, &context))
}

/// Signals, timers, the guardian's socket and the backend need some, and not everybody who finds none
/// left says so in a sentence.
fn has_enough_files() -> Result<(), Failure> {
    let opened: Result<Vec<_>, _> = (0..FILES_MIN).map(|_| File::open("/")).collect();
    opened.map(drop).map_err(|error| Failure::System {
        what: format!(
            "cannot start: {FILES_MIN} more files have to be opened, and `ulimit -n` forbids it"
        ),
        error,
    })
}

/// Where the address space is used up, the next page of a stack is missing, and nothing can say so.
fn has_enough_memory() -> Result<(), Failure> {
    let reserved = std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(ROOM);
    reserved.map_err(|_| Failure::System {
        what: format!(
            "cannot start: {} MB more of memory have to be there, and `ulimit -v` forbids it",
            ROOM / 1024 / 1024
        ),
        error: std::io::ErrorKind::OutOfMemory.into(),
    })
}

async fn dispatch(args: &Args, context: &Context) -> Result<Exit, Failure> {
    match &args.command {
        Command::Run(args) => commands::run::exec(args, context).await,
        Command::Hold(args) => commands::hold::exec(args, context).await,
        Command::Acquire(args) => commands::acquire::exec(args, context).await,
        Command::Extend(args) => commands::extend::exec(args, context).await,
        Command::Release(args) => commands::release::exec(args, context).await,
        Command::Status(args) => commands::status::exec(args, context).await,
        Command::List(args) => commands::list::exec(args, context).await,
        Command::Watch(args) => commands::watch::exec(args, context).await,
        Command::ForceRelease(args) => commands::force_release::exec(args, context).await,
        Command::Init(args) => commands::init::exec(args, context).await,
        Command::Nodes(args) => commands::nodes::exec(args, context).await,
        Command::Doctor(args) => commands::doctor::exec(args, context).await,
        Command::Plan(args) => commands::plan::exec(args, context),
        Command::Bench(args) => commands::bench::exec(args, context).await,
        Command::Serve(serve) => commands::serve::exec(serve, &args.global, context).await,
        Command::Token(args) => commands::token::exec(args, context),
        Command::Config(args) => commands::config::exec(args, context),
        Command::Completions(args) => commands::completions::exec(args, context),
        Command::Man(args) => commands::man::exec(args, context),
        Command::Names(args) => commands::names::exec(args, context).await,
    }
}
