//! `leasehold run NAME -- CMD`: hold a lock while a command runs, and stop the command if the lease
//! cannot be kept.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::{Guard, Locks};
use tokio::process::{Child, Command};

use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Run a command while holding a lock
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: the command's own; 128+N if signal N ended it; 75 busy; 69 no quorum \
                  or backend; 79 lease lost; 78 bad configuration; 64 usage; 126 or 127 if the \
                  command cannot be started.\n\nThe command finds LEASEHOLD_NAME, \
                  LEASEHOLD_FENCE, LEASEHOLD_HOLDER and LEASEHOLD_TTL_MS in its environment. \
                  Storage that checks the fence refuses a holder that is too late."
)]
pub(crate) struct Args {
    /// Do not wait if the lock is held
    #[arg(short = 'n', long, conflicts_with = "wait")]
    nonblock: bool,
    /// Wait at most this long, like 30s or 5m; without it, for as long as it takes
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// How long the lock stays taken if this process dies
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Which lock
    name: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) async fn exec(run: &Args, context: &Context) -> Result<Exit, Failure> {
    let locks = context.open().await?;
    let guard = acquire(&locks, run).await?;
    let child = start(run, &guard)?;
    let exit = run_while_held(child, &guard).await;
    let _ = guard.release().await;
    exit
}

async fn acquire(locks: &Locks, run: &Args) -> Result<Guard, Failure> {
    let request = locks.lock(&run.name).ttl(run.ttl);
    if run.nonblock {
        return request.try_acquire().await?.ok_or_else(|| Failure::Busy(run.name.clone()));
    }
    let request = match run.wait {
        Some(wait) => request.wait(wait),
        None => request.wait_forever(),
    };
    Ok(request.acquire().await?)
}

fn start(run: &Args, guard: &Guard) -> Result<Child, Failure> {
    let (program, arguments) = run.command.split_first().expect("clap requires a command");
    Command::new(program)
        .args(arguments)
        .env("LEASEHOLD_NAME", guard.name().as_str())
        .env("LEASEHOLD_FENCE", guard.fence().to_string())
        .env("LEASEHOLD_HOLDER", guard.holder().as_str())
        .env("LEASEHOLD_TTL_MS", run.ttl.as_millis().to_string())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::Start { command: program.to_string_lossy().into_owned(), error })
}

async fn run_while_held(mut child: Child, guard: &Guard) -> Result<Exit, Failure> {
    let status = tokio::select! {
        status = child.wait() => status,
        loss = guard.lost() => {
            // It may be gone by itself; then there is nothing to stop.
            let _ = child.kill().await;
            return Err(loss.into());
        }
    };
    status.map(exit_of).map_err(|error| Failure::Start { command: "the command".into(), error })
}

fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Exit::Child(u8::try_from(code).unwrap_or(u8::MAX))
}
