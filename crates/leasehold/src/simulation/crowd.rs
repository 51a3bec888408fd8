//! Many who want the same lock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::court::Court;
use super::run::for_seeds;
use super::site::Dialing;
use super::town::{Backend, TTL, Town};
use super::world::World;
use crate::Locks;
use crate::clock::Clock as _;

#[test]
fn waiters_of_one_process_are_served_in_their_order() {
    for_seeds(30, |world| async move {
        let backend = if world.chance(50) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..8)
            .map(|number| {
                let (locks, court) = (locks.clone(), court.clone());
                let (world, order) = (world.clone(), order.clone());
                tokio::spawn(async move {
                    // In this order: tasks are first polled in the order of their birth.
                    let began = world.now();
                    let guard = locks.lock("l").ttl(TTL).acquire().await.expect("in turn");
                    let guard = court.admit(began, guard);
                    order.lock().expect("no panic").push(number);
                    // Some are done before what was sent for those behind them is answered.
                    if world.chance(50) {
                        world.sleep(0, 30).await;
                    }
                    drop(guard);
                })
            })
            .collect();
        for waiter in waiters {
            waiter.await.expect("no panic");
        }
        let order = order.lock().expect("no panic").clone();
        world.require(order.is_sorted(), || format!("they were served like this: {order:?}"));
        town.calm().await;
        court.close();
    });
}

/// One task that wants the lock again and again.
async fn want(world: Arc<World>, court: Arc<Court>, locks: Locks) {
    for _ in 0..4 {
        let began = world.now();
        let request = locks.lock("l").ttl(TTL).wait(Duration::from_secs(20));
        let request = if world.chance(30) { request.manual() } else { request };
        let acquire = tokio::time::timeout(world.millis(1, 20_000), request.acquire());
        let Ok(Ok(guard)) = acquire.await else { continue };
        let guard = court.admit(began, guard);
        // Holds it, now and then for longer than it may.
        let hold = if world.chance(20) { 3000 } else { 100 };
        world.sleep(0, hold).await;
        if world.chance(50)
            && let Some(guard) = Arc::into_inner(guard)
        {
            let _ = guard.release().await;
        }
    }
}

/// Nine tasks of three clients, with everything that can happen to a minority of the nodes.
pub(super) async fn crowd(world: Arc<World>) {
    let town = Town::new(&world, Backend::Redis, 5);
    let court = Court::of(&town);
    let _ear = court.hear_ballots();
    let mut tasks = tokio::task::JoinSet::new();
    for name in ["a", "b", "c"] {
        let locks = town.open(name).await;
        for _ in 0..3 {
            tasks.spawn(want(world.clone(), court.clone(), locks.clone()));
        }
    }
    while !tasks.is_empty() {
        let site = &town.sites[world.below(5) as usize];
        match world.below(9) {
            0 => site.cut(world.chance(50)),
            1 => site.restart(world.chance(50)),
            2 => site.change(|sky| sky.stalls_up = true),
            3 => site.change(|sky| sky.stalls_down = true),
            4 => site.change(|sky| sky.dialing = Dialing::Refuses),
            5 => site.change(|sky| sky.breaks = 3),
            6 => site.save(),
            7 if world.chance(20) => world.skip(world.millis(0, 2500)),
            _ => {}
        }
        // Two nodes may be away at a time; then the others come back.
        let is_away = |site: &&Arc<super::site::Site>| {
            let sky = site.sky();
            sky.stalls_up || sky.stalls_down || sky.dialing != Dialing::Accepts
        };
        if town.sites.iter().filter(is_away).count() > 2 {
            town.sites.iter().for_each(|site| site.change(|sky| *sky = super::site::Sky::fair()));
        }
        tokio::select! {
            biased;
            ended = tasks.join_next() => if let Some(ended) = ended { ended.expect("no panic") },
            () = world.sleep(1, 500) => {}
        }
    }
    town.calm().await;
    court.close();
    world.require(court.acquired() > 0, || "nobody ever got the lock".into());
}

#[test]
fn in_a_crowd_no_two_hold_at_once_and_fences_go_up() {
    for_seeds(16, crowd);
}
