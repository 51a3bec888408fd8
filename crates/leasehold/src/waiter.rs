//! How a waiter learns that it is time to ask again, without asking: it stands in line with the
//! waiters of other processes, and the first in line watches the lock on all nodes.
//!
//! The line of a lock stands on one node, so a release wakes one process and not all. Nothing here
//! is needed for safety: a hint is a reason to ask, and timers cover every hint that fails to come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Holder, LockName};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::chance;
use crate::driver::Cluster;
use crate::node::{InLine, Place, Ticket, Watch, Watched};

/// How often a waiter asks although no hint came, while hints are to be expected: often enough that
/// a lost one costs a second, and seldom enough that many waiters do not hurt.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Asking in vain twice within this time was a race with others who were woken, too.
const RACE_WITHIN: Duration = Duration::from_millis(20);
/// How long the loser of such a race lets the others go first, at most; doubled with each further
/// one.
const STEP_BACK: Duration = Duration::from_millis(1);
/// How long one that has not asked yet waits to hear its place before it asks all the same.
const WORD_WITHIN: Duration = Duration::from_millis(20);

/// When to ask at the latest, whatever is heard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timers {
    /// Where no hints are to be expected.
    pub(crate) backoff: Duration,
    /// When the owner would expire.
    pub(crate) expires_in: Option<Duration>,
    /// When waiting ends.
    pub(crate) left: Duration,
}

/// One waiter, and what the nodes tell it. Leaves the line when dropped.
pub(crate) struct Waiter<'a> {
    cluster: &'a Cluster,
    lock: &'a LockName,
    heard: Arc<Heard>,
    place: Option<Box<dyn Place>>,
    watches: Vec<Watch>,
    /// Nodes that kept no line for us, since the last time that all were tried.
    failed: Vec<usize>,
    /// How often in a row it asked in vain, and when it did so last.
    in_vain: (u32, Option<Instant>),
}

/// What was heard, and whoever wants to hear it.
#[derive(Debug, Default)]
struct Heard {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct News {
    /// Counts places: a word about an earlier one is no news.
    place: u32,
    standing: Standing,
    ticket: Option<Ticket>,
    was_behind: bool,
    met_others: bool,
    /// Counts rounds of watches.
    watch: u32,
    /// What each node's watch came to.
    watched: Vec<Option<Watched>>,
    /// How many nodes must say that the lock is free.
    quorum: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// In no line.
    #[default]
    Nowhere,
    /// On the way into one.
    Entering,
    Behind,
    First,
}

/// What to do about the news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Ask,
    Enter,
    Watch,
    /// Hints will come.
    Rely,
    /// They may not.
    Doubt,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(cluster: &'a Cluster, lock: &'a LockName) -> Self {
        Self {
            cluster,
            lock,
            heard: Arc::default(),
            place: None,
            watches: Vec::new(),
            failed: Vec::new(),
            in_vain: (0, None),
        }
    }

    /// Whether others wanted the lock as well.
    pub(crate) fn met_others(&self) -> bool {
        self.heard.news().met_others
    }

    /// Stands in line without having asked, and returns when it is time to.
    pub(crate) async fn stand_first(&mut self, left: Duration) {
        let timers = Timers { backoff: WORD_WITHIN, expires_in: None, left };
        self.rest(timers, std::future::pending(), false).await;
        let news = self.heard.news();
        if news.standing == Standing::First && !news.met_others {
            self.cluster.queues.contended.gone(self.lock);
        }
    }

    /// After a refusal: returns when it is time to ask again. `freed` completes when a lease of this
    /// process ended.
    pub(crate) async fn stand(
        &mut self,
        timers: Timers,
        owner: Option<&Holder>,
        freed: impl Future<Output = ()>,
    ) {
        // What was told before the refusal has been made use of.
        self.unwatch();
        self.note_refusal();
        self.heard.news().met_others = true;
        self.failed.clear();
        self.enter();
        if let (Some(place), Some(owner)) = (&self.place, owner) {
            place.nudge(owner);
        }
        self.rest(timers, freed, true).await;
    }

    /// Nobody could answer: others may be able to ask. The ticket is kept.
    pub(crate) fn step_aside(&mut self) {
        self.unwatch();
        self.place = None;
        let mut news = self.heard.news();
        news.place += 1;
        news.standing = Standing::Nowhere;
    }

    fn note_refusal(&mut self) {
        let (count, last) = self.in_vain;
        let is_race = last.is_some_and(|last| last.elapsed() < RACE_WITHIN);
        let count = if is_race { count.saturating_add(1) } else { 0 };
        self.in_vain = (count, Some(Instant::now()));
    }

    /// Two that are woken at once and each get a part of the votes would otherwise do so for ever.
    fn step_back(&self) -> Option<Duration> {
        let (count, _) = self.in_vain;
        let doublings = count.checked_sub(1)?.min(5);
        let jitter = f64::from(chance::jitter()) / f64::from(u32::MAX);
        Some((STEP_BACK * (1 << doublings)).mul_f64(jitter))
    }

