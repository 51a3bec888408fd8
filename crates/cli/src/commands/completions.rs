//! `leasehold completions SHELL`: what clap generates, and after it the names of locks.
//!
//! Names come from `leasehold __names`, asked with the backend that stands on the line so far.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args;
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Write the completions of a shell; names of locks complete, too
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  source <(leasehold completions bash)\n  \
                  leasehold completions zsh > ~/.zfunc/_leasehold\n  \
                  leasehold completions fish > ~/.config/fish/completions/leasehold.fish\n\n\
                  Names of locks complete in bash, zsh and fish.\n\n\
                  Exit codes: 0; 64 usage.")]
pub(crate) struct Args {
    /// Which shell
    shell: Shell,
}

/// Completes names after the commands that take one. `-o nosort` and friends as clap chose them.
const BASH: &str = include_str!("completions/names.bash");
const FISH: &str = include_str!("completions/names.fish");
const ZSH: &str = include_str!("completions/names.zsh");

pub(crate) fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    context.output.write(&script(args.shell))?;
    Ok(Exit::Success)
}

fn script(shell: Shell) -> String {
    let mut command = args::Args::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "leasehold", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + BASH,
        Shell::Fish => script + FISH,
        Shell::Zsh => with_zsh_names(&script),
        _ => script,
    }
}

/// Where clap completes a positional argument called `name` or `prefix` with files, names follow.
fn with_zsh_names(script: &str) -> String {
    let renamed = script.lines().map(|line| {
        let is_name = [":name -- ", "::prefix -- "].iter().any(|start| line.contains(start));
        match is_name {
            true => line.replace(":_default", ":_leasehold_names") + "\n",
            false => format!("{line}\n"),
        }
    });
    let mut lines: String = renamed.collect();
    // Before the last lines, which call the completion when the file is autoloaded.
    let end = lines.rfind("\nif [ \"$funcstack[1]\"").map_or(lines.len(), |at| at + 1);
    lines.insert_str(end, ZSH);
    lines
}
