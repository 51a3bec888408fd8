//! What must always be true, judged by what the nodes carried out and what the clients believe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Drift, Fence, Holder, Moment, Reply, Request};

use super::ballots::Ballots;
use super::site::{Received, Site};
use super::town::Town;
use super::world::World;
use crate::Guard;
use crate::clock::Clock as _;

pub(super) struct Court {
    world: Arc<World>,
    sites: Vec<Arc<Site>>,
    /// How many members a quorum has.
    needed: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guards: Vec<Weak<Guard>>,
    /// Fences of acquires, with the moment they were complete.
    fences: Vec<(String, Fence, Moment)>,
}

impl Court {
    pub(super) fn of(town: &Town) -> Arc<Self> {
        let (world, sites) = (town.world.clone(), town.sites.clone());
        let needed = town.addresses.len() / 2 + 1;
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
        self.state().fences.len()
    }

    /// To be called at once when an acquire that began at `began` is complete.
    pub(super) fn admit(&self, began: Moment, guard: Guard) -> Arc<Guard> {
        let (world, now) = (&self.world, self.world.now());
        let name = guard.name().as_str().to_owned();
        world.note(format_args!("{name} acquired by {}, fence {}", guard.holder(), guard.fence()));
        world.require(guard.ensure_valid(Duration::ZERO).is_ok(), || {
            format!("{guard:?} was past its deadline when it was given")
        });
        self.check_votes(&guard, now);
        let mut state = self.state();
        for other in state.guards.iter().filter_map(Weak::upgrade) {
            let overlaps = other.name() == guard.name() && !other.validity().is_zero();
            world.require(!overlaps, || format!("{other:?} is still good beside {guard:?}"));
        }
        for (lock, fence, complete) in &state.fences {
            let in_order = *lock != name || *complete > began || *fence < guard.fence();
            world.require(in_order, || format!("{guard:?} came after fence {fence}"));
            let unique = *lock != name || *fence != guard.fence();
            world.require(unique, || format!("{guard:?} has a fence that was given before"));
        }
        state.fences.push((name, guard.fence(), now));
        let guard = Arc::new(guard);
        state.guards.push(Arc::downgrade(&guard));
        guard
    }

    /// A quorum of different servers must have granted this very fence to this holder, none of them
    /// in its quarantine, and the deadline must count from before the first of them heard of it.
    ///
    /// A server may grant something in its quarantine: it does not know, and its client learns it
    /// before the reply. Such a vote is not needed.
    fn check_votes(&self, guard: &Guard, now: Moment) {
        let votes: Vec<_> = self.sites.iter().map(|site| votes(site, guard)).collect();
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
        let kept: Vec<_> = self.sites.iter().map(|site| kept(site, guard)).collect();
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

/// Whether a server that lost its memory at these moments, each after so much that it had carried
/// out, was to sit out its quarantine when it carried out `entry`.
pub(super) fn sits_out(forgot: &[(usize, Moment)], index: usize, entry: &Received) -> bool {
    forgot.iter().any(|(before, at)| *before <= index && entry.at.since(*at) < Town::quarantine())
}

/// One node's answer to the round that a guard came from.
struct Vote {
    heard: Moment,
    ttl: Duration,
    is_granted: bool,
    /// Given by a node that had lost its memory and may not vote yet.
    is_too_early: bool,
}

fn votes(site: &Site, guard: &Guard) -> Vec<Vote> {
    let forgot = site.forgot();
    let vote = |(index, entry): (usize, &Received)| {
        let Request::Acquire { holder, proposal, ttl, .. } = &entry.request else {
            return None;
        };
        let is_meant = holder == guard.holder() && *proposal == guard.fence();
        let is_granted = entry.reply == Reply::Granted;
        let is_too_early = is_granted && sits_out(&forgot, index, entry);
        let (heard, ttl) = (entry.at, ttl.get());
        is_meant.then_some(Vote { heard, ttl, is_granted, is_too_early })
    };
    site.with_received(|received| received.iter().enumerate().filter_map(vote).collect())
}

/// A node's yes to an extension of a guard's holder, with a token as high as the guard's fence.
struct Kept {
    heard: Moment,
    ttl: Duration,
    token: Fence,
    next: Fence,
}

fn kept(site: &Site, guard: &Guard) -> Vec<Kept> {
    let forgot = site.forgot();
    let kept = |(index, entry): (usize, &Received)| {
        let Request::Extend { holder, token, next, ttl, .. } = &entry.request else {
            return None;
        };
        let is_meant = holder == guard.holder() && *next >= guard.fence();
        let is_yes = matches!(entry.reply, Reply::Extended { .. } | Reply::Healed { .. });
        let counts = is_meant && is_yes && !sits_out(&forgot, index, entry);
        let (heard, ttl) = (entry.at, ttl.get());
        counts.then_some(Kept { heard, ttl, token: *token, next: *next })
    };
    site.with_received(|received| received.iter().enumerate().filter_map(kept).collect())
}
