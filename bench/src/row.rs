//! One line of a result.

use serde::{Deserialize, Serialize};

/// What one contestant came to in one setting. `None` where a figure has no meaning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Which scenario.
    pub scenario: String,
    /// Who.
    pub contestant: String,
    /// How many nodes.
    pub nodes: usize,
    /// How many tasks, in all processes together.
    pub concurrency: usize,
    /// Completed cycles of acquire and release: the median of the rounds.
    pub cycles_per_s: Option<f64>,
    /// The median of the ratios to the floor of the same round.
    pub ratio_to_floor: Option<f64>,
    /// How long an acquire takes, or what the scenario says: the median.
    pub p50_us: Option<f64>,
    /// One in a hundred takes longer.
    pub p99_us: Option<f64>,
    /// One in a thousand takes longer.
    pub p999_us: Option<f64>,
    /// Processor time of the contestant's processes, per cycle.
    pub client_cpu_us: Option<f64>,
    /// Processor time of all servers together, per cycle.
    pub server_cpu_us: Option<f64>,
    /// Commands that all servers together carried out, those inside scripts too, per cycle.
    pub commands_per_cycle: Option<f64>,
    /// Jain's index of fairness, over the tasks of one process or over processes.
    pub jain: Option<f64>,
    /// The share of attempts that found the lock free and nobody got it.
    pub split_votes: Option<f64>,
}
