//! The supervisor: tells the guardian each new deadline, passes signals on, stops and continues
//! with the command, and kills its descendants if the guardian does not.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use leasehold::clock::{Clock, SystemClock};
use leasehold::{Guard, LeaseState, Loss, ValidityError};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group};

use super::descendants::{self, Defier};
use super::kin::Kin;
use super::message::{End, News, Order, Plan};
use super::report::Reporter;
use super::signals::Signals;
use super::terminal::{Terminal, can_be_continued};
use super::{Guardian, Manner, OnLost};
use crate::exit::Failure;

/// SIGKILL goes out this much before the deadline, as a share of the ttl and at most: a process
/// that wakes up late on a busy machine, and then has to find all descendants, must still be in time.
const MARGIN_SHARE: u32 = 25;
const MARGIN_MAX: Duration = Duration::from_millis(50);

/// How long the guardian may take to bury those who were killed.
const BURIAL: Duration = Duration::from_secs(2);

/// How often those are killed again whom a dead guardian left.
const KILL_EVERY: Duration = Duration::from_millis(5);

/// How it went.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The command's code, or what went wrong.
    pub(crate) result: Result<u8, Failure>,
    /// Whether nothing of the command can be left: if not, the lock must not be given back early.
    pub(crate) is_gone: bool,
}

/// Starts the command and stays with it until it is gone.
pub(crate) async fn supervise(
    guardian: &Guardian,
    guard: &Guard,
    manner: &Manner,
    signals: &mut Signals,
    report: &Reporter,
) -> Outcome {
    let max_hold_end = manner.max_hold.map(|limit| SystemClock.now().plus(limit).as_nanos());
    let mut kin = Kin::new(guardian.strangers.clone());
    kin.spare(Pid::from_child(&guardian.process));
    let mut supervisor = Supervisor {
        guardian,
        guard,
        manner,
        report,
        terminal: Terminal::open(),
        max_hold_end,
        kin,
        group: None,
        has_ended: false,
        defiers: HashSet::new(),
        waiting: Vec::new(),
        told: Plan::NEVER,
        is_uncertain: false,
        is_ending: false,
        loss: None,
    };
    // From here on a stop is also the command's business.
    let _ = signals.also(Signal::TSTP);
    match supervisor.start() {
        Ok(()) => supervisor.watch(signals).await,
        Err(error) => {
            let error = guardian.excuse().unwrap_or(error);
            Outcome { result: Err(Failure::Guardian(error)), is_gone: true }
        }
    }
}

struct Supervisor<'a> {
    guardian: &'a Guardian,
    guard: &'a Guard,
    manner: &'a Manner,
    report: &'a Reporter,
    terminal: Option<Terminal>,
    max_hold_end: Option<u64>,
    kin: Kin,
    /// The command's process group.
    group: Option<Pid>,
    /// The command itself ended; descendants of it are left.
    has_ended: bool,
    /// Who was told to stay in spite of all signals.
    defiers: HashSet<String>,
    /// Signals that came before there was anybody to pass them on to.
    waiting: Vec<Signal>,
    told: Plan,
    is_uncertain: bool,
    is_ending: bool,
    /// The loss, and when to stop waiting for the guardian.
    loss: Option<(Loss, Instant)>,
}

