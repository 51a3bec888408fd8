//! What must always be true. The judge hears what clients believe; here is what excuses two holders
//! of one lock, and what is judged by what the nodes carried out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Drift, Fence, Holder, Moment, Reply, Request};
use leasehold_judge::{Event, Exclusion, Fences, Promise as _, Violation};
use tokio::task::AbortHandle;

use super::ballots::Ballots;
use super::site::{Received, Site};
use super::timepieces::ClientClock;
use super::town::Town;
use super::world::World;
use crate::Guard;
use crate::clock::Clock as _;

/// A client reads the clock of each node so often, where the way there is good: once a second, and
/// the way.
pub(super) const READ_WITHIN: Duration = Duration::from_millis(1020);

const PATROLS_EVERY: Duration = Duration::from_millis(50);

/// A patrol, which ends with this.
pub(super) struct Patrol(AbortHandle);

impl Drop for Patrol {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) struct Court {
    world: Arc<World>,
    sites: Vec<Arc<Site>>,
    /// How many members a quorum has.
    needed: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many acquires were complete so far: each has the next number.
    acquired: usize,
    guards: BTreeMap<usize, Weak<Guard>>,
    exclusion: Exclusion<usize>,
    fences: Fences<usize>,
    /// Clients whose clocks may miss a pause.
    clients: Vec<Arc<ClientClock>>,
}

impl State {
    /// Takes in what all holders believe now: deadlines move without a word.
    fn hear(&mut self, now: Moment) {
        let Self { guards, exclusion, .. } = self;
        guards.retain(|who, guard| {
            let event = match guard.upgrade() {
                Some(guard) => Event::Moved { who, until: end(now, &guard) },
                None => Event::Ended { who },
            };
            exclusion.see(now.as_nanos(), &event);
            matches!(event, Event::Moved { .. })
        });
    }

    fn guard(&self, who: usize) -> Arc<Guard> {
        self.guards[&who].upgrade().expect("it was just heard")
    }
}

/// Until when the holder of a guard believes in it.
fn end(now: Moment, guard: &Guard) -> u64 {
    now.plus(guard.validity()).as_nanos()
}

impl Court {
    pub(super) fn of(town: &Town) -> Arc<Self> {
        Self::of_quorums(town, town.addresses.len() / 2 + 1)
    }

    /// The same, where `needed` members are the smallest quorum of several lists.
    pub(super) fn of_quorums(town: &Town, needed: usize) -> Arc<Self> {
        let (world, sites) = (town.world.clone(), town.sites.clone());
        Arc::new(Self { world, sites, needed, state: Mutex::default() })
    }

