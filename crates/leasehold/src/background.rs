//! Where background work runs: connections, caretakers, keepers.
//!
//! By default on one thread of our own, shared by the whole process. A caller that blocks its
//! runtime, drops it, or has none at all, then cannot starve the keeping of its leases, and a
//! guard may be dropped anywhere.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};

use crate::home::Home;

/// Which runtime carries the background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Background {
    /// One thread called `leasehold`, started with the first use and kept.
    #[default]
    OwnThread,
    /// The tokio runtime in which `open` is called. Saves a thread hop per request; a runtime that
    /// blocks also blocks the keeping of leases.
    CurrentRuntime,
}

impl Background {
    pub(crate) fn handle(self) -> io::Result<Handle> {
        match self {
            Self::OwnThread => own_thread(),
            Self::CurrentRuntime => Handle::try_current().map_err(io::Error::other),
        }
    }
}

/// Has `work` done by this runtime, and never by a copy of it in a fork. Our own thread needs no look at
/// that, which costs a system call: it does not survive a fork.
#[cfg(feature = "redis")]
pub(crate) fn spawn_here(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    let own = HANDLE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|own| own.1.id());
    if own == Some(runtime.id()) {
        runtime.spawn(work);
    } else {
        runtime.spawn(Home::here().only_here(work));
    }
}

static HANDLE: Mutex<Option<(Home, Handle)>> = Mutex::new(None);

fn own_thread() -> io::Result<Handle> {
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*handle {
        Some((home, handle)) if !home.is_elsewhere() => return Ok(handle.clone()),
        _ => {}
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let fresh = runtime.handle().clone();
    std::thread::Builder::new()
        .name("leasehold".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    // A thread does not survive a fork. What belongs to it is not tidied up here.
    std::mem::forget(handle.replace((Home::here(), fresh.clone())));
    Ok(fresh)
}
