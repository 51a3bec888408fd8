//! Callers that are no guards: they hand a lease token to any client, extend with any ttl, release, and lie.
//! What each was told counts from when it was told.

use std::sync::{Arc, Mutex, PoisonError};
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
}

impl Told {
    /// Nobody else may believe to hold it.
    fn held(&self, holder: &Holder, until: Moment) {
        let now = self.world.now();
        self.world.note(format_args!("{holder} is told: held for {:?}", until.since(now)));
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|(who, end)| who != holder && *end > now);
        self.world.require(holders.is_empty(), || format!("{holder} beside {holders:?}"));
        holders.push((holder.clone(), until));
    }

    fn over(&self, holder: &Holder) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|(who, _)| who != holder);
    }

    /// Fences are in the order of what was complete.
    fn fence(&self, began: Moment, fence: Fence) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
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
}

impl Caller {
    fn any(&self) -> &Locks {
        &self.clients[self.world.below(2) as usize]
    }

    async fn wants_it(&self) {
        let (world, began) = (&self.world, self.world.now());
        let wait = world.millis(0, 3000);
        let request = self.any().lock("l").ttl(any_ttl(world)).manual().wait(wait);
        let Ok(guard) = request.acquire().await else { return };
        let mut until = world.now().plus(guard.validity());
        let token = guard.detach();
        self.told.fence(began, token.fence);
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
        let (holders, fences) = Default::default();
        let told = Arc::new(Told { world: world.clone(), holders, fences });
        let clients = [town.open("a").await, town.open("b").await];
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (world, told, town) = (world.clone(), told.clone(), town.clone());
            let caller = Caller { world: world.clone(), told, town, clients: clients.clone() };
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
