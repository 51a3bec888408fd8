//! Answers that come late: after the decision, after the time limit, after a new round; and nodes
//! that never answer.

use std::sync::Arc;
use std::time::Duration;

use super::court::Court;
use super::run::for_seeds;
use super::site::Dialing;
use super::town::{Backend, MAX_TTL, Town};
use crate::ReleaseOutcome;
use crate::clock::Clock as _;

#[test]
fn late_answers_count_for_nothing_and_leave_nothing() {
    for_seeds(100, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3 + 2 * world.below(2) as usize);
        let court = Court::of(&town);
        let clients = [town.open("a").await, town.open("b").await];
        for round in 0..6 {
            for site in &town.sites {
                let most = [3, 30, 60, 150][world.below(4) as usize];
                site.change(|sky| (sky.up, sky.down) = ((0, most / 3), (0, most)));
                // Fences ahead on some nodes: a second round, with answers of the first under way.
                if world.chance(30) {
                    site.raise_fence("l", Duration::from_secs(60 * (round + 1)));
                }
            }
            let locks = &clients[world.below(2) as usize];
            let began = world.now();
            if let Ok(Some(guard)) = locks.lock("l").ttl(MAX_TTL).try_acquire().await {
                let guard = court.admit(began, guard);
                world.sleep(0, 100).await;
                if world.chance(50) {
                    let guard = Arc::into_inner(guard).expect("ours alone");
                    let _ = guard.release().await;
                }
            }
        }
        town.calm().await;
        court.close();
        let owners = town.owners("l");
        world.require(owners == 0, || format!("{owners} nodes still have an owner"));
    });
}

#[test]
fn two_hung_nodes_of_five_delay_nobody() {
    for_seeds(40, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 5);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        for site in &town.sites[3..] {
            site.change(|sky| match world.below(3) {
                0 => sky.stalls_up = true,
                1 => sky.stalls_down = true,
                _ => (sky.stalls_up, sky.dialing) = (true, Dialing::Hangs),
            });
        }
        // Twice the way there and back, and the pieces of a reply.
        let quick = Duration::from_millis(20);
        for _ in 0..5 {
            let began = world.now();
            let guard = locks.lock("l").ttl(MAX_TTL).acquire().await.expect("three are enough");
            let guard = court.admit(began, guard);
            guard.extend().await.expect("three are enough");
            let guard = Arc::into_inner(guard).expect("ours alone");
            let outcome = guard.release().await;
            world.require(matches!(outcome, ReleaseOutcome::Released), || format!("{outcome:?}"));
            let took = world.now().since(began);
            world.require(took < 3 * quick, || format!("it took {took:?}"));
            world.sleep(0, 3000).await;
        }
        town.calm().await;
        court.close();
    });
}

#[test]
fn an_answer_that_came_after_the_decision_still_counts_when_a_clock_jumps() {
    for_seeds(5, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let began = world.now();
        let request = locks.lock("l").ttl(MAX_TTL).manual();
        let guard = court.admit(began, request.acquire().await.expect("free"));
        world.sleep(1500, 1600).await;
        // The first two decide, the third says so later.
        town.sites[2].change(|sky| sky.down = (30, 35));
        let extended = world.now();
        guard.extend().await.expect("two are enough");
        world.sleep(50, 60).await;
        // The next extension meets with nothing, and then a clock goes ahead.
        town.sites.iter().for_each(|site| site.change(|sky| sky.stalls_up = true));
        let failed = {
            let (guard, sites) = (&guard, &town.sites);
            let cut = async {
                world.sleep(5, 10).await;
                sites.iter().for_each(|site| site.cut(false));
                sites[0].step_clock(2_000_000);
            };
            tokio::join!(guard.extend(), cut).0
        };
        world.require(failed.is_err(), || format!("{failed:?}"));
        town.calm().await;
        let (left, passed) = (guard.validity(), world.now().since(extended));
        let enough = MAX_TTL - passed - Duration::from_millis(50);
        world.require(left >= enough, || format!("{left:?}, but two keep it for {enough:?}"));
        drop(guard);
    });
}