    /// Has each round judged that is won on this thread, until what is returned is dropped. For
    /// simulated Redis only: a memory node has no run id that tells its name.
    pub(super) fn hear_ballots(&self) -> tracing::subscriber::DefaultGuard {
        let ballots = Ballots::new(&self.world, &self.sites, self.needed);
        tracing::subscriber::set_default(ballots)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many acquires were complete so far.
    pub(super) fn acquired(&self) -> usize {
        self.state().acquired
    }

    /// From now on `clock` may miss a pause.
    pub(super) fn knows(&self, clock: &Arc<ClientClock>) {
        self.state().clients.push(clock.clone());
    }

    /// Looks every now and then whether two hold at once, until what is returned is dropped: a holder
    /// that could not know better for a moment must know better soon.
    pub(super) fn patrol(self: &Arc<Self>) -> Patrol {
        let court = Arc::downgrade(self);
        let walk = async move {
            while let Some(court) = court.upgrade() {
                court.look_around();
                drop(court);
                tokio::time::sleep(PATROLS_EVERY).await;
            }
        };
        Patrol(tokio::spawn(walk).abort_handle())
    }

    fn look_around(&self) {
        let (mut state, now) = (self.state(), self.world.now());
        state.hear(now);
        let found = state.exclusion.see(now.as_nanos(), &Event::Looked);
        self.judge(&state, found);
    }

    /// Requires that each violation is excused: of two guards for one lock at most one is good, in
    /// true time, unless its holder could not know; and nothing excuses a fence.
    fn judge(&self, state: &State, found: Vec<Violation<usize>>) {
        for violation in found {
            match violation {
                Violation::Overlap { first, second, .. } => {
                    let [earlier, later] = [first, second].map(|who| state.guard(who));
                    self.world.require(self.could_not_know(state, &earlier, &later), || {
                        format!("{earlier:?} is still good beside {later:?}")
                    });
                }
                Violation::LowerFence { before, second, .. } => {
                    let later = state.guard(second);
                    self.world.violation(format_args!("{later:?} came after fence {before}"));
                }
                Violation::SameFence { second, .. } => {
                    let later = state.guard(second);
                    let line = format_args!("{later:?} has a fence that was given before");
                    self.world.violation(line);
                }
                other => self.world.violation(format_args!("{other:?}")),
            }
        }
    }

    /// Whether the holder of `earlier` has not read the clock of a node yet since that went ahead by what
    /// is left of the lease, where `later` had not either when it asked that node; or has not since its
    /// own machine stood still. DESIGN.md, "By whose clock": until that reading nobody can tell it.
    fn could_not_know(&self, state: &State, earlier: &Guard, later: &Guard) -> bool {
        let unseen = |site: &Arc<Site>| self.unseen(site, later) >= earlier.validity();
        self.sites.iter().any(unseen) || self.stood_still(state, earlier)
    }

    /// By how much the clock of `site` went ahead within the time of a reading, before the holder of
    /// `guard` first read it, or after the last reading before it asked for the lock.
    fn unseen(&self, site: &Site, guard: &Guard) -> Duration {
        let now = self.world.now();
        let since = now.less(READ_WITHIN);
        let vote = |entry: &Received| match &entry.request {
            Request::Acquire { holder, proposal, .. } => {
                holder == guard.holder() && *proposal == guard.fence()
            }
            _ => false,
        };
        let Some((_, vote)) = site.received(vote).pop() else { return Duration::ZERO };
        match site.read_before(vote.connection, vote.at) {
            Some((first, last)) => {
                let gained =
                    |from: Moment, to: Moment| site.clock.gained(from.max(since), to.max(since));
                gained(since, first) + gained(last, vote.at)
            }
            None => site.clock.gained(since, now),
        }
    }

    fn stood_still(&self, state: &State, guard: &Guard) -> bool {
        let is_holder = |clock: &Arc<ClientClock>| {
            guard
                .holder()
                .as_str()
                .rsplit_once(':')
                .is_some_and(|(label, _)| label == clock.label())
        };
        let mut holders = state.clients.iter().filter(|clock| is_holder(clock));
        holders.any(|clock| clock.stood_still_within(READ_WITHIN))
    }

    /// To be called at once when an acquire that began at `began` is complete.
    pub(super) fn admit(&self, began: Moment, guard: Guard) -> Arc<Guard> {
        let (world, now) = (&self.world, self.world.now());
        let name = guard.name().as_str().to_owned();
        world.note(format_args!("{name} acquired by {}, fence {}", guard.holder(), guard.fence()));
        world.require(guard.ensure_valid(Duration::ZERO).is_ok(), || {
            format!("{guard:?} was past its deadline when it was given")
        });
        let mut state = self.state();
        if !self.stood_still(&state, &guard) {
            self.check_votes(&guard, now);
        }
        let (who, guard) = (state.acquired, Arc::new(guard));
        state.acquired += 1;
        state.hear(now);
        state.guards.insert(who, Arc::downgrade(&guard));
        let (lock, fence, asked) = (&*name, guard.fence(), began.as_nanos());
        let event = Event::Believes { who: &who, lock, fence, asked, until: end(now, &guard) };
        let mut found = state.exclusion.see(now.as_nanos(), &event);
        found.extend(state.fences.see(now.as_nanos(), &event));
        self.judge(&state, found);
        guard
    }

    /// A quorum of different servers must have granted this very fence to this holder, none of them
    /// in its quarantine, and the deadline must count from before the first of them heard of it.
    ///
    /// A server may grant something in its quarantine: it does not know, and its client learns it
    /// before the reply. Such a vote is not needed.
    fn check_votes(&self, guard: &Guard, now: Moment) {
        let votes: Vec<_> = self.sites.iter().map(|site| self.votes(site, guard)).collect();
        if votes.iter().all(Vec::is_empty) {
            return self.check_reserve(guard, now);
        }
        let is_given = |vote: &Vote| vote.is_granted && !vote.is_too_early;
        let granted = votes.iter().filter(|votes| votes.iter().any(is_given)).count();
        self.world.require(granted >= self.needed, || {
            format!("{guard:?} has the votes of {granted} servers that may vote")
        });
        for vote in votes.iter().flatten() {
            let latest = vote.heard.plus(vote.ttl - Drift::DEFAULT.allowance(vote.ttl));
            let late = now.plus(guard.validity()).since(latest);
            self.world.require(late.is_zero(), || format!("{guard:?} ends {late:?} too late"));
        }
    }

    /// A fence that no node was asked for must lie within what a quorum of nodes raised the token of
    /// its holder by, in one step, and the deadline must count from before a quorum last heard of it.
    fn check_reserve(&self, guard: &Guard, now: Moment) {
        let kept: Vec<_> = self.sites.iter().map(|site| self.kept(site, guard)).collect();
        let sites = |wanted: &dyn Fn(&Kept) -> bool| {
            kept.iter().filter(|kept| kept.iter().any(wanted)).count()
        };
        let raised = kept.iter().flatten().filter(|kept| kept.token < guard.fence());
        let most =
            raised.map(|one| sites(&|other| other.token == one.token && other.next == one.next));
        let most = most.max().unwrap_or(0);
        self.world.require(most >= self.needed, || format!("{guard:?} was seen to by {most}"));
        let end = now.plus(guard.validity());
        let in_time =
            sites(&|kept| kept.heard.plus(kept.ttl - Drift::DEFAULT.allowance(kept.ttl)) >= end);
        self.world.require(in_time >= self.needed, || {
            format!("{guard:?} ends too late for all but {in_time}")
        });
    }

    /// To be called when every guard is gone and everything on its way has arrived.
    pub(super) fn close(&self) {
        self.sites.iter().for_each(|site| self.check_orders(site));
    }

    /// What a node heard of each holder: nothing twice, no release before its acquire, and after
    /// each acquire a release, unless the connection between them broke.
    fn check_orders(&self, site: &Site) {
        let mut acquires: BTreeMap<Holder, Vec<(usize, u64, Fence)>> = BTreeMap::new();
        let mut releases: BTreeMap<Holder, Vec<(usize, u64)>> = BTreeMap::new();
        site.with_received(|received| {
            for (at, entry) in received.iter().enumerate() {
                match &entry.request {
                    Request::Acquire { holder, proposal, .. } => {
                        let sent = acquires.entry(holder.clone()).or_default();
                        sent.push((at, entry.connection, *proposal));
                    }
                    Request::Release { holder, .. } => {
                        let sent = releases.entry(holder.clone()).or_default();
                        sent.push((at, entry.connection));
                    }
                    _ => {}
                }
            }
        });
        let name = &site.name;
        for (holder, sent) in &releases {
            let once = sent.len() == 1;
            self.world.require(once, || format!("{name} was sent the release of {holder} twice"));
        }
        for (holder, sent) in &acquires {
            let released = releases.get(holder).map(Vec::as_slice).unwrap_or_default();
            for (index, (at, connection, proposal)) in sent.iter().enumerate() {
                let twice = sent[..index].iter().any(|(_, _, earlier)| earlier == proposal);
                self.world.require(!twice, || {
                    format!("{name} was sent the acquire of {holder} with {proposal} twice")
                });
                // From an older connection it may arrive late; that is the network's doing.
                let overtaken = released.iter().any(|(r, c)| r < at && c <= connection);
                self.world.require(!overtaken, || {
                    format!("on {name} the release of {holder} overtook its acquire")
                });
                let follows = released.iter().any(|(r, c)| r > at && c == connection);
                self.world.require(follows || site.is_broken(*connection), || {
                    format!("no release of {holder} followed its acquire on {name}")
                });
            }
        }
    }
}

/// Whether `server` was to sit out its quarantine, because it had lost its memory, when it carried
/// out an entry of its log.
///
/// In true time, except where every clock went ahead by what is missing: its own, those of a quorum,
/// and of each server that ran all the time. DESIGN.md, "By whose clock", "Why 6 is sound".
pub(super) fn sits_out(
    sites: &[Arc<Site>],
    needed: usize,
    server: &Site,
    (index, entry): (usize, &Received),
) -> bool {
    let is_too_early = |(before, at): &(usize, Moment)| {
        let missing = Town::quarantine().saturating_sub(entry.at.since(*at));
        let is_ahead = |site: &Site| site.clock.gained(*at, entry.at) >= missing;
        let all_are_ahead = || {
            let mut running = sites.iter().filter(|site| site.ran_since(*at));
            is_ahead(server)
                && running.all(|site| is_ahead(site))
                && sites.iter().filter(|site| is_ahead(site)).count() >= needed
        };
        *before <= index && !missing.is_zero() && !all_are_ahead()
    };
    server.forgot().iter().any(is_too_early)
}

/// One node's answer to the round that a guard came from.
struct Vote {
    heard: Moment,
    ttl: Duration,
    is_granted: bool,
    /// Given by a node that had lost its memory and may not vote yet.
    is_too_early: bool,
}

impl Court {
    fn votes(&self, site: &Site, guard: &Guard) -> Vec<Vote> {
        let is_meant = |entry: &Received| match &entry.request {
            Request::Acquire { holder, proposal, .. } => {
                holder == guard.holder() && *proposal == guard.fence()
            }
            _ => false,
        };
        let vote = |(index, entry): &(usize, Received)| {
            let Request::Acquire { ttl, .. } = &entry.request else { return None };
            let is_granted = entry.reply == Reply::Granted;
            let is_too_early =
                is_granted && sits_out(&self.sites, self.needed, site, (*index, entry));
            let (heard, ttl) = (entry.at, ttl.get());
            Some(Vote { heard, ttl, is_granted, is_too_early })
        };
        site.received(is_meant).iter().filter_map(vote).collect()
    }
}

/// A node's yes to an extension of a guard's holder, with a token as high as the guard's fence.
struct Kept {
    heard: Moment,
    ttl: Duration,
    token: Fence,
    next: Fence,
}

impl Court {
    fn kept(&self, site: &Site, guard: &Guard) -> Vec<Kept> {
        let is_meant = |entry: &Received| match &entry.request {
            Request::Extend { holder, next, .. } => {
                holder == guard.holder()
                    && *next >= guard.fence()
                    && matches!(entry.reply, Reply::Extended { .. } | Reply::Healed { .. })
            }
            _ => false,
        };
        let kept = |(index, entry): &(usize, Received)| {
            let Request::Extend { token, next, ttl, .. } = &entry.request else { return None };
            let counts = !sits_out(&self.sites, self.needed, site, (*index, entry));
            let (heard, ttl) = (entry.at, ttl.get());
            counts.then_some(Kept { heard, ttl, token: *token, next: *next })
        };
        site.received(is_meant).iter().filter_map(kept).collect()
    }
}
