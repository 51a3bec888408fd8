//! One run: start everything, make trouble by the schedule, let calm return, stop.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::{Drift, quarantine};
use leasehold_testkit::Need;

use leasehold_judge::Chance;

use crate::clock::{HolderClock, boot_nanos};
use crate::cluster::Cluster;
use crate::fault::{Fault, Planned};
use crate::history::{
    FAULTS, FaultLine, HOLDERS, Log, META, MISLED, Meta, STORE, UNFENCED, life_file,
};
use crate::hogs::Hogs;
use crate::holder::{Part, Setup, builder};
use crate::holders::{Holders, StoreProcess};
use crate::instances::{self, Instances};
use crate::schedule::{Backend, MAX_SKEW, MAX_TTL, Plan, is_pooled, schedule};
use crate::told;
use crate::watch::{Progress, Watch};

/// After the last fault everybody gets a lock within this: a quarantine, the longest wait for a
/// lock, and the rest for a machine that is busy with something else.
const CALM_WITHIN: Duration = Duration::from_secs(60);

/// Fewer critical sections than this many a second, and faults cannot have met many of them.
const SECTIONS_PER_SECOND: f64 = 0.5;

/// How long a fault waits for somebody to hold the lock that it is aimed at.
const AIM_FOR: Duration = Duration::from_secs(1);

/// Nodes that wait have their records after the first examination.
const NAMED_WITHIN: Duration = Duration::from_secs(20);

const TICK: Duration = Duration::from_millis(10);

/// Why a run has no history to judge.
#[derive(Debug)]
pub enum Failure {
    /// Somebody asked it to end: the number of the signal.
    Signal(i32),
    /// Something outside the test did not work.
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What is to end a run early: the number of a signal, or 0.
pub type Interrupt = Arc<AtomicUsize>;

/// Whether what is not in the repository is there.
fn check_needs(backend: Backend) -> io::Result<()> {
    let need = match backend {
        Backend::Redis => Need::Redis,
        Backend::Valkey => Need::Valkey,
        Backend::Sqlite => return Ok(()),
    };
    need.check().map_err(io::Error::other)
}

struct Run<'a> {
    plan: Plan,
    versions: Vec<String>,
    names: Vec<String>,
    cluster: Cluster,
    instances: Option<Instances>,
    holders: Holders,
    hogs: Hogs,
    watch: Watch,
    progress: Progress,
    log: Log,
    /// Whom a fault of the schedule met.
    met: HashMap<usize, usize>,
    /// The client that takes part by a fault of the schedule.
    guests: HashMap<usize, u64>,
    faults: u64,
    /// The same moment by two clocks.
    started: u64,
    start: Instant,
    interrupt: &'a Interrupt,
}

/// Runs and leaves the history in `folder`. If `only` names kinds of faults, there are no others.
pub fn run(
    plan: Plan,
    only: &[String],
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let done = try_run(plan, only, folder, interrupt);
    match (done, interrupt.load(Ordering::Relaxed)) {
        // A signal from a terminal goes to the servers, too, and their end is no news then.
        (Err(_), signal @ 1..) => Err(Failure::Signal(signal as i32)),
        (done, _) => done,
    }
}

fn try_run(
    plan: Plan,
    only: &[String],
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    check_needs(plan.backend)?;
    let planned = schedule(plan, only);
    if planned.is_empty() && !only.is_empty() {
        return Err(io::Error::other(format!("no fault is called {only:?} here")).into());
    }
    std::fs::create_dir_all(folder.join(HOLDERS))?;
    let sockets = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir()?;
    let mut cluster = Cluster::start(&plan, sockets.path(), folder)?;
    for early in planned.iter().filter(|planned| planned.from.is_zero()) {
        if let Fault::Node { nodes, kind } = &early.fault {
            cluster.hurt(nodes, *kind, early.to).map_err(io::Error::other)?;
        }
    }
    // The person who introduces the nodes takes part as one more holder, who asks for nothing.
    let log = Log::open(&life_file(folder, plan.holders, 0))?;
    told::listen(log, Arc::new(HolderClock::start()))?;
    let misled = introduce(&mut cluster, plan.backend == Backend::Sqlite)?;
    let socket = sockets.path().join("store");
    let _store = StoreProcess::start(&socket, &folder.join(STORE))?;
    let mut run = Run::start(plan, cluster, folder, &socket, interrupt)?;
    if misled {
        let story = "init admitted a cluster with a wrong clock".to_owned();
        run.log.now(FaultLine { kind: MISLED.into(), story })?;
    }
    run.make_trouble(&planned)?;
    let calm_from = boot_nanos();
    run.await_calm(calm_from)?;
    run.progress.end();
    let meta = Meta { only: only.to_vec(), ..run.meta(calm_from) };
    run.holders.finish();
    let meta = serde_json::to_string_pretty(&meta).map_err(io::Error::other)?;
    std::fs::write(folder.join(META), meta)?;
    Ok(())
}

