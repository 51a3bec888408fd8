//! Who of this process waits for which lock, and how the waiters of all processes are told: a
//! release tells the first in line that the lock is free, and whoever leaves the line tells the next
//! one that it is first. Nobody looks at the file meanwhile.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::{Holder, LockName};
use rusqlite::Connection;

use super::bell::{self, Ear, Mouth, News, Sent, Word};
use super::desk::{Desk, Job};
use super::line::{Entry, Head, Lines};
use super::patience::patiently;
use crate::clock::Clock;
use crate::node::{InLine, Place, Ticket, Watch, Watched};

/// How often the waiters of a process give a sign of life. A third of what they may be silent for.
const BEAT: Duration = Duration::from_secs(1);

/// For how many beats without a waiter there is still somebody to listen.
const IDLE_BEATS: u32 = 10;

type TellPlace = Box<dyn Fn(InLine) + Send + Sync>;
type TellWatch = Box<dyn Fn(Watched) + Send + Sync>;
type TellNudge = Box<dyn Fn(&LockName) + Send + Sync>;

/// What is to be done in the file about those who wait.
#[derive(Debug)]
pub(super) enum Hint {
    Enter(LockName, Arc<Standing>),
    Leave(LockName, Arc<Standing>),
    /// Tells those who watch the lock if it has no owner.
    Look(LockName),
    /// Tells the first in line.
    Tell(LockName, News),
    /// A sign of life, and a look whether anybody missed a word.
    Beat,
}

/// This process among those that wait.
pub(super) struct Hints {
    clock: Arc<dyn Clock>,
    me: OnceLock<Option<Me>>,
    mouth: Mouth,
    nudgeed: OnceLock<TellNudge>,
    waiting: Mutex<Waiting>,
}

/// How this process is called, and who can hear it.
#[derive(Debug)]
struct Me {
    process: String,
    realm: String,
}

#[derive(Default)]
struct Waiting {
    places: HashMap<LockName, Vec<Arc<Standing>>>,
    watches: HashMap<LockName, Vec<(u64, TellWatch)>>,
    last_watch: u64,
    somebody_listens: bool,
}

/// One waiter of this process.
pub(super) struct Standing {
    ticket: Ticket,
    /// It stands here only to be told of a release.
    is_watch: bool,
    told: TellPlace,
    words: Mutex<Words>,
}

/// What is still to be told, in order. Nobody is told under the mutex.
#[derive(Default)]
struct Words {
    queue: VecDeque<InLine>,
    is_first: bool,
    is_being_told: bool,
}

impl Standing {
    fn words(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One moves up in a line, and never back: a word that was overtaken on its way is not told.
    fn tell(&self, word: InLine) {
        let mut words = self.words();
        if words.is_first {
            return;
        }
        words.is_first = matches!(word, InLine::First { .. });
        words.queue.push_back(word);
        if std::mem::replace(&mut words.is_being_told, true) {
            return;
        }
        while let Some(word) = words.queue.pop_front() {
            drop(words);
            (self.told)(word);
            words = self.words();
        }
        words.is_being_told = false;
    }
}

impl Hints {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            me: OnceLock::new(),
            mouth: Mouth::default(),
            nudgeed: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn me(&self) -> Option<&Me> {
        let named = || {
            Some(Me { process: format!("{:032x}", crate::chance::nonce()), realm: bell::realm()? })
        };
        self.me.get_or_init(named).as_ref()
    }

    pub(super) fn on_nudge(&self, told: TellNudge) {
        // At most one, as the trait says.
        let _ = self.nudgeed.set(told);
    }

    /// A place in line, on the way into the file. Nothing where processes cannot tell each other.
    pub(super) fn stand(
        self: &Arc<Self>,
        desk: &Arc<Desk>,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: TellPlace,
    ) -> Option<Box<dyn Place>> {
        self.enter(desk, lock, ticket, told, false)
    }

