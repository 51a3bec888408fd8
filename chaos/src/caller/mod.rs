//! A caller: a process that has no guard. It asks lock servers over HTTP, any of them at random, and
//! calls `leasehold acquire`, `extend` and `release` as a script does, also for the same lease. It writes
//! down what it was told, counts its deadlines itself, and lies at times.

mod lies;
mod ways;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::LeaseToken;
use leasehold_judge::Chance;
use serde::{Deserialize, Serialize};

use crate::clock::boot_nanos;
use crate::history::{At, Event, Log, UnfencedLine};
use crate::holder::Setup;
use crate::schedule::MAX_TTL;
use crate::script::Scripts;
use crate::store::{Client, Question};
use ways::{Answer, Way, Wish};

/// Where and how callers ask.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Through {
    /// The lock servers.
    pub servers: Vec<String>,
    /// The program `leasehold`.
    pub program: PathBuf,
    /// The nodes, for the program.
    pub url: String,
    /// The folder of the history.
    pub folder: PathBuf,
    /// The number of the lives of its calls.
    pub scripts: usize,
}

/// So many calls of one life of a caller have numbers of their own.
const CALLS: u64 = 1_000_000;

/// How often an acquire with a key is repeated whose answer got lost.
const REPEATS: usize = 5;

/// How many leases that are over are remembered, to lie about.
const PAST: usize = 16;

/// A caller at work.
struct Caller<'a> {
    setup: &'a Setup,
    servers: &'a [String],
    scripts: Scripts,
    chance: Chance,
    log: Log,
    unfenced: Log,
    store: Client,
    /// The last acquire.
    op: u64,
    past: Vec<LeaseToken>,
}

/// A lease that a caller was told to have.
#[derive(Debug, Clone)]
struct Held {
    op: u64,
    token: LeaseToken,
    wish: Wish,
    /// Until when, as it was told last.
    until: u64,
    /// When it last did something with it, as far as it knew.
    looked: u64,
    is_lost: bool,
}

/// Works until it is told to stop.
pub fn work(setup: &Setup, through: &Through, stop: &AtomicBool) -> io::Result<()> {
    let mut caller = Caller {
        setup,
        servers: &through.servers,
        scripts: Scripts {
            program: through.program.clone(),
            url: through.url.clone(),
            folder: through.folder.clone(),
            number: through.scripts,
            life: setup.life * CALLS,
        },
        chance: Chance::new(setup.seed),
        log: Log::open(&setup.history)?,
        unfenced: Log::open(&setup.unfenced)?,
        store: Client::connect(&setup.store)?,
        op: 0,
        past: Vec::new(),
    };
    while !stop.load(Ordering::Relaxed) {
        caller.section()?;
    }
    Ok(())
}

