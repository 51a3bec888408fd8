//! A holder: a process that uses the library as anybody would, again and again, and writes down
//! what it did and saw.

use std::io::{self, BufRead as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{
    AcquireError, Guard, LeaseState, LockRequest, Locks, LossReason, OpenError, ReleaseOutcome,
    RetryPolicy, ValidityError,
};
use leasehold_judge::Chance;
use serde::{Deserialize, Serialize};

use crate::caller::{self, Through};
use crate::clock::HolderClock;
use crate::history::{Event, Log, UnfencedLine};
use crate::schedule::{MAX_SKEW, MAX_TTL};
use crate::store::{Client, Question};
use crate::told;

/// How long a node may take to answer: long for a busy machine, short against the lease.
pub const NODE_LIMIT: Duration = Duration::from_millis(250);

/// How often a holder looks at its lease while it works.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longer than any holder is stopped.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// The exit code of a holder whose run is gone.
const ORPHANED: i32 = 3;

/// All that a holder is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The backend.
    pub url: String,
    /// Which holder.
    pub holder: usize,
    /// Which of its lives.
    pub life: u64,
    /// Its chance.
    pub seed: u64,
    /// The names of the locks.
    pub locks: Vec<String>,
    /// Where it writes.
    pub history: PathBuf,
    /// The fenced store.
    pub store: PathBuf,
    /// The log that nobody checks.
    pub unfenced: PathBuf,
    /// Whether the backend is a file.
    pub is_file: bool,
    /// What it is there for.
    pub part: Part,
    /// Where callers ask.
    pub through: Option<Through>,
}

/// What a client takes part as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// As a holder.
    Holder,
    /// As one that was given another `max_ttl` than the others, in milliseconds, and gets nothing.
    Stranger {
        /// Which.
        max_ttl: u64,
    },
    /// As a caller of lock servers and of the command line.
    Caller,
    /// As an operator's program that takes the cluster for a new one once more.
    Truster,
}

/// A client as all take part with: one that does not trust nodes to be new.
pub fn builder(url: &str, is_file: bool) -> leasehold::Builder {
    let builder = Locks::builder().url(url).max_ttl(MAX_TTL).max_clock_skew(MAX_SKEW);
    // A node that is alone would otherwise vote at once after it forgot, as it says.
    if is_file { builder } else { builder.timeout(NODE_LIMIT).quarantine(true) }
}

/// Works until it is told to stop, or until whoever started it is gone.
pub fn work(setup: &Setup) -> io::Result<()> {
    let stop = stop_when_told();
    if let (Part::Caller, Some(through)) = (setup.part, &setup.through) {
        return caller::work(setup, through, &stop);
    }
    let clock = Arc::new(HolderClock::start());
    told::listen(Log::open(&setup.history)?, clock.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = open(setup, &clock).await.map_err(io::Error::other)?;
        if setup.part == Part::Truster {
            return Ok(());
        }
        let mut worker = Worker {
            locks: &locks,
            clock: &clock,
            pauses: 0,
            names: &setup.locks,
            chance: Chance::new(setup.seed),
            log: Log::open(&setup.history)?,
            unfenced: Log::open(&setup.unfenced)?,
            store: Client::connect(&setup.store)?,
        };
        for op in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            worker.section(op).await?;
            if setup.part != Part::Holder {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        locks.settle().await;
        Ok(())
    })
}

/// A file cannot be opened while somebody who was stopped has it to himself.
async fn open(setup: &Setup, clock: &Arc<HolderClock>) -> Result<Locks, OpenError> {
    let label = format!("h{}.{}", setup.holder, setup.life);
    let mut builder = builder(&setup.url, setup.is_file).holder(label);
    if !setup.is_file {
        builder = builder.clock(clock.clone());
    }
    builder = match setup.part {
        Part::Holder | Part::Caller => builder,
        Part::Stranger { max_ttl } => builder.max_ttl(Duration::from_millis(max_ttl)),
        Part::Truster => builder.trust_new_nodes(),
    };
    let end = Instant::now() + OPEN_WITHIN;
    loop {
        match builder.clone().open().await {
            Err(OpenError::File(_)) if Instant::now() < end => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            done => return done,
        }
    }
}

