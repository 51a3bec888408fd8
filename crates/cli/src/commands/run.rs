//! `leasehold run NAME -- CMD`: hold a lock while a command runs, and stop the command if the lease
//! cannot be kept.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use leasehold::{Guard, Locks};
use tokio::process::{Child, Command};

use crate::args::{Args, Run};
use crate::exit::{Exit, Failure};

pub(crate) async fn exec(args: &Args, run: &Run) -> Result<Exit, Failure> {
    let locks = Locks::open(&args.backend).await?;
    let guard = acquire(&locks, run).await?;
    let child = start(run, &guard)?;
    let exit = run_while_held(child, &guard).await;
    let _ = guard.release().await;
    exit
}

async fn acquire(locks: &Locks, run: &Run) -> Result<Guard, Failure> {
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

fn start(run: &Run, guard: &Guard) -> Result<Child, Failure> {
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