impl Caller<'_> {
    fn section(&mut self) -> io::Result<()> {
        let wish = self.wish();
        let Some(mut held) = self.acquire(wish)? else { return self.pause(2..30) };
        if self.chance.percent(60) {
            self.write(&mut held)?;
        }
        for _ in 0..self.chance.within(0..4) {
            self.pause(2..80)?;
            match self.chance.within(0..100) {
                0..45 => self.renew(&mut held)?,
                45..60 => self.repeat(&mut held)?,
                60..80 => self.look(&held)?,
                _ => self.lie(&mut held)?,
            }
            if held.is_lost {
                break;
            }
        }
        self.end(held)
    }

    fn wish(&mut self) -> Wish {
        let lock = self.setup.locks[self.chance.index(self.setup.locks.len())].clone();
        let wait_ms = if self.chance.percent(40) { 0 } else { self.chance.within(10..2500) };
        let key = self.chance.percent(60).then(|| format!("{:016x}", self.chance.bits()));
        let ttl_ms = self.chance.within(400..MAX_TTL.as_millis() as u64 + 1);
        let label = format!("c{}.{}", self.setup.holder, self.setup.life);
        Wish { lock, ttl_ms, wait_ms, key, label }
    }

    /// Acquires, and repeats that if it has a key and no answer.
    fn acquire(&mut self, wish: Wish) -> io::Result<Option<Held>> {
        self.op += 1;
        let op = self.op;
        self.log.now(Event::Asks { op, lock: wish.lock.clone() })?;
        let way = if wish.key.is_some() { self.server() } else { self.way() };
        let repeats = if wish.key.is_some() { REPEATS } else { 0 };
        for number in 0..=repeats {
            let way = if number == 0 { way } else { self.server() };
            // Some do not wait for the first answer.
            let is_hasty = number < repeats && self.chance.percent(25);
            match self.ask(way, &wish, is_hasty)? {
                Answer::Held { token, until, ttl_ms } => {
                    return self.granted(op, wish, token, until, ttl_ms).map(Some);
                }
                Answer::Refused(why) => {
                    self.log.now(Event::Refused { op, why })?;
                    return Ok(None);
                }
                Answer::Later | Answer::Lost | Answer::Free | Answer::Nothing => {
                    self.pause(5..60)?
                }
            }
        }
        self.log.now(Event::Abandons { op })?;
        Ok(None)
    }

    fn granted(
        &mut self,
        op: u64,
        wish: Wish,
        token: LeaseToken,
        until: u64,
        ttl_ms: u64,
    ) -> io::Result<Held> {
        let (lock, fence) = (token.name.as_str().to_owned(), token.fence.get());
        let holder = token.holder.as_str().to_owned();
        let looked = self.log.now(Event::Told { op, lock: lock.clone(), fence, ttl_ms, until })?;
        let until_if_any = (until > looked).then_some(until);
        self.log.now(Event::Granted { op, lock, fence, holder, until: until_if_any })?;
        Ok(Held { op, token, wish, until, looked, is_lost: false })
    }

    /// It was told that it has the lease still. A renewal never shortens it.
    fn believes(&mut self, held: &mut Held, until: u64, ttl_ms: u64) -> io::Result<()> {
        let (op, lock) = (held.op, held.token.name.as_str().to_owned());
        let fence = held.token.fence.get();
        let looked = self.log.now(Event::Told { op, lock, fence, ttl_ms, until })?;
        // What comes after its own end tells nothing.
        if until > looked {
            held.until = held.until.max(until);
            let until = Some(held.until);
            self.log.now(Event::Believes { op, until, before: held.looked })?;
        }
        held.looked = looked;
        Ok(())
    }

    fn lost(&mut self, held: &mut Held) -> io::Result<()> {
        let (op, before) = (held.op, held.looked);
        self.log.now(Event::Believes { op, until: None, before })?;
        held.is_lost = true;
        self.remember(held.token.clone());
        Ok(())
    }

    fn remember(&mut self, token: LeaseToken) {
        if self.past.len() >= PAST {
            self.past.remove(0);
        }
        self.past.push(token);
    }

    fn renew(&mut self, held: &mut Held) -> io::Result<()> {
        // Also for less than is left.
        let ttl_ms = self.chance.percent(70).then(|| self.chance.within(300..2001));
        let way = self.way();
        held.looked = boot_nanos();
        match self.extend(way, &held.token, ttl_ms)? {
            Answer::Held { token, until, ttl_ms } => {
                held.token = token;
                self.believes(held, until, ttl_ms)
            }
            Answer::Lost => self.lost(held),
            _ => Ok(()),
        }
    }

    /// Asks again with the key of the acquire, at any server.
    fn repeat(&mut self, held: &mut Held) -> io::Result<()> {
        if held.wish.key.is_none() {
            return self.look(held);
        }
        let (way, wish) = (self.server(), held.wish.clone());
        let (asked, sent) = (self.op + 1, boot_nanos());
        if let Answer::Held { token, until, ttl_ms } = self.ask(way, &wish, false)? {
            if token.holder == held.token.holder {
                return self.believes(held, until, ttl_ms);
            }
            // Another lease: then the first one must be over.
            self.op = asked;
            let asks = Event::Asks { op: asked, lock: wish.lock.clone() };
            self.log.line(&At { at: sent, what: asks })?;
            *held = self.granted(asked, wish, token, until, ttl_ms)?;
        }
        Ok(())
    }

    fn look(&mut self, held: &Held) -> io::Result<()> {
        let sent = boot_nanos();
        let answer = self.see(&held.token)?;
        let until = match answer {
            Answer::Held { until, .. } => Some(until),
            Answer::Lost => None,
            _ => return Ok(()),
        };
        let (op, lock) = (held.op, held.token.name.as_str().to_owned());
        let fence = held.token.fence.get();
        self.log.now(Event::Looked { op, lock, fence, sent, held: until.is_some(), until })?;
        Ok(())
    }

    /// Shows its fence, reads, and writes one more each time, as guards do.
    fn write(&mut self, held: &mut Held) -> io::Result<()> {
        let (lock, fence) = (held.token.name.as_str().to_owned(), held.token.fence.get());
        let holder = held.token.holder.as_str().to_owned();
        let mut question = Question { lock: lock.clone(), fence, holder, value: None };
        let read = self.store.ask(&question)?;
        for write in 1..=self.chance.within(1..4) {
            self.pause(2..60)?;
            let value = read.value + write;
            self.unfenced.line(&UnfencedLine { lock: lock.clone(), fence, value })?;
            question.value = Some(value);
            let accepted = self.store.ask(&question)?.accepted;
            self.log.now(Event::Wrote { op: held.op, value, accepted })?;
            if !accepted {
                break;
            }
        }
        Ok(())
    }

    fn end(&mut self, mut held: Held) -> io::Result<()> {
        match self.chance.within(0..100) {
            _ if held.is_lost => self.after(&mut held),
            0..75 => self.release(held),
            // Leaves it to run out, and finds out what became of it.
            75..88 => {
                let left = Duration::from_nanos(held.until.saturating_sub(boot_nanos()));
                thread::sleep(left + self.chance.millis(0..300));
                self.renew(&mut held)?;
                if held.is_lost { Ok(()) } else { self.release(held) }
            }
            _ => Ok(()),
        }
    }

    fn release(&mut self, mut held: Held) -> io::Result<()> {
        let (op, way) = (held.op, self.way());
        self.log.now(Event::GivesBack { op, waits: true })?;
        let outcome = match self.give_back(way, &held.token)? {
            Answer::Free => "released",
            Answer::Lost => "already expired",
            _ => "unknown",
        };
        self.log.now(Event::GaveBack { op, outcome: outcome.into() })?;
        if outcome == "unknown" {
            return Ok(());
        }
        self.remember(held.token.clone());
        self.after(&mut held)
    }

    /// What is over is asked for again.
    fn after(&mut self, held: &mut Held) -> io::Result<()> {
        match self.chance.within(0..100) {
            0..15 => self.renew(held),
            15..30 => self.look(held),
            30..40 => {
                let way = self.way();
                // Free again, or long lost: both may be said of what is over.
                self.give_back(way, &held.token).map(drop)
            }
            // Stands for a new lease by now.
            40..65 if held.wish.key.is_some() => match self.acquire(held.wish.clone())? {
                Some(again) => self.release(again),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn pause(&mut self, millis: std::ops::Range<u64>) -> io::Result<()> {
        thread::sleep(self.chance.millis(millis));
        Ok(())
    }

    fn server(&mut self) -> Way {
        Way::Server(self.chance.index(self.servers.len()))
    }

    /// Mostly a server: a process costs much.
    fn way(&mut self) -> Way {
        if self.chance.percent(12) { Way::Script } else { self.server() }
    }
}