/// A person says that the cluster is new: the holders must not. Where a clock is wrong nobody may
/// believe that, and the nodes wait; returns whether somebody did.
fn introduce(cluster: &mut Cluster, is_file: bool) -> io::Result<bool> {
    let (url, is_wrong) = (cluster.url(), cluster.has_wrong_clock());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = builder(&url, is_file).open().await.map_err(io::Error::other)?;
        if is_file {
            return Ok(false);
        }
        let done = locks.init().await;
        if !is_wrong {
            done.map_err(io::Error::other)?;
            cluster.learn_names();
            return Ok(false);
        }
        let end = Instant::now() + NAMED_WITHIN;
        while !cluster.learn_names() {
            if Instant::now() > end {
                return Err(io::Error::other("the nodes got no records"));
            }
            tokio::time::sleep(TICK).await;
        }
        Ok(done.is_ok())
    })
}

fn versions(plan: &Plan, cluster: &Cluster) -> Vec<String> {
    let mut versions = vec![format!("leasehold {}", env!("CARGO_PKG_VERSION")), cluster.version()];
    let pooled: Vec<_> = (0..plan.nodes).filter(|node| is_pooled(plan, *node)).collect();
    if plan.backend != Backend::Sqlite && !pooled.is_empty() {
        versions.push(format!("a pooling proxy before nodes {pooled:?}"));
    }
    versions
}

/// A fault of the schedule, by its number, and until when.
#[derive(Debug)]
struct Timed {
    fault: usize,
    until: Duration,
}

impl<'a> Run<'a> {
    /// Starts the holders.
    fn start(
        plan: Plan,
        cluster: Cluster,
        folder: &Path,
        store: &Path,
        interrupt: &'a Interrupt,
    ) -> io::Result<Self> {
        let files = store.parent().unwrap_or(folder);
        let names: Vec<_> = (0..plan.locks).map(|lock| format!("lock-{lock}")).collect();
        let pattern = Setup {
            url: cluster.url(),
            holder: 0,
            life: 0,
            seed: Chance::new(plan.seed).bits(),
            locks: names.clone(),
            history: folder.to_owned(),
            store: store.to_owned(),
            unfenced: folder.join(UNFENCED),
            is_file: plan.backend == Backend::Sqlite,
            part: Part::Holder,
            through: None,
        };
        let (instances, through) = instances::before(&plan, &cluster.url(), folder)?;
        let pattern = Setup { through, ..pattern };
        let (started, start) = (boot_nanos(), Instant::now());
        Ok(Self {
            plan,
            versions: versions(&plan, &cluster),
            names,
            cluster,
            instances,
            holders: Holders::start(plan.holders, folder, files, pattern)?,
            hogs: Hogs::new(plan.hogs),
            watch: Watch::new(folder, plan.holders),
            progress: Progress::new(),
            log: Log::open(&folder.join(FAULTS))?,
            met: HashMap::new(),
            guests: HashMap::new(),
            faults: 0,
            started,
            start,
            interrupt,
        })
    }

