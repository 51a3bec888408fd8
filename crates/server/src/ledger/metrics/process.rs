//! The program and its process.

use std::sync::atomic::AtomicU64;
use std::time::UNIX_EPOCH;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::{Float, register};

pub(super) struct Process {
    memory: Gauge,
    files: Gauge,
    cpu: Counter<f64, AtomicU64>,
}

impl Process {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("redlock_build", "The program", version);
        let start = Float::default();
        start.set(UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64());
        registry.register("process_start_time_seconds", "When the process started", start);
        let mut gauge = |name, help| register(registry, name, help, Gauge::default());
        Self {
            memory: gauge("process_resident_memory_bytes", "Resident memory"),
            files: gauge("process_open_fds", "Open file descriptors"),
            cpu: register(registry, "process_cpu_seconds", "Processor time", Counter::default()),
        }
    }

    /// Brings the figures up to date.
    pub(super) fn look(&self) {
        if let Ok(statm) = std::fs::read_to_string("/proc/self/statm")
            && let Some(pages) = statm.split_whitespace().nth(1).and_then(|n| n.parse::<i64>().ok())
        {
            self.memory.set(pages * rustix::param::page_size() as i64);
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.files.set(files.count() as i64);
        }
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        let more = used - self.cpu.get();
        if more > 0.0 {
            self.cpu.inc_by(more);
        }
    }
}
