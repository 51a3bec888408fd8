//! Callers that are no guards: they hand a lease token to any client, extend with any ttl, release, lie, and
//! repeat an acquire with an idempotency key, as a lock server carries that out. What each was told
//! counts from when it was told.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Fence, Holder, Moment};

use super::run::for_seeds;
use super::town::{Backend, MAX_TTL, Town};
use super::world::World;
use crate::clock::Clock as _;
use crate::{ExtendError, LeaseToken, Locks, ReleaseOutcome};

/// Who was told to hold the lock, until when.
struct Told {
    world: Arc<World>,
    holders: Mutex<Vec<(Holder, Moment)>>,
    fences: Mutex<Vec<(Fence, Moment)>>,
    released: Mutex<HashSet<Holder>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    /// Nobody else may believe to hold it.
    fn held(&self, holder: &Holder, until: Moment) {
        let now = self.world.now();
        self.world.note(format_args!("{holder} is told: held for {:?}", until.since(now)));
        let is_over = lock(&self.released).contains(holder);
        self.world.require(!is_over, || format!("{holder} was told that it is released"));
        let mut holders = lock(&self.holders);
        holders.retain(|(who, end)| who != holder && *end > now);
        self.world.require(holders.is_empty(), || format!("{holder} beside {holders:?}"));
        holders.push((holder.clone(), until));
    }

    fn over(&self, holder: &Holder) {
        lock(&self.holders).retain(|(who, _)| who != holder);
    }

    /// Fences are in the order of what was complete.
    fn fence(&self, began: Moment, fence: Fence) {
        let mut fences = lock(&self.fences);
        let before = fences.iter().filter(|(_, complete)| *complete <= began);
        let highest = before.map(|(fence, _)| *fence).max();
        self.world.require(highest < Some(fence), || format!("{fence} came after {highest:?}"));
        fences.push((fence, self.world.now()));
    }
}

fn any_ttl(world: &World) -> Duration {
    world.millis(100, MAX_TTL.as_millis() as u64)
}

/// What was never granted, though it looks nearly like `token`.
fn made_up(world: &World, token: &LeaseToken) -> LeaseToken {
    let mut lie = token.clone();
    match world.below(4) {
        0 => (lie.fence, lie.token) = (token.fence.next(), token.token.next()),
        1 => (lie.fence, lie.token) = (Fence::MAX, Fence::MAX),
        2 => {
            lie.holder = Holder::new(token.holder.label(), world.below(1 << 60).into()).expect("ok")
        }
        _ => lie.fence = token.token.next(),
    }
    lie.token = lie.token.max(lie.fence);
    lie.ttl = any_ttl(world);
    lie
}

struct Caller {
    world: Arc<World>,
    told: Arc<Told>,
    town: Arc<Town>,
    clients: [Locks; 2],
    /// By client: which lease each key stands for there.
    keys: [Mutex<HashMap<u64, Keyed>>; 2],
    /// The last key.
    key: Mutex<Option<u64>>,
}

/// A lease that a key stands for.
#[derive(Clone)]
struct Keyed {
    token: LeaseToken,
    began: Moment,
    is_told: bool,
}

impl Caller {
    fn any(&self) -> &Locks {
        &self.clients[self.world.below(2) as usize]
    }

    /// The last key, another one, or none.
    fn any_key(&self) -> Option<u64> {
        let mut key = lock(&self.key);
        if !self.world.chance(50) {
            *key = self.world.chance(60).then(|| self.world.below(1 << 60));
        }
        *key
    }

