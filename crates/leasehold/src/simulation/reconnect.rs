//! Connections that break at every point, and servers that restart.

use std::sync::Arc;
use std::time::Duration;

use super::court::Court;
use super::run::for_seeds;
use super::site::Dialing;
use super::town::{Backend, MAX_TTL, TTL, Town};
use super::world::World;
use crate::Locks;
use crate::clock::Clock as _;

/// What a client does for a while: acquire, hold, extend, give back, give up.
pub(super) async fn work(world: Arc<World>, court: Arc<Court>, locks: Locks, rounds: usize) {
    for _ in 0..rounds {
        let began = world.now();
        let request = locks.lock("l").ttl(TTL).wait(Duration::from_secs(3));
        let acquire = tokio::time::timeout(world.millis(1, 4000), request.acquire());
        if let Ok(Ok(guard)) = acquire.await {
            let guard = court.admit(began, guard);
            for _ in 0..world.below(4) {
                world.sleep(0, 400).await;
                if world.chance(50) {
                    let _ = guard.extend().await;
                }
            }
            if world.chance(50)
                && let Some(guard) = Arc::into_inner(guard)
            {
                let _ = guard.release().await;
            }
        }
        world.sleep(0, 50).await;
    }
}

pub(super) async fn end(town: &Town, court: &Court) {
    town.calm().await;
    court.close();
    // What a broken connection left is over with its Ttl, and stays over.
    tokio::time::sleep(MAX_TTL).await;
    let owners = town.owners("l");
    town.world.require(owners == 0, || format!("{owners} owners outlive their Ttl"));
}

#[test]
fn broken_connections_send_nothing_twice_and_nothing_out_of_order() {
    for_seeds(50, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let mut clients = tokio::task::JoinSet::new();
        // Open until everything has arrived: one that closes gives a stalled way up after a second.
        let mut opened = Vec::new();
        for name in ["a", "b"] {
            let locks = town.open(name).await;
            opened.push(locks.clone());
            clients.spawn(work(world.clone(), court.clone(), locks, 6));
        }
        for site in &town.sites {
            site.change(|sky| {
                sky.breaks = world.below(8);
                (sky.up, sky.down) = ((0, 10), (0, 10 + 40 * world.below(2)));
            });
        }
        while !clients.is_empty() {
            let site = &town.sites[world.below(3) as usize];
            match world.below(5) {
                0 => site.cut(true),
                1 => site.cut(false),
                2 => site.change(|sky| sky.stalls_up = !sky.stalls_up),
                3 => site.change(|sky| sky.stalls_down = !sky.stalls_down),
                _ => site.forget_scripts(),
            }
            tokio::select! {
                biased;
                ended = clients.join_next() => if let Some(ended) = ended { ended.expect("no panic") },
                () = world.sleep(1, 300) => {}
            }
        }
        end(&town, &court).await;
        drop(opened);
    });
}

#[test]
fn a_server_that_lost_its_memory_is_not_counted() {
    for_seeds(40, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let court = Court::of(&town);
        let mut clients = tokio::task::JoinSet::new();
        for name in ["a", "b"] {
            let locks = town.open(name).await;
            clients.spawn(work(world.clone(), court.clone(), locks, 8));
        }
        while !clients.is_empty() {
            let site = &town.sites[world.below(3) as usize];
            match world.below(6) {
                0 => site.restart(false),
                1 | 2 => site.restart(true),
                3 | 4 => site.save(),
                _ => site.change(|sky| {
                    let (accepts, other) = (Dialing::Accepts, [Dialing::Refuses, Dialing::Hangs]);
                    let other = other[world.below(2) as usize];
                    sky.dialing = if sky.dialing == accepts { other } else { accepts };
                }),
            }
            tokio::select! {
                biased;
                ended = clients.join_next() => if let Some(ended) = ended { ended.expect("no panic") },
                () = world.sleep(1, 3000) => {}
            }
        }
        end(&town, &court).await;
    });
}

#[test]
fn a_server_that_came_back_with_an_old_disk_is_examined_before_it_is_counted() {
    for_seeds(20, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let _ear = court.hear_ballots();
        let (holder, rival) = (town.open("a").await, town.open("b").await);
        for site in &town.sites {
            site.redis().flavor.durable = false;
            site.save();
            site.change(|sky| (sky.up, sky.down) = ((0, 15), (0, 15)));
        }
        let began = world.now();
        let guard = holder.lock("l").ttl(TTL).acquire().await.expect("free");
        let guard = court.admit(began, guard);
        // A majority forgets who holds the lock, though not who it is.
        town.sites[..2].iter().for_each(|site| site.restart(true));
        for _ in 0..100 {
            let began = world.now();
            let request = rival.lock("l").ttl(TTL).try_acquire();
            if let Ok(Ok(Some(guard))) = tokio::time::timeout(world.millis(1, 40), request).await {
                drop(court.admit(began, guard));
            }
        }
        drop(guard);
        end(&town, &court).await;
    });
}
