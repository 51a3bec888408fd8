//! The binary `leasehold`: parse, one call, exit.

mod args;
mod child;
mod commands;
mod context;
mod exit;
mod waiting;

use std::process::ExitCode;

use args::{Args, Command};
use clap::Parser;
use context::Context;
use exit::Exit;

fn main() -> ExitCode {
    // Before anything else: the guardian is started with each `run`, and has to be quick.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == child::guardian::COMMAND) {
        return child::guardian::main(arguments);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let is_help = !error.use_stderr();
            // A closed terminal is no reason to fail otherwise than for what was asked.
            let _ = error.print();
            return if is_help { Exit::Success } else { Exit::Usage }.into();
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            child::report::say(&format!("cannot start: {error}"));
            return Exit::Unavailable.into();
        }
    };
    let context = Context { backend: args.backend };
    let result = runtime.block_on(async {
        match &args.command {
            Command::Run(args) => commands::run::exec(args, &context).await,
            Command::Hold(args) => commands::hold::exec(args, &context).await,
        }
    });
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            child::report::say(&failure.to_string());
            Exit::from(&failure).into()
        }
    }
}