/// A line on the standard input asks to stop; its end means that nobody is there any more.
fn stop_when_told() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
            told.store(true, Ordering::Relaxed);
        }
        std::process::exit(ORPHANED);
    });
    stop
}

struct Worker<'a> {
    locks: &'a Locks,
    clock: &'a HolderClock,
    /// Missed pauses that were written down.
    pauses: usize,
    names: &'a [String],
    chance: Chance,
    log: Log,
    unfenced: Log,
    store: Client,
}

/// How a holder behaves in one critical section.
#[derive(Debug, Clone, Copy)]
struct Manners {
    /// Does not look at its lease before it writes.
    naive: bool,
    writes: u64,
    /// Between two writes.
    pause: Duration,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Release,
    Drop,
    /// Waits until the lease is lost, if nobody keeps it.
    Lose,
}

/// The lease, and what was last written down about it.
struct Held<'a> {
    op: u64,
    guard: &'a Guard,
    believes: Option<u64>,
    /// When it last looked, in true time.
    looked: u64,
}

impl Worker<'_> {
    async fn section(&mut self, op: u64) -> io::Result<()> {
        let lock = self.names[self.chance.index(self.names.len())].clone();
        let ttl = self.chance.millis(1000..MAX_TTL.as_millis() as u64 + 1);
        let manual = self.chance.percent(35);
        // Asks often: the more acquisitions, the more there is to check.
        let retry = RetryPolicy {
            first: Duration::from_millis(5),
            longest: Duration::from_millis(100),
            attempts: None,
        };
        let mut request = self.locks.lock(&lock).ttl(ttl).retry(retry);
        if manual {
            request = request.manual();
        }
        if self.chance.percent(5) {
            request = request.max_hold(self.chance.millis(50..1000));
        }
        self.log.now(Event::Asks { op, lock: lock.clone() })?;
        let guard = match self.ask(request).await {
            Some(Ok(guard)) => guard,
            Some(Err(why)) => {
                self.log.now(Event::Refused { op, why: why.into() })?;
                return Ok(());
            }
            None => {
                self.log.now(Event::Abandons { op })?;
                return Ok(());
            }
        };
        let looked = self.clock.look();
        let until = self.belief(&guard);
        let (fence, holder) = (guard.fence().get(), guard.holder().as_str().to_owned());
        self.log.now(Event::Granted { op, lock, fence, holder, until })?;
        let manners = self.manners(manual);
        let mut held = Held { op, guard: &guard, believes: until, looked };
        self.work_under(&mut held, manners).await?;
        self.look(&mut held)?;
        self.finish(op, guard, manners.end).await
    }

    /// Asks in one of the ways in which one may ask; nothing if the future was dropped.
    async fn ask(&mut self, request: LockRequest) -> Option<Result<Guard, &'static str>> {
        let whole = |result: Result<Guard, AcquireError>| result.map_err(|error| refusal(&error));
        match self.chance.within(0..100) {
            0..10 => match request.try_acquire().await {
                Ok(guard) => Some(guard.ok_or("held")),
                Err(error) => Some(Err(refusal(&error))),
            },
            10..25 => Some(whole(request.wait(self.chance.millis(10..300)).acquire().await)),
            25..35 => {
                let patience = self.chance.millis(0..120);
                tokio::time::timeout(patience, request.acquire()).await.ok().map(whole)
            }
            _ => Some(whole(request.wait(Duration::from_secs(5)).acquire().await)),
        }
    }

    fn manners(&mut self, manual: bool) -> Manners {
        // Long ones are hit more often, and the longest live through restarts of several nodes, one
        // after the other, if somebody keeps them; short ones are more.
        let (writes, pause) = match self.chance.within(0..100) {
            0..3 if !manual => (8..16, 400..800),
            0..25 => (1..5, 100..400),
            _ => (1..5, 2..60),
        };
        Manners {
            naive: self.chance.percent(60),
            writes: self.chance.within(writes),
            pause: self.chance.millis(pause),
            end: match self.chance.within(0..100) {
                0..60 => End::Release,
                60..94 => End::Drop,
                _ if manual => End::Lose,
                _ => End::Drop,
            },
        }
    }

    /// Shows the fence, reads, and writes one more each time.
    async fn work_under(&mut self, held: &mut Held<'_>, manners: Manners) -> io::Result<()> {
        let lock = held.guard.name().to_string();
        let (fence, holder) = (held.guard.fence().get(), held.guard.holder().as_str().to_owned());
        let mut question = Question { lock: lock.clone(), fence, holder, value: None };
        let read = self.store.ask(&question)?;
        for write in 1..=manners.writes {
            self.pause(held, manners.pause).await?;
            if !manners.naive && !self.may_write(held)? {
                return Ok(());
            }
            let value = read.value + write;
            self.unfenced.line(&UnfencedLine { lock: lock.clone(), fence, value })?;
            question.value = Some(value);
            let accepted = self.store.ask(&question)?.accepted;
            self.log.now(Event::Wrote { op: held.op, value, accepted })?;
            if !accepted {
                return Ok(());
            }
            if self.chance.percent(10) {
                // The outcome shows in what the guard says.
                let _ = held.guard.extend().await;
                self.look(held)?;
            }
        }
        if manners.end == End::Lose {
            held.guard.lost().await;
            self.look(held)?;
        }
        Ok(())
    }

    fn may_write(&mut self, held: &mut Held<'_>) -> io::Result<bool> {
        match held.guard.ensure_valid(Duration::from_millis(5)) {
            Ok(_) => Ok(true),
            Err(ValidityError::Lost(loss)) => {
                let why = match loss.reason {
                    LossReason::Expired { last: None } => "its deadline passed",
                    LossReason::Expired { last: Some(_) } => "it could not be extended",
                    LossReason::MaxHold { .. } => "max_hold was over",
                    _ => "another reason",
                };
                self.log.now(Event::Lost { op: held.op, why: why.into() })?;
                Ok(false)
            }
            Err(_) => Ok(false),
        }
    }

    /// Waits, and looks at the lease all the while.
    async fn pause(&mut self, held: &mut Held<'_>, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        loop {
            self.look(held)?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    fn look(&mut self, held: &mut Held<'_>) -> io::Result<()> {
        let looked = self.clock.look();
        for (nanos, from, to) in self.clock.pauses(self.pauses) {
            self.pauses += 1;
            self.log.now(Event::Missed { nanos, from, to })?;
        }
        let until = self.belief(held.guard);
        if until != held.believes {
            held.believes = until;
            self.log.now(Event::Believes { op: held.op, until, before: held.looked })?;
        }
        held.looked = looked;
        Ok(())
    }

    /// Until when the holder may believe, in true time; nothing if it may not.
    fn belief(&self, guard: &Guard) -> Option<u64> {
        match guard.state() {
            LeaseState::Held { until } | LeaseState::Uncertain { until } => {
                Some(self.clock.to_come(until.as_nanos()))
            }
            LeaseState::Lost => None,
        }
    }

    async fn finish(&mut self, op: u64, guard: Guard, end: End) -> io::Result<()> {
        let waits = end == End::Release;
        self.log.now(Event::GivesBack { op, waits })?;
        if !waits {
            drop(guard);
            return Ok(());
        }
        let outcome = match guard.release().await {
            ReleaseOutcome::Released => "released",
            ReleaseOutcome::HandedOver => "handed over",
            ReleaseOutcome::AlreadyExpired => "already expired",
            ReleaseOutcome::TakenOver { .. } => "taken over",
            ReleaseOutcome::Superseded { .. } => "superseded",
            _ => "unknown",
        };
        self.log.now(Event::GaveBack { op, outcome: outcome.into() })?;
        Ok(())
    }
}

fn refusal(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::NoQuorum { .. } => "no quorum",
        AcquireError::TooLate { .. } => "too late",
        error if error.is_held() => "held",
        AcquireError::Options(_) => "refused by the cluster",
        _ => "timed out",
    }
}
