//! One setting: teams, rounds, rows.

use crate::args::Args;
use crate::contestants::Contestant;
use crate::order::Order;
use crate::report::progress::Progress;
use crate::rounds::{Measure, Team, Trouble, rounds, rows};
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
        let measures = rounds(&mut teams, self.cluster, order, count, self.progress)?;
        self.report_trouble(&teams, &measures, order)?;
        let setting = self.setting(order);
        Ok(rows(&setting, &teams, &measures, |measure| measure.acquire_us))
    }

    pub(super) fn teams(&self, chosen: &[Contestant]) -> Result<Vec<Team>, String> {
        let threads = self.args.runtime.threads();
        let team = |one: &Contestant| Team::start(*one, self.cluster, self.processes, threads);
        chosen.iter().map(team).collect()
    }

    pub(super) fn setting(&self, order: &Order) -> Row {
        Row {
            scenario: self.scenario.to_owned(),
            nodes: self.cluster.servers.len(),
            concurrency: order.concurrency * self.processes,
            ..Row::default()
        }
    }

    /// Tells what went wrong. Two holders of one of our own locks is the end of it.
    fn report_trouble(
        &self,
        teams: &[Team],
        measures: &[Vec<Measure>],
        order: &Order,
    ) -> Result<(), String> {
        for (team, rounds) in teams.iter().zip(measures) {
            let Some(trouble) = Trouble::of(rounds) else { continue };
            let (name, tasks) = (team.contestant.name, order.concurrency);
            let text = format!("{}: {name} with {tasks} tasks: {trouble}", self.scenario);
            if trouble.violations > 0 && name.starts_with("leasehold") {
                return Err(text);
            }
            self.progress.note(&text);
        }
        Ok(())
    }
}
