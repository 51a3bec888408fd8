//! Callers that give up: futures dropped at every point where they can be, and guards dropped while
//! answers are on their way. Whatever was asked for is given back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::court::Court;
use super::run::for_seeds;
use super::town::{Backend, MAX_TTL, Town};
use super::world::World;
use crate::clock::Clock as _;
use crate::{Guard, Locks};

/// Polls a future so many times and no more: it is dropped when it would be polled again, which is
/// when whatever it waited for has come.
struct DropAfter<F> {
    future: Pin<Box<F>>,
    polls: u64,
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        self.future.as_mut().poll(context).map(Some)
    }
}

/// Runs a future until it is done, or for so many polls, or for some time.
async fn maybe<F: Future>(world: &World, future: F) -> Option<F::Output> {
    if world.chance(50) {
        return DropAfter { future: Box::pin(future), polls: world.below(8) }.await;
    }
    let time = world.millis(0, 80);
    tokio::time::timeout(time, future).await.ok()
}

/// The trouble that an acquire can meet.
fn trouble(town: &Town) {
    let world = &town.world;
    for site in &town.sites {
        match world.below(4) {
            0 => site.change(|sky| (sky.up, sky.down) = ((0, 40), (0, 120))),
            1 => site.raise_fence("l", Duration::from_secs(60 * (1 + world.below(3)))),
            2 => site.forget_scripts(),
            _ => {}
        }
    }
}

#[test]
fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    for_seeds(160, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let (locks, court) = (town.open("quits").await, Court::of(&town));
        let other = if world.chance(30) { Some(hold(&town, &court).await) } else { None };
        trouble(&town);
        for _ in 0..4 {
            let request = locks.lock("l").ttl(MAX_TTL);
            let began = world.now();
            if world.chance(50) {
                let acquired = maybe(&world, request.try_acquire()).await;
                if let Some(Ok(Some(guard))) = acquired {
                    drop(court.admit(began, guard));
                }
            } else {
                let acquired = maybe(&world, request.acquire()).await;
                if let Some(Ok(guard)) = acquired {
                    drop(court.admit(began, guard));
                }
            }
        }
        drop(other);
        nothing_is_left(&town, &court).await;
    });
}

#[test]
fn extends_and_releases_dropped_at_any_point_give_the_lock_back() {
    for_seeds(100, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let (locks, court) = (town.open("quits").await, Court::of(&town));
        for _ in 0..4 {
            town.calm().await;
            let guard = take(&locks, &court, &world).await;
            trouble(&town);
            while world.chance(60) {
                maybe(&world, guard.extend()).await;
            }
            if world.chance(50) {
                let guard = Arc::into_inner(guard).expect("ours alone");
                maybe(&world, guard.release()).await;
            }
        }
        nothing_is_left(&town, &court).await;
    });
}

#[test]
fn a_waiter_that_quits_the_queue_holds_up_nobody() {
    for_seeds(60, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let (locks, court) = (town.open("waits").await, Court::of(&town));
        let first = take(&locks, &court, &world).await;
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let (locks, court, world) = (locks.clone(), court.clone(), world.clone());
                tokio::spawn(async move {
                    let began = world.now();
                    let request = locks.lock("l").ttl(MAX_TTL).acquire();
                    if let Some(Ok(guard)) = maybe(&world, request).await {
                        drop(court.admit(began, guard));
                    }
                })
            })
            .collect();
        world.sleep(0, 60).await;
        drop(first);
        for waiter in waiters {
            waiter.await.expect("no panic");
        }
        drop(take(&locks, &court, &world).await);
        nothing_is_left(&town, &court).await;
    });
}

async fn take(locks: &Locks, court: &Court, world: &World) -> Arc<Guard> {
    let began = world.now();
    let guard = locks.lock("l").ttl(MAX_TTL).acquire().await.expect("free, sooner or later");
    court.admit(began, guard)
}

/// Another client holds the lock for a while.
async fn hold(town: &Town, court: &Court) -> Arc<Guard> {
    take(&town.open("holds").await, court, &town.world).await
}

/// No connection broke, so no owner may be left, long before its Ttl is over.
async fn nothing_is_left(town: &Town, court: &Court) {
    town.calm().await;
    court.close();
    let owners = town.owners("l");
    town.world.require(owners == 0, || format!("{owners} nodes still have an owner"));
}
