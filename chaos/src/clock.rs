//! The one clock by which everybody writes: it is the machine's, and no process can disagree.

/// Nanoseconds since the machine was booted, suspend included.
pub fn boot_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec.max(0) as u64
}
