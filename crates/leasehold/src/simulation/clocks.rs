//! Clocks that are wrong from the start, that step while a server sits out its quarantine, and that
//! are put right later; clients that come too late to have seen it. The court judges in true time.
//!
//! Each test was seen red: with clocks not compared and floors that rest on the node's own clock, with
//! a quarantine timed by the node's own clock, with jumps not noticed, with votes that count at once
//! after a jump, with deadlines that do not follow it, with quarantines that end while the clock that knows
//! better is not heard, and with clocks that are believed against what a client saw.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::RecordState;
use tokio::task::JoinSet;

use super::court::Court;
use super::reconnect::end;
use super::run::for_seeds;
use super::site::{Dialing, Site, Sky};
use super::timepieces::{ClientClock, KEPT_WITHIN_MICROS};
use super::town::{Backend, MAX_TTL, Plan, TTL, Town};
use super::world::World;
use crate::Locks;
use crate::clock::Clock as _;

const SECOND: i64 = 1_000_000;
const YEAR: i64 = 365 * 86_400 * SECOND;
/// How often the clients want the lock.
const ROUNDS: usize = 4;

/// The clients of one run, and those that come later.
pub(super) struct Crew<'a> {
    pub(super) world: &'a Arc<World>,
    pub(super) town: &'a Town,
    pub(super) court: &'a Arc<Court>,
    tasks: JoinSet<()>,
    pub(super) opened: usize,
}

impl<'a> Crew<'a> {
    pub(super) fn new(world: &'a Arc<World>, town: &'a Town, court: &'a Arc<Court>) -> Self {
        Self { world, town, court, tasks: JoinSet::new(), opened: 0 }
    }

    /// One more client begins to work.
    pub(super) async fn hire(&mut self, plan: Plan<'_>) -> Locks {
        self.opened += 1;
        let clock = ClientClock::new(self.world, &format!("c{}", self.opened));
        let locks = self.town.open_with(&clock, plan).await;
        self.tasks.spawn(work(self.world.clone(), self.court.clone(), locks.clone()));
        locks
    }

    /// Waits for so many milliseconds; says whether somebody still works then.
    pub(super) async fn goes_on(&mut self, from: u64, to: u64) -> bool {
        let pause = self.world.sleep(from, to);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                biased;
                ended = self.tasks.join_next() => match ended {
                    Some(ended) => ended.expect("no panic"),
                    None => return false,
                },
                () = &mut pause => return true,
            }
        }
    }
}

/// What a client does for a while: acquire, hold, also for longer than the lease, and give back.
async fn work(world: Arc<World>, court: Arc<Court>, locks: Locks) {
    for _ in 0..ROUNDS {
        let began = world.now();
        let ttl = [TTL / 2, TTL, MAX_TTL][world.below(3) as usize];
        let request = locks.lock("l").ttl(ttl).wait(Duration::from_secs(3));
        let request = if world.chance(50) { request.manual() } else { request };
        let acquire = tokio::time::timeout(world.millis(1, 6000), request.acquire());
        if let Ok(Ok(guard)) = acquire.await {
            let guard = court.admit(began, guard);
            world.sleep(0, ttl.as_millis() as u64 * 5 / 4).await;
            if world.chance(30) {
                let _ = guard.extend().await;
                world.sleep(0, ttl.as_millis() as u64).await;
            }
            drop(guard);
        }
        world.sleep(0, 300).await;
    }
}

/// All clocks are right and all servers are there: when the last quarantine is over somebody can
/// acquire again, with a fence above all others.
pub(super) async fn recover(town: &Town, court: &Arc<Court>, locks: &Locks) {
    let world = &town.world;
    town.sites.iter().for_each(|site| put_right(world, site));
    town.calm().await;
    tokio::time::sleep(2 * Town::quarantine()).await;
    let began = world.now();
    match locks.lock("l").ttl(TTL).wait(Town::quarantine()).acquire().await {
        Ok(guard) => drop(court.admit(began, guard)),
        Err(error) => world.violation(format_args!("nothing is acquired in the end: {error}")),
    }
    end(town, court).await;
}

/// NTP sets a clock.
pub(super) fn put_right(world: &World, site: &Site) {
    let kept_within = KEPT_WITHIN_MICROS as u64;
    site.set_clock(world.below(2 * kept_within) as i64 - kept_within as i64);
}

/// A way in which a clock can be wrong that everybody can see.
fn wrong(world: &World) -> i64 {
    let far = [3 * SECOND, 10 * SECOND, 600 * SECOND, YEAR][world.below(4) as usize];
    if world.chance(50) { far } else { -far }
}

/// A step, from milliseconds to a year.
fn step(world: &World) -> i64 {
    let sizes = [3_000, 20_000, 60_000, 95_000, 150_000, SECOND, 3 * SECOND, 6 * SECOND];
    let micros = match world.below(10) {
        8 => 600 * SECOND,
        9 => YEAR,
        size => sizes[size as usize],
    };
    if world.chance(50) { micros } else { -micros }
}

pub(super) fn one_of<'a, T>(world: &World, things: &'a [T]) -> &'a T {
    &things[world.below(things.len() as u64) as usize]
}