impl Supervisor<'_> {
    fn start(&mut self) -> io::Result<()> {
        self.told = self.plan();
        self.guardian.send(&Order::Start {
            plan: self.told,
            start_by: self.told.stop_at.min(self.deadline()),
            fence: self.guard.fence().get(),
            holder: self.guard.holder().as_str().to_owned(),
        })
    }

    async fn watch(&mut self, signals: &mut Signals) -> Outcome {
        loop {
            let pause = self.next_look();
            // What the guardian says comes first: a command that ended in time has ended in time,
            // even if we were stopped and hear of it after the deadline.
            tokio::select! {
                biased;
                news = self.guardian.news() => match news {
                    Some(news) => if let Some(outcome) = self.hear(news) {
                        return outcome;
                    },
                    None => return self.guardian_died().await,
                },
                loss = self.guard.lost(), if self.loss.is_none() => {
                    while let Some(news) = self.guardian.heard() {
                        if let Some(outcome) = self.hear(news) {
                            return outcome;
                        }
                    }
                    self.lose(loss);
                }
                signal = signals.next() => self.pass_on(signal),
                () = tokio::time::sleep(pause) => if let Some(outcome) = self.look() {
                    return outcome;
                },
            }
        }
    }

    /// Often enough that the guardian knows of an extension long before it would act upon the old
    /// deadline: an eighth of what is left, so ever more often when the end is near.
    fn next_look(&self) -> Duration {
        let left = match &self.loss {
            Some((_, until)) => until.saturating_duration_since(Instant::now()),
            None => {
                let now = SystemClock.now().as_nanos();
                let to_kill = Duration::from_nanos(self.told.kill_at.saturating_sub(now));
                (self.guard.validity() / 8).min(to_kill)
            }
        };
        left.clamp(Duration::from_millis(2), Duration::from_millis(250))
    }

    fn look(&mut self) -> Option<Outcome> {
        self.kin.heed_strangers();
        if let Some((loss, until)) = self.loss.clone() {
            if self.manner.on_lost == OnLost::Warn {
                return None;
            }
            self.kill();
            // Killed long ago, and the guardian is silent: it is stopped, or somebody stays.
            return (Instant::now() >= until).then(|| self.give_up(loss));
        }
        let is_uncertain = matches!(self.guard.state(), LeaseState::Uncertain { .. });
        if is_uncertain != self.is_uncertain && !self.is_ending {
            self.is_uncertain = is_uncertain;
            let left = self.guard.validity();
            if is_uncertain { self.report.uncertain(left) } else { self.report.kept(left) }
        }
        let plan = self.plan();
        if plan != self.told && self.guardian.send(&Order::Extend(plan)).is_ok() {
            self.told = plan;
        }
        // Guardian and warden do so at the same time, unless both are stopped.
        if SystemClock.now().as_nanos() >= self.told.kill_at {
            self.kill();
        }
        None
    }

    /// What the lease as it stands allows.
    fn plan(&self) -> Plan {
        if self.manner.on_lost == OnLost::Warn {
            return Plan::NEVER;
        }
        let deadline = match self.guard.state() {
            LeaseState::Held { until } | LeaseState::Uncertain { until } => until.as_nanos(),
            LeaseState::Lost => return Plan { stop_at: 0, kill_at: 0 },
        };
        let (end, grace) = match (self.max_hold_end, self.manner.max_hold) {
            // A grace that is longer than the work would leave nothing of it.
            (Some(end), Some(limit)) if end < deadline => (end, self.manner.grace.min(limit / 2)),
            _ => (deadline, self.manner.grace),
        };
        let margin = self.margin();
        Plan { stop_at: before(end, grace.max(margin)), kill_at: before(end, margin) }
    }

    fn margin(&self) -> Duration {
        (self.manner.ttl / MARGIN_SHARE).min(MARGIN_MAX)
    }

    fn hear(&mut self, news: News) -> Option<Outcome> {
        match news {
            News::Watching { pid } => self.kin.spare_guardian(Pid::from_raw(pid)),
            News::Started { pid } => {
                self.group = Pid::from_raw(pid);
                if let (Some(group), Some(terminal)) = (self.group, &self.terminal) {
                    terminal.give_first(group);
                }
                for signal in std::mem::take(&mut self.waiting) {
                    self.pass_on(signal);
                }
            }
            News::CannotStart { errno } => {
                let error = io::Error::from_raw_os_error(errno);
                return Some(Outcome { result: Err(Failure::CannotRun(error)), is_gone: true });
            }
            News::TooLate => {
                let name = self.report.name.clone();
                return Some(Outcome { result: Err(Failure::NotStarted(name)), is_gone: true });
            }
            News::Suspended { signal } => self.suspend(Signal::from_named_raw(signal)),
            News::Ending { signal } => {
                self.is_ending = true;
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.report.ending(signal, self.guard.validity());
                }
            }
            News::CannotWatch { errno } => {
                let error = io::Error::from_raw_os_error(errno);
                return Some(Outcome { result: Err(Failure::Guardian(error)), is_gone: true });
            }
            News::LeaderEnded => {
                self.has_ended = true;
                if let (Some(group), Some(terminal)) = (self.group, &self.terminal) {
                    terminal.take_back(group);
                }
            }
            News::Leftovers { who } => self.report.leftovers(&who, self.manner.stop_signal),
            News::Defies { who, is_forbidden } => self.note_defier(who, is_forbidden),
            News::Ended(end) => return Some(self.finish(end)),
        }
        None
    }

    fn finish(&mut self, end: End) -> Outcome {
        if let (Some(group), Some(terminal)) = (self.group, &self.terminal) {
            terminal.finish(group, end.code > 128);
        }
        self.report.ended(end.code);
        let result = match self.outlived(end.at) {
            Some(failure) => Err(failure),
            None if end.forced => Err(self.why_forced()),
            None => Ok(end.code),
        };
        Outcome { result, is_gone: true }
    }

    /// The end of the lease, as far as it is known; also of one that is lost.
    fn deadline(&self) -> u64 {
        let deadline = self.guard.deadline().as_nanos();
        self.max_hold_end.map_or(deadline, |end| end.min(deadline))
    }

    /// Why the lock did not cover the command until its end at `at`, if it did not. What counts is
    /// when it ended and not when we heard of it.
    fn outlived(&self, at: u64) -> Option<Failure> {
        if at < self.deadline() {
            return None;
        }
        let found = self.loss.as_ref().map(|(loss, _)| loss.clone());
        let loss = found.or_else(|| match self.guard.ensure_valid(Duration::ZERO) {
            Err(ValidityError::Lost(loss)) => {
                self.report.lost(&loss, false);
                Some(loss)
            }
            _ => None,
        });
        Some(match (loss, self.manner.on_lost) {
            (Some(loss), OnLost::Warn) => Failure::LostAndWentOn(loss),
            (Some(loss), _) => loss.into(),
            (None, _) => self.why_forced(),
        })
    }

    /// Why the command was stopped although the lease was good.
    fn why_forced(&self) -> Failure {
        let name = self.report.name.clone();
        let max_hold_end = self.max_hold_end.map(|end| before(end, self.margin()));
        match self.manner.max_hold {
            Some(limit) if max_hold_end == Some(self.told.kill_at) => {
                Failure::HeldTooLong { name, limit }
            }
            _ => Failure::NotKept(name),
        }
    }

    fn lose(&mut self, loss: Loss) {
        let goes_on = self.manner.on_lost == OnLost::Warn;
        self.report.lost(&loss, goes_on);
        if !goes_on {
            self.kill();
        }
        self.loss = Some((loss, Instant::now() + BURIAL));
    }

    fn kill(&mut self) {
        for Defier { pid, is_forbidden } in self.kin.kill() {
            self.note_defier(descendants::name(pid), is_forbidden);
        }
    }

    /// The guardian and we meet the same ones.
    fn note_defier(&mut self, who: String, is_forbidden: bool) {
        if self.defiers.insert(who.clone()) {
            self.report.defies(&who, is_forbidden);
        }
    }

    /// The lease is over, and nobody says that the command is.
    fn give_up(&self, loss: Loss) -> Outcome {
        let left = self.kin.alive();
        let result = match left.is_empty() {
            true => Err(loss.into()),
            false => Err(Failure::LostAndLeft { loss, left: descendants::names(&left) }),
        };
        Outcome { result, is_gone: false }
    }

    fn pass_on(&mut self, signal: Signal) {
        let Some(group) = self.group else { return self.waiting.push(signal) };
        match signal {
            // Nobody who is left is to be reached by the group, whose number may be another's soon.
            _ if self.has_ended => {}
            Signal::CONT => self.go_on(group),
            _ if kill_process_group(group, signal) == Err(Errno::PERM) => {
                self.report.not_passed_on(signal);
            }
            _ => {}
        }
    }

    /// The command was stopped.
    fn suspend(&mut self, signal: Option<Signal>) {
        let (Some(group), Some(terminal)) = (self.group, &self.terminal) else {
            // Nobody at a terminal: somebody stopped the command alone, and means it.
            return;
        };
        if self.is_ending || self.loss.is_some() {
            return;
        }
        let reached_for_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
        if (reached_for_terminal && terminal.give(group)) || !can_be_continued() {
            let _ = kill_process_group(group, Signal::CONT);
            return;
        }
        // As if it were not there: the shell sees the whole job stop.
        terminal.take_back(group);
        let _ = kill_current_process_group(Signal::STOP);
    }

    /// We were continued. The command only may go on if the lease did not run out meanwhile.
    fn go_on(&mut self, group: Pid) {
        if self.guard.validity().is_zero() && self.manner.on_lost != OnLost::Warn {
            return self.kill();
        }
        if let Some(terminal) = &self.terminal {
            terminal.give_first(group);
        }
        let _ = kill_process_group(group, Signal::CONT);
    }

    /// Or the warden. The one that is left is below us, and of no use to anybody.
    async fn guardian_died(&mut self) -> Outcome {
        self.guardian.dismiss();
        self.kin.spare_only_the_child();
        loop {
            self.kill();
            if self.kin.is_gone() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(KILL_EVERY) => {}
                loss = self.guard.lost() => return self.give_up(loss),
            }
        }
        if let (Some(group), Some(terminal)) = (self.group, &self.terminal) {
            terminal.finish(group, true);
        }
        let outlived = self.outlived(SystemClock.now().as_nanos());
        let excuse = if self.group.is_none() { self.guardian.excuse() } else { None };
        let died = || match excuse {
            Some(error) => Failure::Guardian(error),
            None => Failure::GuardianDied(self.report.name.clone()),
        };
        Outcome { result: Err(outlived.unwrap_or_else(died)), is_gone: true }
    }
}

fn before(end: u64, time: Duration) -> u64 {
    end.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