    fn enter(
        self: &Arc<Self>,
        desk: &Arc<Desk>,
        lock: &LockName,
        ticket: Option<Ticket>,
        told: TellPlace,
        is_watch: bool,
    ) -> Option<Box<dyn Place>> {
        let me = self.me()?;
        // When it came: those who came earlier are before it.
        let ticket = ticket.unwrap_or_else(|| Ticket(self.clock.now().as_nanos()));
        let standing = Arc::new(Standing { ticket, is_watch, told, words: Mutex::default() });
        let mut waiting = self.waiting();
        if !waiting.somebody_listens {
            listen(self, desk, &me.process).ok()?;
            waiting.somebody_listens = true;
        }
        waiting.places.entry(lock.clone()).or_default().push(standing.clone());
        drop(waiting);
        desk.take(Job::Hint(Hint::Enter(lock.clone(), standing.clone())));
        let (hints, desk, lock) = (self.clone(), desk.clone(), lock.clone());
        Some(Box::new(SqlitePlace { hints, desk, lock, standing }))
    }

    /// Watches a lock. Only who stands in line is told of a release, so a watch of nobody in line
    /// stands there itself.
    pub(super) fn watch(
        self: &Arc<Self>,
        desk: &Arc<Desk>,
        lock: &LockName,
        told: TellWatch,
    ) -> Option<Watch> {
        let is_in_line = self
            .waiting()
            .places
            .get(lock)
            .is_some_and(|places| places.iter().any(|standing| !standing.is_watch));
        let place = match is_in_line {
            true => None,
            false => Some(self.enter(desk, lock, None, Box::new(|_| {}), true)?),
        };
        let mut waiting = self.waiting();
        waiting.last_watch += 1;
        let number = waiting.last_watch;
        waiting.watches.entry(lock.clone()).or_default().push((number, told));
        drop(waiting);
        // A release before this look is seen by it, and one after it tells the first in line.
        desk.take(Job::Hint(Hint::Look(lock.clone())));
        let (hints, lock) = (self.clone(), lock.clone());
        Some(Box::new(SqliteWatch { hints, lock, number, _place: place }))
    }

    /// Tells those who watch `lock`, once.
    pub(super) fn freed(&self, lock: &LockName) {
        let watches = self.waiting().watches.remove(lock).unwrap_or_default();
        watches.iter().for_each(|(_, told)| told(Watched::Free));
    }

    fn standing(&self, lock: &LockName, ticket: Ticket) -> Option<Arc<Standing>> {
        let waiting = self.waiting();
        let mut places = waiting.places.get(lock)?.iter();
        places.find(|standing| standing.ticket == ticket).cloned()
    }

    fn hear(&self, word: &Word) {
        let Word { news, lock, ticket, others } = word;
        if let Some(standing) = self.standing(lock, *ticket) {
            standing.tell(InLine::First { ticket: *ticket, others: *others });
        }
        if *news == News::Free {
            self.freed(lock);
        }
    }

    /// Carries a hint out in the file, but for a look at a lock.
    pub(super) fn carry_out(
        &self,
        connection: &Connection,
        hint: &Hint,
        until: Instant,
    ) -> rusqlite::Result<()> {
        let Some(me) = self.me() else { return Ok(()) };
        let lines = Lines { connection, realm: &me.realm };
        let entry =
            |standing: &Standing| Entry { ticket: standing.ticket, process: me.process.clone() };
        match hint {
            Hint::Enter(lock, standing) => {
                let entry = entry(standing);
                patiently(until, || lines.enter(lock, &entry, self.clock.now()))?;
                let head = self.head(&lines, lock, until)?;
                standing.tell(match head.filter(|head| head.entry == entry) {
                    Some(head) => InLine::First { ticket: standing.ticket, others: head.others },
                    None => InLine::Behind(standing.ticket),
                });
            }
            Hint::Leave(lock, standing) => {
                let entry = entry(standing);
                patiently(until, || lines.leave(lock, &entry))?;
                self.tell_first(&lines, lock, News::First, until)?;
            }
            Hint::Tell(lock, news) => self.tell_first(&lines, lock, *news, until)?,
            Hint::Beat => {
                patiently(until, || lines.renew(&me.process, self.clock.now()))?;
                let locks: Vec<_> = self.waiting().places.keys().cloned().collect();
                for lock in locks {
                    self.tell_first(&lines, &lock, News::First, until)?;
                }
            }
            Hint::Look(_) => {}
        }
        Ok(())
    }

