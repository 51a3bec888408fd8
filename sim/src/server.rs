//! A server: the core's own table, a clock by which owners expire, and the ways to forget. Which
//! member it is, if any, is for the addresses to say.

use std::collections::VecDeque;

use leasehold_core::{
    Answer, Facts, Fence, LockName, LockTable, Moment, NO_REPLICATION, NodeError, Record,
    RecordState, Reply, Request, Role, ServerFacts, WallMicros,
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

/// The files from which a server starts.
#[derive(Debug, Clone)]
pub enum Files {
    /// What it saved itself.
    Own {
        /// How many of the last savings never reached the disk.
        loses: usize,
    },
    /// The oldest backup of its own data.
    Backup,
    /// A copy of another server's data.
    Another(LockTable),
}

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Its number in the world.
    pub number: usize,
    /// What it remembers.
    pub table: LockTable,
    /// Its wall clock. Like Redis it expires keys by it.
    pub clock: Clock,
    /// What it will find again.
    pub persistence: Persistence,
    /// Whether it takes writes.
    pub role: Role,
    /// Dead until somebody starts it.
    pub is_down: bool,
    /// Alive, but answers nothing before then.
    pub hangs_until: Time,
    /// Added to the way to and from it.
    pub slow_by: Time,
    /// Counts its starts.
    pub boots: u64,
    /// Counts the stops that broke its connections. A proxy hides some.
    pub stops: u64,
    /// When it last lost something that it knew, in true time.
    pub forgot: Time,
    /// The name of its history of writes; `None` if it is never replicated.
    replication: Option<String>,
    histories: u64,
    on_disk: VecDeque<(Time, LockTable)>,
    backups: VecDeque<(Time, LockTable)>,
}

impl Server {
    /// A server that never ran.
    pub fn new(number: usize, clock: Clock, persistence: Persistence, replicates: bool) -> Self {
        let mut server = Self {
            number,
            table: LockTable::new(),
            clock,
            persistence,
            role: Role::Primary,
            is_down: false,
            hangs_until: 0,
            slow_by: 0,
            boots: 0,
            stops: 0,
            forgot: 0,
            replication: replicates.then(String::new),
            histories: 0,
            on_disk: VecDeque::new(),
            backups: VecDeque::new(),
        };
        server.begin_history();
        server
    }

    /// Its clock, as the core reads it.
    pub fn wall(&self, now: Time) -> WallMicros {
        WallMicros(self.clock.at(now) / MICROS)
    }

    fn moment(&self, now: Time) -> Moment {
        Moment::from_nanos(self.clock.at(now))
    }

    /// The name of this process.
    pub fn run_id(&self) -> String {
        format!("run{}.{}", self.number, self.boots)
    }

    /// The name of its history of writes.
    pub fn replication_id(&self) -> &str {
        self.replication.as_deref().unwrap_or(NO_REPLICATION)
    }

    /// Whether it was met as a member since it last restarted or copied another: its record is its
    /// own, so that nothing tells that another server was the member meanwhile.
    pub fn has_a_life(&self) -> bool {
        let record = self.table.record().and_then(|text| Record::parse(text).ok());
        record.is_some_and(|record| {
            record.run_id == self.run_id() && record.replication_id == self.replication_id()
        })
    }

    fn begin_history(&mut self) {
        self.histories += 1;
        if let Some(id) = &mut self.replication {
            *id = format!("repl{}.{}", self.number, self.histories);
        }
    }

    /// One request, one atomic step. `run` is the process that the asker examined: its scripts are
    /// known to no other.
    pub fn apply(
        &mut self,
        now: Time,
        generation: u64,
        identity: Option<&str>,
        run: Option<&str>,
        request: &Request,
    ) -> Answer {
        if matches!(request, Request::Probe) {
            return Ok(Reply::Facts(Box::new(self.facts(now, generation))));
        }
        if run.is_some_and(|run| run != self.run_id()) {
            return Ok(Reply::Stranger { record: None });
        }
        if self.role == Role::Replica && !matches!(request, Request::Inspect { .. }) {
            let reason = "READONLY You can't write against a read only replica.".to_owned();
            return Err(NodeError::Rejected { reason });
        }
        let (moment, wall) = (self.moment(now), self.wall(now));
        let reply = self.table.apply(moment, wall, identity, request);
        self.save(now);
        Ok(reply)
    }

