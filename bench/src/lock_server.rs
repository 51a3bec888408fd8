//! A lock server in a process of its own, as `leasehold serve` is one.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use leasehold::{Background, Locks};
use leasehold_server::{Server, Settings};
use leasehold_testkit::{bound_command, spawn};

use crate::clients::all_vote;

/// Where a server listens if it does not matter where.
const ANYWHERE: &str = "127.0.0.1:0";

/// Serves the nodes at `addrs` until the input ends, at `listen` or anywhere.
pub fn serve(addrs: &str, listen: Option<&str>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let builder =
            Locks::builder().url(format!("redis://{addrs}")).background(Background::CurrentRuntime);
        let locks = builder.open().await.map_err(|error| error.to_string())?;
        all_vote(&locks).await?;
        let listen = listen.unwrap_or(ANYWHERE);
        let listener = std::net::TcpListener::bind(listen)
            .map_err(|error| format!("cannot listen at {listen}: {error}"))?;
        let mut settings = Settings::default();
        settings.backend = "redis".into();
        let server = Server::start(locks, settings, listener).map_err(|error| error.to_string())?;
        println!("{}", server.address());
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        server.stop().await;
        Ok(())
    })
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct LockServer {
    child: Child,
    pub(crate) address: String,
}

impl LockServer {
    /// Starts one for these nodes and waits until it listens.
    pub(crate) fn start(addrs: &[String]) -> Result<Self, String> {
        Self::start_at(ANYWHERE, addrs)
    }

    /// The same, at this address.
    pub(crate) fn start_at(listen: &str, addrs: &[String]) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = bound_command(this);
        command.args(["serve", &addrs.join(","), listen]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).map_err(|error| error.to_string())?;
        let said = child.stdout.take().ok_or("no pipe")?;
        let mut server = Self { child, address: String::new() };
        let read = BufReader::new(said).read_line(&mut server.address);
        read.map_err(|error| error.to_string())?;
        server.address.truncate(server.address.trim_end().len());
        if server.address.is_empty() { Err("the lock server ended".into()) } else { Ok(server) }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for LockServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
