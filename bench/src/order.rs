//! What the bench and its contestants say to each other: lines of JSON over the pipes of a child
//! process. Every contestant runs in processes of its own, so that none shares a heap, a runtime or
//! its processor time with another. `peers/loop.py` and `peers/loop.mjs` speak the same.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a child process is to be, given as its argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Role {
    /// Which contestant.
    pub(crate) contestant: String,
    /// The servers as `host:port`; the path of the file for SQLite.
    pub(crate) addrs: Vec<String>,
    /// Stands in every lock's name, so that contestants never meet.
    pub(crate) realm: String,
    /// Stands in names that no other process uses.
    pub(crate) process: usize,
    /// Whether the servers have `DELIFEQ`.
    pub(crate) native_release: bool,
    /// How many threads the contestant's runtime has; 1 is tokio's current_thread.
    pub(crate) threads: usize,
    /// What the process does all the while; only Leasehold can.
    pub(crate) beside: Beside,
}

/// What a process does besides carrying out orders, from before it says `ready`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// Keeps so many leases.
    pub(crate) leases: usize,
    /// Lets so many tasks wait for locks that it holds itself.
    pub(crate) waiters: usize,
    /// Of how many locks.
    pub(crate) waited_for: usize,
}

/// One slice of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// For how long.
    pub(crate) secs: f64,
    /// How many tasks, promises or threads.
    pub(crate) concurrency: usize,
    /// What they lock.
    pub(crate) names: Names,
    /// How long each holds the lock, in microseconds.
    pub(crate) hold_us: u64,
    /// Instead of all that: let those go on who wait besides.
    #[serde(default)]
    pub(crate) serve: bool,
    /// A file that exists exactly while somebody is inside; `None` where nobody meets.
    pub(crate) inside: Option<PathBuf>,
}

impl Order {
    /// Locks that nobody else asks for, held for no time.
    pub(crate) fn distinct(secs: f64, concurrency: usize) -> Order {
        Order { secs, concurrency, names: Names::Distinct, hold_us: 0, serve: false, inside: None }
    }
}

/// Which locks the tasks ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Names {
    /// Eight of its own for each task, in turn.
    Distinct,
    /// One for all.
    One,
}

/// What came of an order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// How long it took, from the first acquire to the last release.
    pub(crate) elapsed_s: f64,
    /// The processor time of the whole process meanwhile.
    pub(crate) cpu_us: f64,
    /// How long each acquire took.
    pub(crate) acquire_ns: Vec<u64>,
    /// How long each release took.
    pub(crate) release_ns: Vec<u64>,
    /// How many cycles each task completed.
    pub(crate) per_worker: Vec<u64>,
    /// How often somebody was inside already.
    #[serde(default)]
    pub(crate) violations: u64,
    /// How often the nodes were asked, as far as the contestant tells.
    #[serde(default)]
    pub(crate) attempts: Option<u64>,
    /// How many of these attempts split the votes, as far as the contestant tells.
    #[serde(default)]
    pub(crate) splits: Option<u64>,
    /// Acquires or releases that failed.
    #[serde(default)]
    pub(crate) failures: u64,
    /// Leases kept beside that were lost.
    #[serde(default)]
    pub(crate) lost: u64,
    /// What one of these was told.
    #[serde(default)]
    pub(crate) loss: Option<String>,
    /// Waiters that were not served in the order in which they came.
    #[serde(default)]
    pub(crate) out_of_order: u64,
    /// What the first failure said.
    #[serde(default)]
    pub(crate) failure: Option<String>,
}

impl Outcome {
    /// Completed cycles.
    pub(crate) fn cycles(&self) -> u64 {
        self.per_worker.iter().sum()
    }
}
