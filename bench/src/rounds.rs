//! Rounds: every contestant has its turn in each, in an order that rotates.

use std::fmt;

use crate::contestants::Contestant;
use crate::interrupt;
use crate::order::{Order, Outcome, Role};
use crate::player::Player;
use crate::report::progress::Progress;
use crate::row::Row;
use crate::servers::{Cluster, Usage};
use crate::stats::{jain, median, median_ratio, percentile};

/// Connections are made, scripts are known and code is warm after this.
const WARM_UP_SECS: f64 = 0.2;

/// A contestant with its processes, and the servers it works on.
#[derive(Debug)]
pub(crate) struct Team<'a> {
    pub(crate) contestant: Contestant,
    pub(crate) cluster: Option<&'a Cluster>,
    pub(crate) players: Vec<Player>,
}

/// What one slice came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measure {
    pub(crate) cycles_per_s: f64,
    pub(crate) acquire_us: Latency,
    pub(crate) release_us: Latency,
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cpu_us: f64,
    pub(crate) commands: f64,
    pub(crate) jain: Option<f64>,
    pub(crate) split_votes: Option<f64>,
    pub(crate) trouble: Trouble,
}

/// Some percentiles.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// What should not have happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) failures: u64,
    pub(crate) failure: Option<String>,
    pub(crate) violations: u64,
}

impl Team<'_> {
    /// Starts `processes` processes that play `role`.
    pub(crate) fn start<'a>(
        contestant: Contestant,
        cluster: Option<&'a Cluster>,
        role: &Role,
        processes: usize,
    ) -> Result<Team<'a>, String> {
        let processes = if contestant.is_ideal() { 1 } else { processes };
        let player = |process| Player::start(&contestant, &Role { process, ..role.clone() });
        let players = (0..processes).map(player).collect::<Result<_, _>>()?;
        Ok(Team { contestant, cluster, players })
    }

    /// One slice: all processes at once.
    pub(crate) fn play(&mut self, order: &Order) -> Result<Vec<Outcome>, String> {
        let alone = Order { concurrency: 1, ..order.clone() };
        let order = if self.contestant.is_ideal() { &alone } else { order };
        for player in &mut self.players {
            player.order(order)?;
        }
        self.players.iter().map(|player| player.outcome(order)).collect()
    }

    /// One slice that is not measured, if the team is still there.
    pub(crate) fn try_play(&mut self, order: &Order, progress: &Progress) -> Result<(), String> {
        let played = self.play(order);
        self.accept(played, progress).map(drop)
    }

    /// Somebody else's library that does not come back is out, and the others go on.
    fn accept<T>(
        &mut self,
        came: Result<T, String>,
        progress: &Progress,
    ) -> Result<Option<T>, String> {
        match came {
            Ok(value) => Ok(Some(value)),
            Err(_) if interrupt::check().is_err() => interrupt::check().map(|()| None),
            Err(why) if self.contestant.is_ours() => Err(why),
            Err(why) => {
                progress.note(&format!("{} is out: {why}", self.contestant.name));
                self.players.clear();
                Ok(None)
            }
        }
    }

    fn measure(&mut self, order: &Order) -> Result<Measure, String> {
        let before = self.usage()?;
        let outcomes = self.play(order)?;
        Ok(Measure::of(outcomes, self.usage()?.since(before)))
    }

    fn usage(&self) -> Result<Usage, String> {
        self.cluster.map_or(Ok(Usage::default()), Cluster::usage)
    }
}

