//! Processes that stand still for longer than their leases, with answers under way.

use std::sync::Arc;
use std::time::Duration;

use super::court::Court;
use super::run::for_seeds;
use super::town::{Backend, TTL, Town};
use crate::clock::Clock as _;

#[test]
fn a_pause_while_answers_are_under_way_never_yields_a_guard_past_its_deadline() {
    for_seeds(100, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let court = Court::of(&town);
        let clients = [town.open("a").await, town.open("b").await];
        for _ in 0..6 {
            let stop = {
                let (world, late) = (world.clone(), world.chance(50));
                async move {
                    world.sleep(0, 12).await;
                    let pause = world.millis(0, 2 * TTL.as_millis() as u64);
                    if late {
                        world.skip(pause);
                    } else {
                        tokio::time::advance(pause).await;
                    }
                }
            };
            let mut stop = tokio::spawn(stop);
            let locks = &clients[world.below(2) as usize];
            let began = world.now();
            let request = locks.lock("l").ttl(TTL).wait(Duration::from_secs(10));
            let acquired = request.acquire().await;
            if let Ok(guard) = acquired {
                let guard = court.admit(began, guard);
                if world.chance(50) {
                    (&mut stop).await.expect("no panic");
                    if let Ok(left) = guard.extend().await {
                        let sound = !left.is_zero() && guard.ensure_valid(Duration::ZERO).is_ok();
                        world.require(sound, || format!("{guard:?} was extended past its end"));
                    }
                }
                drop(guard);
            }
            if !stop.is_finished() {
                stop.await.expect("no panic");
            }
        }
        town.calm().await;
        court.close();
    });
}

#[test]
fn a_lease_that_ran_out_during_a_pause_is_lost_at_once_and_for_ever() {
    for_seeds(40, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let began = world.now();
        let guard = locks.lock("l").ttl(TTL).acquire().await.expect("free");
        let guard = court.admit(began, guard);
        world.sleep(0, 3 * TTL.as_millis() as u64).await;
        let extending = {
            let guard: Arc<_> = guard.clone();
            tokio::spawn(async move { guard.extend().await })
        };
        world.sleep(0, 2).await;
        world.skip(TTL);
        // Nobody looks in the other runs: then the answer that is under way must not be believed.
        if world.chance(50) {
            let at_once = guard.ensure_valid(Duration::ZERO).is_err() && guard.validity().is_zero();
            world.require(at_once, || format!("{guard:?} is believed after a pause"));
        }
        let told = tokio::time::timeout(Duration::from_millis(200), guard.lost()).await;
        world.require(told.is_ok(), || "nobody was told of the loss".into());
        let _ = extending.await.expect("no panic");
        world.sleep(0, 100).await;
        let for_ever = guard.extend().await.is_err() && guard.validity().is_zero();
        world.require(for_ever, || format!("{guard:?} came back"));
        drop(guard);
        town.calm().await;
        court.close();
    });
}
