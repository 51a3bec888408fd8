//! A lock in a file, against the bare statements on a file of the same kind; and eight processes on
//! one file.

use tempfile::TempDir;

use super::Findings;
use crate::args::Args;
use crate::contestants::Contestant;
use crate::order::{Beside, Names, Order, Role};
use crate::report::progress::Progress;
use crate::rounds::{Team, report_trouble, rounds, rows};
use crate::row::Row;

const USUAL: [&str; 3] = ["sqlite-floor", "leasehold-sqlite", "leasehold-sqlite-thread"];

/// Name, processes, which locks, how long they are held.
const SETTINGS: [(&str, usize, Names, u64); 4] = [
    ("sqlite", 1, Names::Distinct, 0),
    ("sqlite-8x1-distinct", 8, Names::Distinct, 0),
    ("sqlite-8x1", 8, Names::One, 0),
    ("sqlite-8x1-1ms", 8, Names::One, 999),
];

pub(super) fn run(args: &Args) -> Result<Findings, String> {
    let able = |names| super::contestants(args, &USUAL, move |it| it.in_file && it.can(names));
    let sizes = SETTINGS.map(|(_, _, names, _)| able(names).map_or(0, |chosen| chosen.len()));
    let progress = Progress::new("sqlite", sizes.iter().sum::<usize>() * args.rounds);
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut result = Findings::default();
    for (scenario, processes, names, hold_us) in SETTINGS {
        let Ok(chosen) = able(names) else { continue };
        let order = Order {
            secs: args.turn(),
            concurrency: 1,
            names,
            hold_us,
            serve: false,
            inside: (hold_us > 0).then(|| dir.path().join("inside")),
        };
        let start =
            |one: &Contestant| Team::start(*one, None, &role(args, &dir, one, scenario), processes);
        let mut teams = chosen.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        let measures = rounds(&mut teams, &order, args.rounds, &progress)?;
        report_trouble(scenario, &teams, &measures, &progress)?;
        for (team, measures) in teams.iter().zip(&measures) {
            let longest = measures.iter().map(|m| m.acquire_us.max).fold(0.0, f64::max) / 1e3;
            let name = team.contestant.name;
            let fact = format!("{scenario}, {name}: the longest wait was {longest:.1} ms");
            result.facts.push(fact);
        }
        let concurrency = processes;
        let setting =
            Row { scenario: scenario.to_owned(), nodes: 1, concurrency, ..Row::default() };
        let mut some = rows(&setting, &teams, &measures, |measure| measure.acquire_us);
        for row in &mut some {
            (row.server_cpu_us, row.commands_per_cycle, row.split_votes) = (None, None, None);
            row.jain = row.jain.filter(|_| processes > 1);
        }
        result.rows.extend(some);
    }
    match result.rows.is_empty() {
        true => Err("nobody is left to measure".to_owned()),
        false => Ok(result),
    }
}

fn role(args: &Args, dir: &TempDir, contestant: &Contestant, scenario: &str) -> Role {
    let file = dir.path().join(format!("{}-{scenario}.db", contestant.name));
    Role {
        contestant: contestant.name.to_owned(),
        addrs: vec![file.display().to_string()],
        realm: "bench".to_owned(),
        process: 0,
        native_release: false,
        threads: args.runtime.threads(),
        beside: Beside::default(),
    }
}
