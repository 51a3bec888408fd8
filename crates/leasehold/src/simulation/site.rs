//! One node's place in the world: the weather on the way there, what it has carried out, and, if
//! it is a Redis, its memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{
    Fence, Holder, LockName, LockTable, Moment, Record, Reply, Request, Ttl, WallMicros,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::bystanders::Bystanders;
use super::timepieces::WallClock;
use super::world::World;
use crate::clock::Clock as _;
use crate::node::NodeId;
use crate::nodes::memory::MemoryNode;

/// How it is on the way to a node. TCP loses nothing: what is lost is late.
#[derive(Debug, Clone)]
pub(super) struct Sky {
    /// Milliseconds to the node, at least and at most.
    pub(super) up: (u64, u64),
    /// Milliseconds back.
    pub(super) down: (u64, u64),
    pub(super) dialing: Dialing,
    /// Nothing arrives at the node.
    pub(super) stalls_up: bool,
    /// Nothing comes back.
    pub(super) stalls_down: bool,
    /// In so many of a hundred commands the connection breaks before it is carried out, after, or
    /// in the middle of the reply.
    pub(super) breaks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialing {
    Accepts,
    Refuses,
    Hangs,
}

/// An answer and the next question take no longer than this, under a fair sky.
const THERE_AND_BACK: Duration = Duration::from_millis(10);

/// What kind of server it plays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flavor {
    /// As INFO shows it.
    pub(super) version: &'static str,
    pub(super) knows_hello: bool,
    /// Whether a restart that keeps the memory keeps all of it. It sits out its quarantine all the
    /// same: nobody but the simulation knows.
    pub(super) durable: bool,
    /// Whether it keeps a log for replicas, so that it can also follow one without dropping its data.
    pub(super) has_replicas: bool,
}

impl Flavor {
    /// Whether it finds its scripts again when it starts.
    pub(super) fn keeps_scripts(&self) -> bool {
        self.version.starts_with("redis_version:6.")
    }
}

/// One request that reached the node, and what became of it.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) at: Moment,
    pub(super) connection: u64,
    pub(super) request: Request,
    pub(super) reply: Reply,
}

/// One connection, seen from the network.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) number: u64,
    pub(super) life: u64,
    pub(super) cut: CancellationToken,
    /// Whether what is on its way to the node still arrives after the cut.
    pub(super) haunts: AtomicBool,
    /// Whether a proxy keeps it open when the server restarts.
    pub(super) is_pooled: AtomicBool,
    /// Whether the server was a replica meanwhile, so that the client may have opened another one.
    pub(super) may_be_left: AtomicBool,
}

/// A simulated Redis's memory.
#[derive(Debug)]
pub(super) struct Redis {
    pub(super) flavor: Flavor,
    pub(super) table: LockTable,
    /// What is on its disk, if it is not durable.
    pub(super) saved: LockTable,
    pub(super) life: u64,
    /// Which history of writes it has.
    pub(super) replication_id: u64,
    /// Whether it copies another server, and so takes no writes.
    pub(super) is_replica: bool,
    /// What each does, and which lines of INFO it asks for.
    pub(super) scripts: BTreeMap<String, (&'static str, Vec<String>)>,
    /// Gone with each restart.
    pub(super) bystanders: Bystanders,
}

#[derive(Debug)]
pub(super) enum Kind {
    Memory(MemoryNode),
    Redis(Mutex<Redis>),
}

#[derive(Debug)]
pub(super) struct Site {
    pub(super) name: NodeId,
    pub(super) world: Arc<World>,
    pub(super) kind: Kind,
    pub(super) clock: Arc<WallClock>,
    sky: Mutex<Sky>,
    /// Not a `watch`, which wakes in random order.
    sky_changed: Notify,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    received: Vec<Received>,
    wires: Vec<Arc<Wire>>,
    /// When it lost its memory, and how much it had carried out by then.
    forgot: Vec<(usize, Moment)>,
    /// When it started again.
    starts: Vec<Moment>,
    /// When its clock was read, and over which connection.
    readings: Vec<(u64, Moment)>,
}

impl Sky {
    pub(super) fn fair() -> Self {
        Self {
            up: (0, 3),
            down: (0, 3),
            dialing: Dialing::Accepts,
            stalls_up: false,
            stalls_down: false,
            breaks: 0,
        }
    }
}

impl Site {
    pub(super) fn new(
        clock: Arc<WallClock>,
        world: &Arc<World>,
        name: String,
        kind: Kind,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: NodeId::new(name),
            world: world.clone(),
            kind,
            clock,
            sky: Mutex::new(Sky::fair()),
            sky_changed: Notify::new(),
            log: Mutex::default(),
        })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn redis(&self) -> MutexGuard<'_, Redis> {
        let Kind::Redis(redis) = &self.kind else { panic!("{} is no Redis", self.name) };
        redis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its wall clock shows.
    pub(super) fn wall(&self) -> WallMicros {
        self.clock.wall()
    }

