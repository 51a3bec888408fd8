//! What clocks may do to a lease that is held. A holder whose own clock missed a pause learns it at the
//! next reading of the nodes' clocks; and what NTP does every day costs nothing.
//!
//! The first two tests were seen red: with deadlines that do not follow jumps; with steps back taken for
//! steps ahead, and with extensions that count only where a new holder's vote would.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::clocks::{put_right, recover, some_nodes};
use super::court::{Court, READ_WITHIN};
use super::run::for_seeds;
use super::site::Site;
use super::timepieces::{ClientClock, KEPT_WITHIN_MICROS};
use super::town::{Backend, MAX_TTL, Plan, TTL, Town};
use super::world::World;
use crate::clock::Clock as _;
use crate::{Guard, Locks};

/// A way there and back, twice, and a timer.
const WAYS: Duration = Duration::from_millis(20);

/// Wants the lock all the time, and holds it for a moment.
fn rival(world: &Arc<World>, court: &Arc<Court>, locks: Locks) -> JoinHandle<()> {
    let (world, court) = (world.clone(), court.clone());
    tokio::spawn(async move {
        loop {
            let began = world.now();
            if let Ok(Some(guard)) = locks.lock("l").ttl(TTL).try_acquire().await {
                let _guard = court.admit(began, guard);
                world.sleep(0, 3000).await;
            }
            world.sleep(0, 50).await;
        }
    })
}

/// As long as the holder believes, enough nodes keep the lease that no others are a quorum.
fn require_kept(town: &Town, guard: &Guard, left: Duration) {
    let keeps = |site: &&Arc<Site>| site.keeps_for(guard.name(), guard.holder()) >= left;
    let (count, nodes) = (town.sites.iter().filter(keeps).count(), town.sites.len());
    let needed = nodes - (nodes / 2 + 1) + 1;
    town.world.require(count >= needed, || {
        format!("{guard:?} is good for {left:?}, and only {count} nodes keep it for that long")
    });
}

#[test]
fn a_holder_whose_clock_missed_a_pause_is_told_at_the_next_reading() {
    for_seeds(10, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let clock = ClientClock::new(&world, "paused");
        court.knows(&clock);
        let holder = town.open_with(&clock, Plan::default()).await;
        let rival = rival_of(&world, &town, &court).await;
        for _ in 0..3 {
            let (began, is_kept) = (world.now(), world.chance(50));
            let ttl = [TTL, MAX_TTL][world.below(2) as usize];
            let request = holder.lock("l").ttl(ttl).wait(Duration::from_secs(20));
            let request = if is_kept { request } else { request.manual() };
            let Ok(guard) = request.acquire().await else { continue };
            let guard = court.admit(began, guard);
            world.sleep(0, ttl.as_millis() as u64 / 2).await;
            let left = guard.validity();
            let pause = world.millis(5, 2 * ttl.as_millis() as u64);
            clock.miss(pause);
            let lost = tokio::time::timeout(READ_WITHIN + WAYS, guard.lost()).await;
            let believed = guard.ensure_valid(Duration::ZERO);
            if pause >= left && !is_kept {
                world.require(lost.is_ok(), || format!("{guard:?}: not told of {pause:?}"));
            }
            // One that is extended in time may find its nodes free, and nobody had it meanwhile.
            if let Ok(left) = believed {
                require_kept(&town, &guard, left);
            }
            world.require(believed.is_err() == lost.is_ok(), || {
                format!("{guard:?}: {believed:?}, and told: {}", lost.is_ok())
            });
            // Until it is told, its extensions come as late as its clock thinks.
            let is_short = pause + READ_WITHIN + WAYS + ttl / 3 < left;
            world.require(lost.is_err() || !(is_kept && is_short), || {
                format!("{guard:?} was lost by {pause:?}, with {left:?} left")
            });
            drop(guard);
        }
        rival.abort();
        recover(&town, &court, &holder).await;
    });
}

async fn rival_of(world: &Arc<World>, town: &Town, court: &Arc<Court>) -> JoinHandle<()> {
    rival(world, court, town.open("rival").await)
}