    fn facts(&self, now: Time, generation: u64) -> Facts {
        Facts {
            generation,
            clock: self.wall(now),
            record: self.table.record().map(str::to_owned),
            server: ServerFacts {
                version: "simulated".into(),
                run_id: self.run_id(),
                replication_id: self.replication_id().to_owned(),
                role: self.role,
                evicts: None,
                persists: self.persistence == Persistence::Always,
                expires_by_wall: true,
            },
            others: Vec::new(),
            unmet: 0,
            addresses: 1,
            highest: self.table.highest(),
            has_spent: self.table.has_spent(),
        }
    }

    fn save(&mut self, now: Time) {
        if self.persistence == Persistence::EverySecond {
            keep(&mut self.on_disk, now, SECOND / 4, &self.table);
        }
        keep(&mut self.backups, now, 2 * SECOND, &self.table);
    }

    /// Whether it ever had a vote.
    fn knew_something(&self) -> bool {
        let record = self.table.record().and_then(|text| Record::parse(text).ok());
        let is_admitted = record.is_some_and(|record| record.state == RecordState::Admitted);
        is_admitted || self.table.highest() > Fence::ZERO
    }

    /// It knows what is in `table`, and nothing else.
    fn load(&mut self, now: Time, table: LockTable) {
        if table != self.table && self.knew_something() {
            self.forgot = now;
        }
        self.table = table;
    }

    /// It stops, and its connections break.
    pub fn stop(&mut self) {
        self.is_down = true;
        self.stops += 1;
    }

    /// It comes back, or is replaced by a new process so quickly that its connections live on.
    pub fn start(&mut self, now: Time, files: Files) {
        self.boots += 1;
        self.is_down = false;
        self.hangs_until = 0;
        self.role = Role::Primary;
        self.begin_history();
        let table = match files {
            Files::Another(table) => table,
            Files::Backup => {
                self.backups.front().map(|(_, table)| table.clone()).unwrap_or_default()
            }
            Files::Own { loses } => self.saved(loses),
        };
        self.load(now, table);
    }

    fn saved(&mut self, loses: usize) -> LockTable {
        match self.persistence {
            Persistence::Always => self.table.clone(),
            Persistence::Nothing => LockTable::new(),
            Persistence::EverySecond => {
                let kept = self.on_disk.len().saturating_sub(loses);
                self.on_disk.truncate(kept);
                self.on_disk.back().map(|(_, table)| table.clone()).unwrap_or_default()
            }
        }
    }

    /// It becomes a replica of a server that has this table and this history: a full
    /// synchronisation. Its process lives on.
    pub fn copy(&mut self, now: Time, table: LockTable, history: String) {
        self.role = Role::Replica;
        self.replication = Some(history);
        self.load(now, table);
    }

    /// It follows nobody any more.
    pub fn promote(&mut self) {
        if self.role == Role::Replica {
            self.role = Role::Primary;
            self.begin_history();
        }
    }

    /// The lock's key goes for want of memory. Fences and record have no TTL, and stay.
    pub fn evict(&mut self, now: Time, lock: &LockName) {
        let moment = self.moment(now);
        if let Some(holder) = self.table.owner(moment, lock).cloned() {
            let release = Request::Release { lock: lock.clone(), holder };
            self.table.apply(moment, self.wall(now), None, &release);
            self.forgot = now;
        }
    }

    /// An operator frees a lock whose owner would expire later than `within` from now.
    pub fn free_if_later(&mut self, now: Time, lock: &LockName, within: Time) {
        let later = Moment::from_nanos(self.clock.at(now) + within);
        if let Some(holder) = self.table.owner(later, lock).cloned() {
            let release = Request::Release { lock: lock.clone(), holder };
            self.table.apply(self.moment(now), self.wall(now), None, &release);
        }
    }

    /// FLUSHALL.
    pub fn flush(&mut self, now: Time) {
        self.load(now, LockTable::new());
        self.on_disk.clear();
    }
}

/// Keeps the last five, taken not more often than `every`.
fn keep(copies: &mut VecDeque<(Time, LockTable)>, now: Time, every: Time, table: &LockTable) {
    if copies.back().is_none_or(|(at, _)| at + every <= now) {
        copies.push_back((now, table.clone()));
        while copies.len() > 5 {
            copies.pop_front();
        }
    }
}