/// Three nodes or five.
pub(super) fn some_nodes(world: &World) -> usize {
    3 + 2 * world.below(2) as usize
}

#[test]
fn clocks_that_are_wrong_from_the_start_repeat_no_fence() {
    for_seeds(13, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        // A minority, and the same servers as long as the run lasts.
        let first = world.below(town.sites.len() as u64) as usize;
        let count = 1 + world.below(town.sites.len() as u64 / 2) as usize;
        let is_bad = |index: &usize| (index + town.sites.len() - first) % town.sites.len() < count;
        let bad: Vec<_> = (0..town.sites.len()).filter(is_bad).collect();
        bad.iter().for_each(|index| town.sites[*index].set_clock(wrong(&world)));
        let plan = Plan { trusts_new_nodes: false, ..Plan::default() };
        let mut crew = Crew::new(&world, &town, &court);
        let last = crew.hire(plan).await;
        crew.hire(plan).await;
        while crew.goes_on(500, 6000).await {
            let one = one_of(&world, &town.sites);
            match world.below(6) {
                0 | 1 => put_right(&world, &town.sites[*one_of(&world, &bad)]),
                2 => town.sites[*one_of(&world, &bad)].set_clock(wrong(&world)),
                3 => one.restart(false),
                4 => {
                    let good = (0..town.sites.len()).filter(|index| !is_bad(index));
                    good.for_each(|index| town.sites[index].restart(false));
                }
                _ if crew.opened < 4 => _ = crew.hire(plan).await,
                _ => {}
            }
        }
        recover(&town, &court, &last).await;
    });
}

/// Whether every server but `one` is an admitted member, so that the fences of `one` are remembered.
fn others_remember(town: &Town, one: &Arc<Site>) -> bool {
    let is_admitted = |site: &Arc<Site>| {
        site.record().is_some_and(|record| record.state == RecordState::Admitted)
    };
    town.sites.iter().filter(|site| !Arc::ptr_eq(site, one)).all(is_admitted)
}

#[test]
fn steps_of_any_clock_at_any_time_end_no_quarantine_and_no_lease_that_is_believed() {
    for_seeds(9, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let mut crew = Crew::new(&world, &town, &court);
        let last = crew.hire(Plan::default()).await;
        crew.hire(Plan::default()).await;
        while crew.goes_on(50, 2500).await {
            let one = one_of(&world, &town.sites);
            let by = step(&world);
            match world.below(8) {
                0 | 1 => one.step_clock(by),
                2 => town.sites.iter().for_each(|site| site.step_clock(by)),
                3 => town.sites.iter().skip(1).for_each(|site| site.step_clock(by)),
                4 | 5 if others_remember(&town, one) => one.restart(false),
                6 => town.sites.iter().for_each(|site| put_right(&world, site)),
                _ if crew.opened < 5 => {
                    let trusts_new_nodes = world.chance(50);
                    crew.hire(Plan { trusts_new_nodes, ..Plan::default() }).await;
                }
                _ => {}
            }
        }
        recover(&town, &court, &last).await;
    });
}

#[test]
fn servers_that_restart_with_clocks_behind_wait_in_full_when_the_clocks_are_put_right() {
    for_seeds(4, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let mut crew = Crew::new(&world, &town, &court);
        let last = crew.hire(Plan::default()).await;
        crew.hire(Plan::default()).await;
        while crew.goes_on(500, 8000).await {
            // A majority, or all but one of a majority.
            let behind = wrong(&world).min(0) - SECOND;
            for site in &town.sites[world.below(2) as usize..2] {
                site.restart(false);
                site.set_clock(behind);
                let (world, site) = (world.clone(), site.clone());
                let until_right = Town::quarantine() - Duration::from_millis(100);
                let until_right = world.millis(0, until_right.as_millis() as u64);
                tokio::spawn(async move {
                    tokio::time::sleep(until_right).await;
                    put_right(&world, &site);
                });
            }
            if crew.opened < 5 && world.chance(50) {
                world.sleep(0, 5000).await;
                crew.hire(Plan { trusts_new_nodes: false, ..Plan::default() }).await;
            }
        }
        recover(&town, &court, &last).await;
    });
}

#[test]
fn a_client_that_starts_after_a_jump_takes_nothing_from_a_holder() {
    for_seeds(8, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let (early, began) = (town.open("early").await, world.now());
        let request = early.lock("l").ttl(MAX_TTL);
        let request = if world.chance(50) { request.manual() } else { request };
        let guard = court.admit(began, request.acquire().await.expect("free"));
        world.sleep(0, 2000).await;
        let jumping = 1 + world.below(town.sites.len() as u64) as usize;
        let by = step(&world);
        town.sites[..jumping].iter().for_each(|site| site.step_clock(by));
        world.sleep(0, 1500).await;
        let late = town.open("late").await;
        for _ in 0..40 {
            let began = world.now();
            if let Ok(Some(guard)) = late.lock("l").ttl(TTL).try_acquire().await {
                let _guard = court.admit(began, guard);
                world.sleep(0, 1500).await;
            }
            world.sleep(0, 100).await;
        }
        drop(guard);
        recover(&town, &court, &late).await;
    });
}