/// A lease that is kept, and what is asked of it.
async fn hold(world: &Arc<World>, court: &Court, locks: &Locks, ttl: Duration) -> Arc<Guard> {
    let began = world.now();
    court.admit(began, locks.lock("l").ttl(ttl).acquire().await.expect("free"))
}

#[test]
fn steps_back_small_steps_and_slews_cost_no_lease_that_is_kept() {
    for_seeds(10, |world| async move {
        let nodes = [1, 3, 5][world.below(3) as usize];
        let town = Town::new(&world, Backend::Redis, nodes);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let other = town.open("b").await;
        let guard = hold(&world, &court, &locks, TTL).await;
        for _ in 0..30 {
            world.sleep(300, 1200).await;
            let several = 1 + world.below(nodes as u64) as usize;
            // By up to twice the drift allowance of the lease, so also by more than it.
            let small = world.below(44_000) as i64;
            let back = -[small, 150_000, 3_000_000, 600_000_000][world.below(4) as usize];
            for site in town.sites.iter().cycle().skip(world.below(5) as usize).take(several) {
                match world.below(3) {
                    0 => site.step_clock(back),
                    1 => site.step_clock(small),
                    _ => site.clock.slew(world.below(9_000) as i64 - 4_500),
                }
            }
            let good = guard.ensure_valid(Duration::ZERO).is_ok();
            world.require(good, || format!("{guard:?} was lost"));
            tokio::time::sleep(READ_WITHIN).await;
            require_kept(&town, &guard, guard.validity());
            // The only node has nobody to wait for.
            if nodes == 1 {
                let free = other.lock("m").ttl(TTL).try_acquire().await;
                world.require(matches!(free, Ok(Some(_))), || format!("of a free lock: {free:?}"));
            }
        }
        town.sites.iter().for_each(|site| put_right(&world, site));
        town.sites.iter().for_each(|site| site.clock.slew(0));
        drop(guard);
        recover(&town, &court, &other).await;
    });
}

/// NTP keeps a clock for a while: it slews it, and may set it now and then.
fn keep(world: &World, site: &Site, sets: bool) {
    if sets && world.chance(20) {
        put_right(world, site);
    }
    let ahead = site.clock.ahead_micros();
    let ppm = world.below(500) as i64;
    let is_far = ahead.abs() > KEPT_WITHIN_MICROS / 2;
    let back = if is_far { ahead > 0 } else { world.chance(50) };
    site.clock.slew(if back { -ppm } else { ppm });
}

/// Ninety-six seeds are a day. Seen red with a watch that allows for no drift, and with every jump ahead
/// taking a vote for new leases, whatever drift they allow for.
#[test]
fn a_quarter_of_an_hour_of_ntp_costs_no_lease_and_no_acquire() {
    const LASTS: Duration = Duration::from_secs(900);
    /// Few extensions are needed, so many hours can be tried.
    const LONG_TTL: Duration = Duration::from_secs(60);
    for_seeds(1, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let clock = ClientClock::new(&world, "a");
        let max_ttl = 5 * LONG_TTL;
        let locks = town.open_with(&clock, Plan { max_ttl, ..Plan::default() }).await;
        let guard = hold(&world, &court, &locks, LONG_TTL).await;
        let began = world.now();
        while world.now().since(began) < LASTS {
            // Not longer: 500 millionths of 40 s are 20 ms.
            world.sleep(10_000, 40_000).await;
            // First it only slews, which no clock shows as a jump: a short lease, which allows for
            // 22 ms, can be had as well. Then it sets clocks, by what a long one allows for.
            let sets = world.now().since(began) > LASTS / 2;
            town.sites.iter().for_each(|site| keep(&world, site, sets));
            let ttl = if sets { LONG_TTL } else { TTL };
            let free = locks.lock("m").ttl(ttl).try_acquire().await;
            world.require(matches!(free, Ok(Some(_))), || format!("of a free lock: {free:?}"));
            let good = guard.ensure_valid(Duration::ZERO).is_ok();
            world.require(good, || format!("{guard:?} was lost"));
        }
        drop(guard);
    });
}