    async fn rest(&mut self, timers: Timers, freed: impl Future<Output = ()>, was_refused: bool) {
        let heard = self.heard.clone();
        let jitter = f64::from(chance::jitter()) / f64::from(u32::MAX);
        let look_every = LOOK_EVERY.mul_f64(0.75 + jitter / 2.0);
        let start = Instant::now();
        let mut freed = std::pin::pin!(freed);
        loop {
            let changed = heard.changed.notified();
            let step = heard.news().next(was_refused);
            let (pause, relies) = match step {
                Move::Ask => match self.step_back() {
                    Some(pause) => return self.cluster.sleep(pause.min(timers.left)).await,
                    None => return,
                },
                Move::Enter if self.enter() => continue,
                Move::Watch if self.watch() => continue,
                Move::Enter if !was_refused => return,
                Move::Enter | Move::Watch | Move::Doubt => (timers.backoff, false),
                Move::Rely => (timers.relying(look_every, heard.news().standing), true),
            };
            let left = pause.min(timers.left).saturating_sub(start.elapsed());
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut freed, if !relies => return,
                () = self.cluster.sleep(left) => return,
            }
        }
    }

    /// Enters the line on the first node that keeps one. False if nothing changed.
    fn enter(&mut self) -> bool {
        if self.heard.news().standing != Standing::Nowhere {
            return false;
        }
        self.place = None;
        for index in self.nodes_in_order() {
            let (number, ticket) = self.heard.news().enter();
            let heard = self.heard.clone();
            let told = Box::new(move |word| heard.in_line(number, word));
            self.failed.push(index);
            let node = &self.cluster.members[index].node;
            self.place = node.stand_in_line(self.lock, ticket, told);
            if self.place.is_some() {
                return true;
            }
            self.heard.news().standing = Standing::Nowhere;
        }
        false
    }

    /// The voting nodes that have not failed us, in the order in which this lock's line may stand on
    /// them. The same for all processes, and another for each lock.
    fn nodes_in_order(&self) -> Vec<usize> {
        let now = self.cluster.now();
        let members = self.cluster.members.iter().enumerate();
        let fit = members.filter(|(index, m)| !self.failed.contains(index) && m.votes(now));
        let mut order: Vec<_> = fit
            .map(|(index, member)| (affinity(self.lock.as_str(), member.node.id().as_str()), index))
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// Watches the lock on all nodes. False if it does so already, or too few of them can tell.
    fn watch(&mut self) -> bool {
        if !self.watches.is_empty() {
            return false;
        }
        let (nodes, quorum) = (self.cluster.members.len(), self.cluster.quorum.needed());
        let number = self.heard.news().watch(nodes, quorum);
        let now = self.cluster.now();
        for (index, member) in self.cluster.members.iter().enumerate() {
            let heard = self.heard.clone();
            let told = Box::new(move |word| heard.watched(number, index, word));
            // That it is free where nobody may vote is no news.
            match member.votes(now).then(|| member.node.watch(self.lock, told)).flatten() {
                Some(watch) => self.watches.push(watch),
                None => self.heard.watched(number, index, Watched::Over),
            }
        }
        !self.watches.is_empty()
    }

    fn unwatch(&mut self) {
        self.watches.clear();
        let mut news = self.heard.news();
        news.watch += 1;
        news.watched.clear();
    }
}

impl Timers {
    fn relying(&self, look_every: Duration, standing: Standing) -> Duration {
        match self.expires_in {
            // Only the first in line: all at once they would split the votes. A moment later it is
            // surely free.
            Some(left) if standing == Standing::First => {
                look_every.min(left + Duration::from_millis(1))
            }
            _ => look_every,
        }
    }
}

impl Heard {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_line(&self, place: u32, word: InLine) {
        let mut news = self.news();
        if news.place != place {
            return;
        }
        let standing = match word {
            InLine::Behind(_) => Standing::Behind,
            InLine::First { .. } => Standing::First,
            InLine::Over => Standing::Nowhere,
        };
        if let InLine::Behind(ticket) | InLine::First { ticket, .. } = word {
            news.ticket = Some(ticket);
        }
        news.was_behind |= standing == Standing::Behind;
        news.met_others |= match word {
            InLine::Behind(_) => true,
            InLine::First { others, .. } => others > 0,
            InLine::Over => false,
        };
        let is_new = news.standing != standing;
        news.standing = standing;
        drop(news);
        if is_new {
            self.changed.notify_waiters();
        }
    }

    fn watched(&self, watch: u32, node: usize, word: Watched) {
        let mut news = self.news();
        if news.watch != watch {
            return;
        }
        if let Some(slot) = news.watched.get_mut(node) {
            *slot = Some(word);
        }
        // Too few to ask are no reason to wake anybody.
        let is_news = word == Watched::Over || news.count(Some(Watched::Free)) == news.quorum;
        drop(news);
        if is_news {
            self.changed.notify_waiters();
        }
    }
}

impl News {
    fn enter(&mut self) -> (u32, Option<Ticket>) {
        self.place += 1;
        self.standing = Standing::Entering;
        (self.place, self.ticket)
    }

    fn watch(&mut self, nodes: usize, quorum: usize) -> u32 {
        self.watch += 1;
        self.watched = vec![None; nodes];
        self.quorum = quorum;
        self.watch
    }

    fn count(&self, word: Option<Watched>) -> usize {
        self.watched.iter().filter(|heard| **heard == word).count()
    }

    fn next(&self, was_refused: bool) -> Move {
        let (free, silent) = (self.count(Some(Watched::Free)), self.count(None));
        match self.standing {
            Standing::Nowhere => Move::Enter,
            Standing::Entering => Move::Doubt,
            Standing::Behind => Move::Rely,
            // Nobody was before us, and nobody told us yet that somebody holds it.
            Standing::First if !was_refused && !self.was_behind => Move::Ask,
            Standing::First if self.watched.is_empty() => Move::Watch,
            Standing::First if free >= self.quorum => Move::Ask,
            Standing::First if free + silent < self.quorum => Move::Doubt,
            Standing::First => Move::Rely,
        }
    }
}

/// How much a lock's line belongs on a node: the highest wins. FNV-1a, stirred.
fn affinity(lock: &str, node: &str) -> u64 {
    let bytes = lock.bytes().chain([0]).chain(node.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}
