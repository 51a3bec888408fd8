//! The other end of a `Player`: a contestant in a process of its own, which
//! says `ready` and then answers each order with its outcome. It ends with its input.

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::clients::Client;
use crate::order::{Order, Role};
use crate::work::work;

/// Plays `role` until the input ends.
pub fn play(role: &str) -> Result<(), String> {
    let role: Role = serde_json::from_str(role).map_err(|error| error.to_string())?;
    let runtime = runtime(role.threads).map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let client = Arc::new(Client::connect(&role).await?);
        say("ready")?;
        let (orders, mut next) = tokio::sync::mpsc::unbounded_channel();
        // A thread of its own: the runtime has to go on keeping connections while nothing is
        // ordered.
        std::thread::spawn(move || {
            io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| orders.send(line))
        });
        while let Some(line) = next.recv().await {
            let order: Order = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            let outcome = work(&client, &role, &order).await;
            say(&serde_json::to_string(&outcome).map_err(|error| error.to_string())?)?;
        }
        Ok(())
    })
}

fn runtime(threads: usize) -> io::Result<Runtime> {
    match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

fn say(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}