/// Warms every team up, and lets them take turns: for each team, a measure of each round.
pub(crate) fn rounds(
    teams: &mut [Team<'_>],
    order: &Order,
    count: usize,
    progress: &Progress,
) -> Result<Vec<Vec<Measure>>, String> {
    let warm_up = Order { secs: order.secs.min(WARM_UP_SECS), ..order.clone() };
    for team in teams.iter_mut() {
        progress.at(team.contestant.name);
        team.try_play(&warm_up, progress)?;
    }
    let mut measures = vec![Vec::new(); teams.len()];
    for round in 0..count {
        for turn in 0..teams.len() {
            let at = (round + turn) % teams.len();
            let team = &mut teams[at];
            progress.at(team.contestant.name);
            if !team.players.is_empty() {
                let measure = team.measure(order);
                measures[at].extend(team.accept(measure, progress)?);
            }
            progress.step();
        }
    }
    Ok(measures)
}

/// Tells what went wrong. Two holders of one of our own locks is the end of it.
pub(crate) fn report_trouble(
    scenario: &str,
    teams: &[Team<'_>],
    measures: &[Vec<Measure>],
    progress: &Progress,
) -> Result<(), String> {
    for (team, rounds) in teams.iter().zip(measures) {
        let Some(trouble) = Trouble::of(rounds) else { continue };
        let text = format!("{scenario}: {}: {trouble}", team.contestant.name);
        if trouble.violations > 0 && team.contestant.is_ours() {
            return Err(text);
        }
        progress.note(&text);
    }
    Ok(())
}

/// The rows of one setting, in the order of the teams.
pub(crate) fn rows(
    setting: &Row,
    teams: &[Team<'_>],
    measures: &[Vec<Measure>],
    pick: impl Fn(&Measure) -> Latency,
) -> Vec<Row> {
    let speeds = |rounds: &[Measure]| rounds.iter().map(|m| m.cycles_per_s).collect::<Vec<_>>();
    let floor = teams.iter().position(|team| team.contestant.is_floor());
    let floors = floor.map(|at| speeds(&measures[at])).unwrap_or_default();
    let row = |(team, rounds): (&Team<'_>, &Vec<Measure>)| {
        let of =
            |field: &dyn Fn(&Measure) -> f64| median(&rounds.iter().map(field).collect::<Vec<_>>());
        let of_known = |field: &dyn Fn(&Measure) -> Option<f64>| {
            median(&rounds.iter().filter_map(field).collect::<Vec<_>>())
        };
        Row {
            contestant: team.contestant.name.to_owned(),
            cycles_per_s: of(&|m| m.cycles_per_s),
            ratio_to_floor: median_ratio(&speeds(rounds), &floors),
            p50_us: of(&|m| pick(m).p50),
            p99_us: of(&|m| pick(m).p99),
            p999_us: of(&|m| pick(m).p999),
            client_cpu_us: of(&|m| m.client_cpu_us),
            server_cpu_us: of(&|m| m.server_cpu_us),
            commands_per_cycle: of(&|m| m.commands),
            jain: of_known(&|m| m.jain),
            split_votes: of_known(&|m| m.split_votes),
            ..setting.clone()
        }
    };
    teams.iter().zip(measures).map(row).collect()
}

impl Measure {
    /// Fairness is over processes if there are several, else over the tasks of the one.
    pub(crate) fn of(outcomes: Vec<Outcome>, usage: Usage) -> Measure {
        let shares: Vec<u64> = match outcomes.as_slice() {
            [one] => one.per_worker.clone(),
            all => all.iter().map(Outcome::cycles).collect(),
        };
        let elapsed = outcomes.iter().map(|outcome| outcome.elapsed_s).fold(0.0, f64::max);
        let attempts: Option<u64> = outcomes.iter().map(|outcome| outcome.attempts).sum();
        let splits: Option<u64> = outcomes.iter().map(|outcome| outcome.splits).sum();
        let cpu_us: f64 = outcomes.iter().map(|outcome| outcome.cpu_us).sum();
        let mut all = Outcome::default();
        outcomes.into_iter().for_each(|outcome| all.add(outcome));
        let cycles = all.cycles() as f64;
        Measure {
            cycles_per_s: cycles / elapsed.max(f64::MIN_POSITIVE),
            acquire_us: Latency::of(&mut all.acquire_ns),
            release_us: Latency::of(&mut all.release_ns),
            client_cpu_us: cpu_us / cycles.max(1.0),
            server_cpu_us: usage.cpu_us / cycles.max(1.0),
            commands: usage.commands / cycles.max(1.0),
            jain: jain(&shares),
            split_votes: splits.zip(attempts).map(|(some, all)| some as f64 / all.max(1) as f64),
            trouble: Trouble {
                failures: all.failures,
                failure: all.failure,
                violations: all.violations,
            },
        }
    }
}

impl Latency {
    pub(crate) fn of(nanos: &mut [u64]) -> Latency {
        let mut at = |share| percentile(nanos, share).map_or(f64::NAN, |ns| ns as f64 / 1e3);
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

impl Trouble {
    /// All trouble of a contestant, if there was any.
    pub(crate) fn of(rounds: &[Measure]) -> Option<Trouble> {
        let mut sum = Trouble::default();
        for Measure { trouble, .. } in rounds {
            sum.failures += trouble.failures;
            sum.violations += trouble.violations;
            sum.failure = sum.failure.or_else(|| trouble.failure.clone());
        }
        (sum.failures + sum.violations > 0).then_some(sum)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.violations > 0 {
            write!(f, "{} times two were inside at once; ", self.violations)?;
        }
        write!(f, "{} acquires or releases failed", self.failures)?;
        match &self.failure {
            Some(first) => write!(f, ", the first: {first}"),
            None => Ok(()),
        }
    }
}