    /// The time by which a Redis ends leases: that of its wall clock.
    pub(super) fn expires_by(&self) -> Moment {
        Moment::from_nanos(self.wall().0.saturating_mul(1000))
    }

    /// Its wall clock is set to be so far ahead of true time; negative for behind.
    pub(super) fn set_clock(&self, ahead_micros: i64) {
        let by = ahead_micros - self.clock.ahead_micros();
        self.world.note(format_args!("the clock of {} steps by {by} us", self.name));
        self.clock.set(ahead_micros);
    }

    /// Its wall clock steps by so much; negative for back.
    pub(super) fn step_clock(&self, micros: i64) {
        self.set_clock(self.clock.ahead_micros() + micros);
    }

    pub(super) fn sky(&self) -> Sky {
        self.sky.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Sky)) {
        change(&mut self.sky.lock().unwrap_or_else(PoisonError::into_inner));
        self.sky_changed.notify_waiters();
    }

    /// Waits until requests get through.
    pub(super) async fn way_up(&self) {
        self.until(|sky| !sky.stalls_up).await;
    }

    /// Waits until replies get through.
    pub(super) async fn way_down(&self) {
        self.until(|sky| !sky.stalls_down).await;
    }

    async fn until(&self, is_so: impl Fn(&Sky) -> bool) {
        loop {
            let changed = self.sky_changed.notified();
            if is_so(&self.sky()) {
                return;
            }
            changed.await;
        }
    }

    /// A new connection.
    pub(super) fn accept(&self) -> Arc<Wire> {
        let life = match &self.kind {
            Kind::Memory(_) => 0,
            Kind::Redis(_) => self.redis().life,
        };
        let mut log = self.log();
        let number = log.wires.len() as u64 + 1;
        let (cut, haunts) = (CancellationToken::new(), AtomicBool::new(false));
        let is_pooled = AtomicBool::new(false);
        let may_be_left = AtomicBool::new(false);
        let wire = Arc::new(Wire { number, life, cut, haunts, is_pooled, may_be_left });
        log.wires.push(wire.clone());
        drop(log);
        self.world.note(format_args!("{} connection {number}", self.name));
        wire
    }

    /// Breaks all connections. What is on its way may still arrive, as it does when only the
    /// client's side was told.
    pub(super) fn cut(&self, haunts: bool) {
        self.world.note(format_args!("{} is cut off, haunts: {haunts}", self.name));
        for wire in &self.log().wires {
            wire.haunts.store(haunts, Ordering::SeqCst);
            wire.cut.cancel();
        }
    }

    /// What it remembers now goes to its disk.
    pub(super) fn save(&self) {
        if let Kind::Redis(_) = &self.kind {
            let mut redis = self.redis();
            redis.saved = redis.table.clone();
        }
    }

    /// The server ends and starts again, with what is on its disk or with nothing. A durable one has
    /// everything there, any other what it last saved.
    pub(super) fn restart(&self, has_disk: bool) {
        let Kind::Redis(_) = &self.kind else { return self.forget() };
        self.start_with(self.found_at_start(has_disk));
        self.cut(false);
    }

    /// The same behind a proxy that keeps the clients' connections, as if nothing had happened.
    pub(super) fn restart_unseen(&self, has_disk: bool) {
        self.start_with(self.found_at_start(has_disk));
        for wire in self.log().wires.iter().filter(|wire| !wire.cut.is_cancelled()) {
            wire.is_pooled.store(true, Ordering::SeqCst);
        }
    }

    /// It ends and is started with the files of another server, which has `table`.
    pub(super) fn restart_with(&self, table: LockTable) {
        self.start_with(Some(table));
        self.cut(false);
    }

    /// What it finds when it starts, if that is not all that it had.
    fn found_at_start(&self, has_disk: bool) -> Option<LockTable> {
        let redis = self.redis();
        match (has_disk, redis.flavor.durable) {
            (true, true) => None,
            (true, false) => Some(redis.saved.clone()),
            (false, _) => Some(LockTable::new()),
        }
    }

    /// Another process, with `table` in its memory, or with all that the one before it had.
    fn start_with(&self, table: Option<LockTable>) {
        let keeps_memory = table.is_none();
        {
            let mut redis = self.redis();
            redis.life += 1;
            redis.replication_id = self.world.below(u64::MAX);
            redis.is_replica = false;
            if !redis.flavor.keeps_scripts() {
                redis.scripts.clear();
            }
            redis.bystanders = Bystanders::default();
            redis.table = table.unwrap_or_else(|| redis.table.clone());
        }
        if !keeps_memory {
            self.note_loss();
        }
        self.log().starts.push(self.world.now());
        self.world.note(format_args!("{} restarted, with memory: {keeps_memory}", self.name));
    }

    fn forget(&self) {
        if let Kind::Memory(node) = &self.kind {
            node.forget();
            self.note_loss();
            self.world.note(format_args!("{} forgot everything", self.name));
        }
    }

    /// REPLICAOF: it takes no writes from now on. Its memory goes when it begins to copy.
    pub(super) fn follow(&self) {
        self.redis().is_replica = true;
        let leave = |wire: &Arc<Wire>| wire.may_be_left.store(true, Ordering::SeqCst);
        self.log().wires.iter().for_each(leave);
        self.world.note(format_args!("{} is a replica", self.name));
    }

    /// It drops what it had, which it tells those who track keys, and has `table` instead.
    pub(super) fn copy(&self, table: LockTable) {
        {
            let mut redis = self.redis();
            redis.table = table;
            redis.replication_id = self.world.below(u64::MAX);
            redis.bystanders.flushed();
        }
        self.note_loss();
        self.world.note(format_args!("{} has the data of another", self.name));
    }

    /// It follows a replica of its own from where that left off. Nothing is dropped, so nobody is told;
    /// but what the replica took away is gone here, too.
    pub(super) fn go_on_with(&self, table: LockTable) {
        assert!(self.redis().flavor.has_replicas);
        self.redis().table = table;
        self.note_loss();
        self.world.note(format_args!("{} goes on with the data of its replica", self.name));
    }

    /// REPLICAOF NO ONE.
    pub(super) fn promote(&self) {
        let mut redis = self.redis();
        redis.is_replica = false;
        redis.replication_id = self.world.below(u64::MAX);
        drop(redis);
        self.world.note(format_args!("{} is a primary", self.name));
    }

    /// FLUSHALL.
    pub(super) fn flush(&self) {
        {
            let mut redis = self.redis();
            redis.table = LockTable::new();
            redis.bystanders.flushed();
        }
        self.note_loss();
        self.world.note(format_args!("{} is flushed", self.name));
    }

    fn note_loss(&self) {
        let mut log = self.log();
        let lost = (log.received.len(), self.world.now());
        log.forgot.push(lost);
    }

    /// SCRIPT FLUSH.
    pub(super) fn forget_scripts(&self) {
        if let Kind::Redis(_) = &self.kind {
            self.redis().scripts.clear();
        }
    }

    /// Writes down what was carried out.
    pub(super) fn carried_out(&self, connection: u64, request: &Request, reply: &Reply) {
        let at = self.world.now();
        if matches!(
            request,
            Request::Acquire { .. } | Request::Extend { .. } | Request::Release { .. }
        ) {
            let line = format!("{} [{connection}] {request:?} -> {reply:?}", self.name);
            self.world.note(line);
            let (request, reply) = (request.clone(), reply.clone());
            self.log().received.push(Received { at, connection, request, reply });
        }
    }

    /// Looks at everything it has carried out.
    pub(super) fn with_received<T>(&self, look: impl FnOnce(&[Received]) -> T) -> T {
        look(&self.log().received)
    }

    /// What it has carried out that `is_meant`, and what number each has in its log.
    pub(super) fn received(&self, is_meant: impl Fn(&Received) -> bool) -> Vec<(usize, Received)> {
        let log = self.log();
        let meant = log.received.iter().enumerate().filter(|(_, entry)| is_meant(entry));
        meant.map(|(index, entry)| (index, entry.clone())).collect()
    }

    /// Its clock is being read over this connection.
    pub(super) fn was_read(&self, connection: u64) {
        let at = self.world.now();
        self.log().readings.push((connection, at));
    }

    /// When its clock was first and last read over `connection`, so that the answer was there when a
    /// question left that arrived at `at`.
    pub(super) fn read_before(&self, connection: u64, at: Moment) -> Option<(Moment, Moment)> {
        let log = self.log();
        let before =
            |(over, read): &&(u64, Moment)| *over == connection && read.plus(THERE_AND_BACK) <= at;
        let mut readings = log.readings.iter().filter(before).map(|(_, read)| *read);
        let first = readings.next()?;
        Some((first, readings.next_back().unwrap_or(first)))
    }

    /// Whether it ran all the time since `from`.
    pub(super) fn ran_since(&self, from: Moment) -> bool {
        self.log().starts.iter().all(|start| *start < from)
    }

    pub(super) fn forgot(&self) -> Vec<(usize, Moment)> {
        self.log().forgot.clone()
    }

    /// Whether a connection was broken, or that between a proxy and the server, or may have been left
    /// for another.
    pub(super) fn is_broken(&self, connection: u64) -> bool {
        let log = self.log();
        let wire = log.wires.iter().find(|wire| wire.number == connection);
        let is_broken = |wire: &Arc<Wire>| {
            wire.cut.is_cancelled()
                || wire.is_pooled.load(Ordering::SeqCst)
                || wire.may_be_left.load(Ordering::SeqCst)
        };
        wire.is_some_and(is_broken)
    }

    /// As after an acquire by a client whose clock is `ahead`, who gave the lock back.
    pub(super) fn raise_fence(&self, lock: &str, ahead: Duration) {
        let lock = LockName::new(lock).expect("a name");
        if self.owner(&lock).is_some() {
            return;
        }
        let holder = Holder::new("ahead", u128::from(self.world.below(u64::MAX))).expect("a label");
        let wall = self.wall();
        let proposal = Fence::from_clock(WallMicros(wall.0 + ahead.as_micros() as u64));
        let ttl = Ttl::new(Duration::from_secs(1)).expect("a ttl");
        let release = Request::Release { lock: lock.clone(), holder: holder.clone() };
        for request in [Request::Acquire { lock, holder, proposal, ttl }, release] {
            match &self.kind {
                Kind::Memory(node) => super::memory::apply(node, &request),
                Kind::Redis(_) => {
                    let mut redis = self.redis();
                    let record = redis.table.record().map(str::to_owned);
                    redis.table.apply(self.expires_by(), wall, record.as_deref(), &request);
                }
            }
        }
    }

    /// For how long it keeps `lock` for `holder`, if its clock neither steps nor slews any more.
    pub(super) fn keeps_for(&self, lock: &LockName, holder: &Holder) -> Duration {
        let (now, wall) = (self.expires_by(), self.wall());
        let look = Request::Inspect { lock: lock.clone() };
        let is_owner = self.owner(lock).as_ref() == Some(holder);
        match self.redis().table.apply(now, wall, None, &look) {
            Reply::Seen(sighting) if is_owner => sighting.expires_in.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// The record that it has, if it can be read.
    pub(super) fn record(&self) -> Option<Record> {
        Record::parse(self.redis().table.record()?).ok()
    }

    /// Who owns `lock` there.
    pub(super) fn owner(&self, lock: &LockName) -> Option<Holder> {
        match &self.kind {
            Kind::Memory(node) => super::memory::owner(node, lock),
            Kind::Redis(_) => self.redis().table.owner(self.expires_by(), lock).cloned(),
        }
    }
}
