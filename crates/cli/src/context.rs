//! What every command needs: where the locks are, and how to speak.

use leasehold::Locks;

use crate::exit::Failure;

/// Settings that are in force, after flags, environment and file.
#[derive(Debug)]
pub(crate) struct Context {
    /// The backend URL. May hold a password: never shown.
    pub(crate) backend: String,
}

impl Context {
    /// Opens the backend.
    pub(crate) async fn open(&self) -> Result<Locks, Failure> {
        Ok(Locks::open(&self.backend).await?)
    }
}
