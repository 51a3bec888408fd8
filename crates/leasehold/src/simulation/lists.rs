//! Who says how long a node waits, and which list it serves: clients with another `max_ttl`, `init` at
//! any time, and changes of the member list, also two at once.
//!
//! Each test was seen red: with another max_ttl accepted, with a record written beside a node of another
//! list or by what others said earlier, with `init` for any life, with a change that is not confirmed,
//! with a change after which nobody waits.

use std::sync::Arc;

use leasehold_core::RecordState;

use super::address::Address;
use super::clocks::{Crew, one_of, recover, some_nodes};
use super::court::Court;
use super::run::for_seeds;
use super::site::Site;
use super::timepieces::ClientClock;
use super::town::{Backend, MAX_TTL, Plan, TTL, Town};
use super::world::World;
use crate::Locks;

/// All records that stand on nodes say the longest Ttl of the cluster.
fn require_max_ttl(town: &Town) {
    for site in &town.sites {
        let said = site.record().map_or(MAX_TTL, |record| record.max_ttl);
        let name = &site.name;
        town.world.require(said == MAX_TTL, || format!("{name} has max_ttl {said:?}"));
    }
}

#[test]
fn a_client_with_another_max_ttl_is_refused_and_shortens_no_quarantine() {
    for_seeds(14, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let mut crew = Crew::new(&world, &town, &court);
        let last = crew.hire(Plan::default()).await;
        crew.hire(Plan::default()).await;
        let mut odd = Vec::new();
        while crew.goes_on(100, 4000).await {
            // At least one server remembers whose it is.
            let safe = world.below(town.sites.len() as u64) as usize;
            match world.below(4) {
                0 => one_of(&world, &town.sites).restart(false),
                1 => {
                    let others = town.sites.iter().enumerate().filter(|(at, _)| *at != safe);
                    if town.sites[safe].record().is_some() {
                        others.for_each(|(_, site)| site.restart(false));
                    }
                }
                _ if odd.len() < 3 => {
                    let clock = ClientClock::new(&world, &format!("odd{}", odd.len()));
                    let max_ttl = [TTL / 2, 2 * MAX_TTL][world.below(2) as usize];
                    let trusts_new_nodes = world.chance(50);
                    let plan = Plan { max_ttl, trusts_new_nodes, ..Plan::default() };
                    let locks = town.open_with(&clock, plan).await;
                    odd.push(tokio::spawn(try_in_vain(world.clone(), locks)));
                }
                _ => {}
            }
            require_max_ttl(&town);
        }
        odd.iter().for_each(|task| task.abort());
        require_max_ttl(&town);
        recover(&town, &court, &last).await;
    });
}

/// Wants the lock all the time and must never have it.
async fn try_in_vain(world: Arc<World>, locks: Locks) {
    loop {
        if let Ok(Some(guard)) = locks.lock("l").ttl(TTL / 2).try_acquire().await {
            world.violation(format_args!("{guard:?} was given to a client with another max_ttl"));
        }
        world.sleep(0, 200).await;
    }
}

#[test]
fn init_at_any_time_admits_no_server_that_was_a_member() {
    for_seeds(3, |world| async move {
        let town = Town::new(&world, Backend::Redis, some_nodes(&world));
        let court = Court::of(&town);
        let (_ear, _patrol) = (court.hear_ballots(), court.patrol());
        let mut crew = Crew::new(&world, &town, &court);
        let last = crew.hire(Plan::default()).await;
        crew.hire(Plan::default()).await;
        town.sites.iter().for_each(|site| site.save());
        while crew.goes_on(100, 3000).await {
            let one = one_of(&world, &town.sites);
            match world.below(8) {
                0 => one.restart(true),
                // One has a record as long as the run lasts: that the cluster is new would be a lie.
                1 => town.sites[1 + world.below(2) as usize].restart(false),
                2 => town.sites.iter().for_each(|site| site.restart(true)),
                3 => town.sites[1..].iter().for_each(|site| site.restart(false)),
                4 if crew.opened < 4 => _ = crew.hire(Plan::default()).await,
                _ => {
                    let said = last.init().await;
                    world.note(format_args!("init: {said:?}"));
                }
            }
        }
        recover(&town, &court, &last).await;
    });
}

/// Some lists of the servers of a town, by their numbers. The first is what there is.
const LISTS: [&[usize]; 6] =
    [&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 2, 3, 4], &[0, 1, 3], &[2, 3, 4], &[0, 1, 2, 4]];

struct List {
    locks: Locks,
    members: Vec<Arc<Site>>,
}

impl List {
    /// Whether all its servers serve it, or wait to.
    fn is_served(&self) -> bool {
        let policy = &self.locks.cluster().policy;
        let serves = |site: &Arc<Site>| match site.record() {
            Some(record) => policy.is_list_of(&record) && record.state != RecordState::Barred,
            // A new one that the list's clients will find.
            None => true,
        };
        self.members.iter().all(serves)
    }
}

async fn open_list(world: &Arc<World>, crew: &mut Crew<'_>, list: &[usize], is_new: bool) -> List {
    let town = crew.town;
    let members: Vec<_> = list.iter().map(|at| town.sites[*at].clone()).collect();
    let addresses: Vec<_> = members.iter().map(Address::of).collect();
    let max_ttl = if is_new && world.chance(20) { TTL } else { MAX_TTL };
    let plan = Plan { addresses: Some(&addresses), max_ttl, trusts_new_nodes: !is_new };
    List { locks: crew.hire(plan).await, members }
}

#[test]
fn of_two_changes_of_the_list_at_once_the_truth_is_told_and_no_two_hold() {
    for_seeds(4, |world| async move {
        let town = Town::new(&world, Backend::Redis, 5);
        let court = Court::of_quorums(&town, 2);
        let _patrol = court.patrol();
        let mut crew = Crew::new(&world, &town, &court);
        let old = open_list(&world, &mut crew, LISTS[0], false).await;
        open_list(&world, &mut crew, LISTS[0], false).await;
        crew.goes_on(0, 4000).await;
        let mut changes = Vec::new();
        for _ in 0..2 {
            let list = LISTS[1 + world.below(LISTS.len() as u64 - 1) as usize];
            changes.push(open_list(&world, &mut crew, list, true).await);
        }
        let (first, second) = (&changes[0], &changes[1]);
        let is_same = {
            let of = |list: &List| (list.locks.cluster().policy.cluster, list.locks.max_ttl());
            of(first) == of(second)
        };
        let second_later = world.millis(0, [0, 20, 200][world.below(3) as usize]);
        let (one, two) = tokio::join!(first.locks.succeed(&old.locks), async {
            tokio::time::sleep(second_later).await;
            second.locks.succeed(&old.locks).await
        });
        world.note(format_args!("changes: {one:?}, {two:?}"));
        world.require(is_same || one.is_err() || two.is_err(), || "both were told Ok".into());
        for (list, said) in changes.iter().zip([&one, &two]) {
            let is_true = said.is_err() || list.is_served();
            world.require(is_true, || "a change that did not take place was told Ok".into());
        }
        // Whoever was told that it failed may try again, and one of them gets it done.
        let winner = if two.is_ok() { second } else { first };
        for _ in 0..4 {
            crew.goes_on(500, 3000).await;
            let again = winner.locks.succeed(&old.locks).await;
            world.note(format_args!("again: {again:?}"));
            world.require(again.is_err() || winner.is_served(), || "an untrue Ok".into());
        }
        while crew.goes_on(1000, 1000).await {}
        town.calm().await;
    });
}
