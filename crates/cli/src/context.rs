//! What every command needs: where the locks are, and how to speak.

use leasehold::{Background, Locks};

use crate::exit::Failure;

/// Settings that are in force, after flags, environment and file.
#[derive(Debug)]
pub(crate) struct Context {
    /// The backend URL. May hold a password: never shown.
    pub(crate) backend: String,
}

impl Context {
    /// Opens the backend. Its background work is done where the command runs: nothing here blocks,
    /// and a thread of its own costs a millisecond that a short `run` would feel.
    pub(crate) async fn open(&self) -> Result<Locks, Failure> {
        let builder = Locks::builder().url(&self.backend);
        Ok(builder.background(Background::CurrentRuntime).open().await?)
    }
}