#[test]
fn a_jump_that_is_noticed_while_votes_come_in_delays_them() {
    const AHEAD: Duration = Duration::from_millis(90);
    for_seeds(3, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let other = locks.lock("m").ttl(MAX_TTL).manual().acquire().await.expect("free");
        // Only the first two vote, and the second says so later.
        town.sites[1].change(|sky| sky.down = (30, 35));
        town.sites[2].change(|sky| sky.stalls_down = true);
        town.sites[0].step_clock(AHEAD.as_micros() as i64);
        let began = world.now();
        let reads = async {
            world.sleep(1, 3).await;
            let _ = other.extend().await;
        };
        let (acquired, ()) = tokio::join!(locks.lock("l").ttl(MAX_TTL).try_acquire(), reads);
        let took = world.now().since(began);
        let guard = acquired.expect("two are enough").expect("free");
        world.require(took >= AHEAD, || format!("it took {took:?}, though {AHEAD:?} were known"));
        drop(court.admit(began, guard));
        drop(other);
    });
}

/// No connection to it stands, and none is made.
fn cut_off(site: &Site) {
    site.change(|sky| sky.dialing = Dialing::Refuses);
    site.cut(false);
}

/// The step is above what the first lease allows for drift and below what the second does, so the second
/// holder is granted it while the first may believe in its lease.
#[test]
fn a_vote_after_a_small_step_counts_when_what_ended_early_is_over() {
    for_seeds(16, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        // Each reads the clocks once a second, from when it was opened.
        let first = town.open("first").await;
        world.sleep(0, 1000).await;
        let second = town.open("second").await;
        world.sleep(0, 1000).await;
        // Of those that granted the first lease all must step; one may not have heard of it.
        let deaf = one_of(&world, &town.sites);
        let is_deaf = world.chance(50);
        if is_deaf {
            cut_off(deaf);
        }
        let began = world.now();
        let guard =
            first.lock("l").ttl(TTL / 2).manual().acquire().await.expect("a quorum is free");
        let guard = court.admit(began, guard);
        deaf.change(|sky| *sky = Sky::fair());
        tokio::time::sleep(guard.validity().saturating_sub(world.millis(0, 1000))).await;
        for site in town.sites.iter().filter(|site| !is_deaf || !Arc::ptr_eq(site, deaf)) {
            site.step_clock(25_000 + world.below(10_000) as i64);
        }
        let end = world.now().plus(guard.validity() + Duration::from_millis(100));
        while world.now() < end {
            let began = world.now();
            if let Ok(Some(guard)) = second.lock("l").ttl(MAX_TTL).try_acquire().await {
                court.admit(began, guard);
            }
            world.sleep(0, 3).await;
        }
        drop(guard);
        recover(&town, &court, &second).await;
    });
}

/// Two servers restart with the same wrong clock and are put right together. Only the third can tell how
/// long they have waited, and a client that starts then does not hear from it, or not soon.
#[test]
fn a_client_that_does_not_hear_the_right_clock_ends_no_quarantine() {
    for_seeds(6, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let early = town.open("early").await;
        let guard = early.lock("l").ttl(MAX_TTL).acquire().await.expect("free");
        let behind = -[10 * SECOND, 600 * SECOND, YEAR][world.below(3) as usize];
        let (bad, right) = (&town.sites[..2], &town.sites[2]);
        for site in bad {
            site.restart(false);
            site.set_clock(behind);
        }
        world.sleep(1500, 2500).await;
        match world.below(2) {
            0 => cut_off(right),
            _ => {
                right.change(|sky| sky.stalls_up = true);
                right.cut(false);
            }
        }
        bad.iter().for_each(|site| site.set_clock(0));
        let clock = ClientClock::new(&world, "late");
        let plan = Plan { trusts_new_nodes: false, ..Plan::default() };
        let late = town.open_with(&clock, plan).await;
        for _ in 0..20 {
            let began = world.now();
            if let Ok(Some(guard)) = late.lock("m").ttl(TTL).try_acquire().await {
                court.admit(began, guard);
            }
            world.sleep(0, 100).await;
        }
        drop(guard);
        recover(&town, &court, &late).await;
    });
}

/// A client that never saw the server wait has nothing but clocks to go by; one that did knows better.
#[test]
fn a_client_that_saw_a_server_wait_is_told_by_no_clocks_that_it_was_for_longer() {
    for_seeds(4, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let locks = town.open("a").await;
        let one = one_of(&world, &town.sites);
        one.restart(false);
        let until = world.now().plus(Town::quarantine());
        world.sleep(1500, 2500).await;
        let by = [5 * SECOND, 600 * SECOND, YEAR][world.below(3) as usize];
        town.sites.iter().for_each(|site| site.step_clock(by));
        while world.now() < until {
            let is_admitted =
                one.record().is_some_and(|record| record.state == RecordState::Admitted);
            world.require(!is_admitted, || format!("{} was admitted", one.name));
            world.sleep(10, 100).await;
        }
        recover(&town, &court, &locks).await;
    });
}