    /// A lease, and until when. A repeat extends the lease of its key where that was granted; elsewhere the
    /// lock is held by another.
    async fn acquires(&self) -> Option<(LeaseToken, Moment)> {
        let (world, key) = (&self.world, self.any_key());
        let at = world.below(2) as usize;
        let known = key.and_then(|key| lock(&self.keys[at]).get(&key).cloned());
        if let (Some(key), Some(Keyed { token, began, is_told })) = (key, known) {
            match self.clients[at].extend(&token).await {
                Ok(left) => {
                    let until = world.now().plus(left);
                    if !is_told {
                        self.told.fence(began, token.fence);
                        let told = Keyed { token: token.clone(), began, is_told: true };
                        lock(&self.keys[at]).insert(key, told);
                    }
                    return Some((token, until));
                }
                Err(ExtendError::Lost(_)) => drop(lock(&self.keys[at]).remove(&key)),
                Err(_) => return None,
            }
        }
        let (began, wait) = (world.now(), world.millis(0, 3000));
        let mut request = self.clients[at].lock("l").ttl(any_ttl(world)).manual().wait(wait);
        if let Some(key) = key {
            request = request.mark(key);
        }
        let guard = request.acquire().await.ok()?;
        let until = world.now().plus(guard.validity());
        let token = guard.detach();
        // The answer may get lost: then nobody believes in it, until it is asked for again.
        let is_told = key.is_none() || world.chance(70);
        if let Some(key) = key {
            let keyed = Keyed { token: token.clone(), began, is_told };
            lock(&self.keys[at]).insert(key, keyed);
        }
        if !is_told {
            return None;
        }
        self.told.fence(began, token.fence);
        Some((token, until))
    }

    async fn wants_it(&self) {
        let world = &self.world;
        let Some((token, mut until)) = self.acquires().await else { return };
        self.told.held(&token.holder, until);
        while world.now() < until && world.chance(85) {
            world.sleep(0, 300).await;
            if world.chance(20) {
                let lie = made_up(world, &token);
                let answer = self.any().extend(&lie).await;
                world.require(answer.is_err(), || format!("{lie} was taken for {token}"));
            }
            let again = LeaseToken { ttl: any_ttl(world), ..token.clone() };
            match self.any().extend(&again).await {
                Ok(left) => {
                    until = until.max(world.now().plus(left));
                    self.told.held(&token.holder, until);
                }
                Err(ExtendError::Lost(_)) => {
                    self.told.over(&token.holder);
                    return;
                }
                // What it was told before stands.
                Err(_) => {}
            }
        }
        if world.chance(80) {
            self.told.over(&token.holder);
            self.gives_back(&token).await;
        }
    }

    async fn gives_back(&self, token: &LeaseToken) {
        let outcome = self.any().release(token).await;
        self.world.note(format_args!("{} is told: {outcome:?}", token.holder));
        if outcome != ReleaseOutcome::Released {
            return;
        }
        lock(&self.told.released).insert(token.holder.clone());
        let is_its = |owner: Option<Holder>| owner.is_some_and(|owner| owner == token.holder);
        let kept = self.town.sites.iter().filter(|site| is_its(site.owner(&token.name))).count();
        let needed = self.town.sites.len() / 2 + 1;
        self.world.require(kept < needed, || format!("{kept} nodes keep {token}"));
        let answer = self.any().extend(token).await;
        self.world.require(answer.is_err(), || format!("{token} was released, and extended"));
    }
}

#[test]
fn callers_hold_what_they_were_told_and_lies_get_nothing() {
    for_seeds(60, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Arc::new(Town::new(&world, backend, 3 + 2 * world.below(2) as usize));
        let (holders, fences, released) = Default::default();
        let told = Arc::new(Told { world: world.clone(), holders, fences, released });
        let clients = [town.open("a").await, town.open("b").await];
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (world, told, town) = (world.clone(), told.clone(), town.clone());
            let (keys, key) = Default::default();
            let (world_of_it, clients) = (world.clone(), clients.clone());
            let caller = Caller { world: world_of_it, told, town, clients, keys, key };
            tasks.spawn(async move {
                for _ in 0..8 {
                    caller.wants_it().await;
                    world.sleep(0, 100).await;
                }
            });
        }
        while !tasks.is_empty() {
            let site = &town.sites[world.below(town.sites.len() as u64) as usize];
            match world.below(6) {
                0 => site.cut(world.chance(50)),
                1 => site.restart(true),
                // What was asked meanwhile is carried out when it ends, long after it was given up.
                2 | 3 => site.change(|sky| sky.stalls_up = !sky.stalls_up),
                4 => site.change(|sky| sky.stalls_down = !sky.stalls_down),
                _ => site.forget_scripts(),
            }
            tokio::select! {
                biased;
                ended = tasks.join_next() => if let Some(ended) = ended { ended.expect("no panic") },
                () = world.sleep(1, 800) => {}
            }
        }
        town.calm().await;
    });
}
