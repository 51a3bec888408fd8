//! One setting: teams, rounds, rows.

use crate::args::Args;
use crate::contestants::Contestant;
use crate::order::{Beside, Order, Role};
use crate::report::progress::Progress;
use crate::rounds::{Team, report_trouble, rounds, rows};
use crate::row::Row;
use crate::servers::Cluster;

/// Where and how contestants meet.
pub(super) struct Contest<'a> {
    pub(super) args: &'a Args,
    pub(super) scenario: &'a str,
    pub(super) cluster: &'a Cluster,
    /// Processes of each contestant.
    pub(super) processes: usize,
    pub(super) progress: &'a Progress,
}

impl Contest<'_> {
    /// Measures everybody in `chosen`. Fresh processes: nobody carries memory over from before.
    pub(super) fn run(&self, chosen: &[Contestant], order: &Order) -> Result<Vec<Row>, String> {
        let mut teams = self.teams(chosen)?;
        let count = self.args.rounds;
        let measures = rounds(&mut teams, order, count, self.progress)?;
        report_trouble(self.scenario, &teams, &measures, self.progress)?;
        let setting = self.setting(order);
        Ok(rows(&setting, &teams, &measures, |measure| measure.acquire_us))
    }

    pub(super) fn teams(&self, chosen: &[Contestant]) -> Result<Vec<Team<'_>>, String> {
        let start = |one: &Contestant| {
            let role = self.role(one, self.cluster.addrs());
            Team::start(*one, Some(self.cluster), &role, self.processes)
        };
        chosen.iter().map(start).collect()
    }

    /// What a contestant is told, if it reaches the servers at `addrs`.
    pub(super) fn role(&self, contestant: &Contestant, addrs: Vec<String>) -> Role {
        Role {
            contestant: contestant.name.to_owned(),
            addrs,
            realm: format!("bench/{}", contestant.name),
            process: 0,
            native_release: self.cluster.has_native_release(),
            threads: self.args.runtime.threads(),
            beside: Beside::default(),
        }
    }

    pub(super) fn setting(&self, order: &Order) -> Row {
        Row {
            scenario: self.scenario.to_owned(),
            nodes: self.cluster.servers.len(),
            concurrency: order.concurrency * self.processes,
            ..Row::default()
        }
    }
}
