//! One of two lock servers behind HAProxy is killed while many clients take turns, and started again.
//!
//! The run fails if two clients believe in a lock at once, if a fence does not rise, if a lease is said
//! to be lost before its deadline, if a client does not get on without the killed server, or if a lock
//! stays taken. A grant whose answer was cut is none of that: nobody heard of it, and it runs out.

mod caller;
mod client;
mod crowd;
mod site;
mod tally;
mod telling;
mod witness;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::Need;
use tokio::sync::watch;

use self::crowd::Word;
use self::site::{PATIENCE, Site, until};
use self::tally::{Moment, Phase, Tally};
use self::telling::Told;
use self::witness::Witness;
use super::Findings;
use crate::args::Args;
use crate::interrupt;
use crate::report::progress::Progress;
use crate::servers::Cluster;

const NODES: usize = 5;
const CLIENTS: usize = 64;
/// Two who keep a lock, one at each server, and two who want one.
const FEWEST: usize = 4;
const PHASE_SECS: f64 = 5.0;
const PHASES: usize = 3;
/// So many clients want each lock.
const CLIENTS_PER_LOCK: usize = 4;
/// One client in so many keeps a lock of its own.
const KEEPERS_ONE_IN: usize = 8;
/// Short, because a lease that nobody heard of holds everybody up for so long.
const TTL: Duration = Duration::from_secs(3);
/// Long enough for a busy machine to renew three times.
const KEPT_TTL: Duration = Duration::from_secs(10);
/// A client that gave up waits for no answer, but its request may still be under way.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// A lock, and which server the balancer gives it to.
#[derive(Debug, Clone)]
struct Lock {
    name: String,
    home: usize,
}

/// What all clients share.
#[derive(Debug)]
struct Run {
    address: String,
    clients: usize,
    /// Everybody wants these.
    shared: Vec<Lock>,
    /// Each of these is kept by one client.
    kept: Vec<Lock>,
    witness: Witness,
    tally: Mutex<Tally>,
}

impl Run {
    fn new(site: &Site, clients: usize) -> Result<Run, String> {
        let kept = (clients / KEEPERS_ONE_IN).max(2).next_multiple_of(2);
        let shared = ((clients - kept) / CLIENTS_PER_LOCK).max(2).next_multiple_of(2);
        let names = site.locks((kept + shared) / 2)?;
        let [one, two] = [0, 1]
            .map(|home| names[home].iter().map(move |name| Lock { name: name.clone(), home }));
        let mut kept_locks: Vec<Lock> = one.zip(two).flat_map(|(one, two)| [one, two]).collect();
        let shared = kept_locks.split_off(kept);
        Ok(Run {
            address: site.address(),
            clients,
            shared,
            kept: kept_locks,
            witness: Witness::default(),
            tally: Mutex::new(Tally::new(clients, Instant::now())),
        })
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        self.tally().now
    }

    /// Notes what must not be.
    fn wrong(&self, what: String) {
        self.tally().wrong.push(what);
    }
}

pub(super) fn run(args: &Args) -> Result<Findings, String> {
    let usual = [CLIENTS];
    let levels = if args.concurrency.is_empty() { &usual[..] } else { &args.concurrency };
    if let Some(few) = levels.iter().find(|level| **level < FEWEST) {
        return Err(format!("server-killed needs {FEWEST} clients at least, not {few}"));
    }
    Need::Haproxy.check()?;
    let progress = Progress::new("server-killed", levels.len() * args.rounds * PHASES);
    let mut findings = Findings::default();
    for &clients in levels {
        let found = measure(args, clients, &progress)?;
        findings.rows.extend(found.rows);
        findings.facts.extend(found.facts);
    }
    Ok(findings)
}

fn measure(args: &Args, clients: usize, progress: &Progress) -> Result<Findings, String> {
    progress.at("starting");
    let cluster = Cluster::start(args.server, NODES)?;
    // Each client has one, checks and looks need a few.
    let mut site = Site::start(cluster.addrs(), clients + 50)?;
    let run = Arc::new(Run::new(&site, clients)?);
    let (word, heard) = watch::channel(Word::Go);
    let mut spans = Vec::new();
    thread::scope(|scope| {
        let crowd = scope.spawn(|| play(run.clone(), heard));
        let done = kill_in_turn(args, &mut site, &run, &mut spans, progress);
        let is_interrupted = interrupt::check().is_err();
        word.send_replace(if is_interrupted { Word::Abort } else { Word::Finish });
        crowd.join().map_err(|_| "a client panicked".to_owned())??;
        interrupt::check()?;
        // What stopped the rounds is told with all the rest.
        done.unwrap_or_else(|why| run.wrong(why));
        Ok::<_, String>(())
    })?;
    let left = all_free(&site, &run)?;
    Told { run: &run, spans: &spans, left }.findings()
}

fn play(run: Arc<Run>, word: watch::Receiver<Word>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(crowd::crowd(run, word));
    Ok(())
}

/// The rounds; `spans` is how long each part lasted.
fn kill_in_turn(
    args: &Args,
    site: &mut Site,
    run: &Run,
    spans: &mut Vec<(Moment, Duration)>,
    progress: &Progress,
) -> Result<(), String> {
    let span = Duration::from_secs_f64(args.secs.unwrap_or(PHASE_SECS));
    for round in 0..args.rounds {
        for phase in [Phase::Before, Phase::Dead, Phase::Back] {
            let start = Instant::now();
            let moment = Moment { round, phase };
            let victim = moment.victim();
            match phase {
                Phase::Before => progress.at("both servers are well"),
                Phase::Killing | Phase::Dead => {
                    progress.at("one server is killed");
                    run.tally().now = Moment { phase: Phase::Killing, ..moment };
                    site.kill(victim);
                }
                Phase::Back => {
                    progress.at("it is back");
                    site.restart(victim)?;
                }
            }
            run.tally().now = moment;
            interrupt::sleep(span)?;
            all_get_on(run, moment)?;
            if phase == Phase::Back {
                let idle = "the server that was started again is given nothing to do";
                until(PATIENCE, idle, || Ok(site.granted_by(victim)? > 0.0))?;
            }
            spans.push((moment, start.elapsed()));
            progress.step();
        }
    }
    Ok(())
}

/// Waits until everybody completed a turn that began at this moment.
fn all_get_on(run: &Run, moment: Moment) -> Result<(), String> {
    let what = match moment.phase {
        Phase::Dead => "clients do not get on without the killed server",
        _ => "clients do not get on",
    };
    let done = until(PATIENCE, what, || Ok(run.tally().stuck(moment).is_empty()));
    interrupt::check()?;
    done.map_err(|why| format!("{why}: {:?}", run.tally().stuck(moment)))
}

/// Everybody left: how many locks still had an owner somewhere, and for how long. None may have one for
/// longer than its TTL.
fn all_free(site: &Site, run: &Run) -> Result<(usize, Duration), String> {
    let (start, mut left) = (Instant::now(), 0);
    for (locks, ttl) in [(&run.shared, TTL), (&run.kept, KEPT_TTL)] {
        for lock in locks {
            match site.free(&lock.name, start + ttl + UNDER_WAY) {
                Ok(looks) => left += usize::from(looks > 0),
                // One is enough: the others would be waited for in vain, one after another.
                Err(why) => {
                    interrupt::check()?;
                    run.wrong(why);
                    return Ok((left, start.elapsed()));
                }
            }
        }
    }
    Ok((left, start.elapsed()))
}