    fn meta(&self, calm_from: u64) -> Meta {
        let plan = &self.plan;
        Meta {
            seed: plan.seed,
            backend: plan.backend.name().into(),
            seconds: plan.time.as_secs(),
            nodes: plan.nodes,
            holders: plan.holders,
            locks: plan.locks,
            beyond: plan.beyond,
            through_servers: plan.through_servers,
            hogs: plan.hogs,
            only: Vec::new(),
            versions: self.versions.clone(),
            started: self.started,
            calm_from,
            calm_within_seconds: CALM_WITHIN.as_secs(),
            sections_floor: (plan.time.as_secs_f64() * SECTIONS_PER_SECOND) as u64,
            last_lives: self.holders.lives().to_vec(),
            max_ttl: MAX_TTL.as_nanos() as u64,
            max_skew: MAX_SKEW.as_nanos() as u64,
            quarantine: quarantine(MAX_TTL, Drift::DEFAULT, MAX_SKEW).as_nanos() as u64,
            names: self.cluster.names().to_vec(),
        }
    }

    fn make_trouble(&mut self, planned: &[Planned]) -> Result<(), Failure> {
        let mut coming = (0..planned.len()).peekable();
        // Faults that wait for somebody to hold the lock, each until when; and those in force.
        let (mut aimed, mut in_force): (Vec<Timed>, Vec<Timed>) = (Vec::new(), Vec::new());
        loop {
            let now = self.start.elapsed();
            for ended in in_force.extract_if(.., |timed| timed.until <= now) {
                self.end(ended.fault, &planned[ended.fault])?;
            }
            while let Some(fault) = coming.next_if(|fault| planned[*fault].from <= now) {
                if planned[fault].fault.aim().is_some() {
                    aimed.push(Timed { fault, until: now + AIM_FOR });
                } else {
                    self.begin(fault, &planned[fault])?;
                    in_force.push(Timed { fault, until: planned[fault].to });
                }
            }
            let names = &self.names;
            let watch = &self.watch;
            let is_ripe = |timed: &mut Timed| {
                let lock = planned[timed.fault].fault.aim().map_or("", |lock| &names[lock]);
                watch.holder_of(lock).is_some() || timed.until <= now
            };
            for Timed { fault, .. } in aimed.extract_if(.., is_ripe).collect::<Vec<_>>() {
                self.begin(fault, &planned[fault])?;
                let lasts = planned[fault].to - planned[fault].from;
                in_force.push(Timed { fault, until: now + lasts });
            }
            let is_over = coming.peek().is_none() && aimed.is_empty() && in_force.is_empty();
            if is_over && now >= self.plan.time {
                return Ok(());
            }
            self.tick()?;
        }
    }

