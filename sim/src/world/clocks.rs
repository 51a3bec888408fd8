//! What is done to clocks: those of servers are set, run at other rates and are put right; those of
//! processes stand still. And processes that start late, or expect something else than all others.

use super::servers::{Change, Start};
use super::{EPOCH, Event, World};
use crate::clock::{MICROS, MILLIS, SECOND, Time};
use crate::faults::Fault;
use crate::history::Happening;
use crate::scenario::RIGHT_WITHIN;

/// A clock is right that is off the truth by no more than this: by what it was set and what its
/// rate makes of that in the time of a run.
const RIGHT: Time = 600 * MILLIS;

impl World {
    /// Some clocks are wrong from the start, and put right at some time.
    pub(super) fn set_clocks_wrong(&mut self) {
        for node in 0..self.scenario.clocks.wrong {
            // A minute, ten minutes, a year: each in its own way.
            let most = [60_000, 600_000, 31_536_000_000][self.chance.index(3)];
            let by = self.chance.around(most) * MILLIS as i64;
            self.set_clock(node, by);
            let right = self.chance.within(0..self.scenario.trouble);
            self.after(right, Event::Inflict(Fault::PutRight { node }));
        }
    }

    pub(super) fn change_clocks(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::Step { node, by } => {
                self.set_clock(self.addresses.home(node), by);
                // What is far off is mostly put right before the end.
                if self.chance.percent(70) {
                    let right = self.chance.within(0..15 * SECOND);
                    self.after(right, Event::Inflict(Fault::PutRight { node }));
                }
            }
            // A quarantine that all clocks end early is waited out by whoever saw it begin; where the list
            // is changed nobody did.
            Fault::StepAll { by } if by > 0 && self.scenario.lists.is_some() => {}
            Fault::StepAll { by } => {
                for node in 0..self.scenario.addresses() {
                    self.set_clock(self.addresses.home(node), by);
                }
            }
            Fault::PutRight { node } => self.put_right(self.addresses.home(node)),
            Fault::Slew { node, rate } => {
                let home = self.addresses.home(node);
                self.servers[home].clock.slew(now, rate);
            }
            Fault::Discipline { node, noise, steps } => self.discipline(node, noise, steps),
            Fault::BadClock { node, down_for, behind, time } => {
                let home = self.addresses.home(node);
                if self.scenario.nodes > 1 && !self.servers[home].is_down {
                    self.set_clock(home, -(behind as i64));
                    self.kill(home, down_for, Start::Own { loses: 0 });
                    self.after(down_for + time, Event::Inflict(Fault::PutRight { node }));
                }
            }
            Fault::Freeze { client, time } => {
                // What stands still already cannot miss more than passes.
                if self.is_dead[client] || self.frozen_until[client] > now {
                    return;
                }
                self.frozen_until[client] = now + time;
                let until = self.paused_until[client].max(now + time);
                self.paused_until[client] = until;
                self.tell(Happening::StoodStill { client, until, by: time });
                self.with(client, |this, now, acts| this.stand_still(now, time, acts));
            }
            _ => unreachable!("done to something else than clocks"),
        }
    }

    /// What NTP does: it makes up for what it takes the error for, at no more than 500 millionths, or
    /// at once by some milliseconds.
    fn discipline(&mut self, node: usize, noise: i64, steps: bool) {
        const RATE_MOST: i64 = 500;
        const STEP_MOST: i64 = 8 * MILLIS as i64;
        let home = self.addresses.home(node);
        let shown = self.servers[home].clock.at(self.now);
        let error = shown.wrapping_sub(EPOCH + self.now) as i64 + noise * MICROS as i64;
        if steps {
            return self.set_clock(home, (-error).clamp(-STEP_MOST, STEP_MOST));
        }
        // Within about a minute, by when it looks again.
        let rate = -error / (64 * SECOND as i64 / 1_000_000);
        self.servers[home].clock.slew(self.now, rate.clamp(-RATE_MOST, RATE_MOST));
    }

    /// Sets the clock of a server.
    fn set_clock(&mut self, server: usize, by: i64) {
        self.servers[server].clock.jump(self.now, by);
        self.tell(Happening::Stepped { server, by });
        let is_right = |node: usize| {
            let shown = self.servers[self.addresses.home(node)].clock.at(self.now);
            shown.abs_diff(EPOCH + self.now) <= RIGHT
        };
        let is_wrong = |nodes: &[usize]| {
            nodes.iter().filter(|node| is_right(**node)).count() < nodes.len() / 2 + 1
        };
        let lists = self.scenario.lists.iter().flat_map(|lists| &lists.all);
        if is_wrong(&self.first_list().nodes) || lists.into_iter().any(|it| is_wrong(&it.nodes)) {
            self.tell(Happening::ClocksAreWrong);
        }
    }

    fn put_right(&mut self, server: usize) {
        let shown = self.servers[server].clock.at(self.now);
        let right = (EPOCH + self.now)
            .saturating_add_signed(self.chance.around(RIGHT_WITHIN) * MILLIS as i64);
        self.set_clock(server, right.wrapping_sub(shown) as i64);
    }

    /// After the last fault all clocks are right. Leases of before may last for as long as a clock was
    /// wrong, and those who had them are dead: a person has to free them.
    pub(super) fn put_clocks_right(&mut self) {
        // Nobody tells callers that a clock was set.
        let count = if self.scenario.callers == 0 { self.servers.len() } else { 0 };
        for server in 0..count {
            let shown = self.servers[server].clock.at(self.now);
            // Two that are this far off to either side are still within the skew of each other.
            if shown.abs_diff(EPOCH + self.now) > RIGHT_WITHIN * MILLIS {
                self.put_right(server);
            }
        }
        self.after(4 * SECOND, Event::Change(Change::FreeTheOwned));
    }

    /// Has a process start, if not at once then at some time.
    pub(super) fn start_sooner_or_later(&mut self, client: usize) {
        let is_odd = self.scenario.odd_client() == Some(client);
        let is_late = self.scenario.clocks.late_starts && self.chance.percent(50);
        if !is_odd && !is_late {
            return self.start_client(client);
        }
        // One that was told something else comes when the cluster stands.
        let figures = &mut self.outcome.figures;
        *(if is_odd { &mut figures.odd } else { &mut figures.late }) += 1;
        let first = if is_odd { 10 * SECOND } else { 0 };
        let later = self.chance.within(first..self.scenario.trouble);
        self.is_dead[client] = true;
        self.after(later, Event::StartClient { client });
    }

    /// Whoever was told something else is told right, and is gone.
    pub(super) fn end_odd_client(&mut self) {
        if let Some(client) = self.scenario.odd_client()
            && !self.is_dead[client]
        {
            self.end_client(client);
        }
    }
}