    /// The first in line; those who were silent for too long go out of it.
    fn head(
        &self,
        lines: &Lines<'_>,
        lock: &LockName,
        until: Instant,
    ) -> rusqlite::Result<Option<Head>> {
        patiently(until, || {
            while let Some(head) = lines.head(lock, self.clock.now())? {
                if !head.is_silent {
                    return Ok(Some(head));
                }
                lines.leave(lock, &head.entry)?;
            }
            Ok(None)
        })
    }

    /// Tells the first in line; those who are gone go out of it.
    fn tell_first(
        &self,
        lines: &Lines<'_>,
        lock: &LockName,
        news: News,
        until: Instant,
    ) -> rusqlite::Result<()> {
        while let Some(Head { entry, others, .. }) = self.head(lines, lock, until)? {
            let word = Word { news, lock: lock.clone(), ticket: entry.ticket, others };
            if self.me().is_some_and(|me| me.process == entry.process) {
                // Without a place it has left, and its leaving tells the next.
                self.hear(&word);
                return Ok(());
            }
            if self.mouth.tell(&entry.process, &word) != Sent::Nobody {
                if let (News::Free, Some(nudgeed)) = (news, self.nudgeed.get()) {
                    nudgeed(lock);
                }
                return Ok(());
            }
            patiently(until, || lines.leave(lock, &entry))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hints").field("me", &self.me.get()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Standing").field(&self.ticket).finish()
    }
}

/// A thread that hears what others say, as long as somebody waits and a little longer.
fn listen(hints: &Arc<Hints>, desk: &Arc<Desk>, process: &str) -> std::io::Result<()> {
    let ear = Ear::open(process, BEAT)?;
    let (hints, desk) = (hints.clone(), Arc::downgrade(desk));
    let listening = move || hear_all(&hints, &desk, &ear);
    thread::Builder::new().name("leasehold-ear".to_owned()).spawn(listening).map(drop)
}

fn hear_all(hints: &Hints, desk: &Weak<Desk>, ear: &Ear) {
    let (mut beaten, mut idle) = (Instant::now(), 0);
    while let Ok(word) = ear.hear() {
        if let Some(word) = word {
            hints.hear(&word);
        }
        if beaten.elapsed() < BEAT {
            continue;
        }
        beaten = Instant::now();
        let Some(desk) = desk.upgrade() else { break };
        let mut waiting = hints.waiting();
        idle = if waiting.places.is_empty() { idle + 1 } else { 0 };
        if idle > IDLE_BEATS {
            waiting.somebody_listens = false;
            return;
        }
        drop(waiting);
        if idle == 0 {
            desk.take(Job::Hint(Hint::Beat));
        }
    }
    hints.waiting().somebody_listens = false;
}

/// A place in the line that stands in the file.
struct SqlitePlace {
    hints: Arc<Hints>,
    desk: Arc<Desk>,
    lock: LockName,
    standing: Arc<Standing>,
}

impl Place for SqlitePlace {
    /// Not needed: whoever releases a lock finds the line, and knows it then.
    fn nudge(&self, _: &Holder) {}
}

impl Drop for SqlitePlace {
    fn drop(&mut self) {
        let mut waiting = self.hints.waiting();
        if let Some(places) = waiting.places.get_mut(&self.lock) {
            places.retain(|standing| !Arc::ptr_eq(standing, &self.standing));
            if places.is_empty() {
                waiting.places.remove(&self.lock);
            }
        }
        drop(waiting);
        self.desk.take(Job::Hint(Hint::Leave(self.lock.clone(), self.standing.clone())));
    }
}

struct SqliteWatch {
    hints: Arc<Hints>,
    lock: LockName,
    number: u64,
    _place: Option<Box<dyn Place>>,
}

impl Drop for SqliteWatch {
    fn drop(&mut self) {
        let mut waiting = self.hints.waiting();
        if let Some(watches) = waiting.watches.get_mut(&self.lock) {
            watches.retain(|(number, _)| *number != self.number);
            if watches.is_empty() {
                waiting.watches.remove(&self.lock);
            }
        }
    }
}
