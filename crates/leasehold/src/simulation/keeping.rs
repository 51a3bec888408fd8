//! Leases that are kept, and leases that cannot be.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Moment, Request};

use super::court::Court;
use super::run::for_seeds;
use super::town::{Backend, TTL, Town};
use super::world::World;
use crate::Guard;
use crate::clock::Clock as _;

/// Timers go off up to a millisecond late; the drift allowance has twice that to spare.
const TICK: Duration = Duration::from_millis(1);

#[test]
fn a_lease_is_kept_while_a_quorum_answers() {
    for_seeds(25, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 5);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let began = world.now();
        let guard = locks.lock("l").ttl(TTL).acquire().await.expect("free");
        let guard = court.admit(began, guard);
        for _ in 0..20 {
            // Never more than two at a time are away.
            let away = world.below(5) as usize;
            for index in [away, (away + 1) % 5] {
                town.sites[index].change(|sky| sky.stalls_up = true);
            }
            world.sleep(0, 3000).await;
            town.sites.iter().for_each(|site| site.change(|sky| sky.stalls_up = false));
            world.sleep(0, 300).await;
            let good = guard.ensure_valid(Duration::ZERO).is_ok();
            world.require(good, || format!("{guard:?} was lost although three nodes answered"));
        }
        drop(guard);
        town.calm().await;
        court.close();
    });
}

#[test]
fn a_lease_that_cannot_be_kept_is_lost_at_its_deadline_and_never_later() {
    for_seeds(40, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 3);
        let court = Court::of(&town);
        let (locks, rival) = (town.open("a").await, town.open("b").await);
        let began = world.now();
        let guard = locks.lock("l").ttl(TTL).acquire().await.expect("free");
        let guard = court.admit(began, guard);
        let lost = tokio::spawn(told(guard.clone(), world.clone()));
        world.sleep(0, 3000).await;
        for site in &town.sites[..2] {
            site.change(|sky| match world.below(3) {
                0 => sky.stalls_up = true,
                1 => sky.stalls_down = true,
                // Longer than the pause between two attempts: a late answer is to an earlier one.
                _ => (sky.down, sky.up) = ((300, 500), (51, 300)),
            });
        }
        let mut deadline = world.now().plus(guard.validity());
        while !guard.validity().is_zero() {
            deadline = world.now().plus(guard.validity());
            tokio::time::sleep(TICK).await;
        }
        let lost = lost.await.expect("no panic");
        let late = lost.since(deadline);
        world.require(late <= TICK, || format!("told {late:?} after the deadline"));
        world.require(lost >= deadline, || "told before the deadline".into());
        // Whatever comes back now, and whoever gets the lock next, this lease stays lost.
        town.calm().await;
        let began = world.now();
        let next = rival.lock("l").ttl(TTL).acquire().await.expect("free again");
        let next = court.admit(began, next);
        world.require(guard.extend().await.is_err(), || format!("{guard:?} came back"));
        drop((guard, next));
        town.calm().await;
        court.close();
    });
}

#[test]
fn a_lease_is_kept_by_answers_that_come_after_the_time_limit() {
    for_seeds(25, |world| async move {
        let backend = if world.chance(30) { Backend::Memory } else { Backend::Redis };
        let town = Town::new(&world, backend, 5);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let began = world.now();
        let guard = locks.lock("l").ttl(TTL).acquire().await.expect("free");
        let guard = court.admit(began, guard);
        // Above the limit of 50 ms, below that and the shortest pause between two attempts.
        town.sites
            .iter()
            .for_each(|site| site.change(|sky| (sky.up, sky.down) = ((20, 40), (40, 70))));
        for _ in 0..20 {
            world.sleep(500, 1000).await;
            let good = guard.ensure_valid(Duration::ZERO).is_ok();
            world.require(good, || format!("{guard:?} was lost although all nodes answered"));
        }
        drop(guard);
        town.calm().await;
        court.close();
    });
}

#[test]
fn after_a_pause_many_leases_are_not_extended_all_at_once() {
    const LEASES: usize = 2000;
    for_seeds(2, |world| async move {
        let town = Town::new(&world, Backend::Memory, 3);
        let locks = town.open("a").await;
        let mut guards = Vec::new();
        for number in 0..LEASES {
            let guard = locks.lock(format!("l{number}")).ttl(TTL).acquire().await;
            guards.push(guard.expect("free"));
        }
        world.sleep(3000, 3000).await;
        let before = world.now();
        // Less than an eighth of the time between two extensions. With the look behind it this is a sixth
        // of that time, so a sixth of the leases come due.
        world.skip(Duration::from_millis(80));
        world.sleep(20, 20).await;
        let is_extension = |request: &Request| matches!(request, Request::Extend { .. });
        let sent = town.sites[0].with_received(|all| {
            all.iter().filter(|one| one.at >= before && is_extension(&one.request)).count()
        });
        world.require(sent < LEASES / 8, || format!("{sent} extensions at once"));
        world.sleep(2000, 2000).await;
        let lost =
            guards.iter().filter(|guard| guard.ensure_valid(Duration::ZERO).is_err()).count();
        world.require(lost == 0, || format!("{lost} leases were lost"));
        drop(guards);
        town.calm().await;
    });
}

async fn told(guard: Arc<Guard>, world: Arc<World>) -> Moment {
    guard.lost().await;
    world.note("the holder is told of the loss");
    world.now()
}