    fn await_calm(&mut self, from: u64) -> Result<(), Failure> {
        let end = Instant::now() + CALM_WITHIN;
        while !self.watch.all_granted_after(from) && Instant::now() < end {
            self.tick()?;
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Failure> {
        match self.interrupt.load(Ordering::Relaxed) {
            0 => {}
            signal => return Err(Failure::Signal(signal as i32)),
        }
        if let Some(holder) = self.holders.ended().first() {
            let story = format!("holder {holder} ended by itself; its words are above");
            return Err(Failure::Io(io::Error::other(story)));
        }
        if let Some(count @ 1..) = self.hogs.tend(self.start.elapsed(), self.plan.time)? {
            let story = format!("{count} busy loops run beside it for a while");
            self.log.now(FaultLine { kind: "busy loops".into(), story })?;
        }
        self.cluster.slew();
        for (node, why) in self.cluster.tend() {
            let story = format!("the record of node {node} is deleted: {why}");
            self.log.now(FaultLine { kind: "record deleted by the operator".into(), story })?;
        }
        if let Some(instances) = &mut self.instances {
            for index in instances.tend()? {
                let story = format!("lock server {index} had ended by itself");
                self.log.now(FaultLine { kind: "lock server started again".into(), story })?;
            }
        }
        self.watch.read(self.holders.lives())?;
        let (watch, seconds) = (&self.watch, self.start.elapsed().as_secs());
        let (faults, all) = (self.faults, self.plan.time.as_secs());
        self.progress.show(|| {
            let time = if seconds < all { format!("{seconds} of {all} s") } else { "calm".into() };
            format!(
                "{time}: {} acquisitions, {faults} faults, {} late writes refused",
                watch.grants, watch.late
            )
        });
        thread::sleep(TICK);
        Ok(())
    }

    fn begin(&mut self, index: usize, planned: &Planned) -> Result<(), Failure> {
        let time = planned.to - planned.from;
        let mut story = planned.to_string();
        let done = match &planned.fault {
            Fault::Node { nodes, kind } => self.cluster.hurt(nodes, *kind, time),
            Fault::Link { nodes, side, kind } => {
                self.cluster.cut_off(nodes, *side, *kind);
                Ok(())
            }
            Fault::Route { node, kind } => self.cluster.divert(*node, *kind, time),
            Fault::Late { holder } => {
                if !self.holders.kill(*holder) {
                    return Ok(());
                }
                self.met.insert(index, *holder);
                Ok(())
            }
            Fault::Trust if !self.cluster.has_memory() => return Ok(()),
            Fault::Trust => {
                self.guests.insert(index, self.holders.invite(Part::Truster)?);
                Ok(())
            }
            Fault::Stranger { max_ttl } => {
                let part = Part::Stranger { max_ttl: *max_ttl };
                self.guests.insert(index, self.holders.invite(part)?);
                Ok(())
            }
            Fault::Pause { lock, holder, .. } | Fault::Crash { lock, holder } => {
                let whom = self.watch.holder_of(&self.names[*lock]).unwrap_or(*holder);
                let is_hit = match planned.fault {
                    Fault::Pause { .. } => self.holders.pause(whom),
                    _ => self.holders.kill(whom),
                };
                if !is_hit {
                    return Ok(());
                }
                self.met.insert(index, whom);
                story = format!("{story}: holder {whom}");
                Ok(())
            }
            Fault::Instance { instance, killed } => {
                if let Some(instances) = &mut self.instances {
                    instances.hurt(*instance, *killed);
                }
                Ok(())
            }
            Fault::Grab => match self.cluster.grab() {
                Ok(false) => return Ok(()),
                done => done.map(drop),
            },
        };
        self.note(planned, story, done)
    }

    fn end(&mut self, index: usize, planned: &Planned) -> Result<(), Failure> {
        let done = match &planned.fault {
            Fault::Node { nodes, kind } => self.cluster.heal(nodes, *kind),
            Fault::Link { nodes, .. } => {
                self.cluster.reconnect(nodes);
                Ok(())
            }
            Fault::Route { node, kind } => self.cluster.restore(*node, *kind),
            Fault::Pause { missed, .. } => {
                if let Some(holder) = self.met.remove(&index) {
                    self.holders.resume(holder, *missed);
                }
                Ok(())
            }
            Fault::Trust | Fault::Stranger { .. } => {
                if let Some(guest) = self.guests.remove(&index) {
                    self.holders.dismiss(guest);
                }
                Ok(())
            }
            Fault::Crash { .. } | Fault::Late { .. } => {
                if let Some(holder) = self.met.remove(&index) {
                    self.holders.begin_life(holder)?;
                }
                Ok(())
            }
            Fault::Instance { instance, killed } => match &mut self.instances {
                Some(instances) => {
                    instances.heal(*instance, *killed).map_err(|error| error.to_string())
                }
                None => Ok(()),
            },
            Fault::Grab => {
                self.cluster.let_go();
                Ok(())
            }
        };
        match done {
            Ok(()) => Ok(()),
            // A fault that cannot be taken back would spoil the calm, and the verdict with it.
            Err(error) => {
                Err(io::Error::other(format!("{planned} cannot be ended: {error}")).into())
            }
        }
    }

    /// Writes a fault down; one that failed as such, so that nobody believes in it.
    fn note(
        &mut self,
        planned: &Planned,
        story: String,
        done: Result<(), String>,
    ) -> Result<(), Failure> {
        let line = match done {
            Ok(()) => FaultLine { kind: planned.fault.kind().into(), story },
            Err(error) => FaultLine {
                kind: format!("{} (failed)", planned.fault.kind()),
                story: format!("{story}: {error}"),
            },
        };
        self.faults += 1;
        self.log.now(line)?;
        Ok(())
    }
}
