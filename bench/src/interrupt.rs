//! Ctrl-C ends the run as an error does: servers, processes and folders go first.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long an interrupt may go unnoticed.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

/// From now on SIGINT and SIGTERM are noticed instead of obeyed.
pub fn listen() -> io::Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag().clone())?;
    }
    Ok(())
}

/// An error once somebody interrupted.
pub(crate) fn check() -> Result<(), String> {
    match flag().load(Ordering::Relaxed) {
        true => Err("interrupted".to_owned()),
        false => Ok(()),
    }
}

/// Sleeps, unless somebody interrupts.
pub(crate) fn sleep(time: Duration) -> Result<(), String> {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        check()?;
        thread::sleep(left.min(LOOK_EVERY));
    }
    check()
}
