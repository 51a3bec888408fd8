//! A server: the core's own table, a clock by which owners expire, and the ways to forget.

use std::collections::VecDeque;

use leasehold_core::{
    Facts, LockName, LockTable, Moment, Reply, Request, Role, ServerFacts, WallMicros,
};

use crate::clock::{Clock, MICROS, SECOND, Time};

/// What a server finds again when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    Nothing,
    /// What was there up to a second before it died.
    EverySecond,
    /// Everything that it ever answered.
    Always,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    /// What it remembers.
    pub table: LockTable,
    /// Its wall clock. Like Redis it expires keys by it.
    pub clock: Clock,
    /// What it will find again.
    pub persistence: Persistence,
    /// Dead until somebody starts it.
    pub is_down: bool,
    /// Alive, but answers nothing before then.
    pub hangs_until: Time,
    /// Added to the way to and from it.
    pub slow_by: Time,
    /// Counts its starts.
    pub boots: u64,
    on_disk: VecDeque<(Time, LockTable)>,
}

impl Server {
    /// A server that never ran.
    pub fn new(clock: Clock, persistence: Persistence) -> Self {
        Self {
            table: LockTable::new(),
            clock,
            persistence,
            is_down: false,
            hangs_until: 0,
            slow_by: 0,
            boots: 0,
            on_disk: VecDeque::new(),
        }
    }

    /// Its clock, as the core reads it.
    pub fn wall(&self, now: Time) -> WallMicros {
        WallMicros(self.clock.at(now) / MICROS)
    }

    fn moment(&self, now: Time) -> Moment {
        Moment::from_nanos(self.clock.at(now))
    }

    /// One request, one atomic step.
    pub fn apply(
        &mut self,
        now: Time,
        generation: u64,
        identity: Option<&str>,
        request: &Request,
    ) -> Reply {
        if matches!(request, Request::Probe) {
            return Reply::Facts(Box::new(self.facts(now, generation)));
        }
        let (moment, wall) = (self.moment(now), self.wall(now));
        let reply = self.table.apply(moment, wall, identity, request);
        self.save(now);
        reply
    }

    fn facts(&self, now: Time, generation: u64) -> Facts {
        Facts {
            generation,
            clock: self.wall(now),
            record: self.table.record().map(str::to_owned),
            server: ServerFacts {
                version: "simulated".into(),
                run_id: format!("run{}", self.boots),
                role: Role::Primary,
                evicts: None,
                durable: self.persistence == Persistence::Always,
                expires_by_wall: true,
            },
        }
    }

    fn save(&mut self, now: Time) {
        const EVERY: Time = SECOND / 4;
        if self.persistence != Persistence::EverySecond {
            return;
        }
        if self.on_disk.back().is_none_or(|(at, _)| at + EVERY <= now) {
            self.on_disk.push_back((now, self.table.clone()));
            while self.on_disk.len() > 5 {
                self.on_disk.pop_front();
            }
        }
    }

    /// It comes back. `loses` says how many of the last savings never reached the disk.
    pub fn start(&mut self, loses: usize) {
        self.boots += 1;
        self.is_down = false;
        self.hangs_until = 0;
        match self.persistence {
            Persistence::Always => {}
            Persistence::Nothing => self.table = LockTable::new(),
            Persistence::EverySecond => {
                let kept = self.on_disk.len().saturating_sub(loses);
                self.on_disk.truncate(kept);
                self.table =
                    self.on_disk.back().map(|(_, table)| table.clone()).unwrap_or_default();
            }
        }
    }

    /// The lock's key goes for want of memory. Fences and record have no TTL, and stay.
    pub fn evict(&mut self, now: Time, lock: &LockName) {
        let moment = self.moment(now);
        if let Some(holder) = self.table.owner(moment, lock).cloned() {
            let release = Request::Release { lock: lock.clone(), holder };
            self.table.apply(moment, self.wall(now), None, &release);
        }
    }

    /// FLUSHALL.
    pub fn flush(&mut self) {
        self.table = LockTable::new();
        self.on_disk.clear();
    }
}
