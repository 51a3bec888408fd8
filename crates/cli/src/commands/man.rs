//! `leasehold man [DIR]`: manual pages, one per command.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::args;
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Write manual pages, one per command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  leasehold man | man -l -\n  \
                  leasehold man ~/.local/share/man/man1\n\n\
                  Exit codes: 0; 74 a page cannot be written.")]
pub(crate) struct Args {
    /// Where to write the pages; without it, the main page goes to the standard output
    dir: Option<PathBuf>,
}

pub(crate) fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let command = args::Args::command().disable_help_subcommand(true);
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(Failure::Output)?;
        context.output.write(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Success);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .map_err(|error| Failure::Write { path: dir.clone(), error })?;
    context.output.note(&format!("manual pages are in {}", dir.display()));
    Ok(Exit::Success)
}
